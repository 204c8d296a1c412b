//! One init process: started ahead of need, told what to do, collected.
//!
//! Guarantees: it is started without a fork of this process, and always collected, so that no zombie stays; dropping it while it
//! runs closes the control socket, at which it ends its tree and itself.

use std::{
    fmt,
    io::{self, IoSlice},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    process::{Child, Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use rustix::{
    io::Errno,
    net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags},
    process::{Pid, PidfdFlags, Signal, WaitOptions},
};
use tokio::io::AsyncReadExt;
use zeroize::Zeroizing;

use crate::{image::Image, protocol::Order};

/// A running init.
#[derive(Debug)]
pub struct Init {
    child: Child,
    collected: bool,
    kept: Option<Box<dyn Kept>>,
}

/// Something that has to stay until the process is gone.
pub trait Kept: Send + fmt::Debug {}

impl<T: Send + fmt::Debug> Kept for T {}

/// An init that waits for its order. It belongs to no call yet, and serves one only.
#[derive(Debug)]
pub struct Idle {
    /// The process.
    pub init: Init,
    /// Where it reports, and is stopped.
    pub control: UnixStream,
    /// Where the order goes: to the process which becomes the tool.
    pub orders: UnixStream,
}

impl Idle {
    /// Starts an init without an enclosure.
    pub fn new(image: &Image) -> io::Result<Self> {
        Self::start(image, None, Stdio::null())
    }

    /// Starts an init in this mode.
    #[expect(clippy::disallowed_methods, reason = "this is where processes are started")]
    pub fn start(image: &Image, mode: Option<&str>, stderr: Stdio) -> io::Result<Self> {
        uncollected().retain(|&pid| matches!(rustix::process::waitpid(Some(pid), WaitOptions::NOHANG), Ok(None)));
        let (control, their_control) = UnixStream::pair()?;
        let (orders, their_orders) = UnixStream::pair()?;
        control.set_nonblocking(true)?;
        orders.set_nonblocking(true)?;
        let mut command = Command::new(image.path());
        command.args(mode).env_clear().stderr(stderr);
        command.stdin(Stdio::from(OwnedFd::from(their_control))).stdout(Stdio::from(OwnedFd::from(their_orders)));
        let child = command.spawn()?;
        Ok(Self { init: Init { child, collected: false, kept: None }, control, orders })
    }

    /// Whether it still waits.
    pub fn is_alive(&mut self) -> bool {
        !self.init.try_collect()
    }
}

/// Sends an order, or as much of it as there is room for, with everything that goes along. Returns what is left to send.
///
/// Nothing has begun if this fails.
pub fn send(orders: impl AsFd, order: &Order, fds: &[BorrowedFd<'_>]) -> io::Result<Zeroizing<Vec<u8>>> {
    let bytes = Zeroizing::new(order.encode());
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(6))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let sent = rustix::net::sendmsg(orders, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(Zeroizing::new(bytes.get(sent..).unwrap_or_default().to_vec()))
}

/// Waits for a descriptor that comes back.
pub fn receive(orders: &UnixStream, longest: Duration) -> io::Result<OwnedFd> {
    orders.set_nonblocking(false)?;
    orders.set_read_timeout(Some(longest))?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut parts = [io::IoSliceMut::new(&mut byte)];
    while let Err(errno) = rustix::net::recvmsg(orders, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
        if errno != Errno::INTR {
            return Err(errno.into());
        }
    }
    let received = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    received.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

impl Init {
    /// Keeps something until the process is gone.
    pub fn keep(&mut self, kept: impl Kept + 'static) {
        self.kept = Some(Box::new(kept));
    }

    /// The number of its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// A descriptor that can be read from when it has ended.
    pub fn handle(&self) -> io::Result<OwnedFd> {
        Ok(rustix::process::pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty())?)
    }

    /// Ends whatever is in its group of processes. The group has its number, which is nobody else's until it is collected.
    pub fn end_group(&self) {
        if !self.collected {
            let _ = rustix::process::kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        }
    }

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
        let kept = self.kept.take();
        let collecting = thread::Builder::new().name("collect-init".to_owned()).spawn(move || {
            let _ = rustix::process::waitpid(Some(pid), WaitOptions::empty());
            drop(kept);
        });
        if collecting.is_err() {
            uncollected().push(pid);
        }
    }
}

/// Inits for which there was no thread to wait for their end. Whoever starts another one looks after them.
fn uncollected() -> MutexGuard<'static, Vec<Pid>> {
    static UNCOLLECTED: Mutex<Vec<Pid>> = Mutex::new(Vec::new());
    UNCOLLECTED.lock().unwrap_or_else(PoisonError::into_inner)
}
