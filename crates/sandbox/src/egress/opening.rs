//! The first words of a client: read, judged, and answered when they are refused.
//!
//! Guarantees: nothing is passed on before it was judged, and then everything as it came; a client that is slow,
//! endless or gone ends the wait. Does not: look further than its rule demands.

use std::{io, time::Duration};

use palyra_types::host::HostName;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use super::{
    door::Admitted,
    hello::{self, Reading},
    ledger::Stop,
    lobby::Seat,
    refusal::{EgressRefusal, EgressRefusalKind as Kind, shown_bytes},
    request,
    rules::Opening,
    run::EgressLimits,
};

/// A client's socket and what was read from it.
pub(crate) struct Client {
    pub stream: TcpStream,
    pub early: Vec<u8>,
    /// How much of that is a hello that was judged.
    pub judged: usize,
}

impl Client {
    pub(crate) const fn new(stream: TcpStream, early: Vec<u8>) -> Self {
        Self { stream, early, judged: 0 }
    }

    /// Waits for the first words of an admitted client and judges them.
    pub(crate) async fn open(
        &mut self,
        demand: Opening,
        to: &Admitted,
        limits: &EgressLimits,
        seat: &Seat,
    ) -> Result<(), Stop> {
        if demand == Opening::Anything {
            return Ok(());
        }
        seat.sit(true);
        let unread = if demand == Opening::Tls { Kind::BrokenHello } else { Kind::BadRequest };
        let read = self.read(limits, unread, |early| match demand {
            Opening::Tls => judge_hello(early, to.host()),
            Opening::PlainHttp => request::judge(early, to.host(), to.port()).map(|judged| judged.map(|()| 0)),
            Opening::Anything => Some(Ok(0)),
        });
        let opened = tokio::select! {
            opened = read => opened,
            () = seat.pushed_out() => Err(too_slow()),
        };
        seat.rise();
        opened
    }

    /// Waits for the hello that a host has asked for after the first one, and judges it like that.
    pub(crate) async fn hello_again(&mut self, host: &HostName, limits: &EgressLimits) -> Result<(), Stop> {
        self.read(limits, Kind::BrokenHello, |early| match hello::next_message(early) {
            Ok(None) => None,
            Ok(Some(at)) => {
                let judged = judge_hello(early.get(at..).unwrap_or_default(), host)?;
                Some(judged.map(|length| at + length))
            }
            Err(why) => Some(Err(unreadable(why))),
        })
        .await
    }

    /// A client has nothing more to say in the clear before its hello was answered.
    pub(crate) fn waits_for_an_answer(&self) -> Result<(), EgressRefusal> {
        match hello::next_message(&self.early) {
            Ok(None) => Ok(()),
            Ok(Some(_)) => Err(unreadable("another message follows it before it is answered")),
            Err(why) => Err(unreadable(why)),
        }
    }

    /// Reads until there is a judgement: of how many bytes, or a refusal. What has no end is refused as unread.
    async fn read(
        &mut self,
        limits: &EgressLimits,
        unread: Kind,
        judge: impl Fn(&[u8]) -> Option<Result<usize, EgressRefusal>>,
    ) -> Result<(), Stop> {
        timeout(limits.handshake, self.read_pieces(limits.header_bytes, unread, judge))
            .await
            .unwrap_or_else(|_| Err(too_slow()))
    }

    async fn read_pieces(
        &mut self,
        most: usize,
        unread: Kind,
        judge: impl Fn(&[u8]) -> Option<Result<usize, EgressRefusal>>,
    ) -> Result<(), Stop> {
        // SECURITY: what has come is judged again from its beginning whenever there is more of it, so the pieces are
        // counted as well as the bytes: a client that sends single bytes costs no more than one that does not.
        for _ in 0..MOST_PIECES {
            if let Some(judged) = judge(&self.early) {
                self.judged = judged.map_err(Stop::Refused)?;
                return Ok(());
            }
            if self.early.len() >= most {
                let detail = format!("the client's first words are longer than {most} bytes");
                return Err(EgressRefusal::new(unread, detail).into());
            }
            match self.read_more(most).await {
                Ok(0) | Err(_) => return Err(Stop::Left),
                Ok(_) => {}
            }
        }
        Err(EgressRefusal::new(unread, "the client's first words come in too many pieces").into())
    }

