//! What the standard streams of a run lead to: to what is given and kept, or to somebody who speaks with the program.
//!
//! Guarantees: a program that is spoken with hears from the kernel when the other side has gone, and the other side when the program has; nothing
//! that passes between them is bounded or kept. Does not: read or write what is spoken.

use std::{io, os::fd::OwnedFd};

use tokio::{net::unix::pipe, sync::mpsc};

use crate::{
    image,
    stream::{Keeps, OutputChunk, OutputStream, Stream},
};

/// What the standard streams of a run lead to.
pub enum Streams {
    /// It reads this, or nothing, and what it writes is kept from the beginning, up to the plan's bound.
    Captured {
        /// Standard input; empty when not given.
        stdin: Option<Vec<u8>>,
    },
    /// Somebody speaks with it as long as it runs, without a bound on how much. Of standard error the end is kept, up to the plan's bound.
    /// Only in an enclosure.
    Connected(ProgramEnds),
}

impl Default for Streams {
    fn default() -> Self {
        Self::Captured { stdin: None }
    }
}

/// The program's ends of the pipes by which somebody speaks with it.
#[derive(Debug)]
pub struct ProgramEnds {
    stdin: OwnedFd,
    stdout: OwnedFd,
}

impl ProgramEnds {
    /// Two pipes: the program's ends, and ours of its standard input and of its standard output.
    ///
    /// Must be called within a tokio runtime that has its I/O driver on.
    ///
    /// # Errors
    /// When the machine has no more to give.
    pub fn connect() -> io::Result<(Self, pipe::Sender, pipe::Receiver)> {
        let ((stdin, input), (output, stdout)) = (io::pipe()?, io::pipe()?);
        let input = pipe::Sender::from_owned_fd(OwnedFd::from(input))?;
        let output = pipe::Receiver::from_owned_fd(OwnedFd::from(output))?;
        Ok((Self { stdin: stdin.into(), stdout: stdout.into() }, input, output))
    }
}

impl Streams {
    /// Whether somebody speaks with it.
    pub(crate) const fn are_connected(&self) -> bool {
        matches!(self, Self::Connected(_))
    }

    /// Whether there is something to read.
    pub(crate) const fn have_input(&self) -> bool {
        matches!(self, Self::Connected(_) | Self::Captured { stdin: Some(_) })
    }
}

/// Standard streams that lead somewhere.
pub(crate) struct Wired {
    /// Whether somebody speaks with it.
    pub(crate) is_connected: bool,
    /// What is read here.
    pub(crate) streams: [Stream; 2],
    /// The ends into which the process writes.
    pub(crate) ends: [OwnedFd; 2],
    /// What it reads.
    pub(crate) stdin: Option<OwnedFd>,
}

impl Wired {
    /// Connects them. `keep` bytes are kept of what is captured.
    pub(crate) fn with(streams: Streams, keep: u64, live: mpsc::Sender<OutputChunk>) -> io::Result<Self> {
        match streams {
            Streams::Captured { stdin } => {
                let (stdout, stdout_end) = stream(OutputStream::Stdout, (Keeps::Beginning, keep), live.clone())?;
                let (stderr, stderr_end) = stream(OutputStream::Stderr, (Keeps::Beginning, keep), live)?;
                let stdin = stdin.as_deref().map(image::constant).transpose()?;
                Ok(Self { is_connected: false, streams: [stdout, stderr], ends: [stdout_end, stderr_end], stdin })
            }
            Streams::Connected(ProgramEnds { stdin, stdout: stdout_end }) => {
                let stdout = Stream::elsewhere(OutputStream::Stdout, live.clone());
                let (stderr, stderr_end) = stream(OutputStream::Stderr, (Keeps::End, keep), live)?;
                let ends = [stdout_end, stderr_end];
                Ok(Self { is_connected: true, streams: [stdout, stderr], ends, stdin: Some(stdin) })
            }
        }
    }
}

/// A stream and the end into which the process writes.
fn stream(which: OutputStream, keeps: (Keeps, u64), live: mpsc::Sender<OutputChunk>) -> io::Result<(Stream, OwnedFd)> {
    let (reader, writer) = io::pipe()?;
    Ok((Stream::new(which, OwnedFd::from(reader), keeps, live)?, OwnedFd::from(writer)))
}
