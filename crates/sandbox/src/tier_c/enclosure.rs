//! One enclosure: started, and ready for the one call that it serves.
//!
//! Guarantees: an enclosure that is handed out stands, with every namespace that its profile names, none of which is the machine's; it
//! knows nothing of any call. Dropping it ends it, and leaves neither process nor mount, network or cgroup.
//! Refuses: to hand out one of which a namespace is missing.

use std::{
    fs,
    io::{self, IoSlice, IoSliceMut, Read},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    os::unix::net::UnixStream,
    sync::Arc,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags},
    io::Errno,
    net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags},
};
use zeroize::{Zeroize, Zeroizing};

use super::{
    cgroup::Cgroup,
    linux::{Construction, LinuxBubblewrap, Own},
    profile::{NetworkKind, Profile},
};
use crate::{
    egress::{EgressSockets, RunAuthority},
    error::{SandboxProcessRunError as Error, SandboxProcessRunErrorKind as Kind},
    image::Image,
    init::Idle,
    outcome::Layer,
    private::PrivateFile,
    protocol::{REPORT_LENGTH, Report},
    supervision,
};

/// An enclosure that waits for its call.
#[derive(Debug)]
pub struct Enclosure {
    /// The process inside, and what connects to it.
    pub idle: Idle,
    /// What leads out of its network.
    pub sockets: Option<Sockets>,
    /// What bounds the tree as a whole.
    pub cgroup: Option<Arc<Cgroup>>,
    /// The user that it runs as outside, if that is not the daemon's own.
    pub user: Option<u32>,
    /// The layers that are known to hold before there is a call.
    pub layers: Vec<Layer>,
    /// Whom its programs trust, besides those that all trust.
    pub authority: Option<Arc<RunAuthority>>,
}

/// The sockets of a network that has nothing else.
#[derive(Debug)]
pub struct Sockets {
    /// Where names are asked for.
    pub names: OwnedFd,
    /// Where the proxy is.
    pub proxy: OwnedFd,
    /// Where programs connect that know of no proxy, one for each port.
    pub ports: Vec<OwnedFd>,
}

impl Enclosure {
    /// Starts one, with these files that only it has, and waits until it stands. Takes some milliseconds.
    ///
    /// # Errors
    /// When it does not stand.
    pub fn start(
        backend: &LinuxBubblewrap,
        profile: &Profile,
        workspace: BorrowedFd<'_>,
        image: &Image,
        files: &[PrivateFile],
    ) -> Result<Self, Error> {
        let failed = |error: io::Error| Error::new(Kind::SpawnFailed, format!("no enclosure can be made: {error}"));
        let authority = profile.intercepts.then(RunAuthority::new).transpose();
        let authority = authority.map_err(|error| failed(io::Error::other(error)))?.map(Arc::new);
        let own = Own { authority: authority.as_deref(), files };
        let Construction { launch, mut blueprint, cgroup, user, directories, etc } =
            backend.construct(profile, &own)?;
        let encoded = Zeroizing::new(blueprint.encode());
        blueprint.secrets.iter_mut().for_each(|(_, content)| content.zeroize());
        let cgroup = cgroup.map(Arc::new);
        let (heard, said) = io::pipe().map_err(failed)?;
        let mut idle = Idle::start(image, Some("launch"), said.into()).map_err(failed)?;
        let entrances = cgroup.as_ref().map_or(Ok(Vec::new()), |cgroup| cgroup.entrances()).map_err(failed)?;
        let mut fds: Vec<BorrowedFd<'_>> = entrances.iter().map(AsFd::as_fd).collect();
        fds.extend(directories.iter().map(AsFd::as_fd));
        if user.is_some() {
            fds.push(workspace);
        }
        let user_id = user.as_ref().map(|user| user.id());
        idle.init.keep((cgroup.clone(), user, etc));
        // One that is gone already has said why.
        let sent = send_all(&idle.orders, &launch.encode(), &fds).and_then(|()| send_all(&idle.orders, &encoded, &[]));
        let (report, sockets) = sent.and_then(|()| hear(&idle)).unwrap_or_default();
        let Some(Report::Enclosed { namespaces }) = report else {
            // SECURITY: a bubblewrap that was killed while it built leaves a process that waits for it for ever.
            idle.init.end_group();
            drop(idle);
            return Err(not_standing(report, heard));
        };
        let layers = backend.namespaces(namespaces, profile)?;
        let sockets = match profile.network {
            NetworkKind::Machine => None,
            NetworkKind::Own(_) => Some(Sockets::from(sockets).ok_or_else(|| {
                Error::new(Kind::SpawnFailed, "the enclosure handed out no sockets, so its network is not held")
            })?),
        };
        Ok(Self { idle, sockets, cgroup, user: user_id, layers, authority })
    }
}