    /// Reads while something else is waited for. Ends only when the client has gone without a word.
    pub(crate) async fn gone(&mut self, most: usize) {
        while self.early.len() < most {
            match self.read_more(most).await {
                Ok(0) if self.early.is_empty() => return,
                // It may have said all that it has to say.
                Ok(0) => break,
                Ok(_) => {}
                Err(_) => return,
            }
        }
        std::future::pending().await
    }

    pub(crate) async fn read_more(&mut self, most: usize) -> io::Result<usize> {
        let room = u64::try_from(most.saturating_sub(self.early.len())).unwrap_or(u64::MAX);
        (&mut self.stream).take(room).read_buf(&mut self.early).await
    }

    /// Says goodbye in the words of the client's own protocol as far as it has shown which that is, and closes.
    pub(crate) async fn reject(mut self, refusal: &EgressRefusal) {
        // One that has said hello waits for an answer to that.
        if self.early.is_empty() && self.judged == 0 {
            let _ = timeout(MOMENT, self.read_more(1 << 10)).await;
        }
        let words = match self.early.first() {
            _ if self.judged > 0 => ACCESS_DENIED.to_vec(),
            Some(22) => ACCESS_DENIED.to_vec(),
            Some(first) if first.is_ascii_uppercase() => forbidden(refusal).into_bytes(),
            _ => return reset(&self.stream),
        };
        goodbye(self.stream, &words).await;
    }
}

/// Sends last words and closes, all within a moment.
pub(crate) async fn goodbye(mut stream: TcpStream, words: &[u8]) {
    let said = async {
        stream.write_all(words).await?;
        stream.shutdown().await?;
        // Whatever is unread when a socket is closed turns the goodbye into a reset.
        tokio::io::copy(&mut stream.take(1 << 16), &mut tokio::io::sink()).await
    };
    let _ = timeout(MOMENT, said).await;
}

/// Closes a socket so that its peer learns that something went wrong.
pub(crate) fn reset(stream: &TcpStream) {
    // The socket is closed in any case.
    let _ = stream.set_zero_linger();
}

/// What a refusal says to a person who looks at a failed request.
pub(crate) fn sentence(refusal: &EgressRefusal) -> String {
    format!("Palyra refused this connection: {}. To change that: {}.\n", refusal.detail, refusal.advice())
}

fn forbidden(refusal: &EgressRefusal) -> String {
    let (body, kind) = (sentence(refusal), refusal.kind);
    let length = body.len();
    format!(
        "HTTP/1.1 403 Forbidden\r\ncontent-type: text/plain; charset=utf-8\r\nx-palyra-refused: {kind}\r\n\
         content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
}

fn too_slow() -> Stop {
    EgressRefusal::new(Kind::TooSlow, "the client did not say in time what it wants").into()
}

fn unreadable(why: &str) -> EgressRefusal {
    EgressRefusal::new(Kind::BrokenHello, format!("the TLS hello cannot be read: {why}"))
}

/// Judges a hello; once it may pass, tells its length.
fn judge_hello(bytes: &[u8], host: &HostName) -> Option<Result<usize, EgressRefusal>> {
    let refused = |kind, detail: String| Some(Err(EgressRefusal::new(kind, detail)));
    let hello = match hello::read(bytes) {
        Reading::More => return None,
        Reading::NotTls => return refused(Kind::NoTls, format!("the connection to `{host}` does not begin as TLS")),
        Reading::Broken(why) => return Some(Err(unreadable(why))),
        Reading::Hello(hello) => hello,
    };
    if hello.is_encrypted {
        return refused(Kind::EncryptedHello, format!("the TLS hello to `{host}` has an encrypted part"));
    }
    let Some(name) = hello.server_name else {
        return refused(Kind::NoServerName, format!("the TLS hello to `{host}` names no server"));
    };
    let named = std::str::from_utf8(&name).ok().and_then(|text| HostName::parse(text).ok());
    if named.as_ref() != Some(host) {
        let detail = format!("the TLS hello names `{}` on a connection to `{host}`", shown_bytes(&name));
        return refused(Kind::WrongServerName, detail);
    }
    Some(Ok(hello.length))
}

/// The fatal alert of TLS for a valid hello from somebody who may not have what it asks for.
const ACCESS_DENIED: [u8; 7] = [21, 3, 3, 0, 2, 2, 49];

/// How long a goodbye may take.
const MOMENT: Duration = Duration::from_millis(500);

/// In how many pieces the first words may come.
pub(crate) const MOST_PIECES: usize = 2048;
