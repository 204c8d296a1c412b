//! One output stream of a process: read to its end, kept up to a limit, passed on live.
//!
//! Guarantees: a stream is always read, so a flood neither blocks nor ends the process; what is kept is the exact beginning, or of a
//! process that somebody speaks with the exact end; memory is bounded by the limit and the channel. The live stream is the beginning that is kept,
//! less what its reader was too slow for: chunks that find the channel full are left out and counted, never waited for.

use std::{io, mem, os::fd::OwnedFd};

use tokio::{net::unix::pipe::Receiver, sync::mpsc};

use crate::outcome::Captured;

/// A piece of output, as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputChunk {
    /// Where it was written.
    pub stream: OutputStream,
    /// Where in its stream it begins. Whoever missed a piece sees it by this.
    pub offset: u64,
    /// The bytes, which may end in the middle of a character.
    pub bytes: Vec<u8>,
}

/// The output streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OutputStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// The reading end of a stream and what came out of it.
pub struct Stream {
    which: OutputStream,
    pipe: Option<Receiver>,
    captured: Captured,
    keeps: Keeps,
    limit: usize,
    live: mpsc::Sender<OutputChunk>,
}

/// Which part of a stream is kept that is longer than its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeps {
    /// Its beginning, which is passed on live, too.
    Beginning,
    /// Its end, which nobody listens to meanwhile.
    End,
}

impl Stream {
    /// A stream of which this part is kept, of `limit` bytes.
    pub fn new(
        which: OutputStream,
        pipe: OwnedFd,
        (keeps, limit): (Keeps, u64),
        live: mpsc::Sender<OutputChunk>,
    ) -> io::Result<Self> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let pipe = Some(Receiver::from_owned_fd(pipe)?);
        Ok(Self { which, pipe, captured: Captured::default(), keeps, limit, live })
    }

    /// In the place of a stream that somebody else reads.
    pub fn elsewhere(which: OutputStream, live: mpsc::Sender<OutputChunk>) -> Self {
        Self { which, pipe: None, captured: Captured::default(), keeps: Keeps::Beginning, limit: 0, live }
    }

    /// Waits until there is something to read; for ever once the stream has ended.
    pub async fn readable(&self) {
        match &self.pipe {
            Some(pipe) => {
                let _ = pipe.readable().await;
            }
            None => std::future::pending().await,
        }
    }

    /// Reads once.
    pub fn read(&mut self, buffer: &mut [u8]) {
        let Some(pipe) = &self.pipe else { return };
        match pipe.try_read(buffer) {
            Ok(0) => self.pipe = None,
            Ok(read) => self.take(buffer.get(..read).unwrap_or_default()),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(_) => self.pipe = None,
        }
    }

    /// Reads what is left after the tree has ended.
    ///
    /// Asks the kernel directly: the runtime may not have heard yet that there is more. Somebody outside the tree may have got hold
    /// of the pipe and keep it open or filled, so this ends at the first empty read and at the most that a pipe can hold.
    pub fn finish(&mut self, buffer: &mut [u8]) -> Captured {
        let mut left = LARGEST_PIPE;
        while let Some(pipe) = self.pipe.as_ref().filter(|_| left > 0) {
            match rustix::io::read(pipe, &mut *buffer) {
                Ok(0) => break,
                Ok(read) => {
                    left = left.saturating_sub(read);
                    self.take(buffer.get(..read).unwrap_or_default());
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => break,
            }
        }
        if self.keeps == Keeps::End {
            self.forget_all_but(self.limit);
        }
        mem::take(&mut self.captured)
    }

    fn take(&mut self, bytes: &[u8]) {
        let length = |bytes: &[u8]| u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.captured.total = self.captured.total.saturating_add(length(bytes));
        if self.keeps == Keeps::End {
            self.captured.bytes.extend_from_slice(bytes);
            // Now and then, so that a byte is not moved more than once on average.
            if self.captured.bytes.len() > self.limit.saturating_mul(2) {
                self.forget_all_but(self.limit);
            }
            return;
        }
        let room = self.limit.saturating_sub(self.captured.bytes.len());
        let kept = bytes.get(..room.min(bytes.len())).unwrap_or_default();
        if kept.is_empty() {
            return;
        }
        let offset = length(&self.captured.bytes);
        self.captured.bytes.extend_from_slice(kept);
        match self.live.try_reserve() {
            Ok(place) => place.send(OutputChunk { stream: self.which, offset, bytes: kept.to_vec() }),
            Err(mpsc::error::TrySendError::Full(())) => self.captured.not_streamed += length(kept),
            // Nobody listens, and nobody misses anything.
            Err(mpsc::error::TrySendError::Closed(())) => {}
        }
    }

    fn forget_all_but(&mut self, last: usize) {
        let before = self.captured.bytes.len().saturating_sub(last);
        self.captured.bytes.drain(..before);
    }
}

/// What `fs.pipe-max-size` is unless somebody raised it.
const LARGEST_PIPE: usize = 1 << 20;
