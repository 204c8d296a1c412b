//! One init process: started ahead of need, told what to do, collected.
//!
//! Guarantees: it is started without a fork of this process, and always collected, so that no zombie stays; dropping it while it
//! runs closes the control socket, at which it ends its tree and itself.

use std::{
    io::{self, IoSlice},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use rustix::{
    net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags},
    process::{Pid, Signal},
};
use tokio::io::AsyncReadExt;

use crate::{image::Image, protocol::Order};

/// A running init.
#[derive(Debug)]
pub struct Init {
    child: Child,
    collected: bool,
}

/// An init that waits for its order. It belongs to no call yet, and serves one only.
#[derive(Debug)]
pub struct Idle {
    init: Init,
    control: UnixStream,
}

/// An init that has its order, with what connects to it.
pub struct Launched {
    /// The process.
    pub init: Init,
    /// The control socket.
    pub control: UnixStream,
    /// The part of the order that did not fit into the socket yet.
    pub unsent: Vec<u8>,
}

impl Idle {
    /// Starts an init.
    #[expect(clippy::disallowed_methods, reason = "this is where processes are started")]
    pub fn new(image: &Image) -> io::Result<Self> {
        let (control, theirs) = UnixStream::pair()?;
        control.set_nonblocking(true)?;
        let mut command = Command::new(image.path());
        command.env_clear().stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn()?;
        Ok(Self { init: Init { child, collected: false }, control })
    }

    /// Whether it still waits; somebody may have killed it meanwhile.
    pub fn is_alive(&mut self) -> bool {
        !self.init.try_collect()
    }

    /// Tells it what to do.
    pub fn order(self, order: &Order, fds: &[OwnedFd]) -> io::Result<Launched> {
        let Self { init, control } = self;
        let mut unsent = order.encode();
        let sent = send(&control, &unsent, fds)?;
        unsent.drain(..sent);
        Ok(Launched { init, control, unsent })
    }
}

impl Init {
    /// Sends it a signal. For an init that does not do what it must, such as one that somebody stopped.
    pub fn signal(&self, signal: Signal) {
        // The number is ours until the process is collected, which nobody else does.
        let _ = rustix::process::kill_process(Pid::from_child(&self.child), signal);
    }

    /// Waits for its end and collects it.
    ///
    /// The socket is closed on the way out of the process, by the kernel, so after its end there is hardly anything to wait for.
    pub async fn collect(mut self, mut control: tokio::net::UnixStream) {
        let mut unheard = [0; 64];
        while control.read(&mut unheard).await.is_ok_and(|read| read > 0) {}
        while !self.try_collect() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Waits for its end.
    pub fn collect_blocking(mut self) {
        let _ = self.child.wait();
        self.collected = true;
    }

    fn try_collect(&mut self) -> bool {
        self.collected |= !matches!(self.child.try_wait(), Ok(None));
        self.collected
    }
}

impl Drop for Init {
    fn drop(&mut self) {
        if self.try_collect() {
            return;
        }
        // One that idled, or whose runtime went away under a running call. The init ends by itself once the socket is closed.
        let pid = Pid::from_child(&self.child);
        let _ = thread::Builder::new().name("collect-init".to_owned()).spawn(move || {
            let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
        });
    }
}

fn send(control: &UnixStream, bytes: &[u8], fds: &[OwnedFd]) -> io::Result<usize> {
    let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(6))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(rustix::net::sendmsg(control, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)?)
}
