//! Carries bytes both ways between a client and a host.
//!
//! Guarantees: bytes arrive as they were sent, in order; an end in one direction is passed on and leaves the other
//! open; bytes are counted as they pass, so the counts hold whenever the relay is cut off; a connection on which
//! nothing passes ends, and one that carries little takes little memory.
//! Does not: look at the bytes, beyond the hellos that its rule demands.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use palyra_types::host::HostName;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf},
    net::TcpStream,
};

use super::{
    greeting::greet,
    ledger::{Stop, Traffic},
    opening::{Client, reset},
    run::EgressLimits,
};

/// Carries bytes until both sides have ended. What the client said before goes first; where it has to greet a host by
/// its name, nothing goes past its hellos.
pub(crate) async fn relay(
    client: &mut Client,
    host: &mut Counted,
    greets: Option<&HostName>,
    limits: &EgressLimits,
) -> Result<(), Stop> {
    client.stream.set_nodelay(true)?;
    let traffic = Arc::clone(&host.traffic);
    let carry = async {
        if let Some(name) = greets {
            greet(client, host, name, limits).await?;
        }
        host.write_all(&std::mem::take(&mut client.early)).await?;
        let (from_client, to_client) = client.stream.split();
        let (from_host, to_host) = tokio::io::split(host);
        tokio::try_join!(carry_one_way(from_client, to_host), carry_one_way(from_host, to_client))?;
        Ok(())
    };
    tokio::select! {
        carried = carry => carried,
        () = traffic.idle(limits.idle) => Err(Stop::Left),
    }
}

/// Carries bytes from one side to the other, and its end.
async fn carry_one_way(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) -> io::Result<()> {
    let mut room = Room::new();
    loop {
        let read = from.read(&mut room.0).await?;
        if read == 0 {
            return to.shutdown().await;
        }
        to.write_all(room.0.get(..read).unwrap_or_default()).await?;
        room.fit(read);
    }
}

/// Where bytes are between the two sides: more while much comes at once.
struct Room(Vec<u8>);

impl Room {
    fn new() -> Self {
        Self(vec![0; LITTLE])
    }

    /// Makes it as large as what was read suggests for what comes next.
    fn fit(&mut self, read: usize) {
        if read == self.0.len() && read < MUCH {
            self.0.resize(read.saturating_mul(4).min(MUCH), 0);
        } else if read < LITTLE && self.0.len() > LITTLE {
            *self = Self::new();
        }
    }
}

/// A connection, encrypted or not.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A host's socket, with every byte counted.
pub(crate) struct Counted {
    stream: TcpStream,
    traffic: Arc<Traffic>,
}

impl Counted {
    pub(crate) const fn new(stream: TcpStream, traffic: Arc<Traffic>) -> Self {
        Self { stream, traffic }
    }

    /// Closes it so that the host learns that something went wrong.
    pub(crate) fn reset(&self) {
        reset(&self.stream);
    }

    fn count_sent(&self, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(written)) = polled {
            self.traffic.sends(written);
        }
        polled
    }
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.traffic.receives(buffer.filled().len().saturating_sub(before));
        polled
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.count_sent(polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.count_sent(polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// What is read at once where little comes. A run may have many connections that wait.
const LITTLE: usize = 16 << 10;

/// What is read at once where much comes. Less costs throughput, more gains nothing.
const MUCH: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_as_much_room_as_comes_at_once() {
        let mut room = Room::new();
        let mut sizes = Vec::new();
        for read in [100, LITTLE, 1 << 16, MUCH, MUCH, LITTLE, 100, 100] {
            room.fit(read);
            sizes.push(room.0.len());
        }
        assert_eq!(sizes, [LITTLE, 1 << 16, MUCH, MUCH, MUCH, MUCH, LITTLE, LITTLE]);
    }
}