impl Sockets {
    fn from(fds: Vec<OwnedFd>) -> Option<Self> {
        let mut fds = fds.into_iter();
        Some(Self { names: fds.next()?, proxy: fds.next()?, ports: fds.collect() })
    }
}

impl From<Sockets> for EgressSockets {
    fn from(Sockets { names, proxy, ports }: Sockets) -> Self {
        Self { dns: names.into(), proxy: proxy.into(), direct: ports.into_iter().map(Into::into).collect() }
    }
}

/// Why an enclosure does not stand: what the init says, or else bubblewrap.
fn not_standing(report: Option<Report>, mut heard: io::PipeReader) -> Error {
    if let Some(refused @ Report::Refused { .. }) = report {
        return supervision::refusal(Some(refused));
    }
    let mut said = vec![0; 4096];
    let read = heard.read(&mut said).unwrap_or(0);
    let said = String::from_utf8_lossy(said.get(..read).unwrap_or_default());
    let said = said.trim();
    let said = if said.is_empty() { "it ended without a word" } else { said };
    Error::new(
        Kind::Unavailable,
        format!("bubblewrap cannot build an enclosure here: {}", palyra_types::visible::visible(said)),
    )
}

fn send_all(socket: &UnixStream, mut bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    socket.set_nonblocking(false)?;
    socket.set_write_timeout(Some(Duration::from_secs(LONGEST_SECONDS.unsigned_abs())))?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    loop {
        match rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => continue,
            sent => bytes = bytes.get(sent?..).unwrap_or_default(),
        }
        if bytes.is_empty() {
            return socket.set_nonblocking(true);
        }
        ancillary.clear();
    }
}

/// The first report and the sockets that come with it, unless the process that was started ends without one.
fn hear(idle: &Idle) -> io::Result<(Option<Report>, Vec<OwnedFd>)> {
    let control = &idle.control;
    let process = idle.init.handle()?;
    control.set_nonblocking(false)?;
    let mut report = [0; REPORT_LENGTH];
    let (mut have, mut fds) = (0, Vec::new());
    while have < REPORT_LENGTH {
        if !has_words(control, &process)? {
            break;
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(report.get_mut(have..).unwrap_or_default())];
        match rustix::net::recvmsg(control, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(errno.into()),
            Ok(received) if received.bytes == 0 => break,
            Ok(received) => have += received.bytes,
        }
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                fds.extend(received);
            }
        }
    }
    control.set_nonblocking(true)?;
    Ok((Report::decode(&report).filter(|_| have == REPORT_LENGTH), fds))
}

/// Waits until there is something to read. Not so if the process has ended and said nothing, or takes too long.
fn has_words(control: &UnixStream, process: &OwnedFd) -> io::Result<bool> {
    let timeout = rustix::event::Timespec { tv_sec: LONGEST_SECONDS, tv_nsec: 0 };
    let mut waited = [PollFd::new(control, PollFlags::IN), PollFd::new(process, PollFlags::IN)];
    while let Err(errno) = rustix::event::poll(&mut waited, Some(&timeout)) {
        if errno != Errno::INTR {
            return Err(errno.into());
        }
    }
    let [words, _] = waited;
    Ok(!words.revents().is_empty())
}

/// The numbers of this process's own namespaces, in the order of the report.
pub fn own_namespaces() -> io::Result<[u64; 7]> {
    let mut numbers = [0; 7];
    for (place, name) in numbers.iter_mut().zip(["user", "mnt", "pid", "ipc", "uts", "cgroup", "net"]) {
        let link = fs::read_link(format!("/proc/self/ns/{name}"));
        let number = |link: std::path::PathBuf| link.to_str()?.split_once('[')?.1.strip_suffix(']')?.parse().ok();
        // A kernel without a kind of namespace has no such link.
        *place = match link {
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            link => number(link?).ok_or(io::ErrorKind::InvalidData)?,
        };
    }
    Ok(numbers)
}

/// As many descriptors as the kernel takes in one message.
pub const MOST_FDS: usize = 253;

/// How long an enclosure may take to stand.
const LONGEST_SECONDS: i64 = 20;
