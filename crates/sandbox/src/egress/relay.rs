//! Carries bytes both ways between a client and a host.
//!
//! Guarantees: bytes arrive as they were sent, in order; an end in one direction is passed on and leaves the other
//! open; bytes are counted as they pass, so the counts hold whenever the relay is cut off; a connection on which
//! nothing passes ends.
//! Does not: look at the bytes, beyond the hellos that its rule demands.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf, copy_bidirectional_with_sizes},
    net::TcpStream,
};

use palyra_types::host::HostName;

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
        copy_bidirectional_with_sizes(&mut client.stream, host, BUFFER, BUFFER).await?;
        Ok(())
    };
    tokio::select! {
        carried = carry => carried,
        () = traffic.idle(limits.idle) => Err(Stop::Left),
    }
}

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

/// What is read at once. Smaller buffers cost throughput, larger ones gain nothing.
const BUFFER: usize = 256 << 10;
