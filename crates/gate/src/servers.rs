//! Long-running programs that a part of the daemon speaks with over their standard input and output: MCP servers that the operator configured.
//!
//! Guarantees: such a server runs in tier C or not at all, as a principal of its own, `service:mcp.NAME`; policy was asked before it starts, and is
//! asked about each of its connections; the journal knows that it starts before it does. It ends, with all that it started, when it is told to, when
//! policy takes back what it was started by, when nobody holds it any more, and with the daemon. Policy is asked in the same way whether a server
//! that somebody else runs may be connected to.
//! Does not: know what is spoken. Nobody is asked about a server while it runs: what its configuration does not name is refused.

mod address;
mod directory;
mod door;
mod finding;
mod notes;
mod places;
mod running;

use std::{
    collections::BTreeMap,
    fmt, io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use palyra_sandbox::{StopCause, Stopper};
use palyra_types::{EgressEnforcementMode, ObjectId, SecretRef, WorkspaceName};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::unix::pipe,
    sync::watch,
};

pub use self::address::ServerAddress;
pub(crate) use self::{directory::sweep, places::ServerPlaces};
use crate::{arming::LineRedaction, tool::HostPort};

/// A server that is to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerPlan {
    /// Its name.
    pub name: ObjectId,
    /// The program and its arguments. A name without a slash is looked for in the configured directories.
    pub command: Vec<String>,
    /// The workspace that it works in. Without one it begins in an empty directory that only it has.
    pub workspace: Option<WorkspaceName>,
    /// Variables besides those that every program has.
    pub env: BTreeMap<String, String>,
    /// Secrets by variable. The program sees a placeholder; the value takes its place on the way to a host that the secret is bound to.
    pub secrets: BTreeMap<String, SecretRef>,
    /// The hosts that it may connect to.
    pub hosts: Vec<HostPort>,
    /// How its network is held.
    pub egress: EgressEnforcementMode,
}

/// A server that runs.
#[derive(Debug)]
#[must_use = "dropping its handle ends it"]
pub struct RunningServer {
    /// Its standard input. Dropping it closes it.
    pub input: ServerInput,
    /// Its standard output.
    pub output: ServerOutput,
    /// What it is stopped by, and tells how it ended. Dropping it stops the server.
    pub handle: ServerHandle,
}

impl RunningServer {
    /// Who runs it, for receipts.
    #[must_use]
    pub const fn executor(&self) -> &'static str {
        self.handle.executor()
    }

    /// What holds it, for receipts.
    #[must_use]
    pub fn layers(&self) -> &[String] {
        self.handle.layers()
    }

    /// Tells it to end.
    pub fn stop(&self) {
        self.handle.stop();
    }

    /// Waits until nothing of it is left.
    pub async fn ended(&mut self) -> ServerEnd {
        self.handle.ended().await
    }
}

/// What a server that runs is stopped by. Dropping it stops the server.
#[derive(Debug)]
pub struct ServerHandle {
    executor: &'static str,
    layers: Arc<[String]>,
    stopper: Stopper,
    end: watch::Receiver<Option<ServerEnd>>,
}

impl ServerHandle {
    /// Who runs it, for receipts.
    #[must_use]
    pub const fn executor(&self) -> &'static str {
        self.executor
    }

    /// What holds it, for receipts.
    #[must_use]
    pub fn layers(&self) -> &[String] {
        &self.layers
    }

    /// Tells it to end.
    pub fn stop(&self) {
        self.stopper.stop(StopCause::Requested);
    }

    /// Waits until nothing of it is left and its end is on record. Dropping the future loses nothing.
    pub async fn ended(&mut self) -> ServerEnd {
        match self.end.wait_for(Option::is_some).await.map(|end| end.clone()) {
            Ok(Some(end)) => end,
            Ok(None) | Err(_) => ServerEnd { why: "nobody watched it any more".to_owned(), stderr: String::new() },
        }
    }
}

impl Drop for ServerHandle {
    fn drop(&mut self) {
        self.stopper.stop(StopCause::CallerGone);
    }
}

/// How a server ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerEnd {
    /// Why, in words.
    pub why: String,
    /// The last that it wrote to standard error.
    pub stderr: String,
}

/// Standard input of a server.
#[derive(Debug)]
pub struct ServerInput(pipe::Sender);

impl AsyncWrite for ServerInput {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

/// Standard output of a server, without the values of secrets that it uses.
pub struct ServerOutput {
    pipe: pipe::Receiver,
    redacted: Option<Redacted>,
}

/// What was read and may be told.
struct Redacted {
    lines: LineRedaction,
    /// Where pieces are read into.
    piece: Box<[u8]>,
    ready: Vec<u8>,
    /// How much of that is told.
    told: usize,
    has_ended: bool,
}

impl ServerOutput {
    fn new(pipe: pipe::Receiver, lines: Option<LineRedaction>) -> Self {
        let redacted = lines.map(|lines| Redacted {
            lines,
            piece: vec![0; PIECE].into(),
            ready: Vec::new(),
            told: 0,
            has_ended: false,
        });
        Self { pipe, redacted }
    }
}

impl AsyncRead for ServerOutput {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { pipe, redacted } = &mut *self;
        let Some(Redacted { lines, piece, ready, told, has_ended }) = redacted else {
            return Pin::new(pipe).poll_read(context, buffer);
        };
        loop {
            let rest = ready.get(*told..).unwrap_or_default();
            if !rest.is_empty() || *has_ended {
                let some = rest.get(..rest.len().min(buffer.remaining())).unwrap_or_default();
                buffer.put_slice(some);
                *told += some.len();
                return Poll::Ready(Ok(()));
            }
            let mut read = ReadBuf::new(piece);
            ready!(Pin::new(&mut *pipe).poll_read(context, &mut read))?;
            ready.clear();
            *told = 0;
            *has_ended = read.filled().is_empty();
            if *has_ended { lines.finish(ready) } else { lines.push(read.filled(), ready) }
        }
    }
}

impl fmt::Debug for ServerOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerOutput")
    }
}

/// How much is read at once.
const PIECE: usize = 64 << 10;
