//! The other end of a conversation with a server, with as little work of its own as there can be: requests are bytes that were made before,
//! and of an answer no more is looked at than its status and its length.
//!
//! Does not: understand answers that say no length. A server that gives such an answer ends the measurement.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::Arc,
};

use palyra_identity::SERVER_NAME;
use rustls::{ClientConfig, ClientConnection, StreamOwned, pki_types::ServerName};

/// A connection on which requests are sent and answers read, by a thread that waits for them.
pub struct Wire<S> {
    stream: S,
    /// What was read, and is not looked at yet from `at` on.
    read: Vec<u8>,
    at: usize,
}

/// An answer, as far as anybody looks at it.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer<'a> {
    /// Its status.
    pub status: u16,
    /// Its body.
    pub body: &'a [u8],
}

impl Wire<TcpStream> {
    /// Connects plainly.
    #[must_use]
    pub fn plain(to: SocketAddr) -> Self {
        let stream = TcpStream::connect(to).expect("a connection");
        stream.set_nodelay(true).expect("a socket");
        Self::over(stream)
    }
}

impl Wire<StreamOwned<ClientConnection, TcpStream>> {
    /// Connects by TLS. Hands are shaken with the first request.
    #[must_use]
    pub fn tls(to: SocketAddr, config: &Arc<ClientConfig>) -> Self {
        let name = ServerName::try_from(SERVER_NAME).expect("a name");
        let connection = ClientConnection::new(Arc::clone(config), name).expect("a connection");
        Self::over(StreamOwned::new(connection, Wire::plain(to).stream))
    }
}

impl<S: Read + Write> Wire<S> {
    const fn over(stream: S) -> Self {
        Self { stream, read: Vec::new(), at: 0 }
    }

    /// Sends requests, one behind the other.
    pub fn send(&mut self, requests: &[u8]) {
        self.stream.write_all(requests).expect("the server takes it");
    }

    /// Waits for the next answer, all of it.
    pub fn answer(&mut self) -> Answer<'_> {
        let Whole { status, body, end } = loop {
            match whole(self.read.get(self.at..).unwrap_or_default()) {
                Some(whole) => break whole,
                None => self.more(),
            }
        };
        let start = self.at;
        self.at += end;
        Answer { status, body: self.read.get(start + body..start + end).unwrap_or_default() }
    }

    /// Sends a request and waits for its answer.
    pub fn ask(&mut self, request: &[u8]) -> Answer<'_> {
        self.send(request);
        self.answer()
    }

    /// Reads more, and forgets what was looked at.
    fn more(&mut self) {
        self.read.drain(..self.at);
        self.at = 0;
        let had = self.read.len();
        self.read.resize(had + PIECE, 0);
        let count = self.stream.read(self.read.get_mut(had..).unwrap_or_default()).expect("the server answers");
        assert!(count > 0, "the server hung up");
        self.read.truncate(had + count);
    }
}

/// A request for who the caller is.
#[must_use]
pub fn identity_request(host: SocketAddr, bearer: Option<&str>) -> Vec<u8> {
    let bearer = bearer.map(|text| format!("authorization: Bearer {text}\r\n")).unwrap_or_default();
    format!("GET /api/v1/identity HTTP/1.1\r\nhost: {host}\r\n{bearer}\r\n").into_bytes()
}

/// An answer that is all there.
struct Whole {
    status: u16,
    /// Where its body begins.
    body: usize,
    /// Where the next answer begins.
    end: usize,
}

/// The answer that stands at the beginning, once it is all there.
fn whole(bytes: &[u8]) -> Option<Whole> {
    let head = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let text = std::str::from_utf8(bytes.get(..head)?).expect("a head is text");
    let mut lines = text.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|status| status.parse().ok());
    let mut fields = lines.filter_map(|line| line.split_once(':'));
    let length = fields.find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let length: Option<usize> = length.and_then(|(_, length)| length.trim().parse().ok());
    let body = head + 4;
    let end = body + length.expect("a length");
    (end <= bytes.len()).then_some(Whole { status: status.expect("a status"), body, end })
}

/// How much is read at once.
const PIECE: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    /// Gives away a text in pieces of one size.
    struct Pieces(&'static [u8], usize);

    impl Read for Pieces {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let count = self.0.len().min(self.1);
            let (now, later) = self.0.split_at(count);
            into[..count].copy_from_slice(now);
            self.0 = later;
            Ok(count)
        }
    }

    impl Write for Pieces {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn answers_are_told_apart_however_they_arrive() {
        let said = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 5\r\nx: y\r\n\r\nfirstHTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length:3\r\n\r\n\r\n\r";
        for piece in [1, 2, 7, 60, said.len()] {
            let mut wire = Wire::over(Pieces(said, piece));
            assert_eq!(wire.ask(b"?"), Answer { status: 401, body: b"first" }, "{piece}");
            assert_eq!(wire.answer(), Answer { status: 204, body: b"" }, "{piece}");
            assert_eq!(wire.answer(), Answer { status: 200, body: b"\r\n\r" }, "{piece}");
        }
    }

    #[test]
    #[should_panic(expected = "the server hung up")]
    fn an_answer_that_breaks_off_is_none() {
        Wire::over(Pieces(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nab", 10)).answer();
    }
}
