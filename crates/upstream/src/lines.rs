//! Messages as lines: how a server is spoken with that the daemon started.
//!
//! Guarantees: no line is held that is longer than a message may be, or that would take too much memory; what is no message is left out and
//! counted as one that nobody asked for; whoever does not read what it is sent is given up.

use std::{io, sync::Arc, time::Duration};

use rmcp::{
    RoleClient,
    model::{ClientJsonRpcMessage, ServerJsonRpcMessage},
    transport::Transport,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader},
    sync::Mutex,
    time::timeout,
};

use crate::{
    bucket::Bucket,
    fate::{Fate, Trouble},
    weight::{MOST_MESSAGE_BYTES, MOST_VALUES, Weight},
};

/// The two pipes of a server.
pub(crate) struct Lines<R, W> {
    read: BufReader<R>,
    /// What was read of a line. Reading may be interrupted at any time, and goes on where it was.
    line: Vec<u8>,
    write: Arc<Mutex<Option<W>>>,
    garbage: Bucket,
    fate: Fate,
}

impl<R: AsyncRead + Unpin, W> Lines<R, W> {
    pub(crate) fn new(read: R, write: W, fate: Fate) -> Self {
        let write = Arc::new(Mutex::new(Some(write)));
        Self {
            read: BufReader::with_capacity(64 << 10, read),
            line: Vec::new(),
            write,
            garbage: Bucket::default(),
            fate,
        }
    }

    /// Reads the next line into the buffer. Nothing is lost when this is dropped.
    async fn whole_line(&mut self) -> Result<(), Trouble> {
        loop {
            let available = self.read.fill_buf().await.map_err(|error| Trouble::Failed(error.to_string()))?;
            if available.is_empty() {
                return Err(Trouble::Closed);
            }
            let end = available.iter().position(|byte| *byte == b'\n');
            let (piece, is_whole) = match end.and_then(|end| available.get(..=end)) {
                Some(piece) => (piece, true),
                None => (available, false),
            };
            if self.line.len().saturating_add(piece.len()) > MOST_MESSAGE_BYTES {
                return Err(Trouble::LongMessage(MOST_MESSAGE_BYTES));
            }
            self.line.extend_from_slice(piece);
            let length = piece.len();
            self.read.consume(length);
            if is_whole {
                return Ok(());
            }
        }
    }

    /// The next message, or why there is none.
    async fn message(&mut self) -> Result<ServerJsonRpcMessage, Trouble> {
        loop {
            self.whole_line().await?;
            let line = std::mem::take(&mut self.line);
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            if Weight::of(&line).is_too_much() {
                return Err(Trouble::WideMessage(MOST_VALUES));
            }
            match serde_json::from_slice(&line) {
                Ok(message) => return Ok(message),
                Err(_) if self.garbage.takes() => {}
                Err(_) => return Err(Trouble::Flood),
            }
        }
    }
}

impl<R, W> Transport<RoleClient> for Lines<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn send(&mut self, message: ClientJsonRpcMessage) -> impl Future<Output = Result<(), io::Error>> + Send + 'static {
        let (write, fate) = (Arc::clone(&self.write), self.fate.clone());
        async move {
            let mut text = serde_json::to_vec(&message).map_err(io::Error::other)?;
            text.push(b'\n');
            let written = timeout(TAKEN_WITHIN, async {
                let mut write = write.lock().await;
                let write = write.as_mut().ok_or(io::ErrorKind::NotConnected)?;
                write.write_all(&text).await?;
                write.flush().await
            });
            match written.await {
                Ok(written) => written,
                // Half a message may be in the pipe, so nothing else can follow it.
                Err(_) => {
                    fate.over(Trouble::Deaf);
                    Err(io::ErrorKind::TimedOut.into())
                }
            }
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        match self.message().await {
            Ok(message) => Some(message),
            Err(trouble) => {
                self.fate.over(trouble);
                None
            }
        }
    }

    async fn close(&mut self) -> Result<(), io::Error> {
        drop(self.write.lock().await.take());
        Ok(())
    }
}

/// How long a server may take to read a message.
const TAKEN_WITHIN: Duration = Duration::from_secs(20);
