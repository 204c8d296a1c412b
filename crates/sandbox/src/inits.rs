//! The inits that wait for calls in tier B: some that were started before there is a call.
//!
//! Guarantees: an init serves one call and knows nothing before its order comes, so nothing passes from one call to another; there are
//! never more of them than wanted. Does not: hold a program. The init and the process that becomes the program do.

use std::{
    collections::VecDeque,
    io::{self, Read},
    os::fd::BorrowedFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::net::UnixStream;
use zeroize::Zeroizing;

use crate::{
    error::{SandboxProcessRunError as Error, SandboxProcessRunErrorKind as Kind},
    image::Image,
    init::{Idle, send},
    outcome::Layer,
    plan::Limits,
    protocol::{Order, REPORT_LENGTH, Report},
    runner::Launched,
    supervision,
    walls::{Found, Walls},
};

/// The inits of a runner: some that wait, so that a call finds one started, and the next call too, while that one is replaced.
///
/// An init serves one call and knows nothing before its order comes, so nothing passes from one call to another.
#[derive(Debug)]
pub struct Inits {
    stock: Mutex<Stock>,
    image: Arc<Image>,
    walls: Walls,
}

/// The inits that wait, and those that soon will.
#[derive(Debug, Default)]
struct Stock {
    /// The one that has waited longest first.
    idle: VecDeque<Idle>,
    /// How many are being started. Counted, as several calls may see to the stock at once, and it would grow beyond its size.
    coming: usize,
}

impl Inits {
    /// Tries once what this machine enforces, and has some inits wait. Returns the layers, too.
    pub fn new(image: Arc<Image>) -> Result<(Self, Vec<Layer>), Error> {
        let unavailable =
            |error: io::Error| Error::new(Kind::Unavailable, format!("no supervisor can be started: {error}"));
        let layers = match rehearse(&image).map_err(unavailable)? {
            [Some(Report::Waiting { .. }), Some(Report::Ended { held, .. })] => {
                Layer::from_bits(held.layers, held.landlock)
            }
            [other, _] => return Err(Error { kind: Kind::Unavailable, ..supervision::refusal(other) }),
        };
        let can_hide = layers.iter().any(|layer| matches!(layer, Layer::HiddenPaths { .. }));
        let inits = Self { stock: Mutex::default(), image, walls: Walls::new(can_hide) };
        inits.refill(Found::Nothing);
        Ok((inits, layers))
    }

    /// The rules that hide directories.
    pub const fn walls(&self) -> &Walls {
        &self.walls
    }

    /// An init with this order: the one that waits, or else a new one.
    ///
    /// One that is killed just after it was told to go is reported as lost and not replaced: the program may have begun, and nothing runs
    /// twice.
    pub fn launch(&self, order: &Order, fds: &[BorrowedFd<'_>]) -> io::Result<Launched> {
        while let Some(Idle { init, control, orders }) = self.next_idle() {
            // The runtime knows of the socket before anything can come out of it.
            let orders = UnixStream::from_std(orders)?;
            if let Ok(unsent) = send(&orders, order, fds) {
                return Ok(Launched { init, control, orders, unsent, enclosed: None, sockets: None, authority: None });
            }
        }
        let Idle { init, control, orders } = Idle::new(&self.image)?;
        let orders = UnixStream::from_std(orders)?;
        let unsent = match send(&orders, order, fds) {
            // It is gone already, and has said why.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Zeroizing::default(),
            sent => sent?,
        };
        Ok(Launched { init, control, orders, unsent, enclosed: None, sockets: None, authority: None })
    }

    /// Sees to it that enough wait, and that there are rules for what is hidden. Failing is no harm: the next call tries again.
    pub fn refill(&self, walls: Found) {
        while self.reserve() {
            let started = Idle::new(&self.image);
            let failed = started.is_err();
            let mut stock = self.stock();
            stock.coming -= 1;
            stock.idle.extend(started);
            if failed {
                break;
            }
        }
        if let Found::NothingYet(neighbourhood) = walls {
            self.walls.build(neighbourhood, &self.image);
        }
    }

    /// Whether one more is needed. Who is told so starts it.
    fn reserve(&self) -> bool {
        let mut stock = self.stock();
        let needed = stock.idle.len() + stock.coming < WAITING;
        stock.coming += usize::from(needed);
        needed
    }

    /// One that still waits; somebody may have killed the others meanwhile.
    fn next_idle(&self) -> Option<Idle> {
        let mut stock = self.stock();
        loop {
            let mut next = stock.idle.pop_front()?;
            if next.is_alive() {
                return Some(next);
            }
        }
    }

    fn stock(&self) -> MutexGuard<'_, Stock> {
        self.stock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sets every layer up and runs nothing. Something that does not exist is hidden, so that this is tried too.
fn rehearse(image: &Image) -> io::Result<[Option<Report>; 2]> {
    let limits = Limits::default();
    let order = Order {
        hidden: vec![b"/palyra-rehearsal".to_vec()],
        wall_ms: 10_000,
        cpu_seconds: limits.cpu_seconds,
        address_space: limits.address_space,
        processes: limits.processes,
        file_size: limits.file_size,
        open_files: limits.open_files,
        ..Order::default()
    };
    let Idle { init, control, orders } = Idle::new(image)?;
    // One that is gone already has said why.
    let _ = send(&orders, &order, &[]);
    let refused = read_report(&orders)?;
    let reports = match refused {
        Some(_) => [refused, None],
        None => [read_report(&control)?, read_report(&control)?],
    };
    drop((control, orders));
    init.collect_blocking();
    Ok(reports)
}

/// The next report, or nothing if there is none to come.
fn read_report(mut socket: &std::os::unix::net::UnixStream) -> io::Result<Option<Report>> {
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut report = [0; REPORT_LENGTH];
    Ok(socket.read_exact(&mut report).ok().and_then(|()| Report::decode(&report)))
}

/// How many inits wait.
const WAITING: usize = 2;
