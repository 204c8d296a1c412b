//! A client's socket with what was read from it put back.
//!
//! Guarantees: whoever reads it gets every byte that the client sent, from the first one on, once. Bytes are counted as they pass.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

use super::ledger::Traffic;

/// A client's socket with what was read from it put back.
#[derive(Debug)]
pub(crate) struct Rewound {
    unread: io::Cursor<Vec<u8>>,
    stream: TcpStream,
    traffic: Arc<Traffic>,
}

impl Rewound {
    pub(crate) fn new(unread: Vec<u8>, stream: TcpStream, traffic: Arc<Traffic>) -> Self {
        Self { unread: io::Cursor::new(unread), stream, traffic }
    }
}

impl AsyncRead for Rewound {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { unread, stream, traffic } = self.get_mut();
        let before = buffer.filled().len();
        let polled = Pin::new(unread).poll_read(context, buffer);
        let polled = match polled {
            Poll::Ready(Ok(())) if buffer.filled().len() == before && buffer.remaining() > 0 => {
                Pin::new(stream).poll_read(context, buffer)
            }
            other => other,
        };
        traffic.sends(buffer.filled().len().saturating_sub(before));
        polled
    }
}

impl AsyncWrite for Rewound {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let Self { stream, traffic, .. } = self.get_mut();
        let polled = Pin::new(stream).poll_write(context, bytes);
        if let Poll::Ready(Ok(written)) = polled {
            traffic.receives(written);
        }
        polled
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
