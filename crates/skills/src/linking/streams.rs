//! The standard streams of a skill.
//!
//! Guarantees: nothing here is a stream of the daemon. What is read is the input of the call; what is written goes to its log or is its
//! answer; each piece counts as a call of the host.

use std::sync::Arc;

use wasmtime_wasi_io::{
    async_trait,
    bytes::Bytes,
    poll::Pollable,
    streams::{InputStream, OutputStream, StreamError, StreamResult},
};

use crate::{
    host::{LogLevel, SkillHost},
    ledger::{Ledger, end},
    outcome::SkillFailure,
};

/// Standard input: the input of a command, or nothing.
pub(super) struct Input {
    pub(super) ledger: Ledger,
    pub(super) rest: Bytes,
}

/// Standard output or standard error.
pub(super) struct Output {
    pub(super) ledger: Ledger,
    pub(super) listener: Option<Arc<dyn SkillHost>>,
    pub(super) leads: Leads,
}

/// Where what is written leads.
#[derive(Clone, Copy)]
pub(super) enum Leads {
    /// To the log.
    Log(LogLevel),
    /// To the log, and its end into the message of a command that fails.
    Complaint,
    /// It is the answer.
    Answer,
}

#[async_trait]
impl Pollable for Input {
    async fn ready(&mut self) {}
}

impl InputStream for Input {
    fn read(&mut self, size: usize) -> StreamResult<Bytes> {
        self.ledger.count().map_err(StreamError::Trap)?;
        if self.rest.is_empty() {
            return Err(StreamError::Closed);
        }
        Ok(self.rest.split_to(size.min(self.rest.len()).min(PIECE_BYTES)))
    }
}

#[async_trait]
impl Pollable for Output {
    async fn ready(&mut self) {}
}

impl OutputStream for Output {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        let level = match self.leads {
            Leads::Log(level) => level,
            Leads::Complaint => LogLevel::Warn,
            Leads::Answer => LogLevel::Info,
        };
        self.ledger.count().map_err(StreamError::Trap)?;
        // WASI has it so; and a writer is not looked at before it has written.
        if bytes.len() > PIECE_BYTES {
            let limit = u64::try_from(PIECE_BYTES).unwrap_or(u64::MAX);
            return Err(StreamError::Trap(end(SkillFailure::HandedTooMuch { limit })));
        }
        match self.leads {
            Leads::Answer => return self.ledger.write(&bytes).map_err(StreamError::Trap),
            Leads::Complaint => self.ledger.complain(&bytes),
            Leads::Log(_) => {}
        }
        for line in self.ledger.say(level, &bytes) {
            if let Some(host) = &self.listener {
                host.log(level, &line);
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(PIECE_BYTES)
    }
}

/// What is read or written at once, at the most.
const PIECE_BYTES: usize = 64 << 10;
