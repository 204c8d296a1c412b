//! The daemon with a clock and a resolver that tests set: the file that `LAB_AHEAD` names says how many milliseconds the clock is ahead, the
//! one that `LAB_HOSTS` names has a line `name address…` for each host there is.

#![allow(clippy::unwrap_used, reason = "a daemon that cannot start ends the test")]

use std::{io, net::IpAddr, path::PathBuf, process::ExitCode, sync::Arc};

use futures_util::future::BoxFuture;
use palyra_daemon::World;
use palyra_gate::{Resolve, SystemResolver};
use palyra_types::{
    Clock, HostName, Timestamp,
    clock::{BootTime, SystemClock},
    entropy::SystemEntropy,
};

struct FileClock {
    real: SystemClock,
    ahead: PathBuf,
}

impl FileClock {
    fn ahead(&self) -> u64 {
        std::fs::read_to_string(&self.ahead).unwrap().trim().parse().unwrap()
    }
}

impl Clock for FileClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix_millis(self.real.now().unix_millis() + i64::try_from(self.ahead()).unwrap())
    }

    fn boot(&self) -> BootTime {
        let boot = self.real.boot();
        BootTime { millis: boot.millis + self.ahead(), ..boot }
    }
}

/// The hosts of a file, read anew for each question.
struct FileResolver {
    hosts: PathBuf,
}

impl Resolve for FileResolver {
    fn resolve<'a>(&'a self, host: &'a HostName) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        let text = std::fs::read_to_string(&self.hosts).unwrap();
        let mut lines = text.lines().map(str::split_ascii_whitespace);
        let line = lines.find_map(|mut words| (words.next() == Some(host.as_str())).then_some(words));
        let found: Option<Vec<IpAddr>> = line.map(|words| words.map(|address| address.parse().unwrap()).collect());
        Box::pin(async move { Ok(found.ok_or(io::ErrorKind::NotFound)?) })
    }
}

fn main() -> ExitCode {
    if let Some(code) = palyra_daemon::compiler_child(std::env::args_os().skip(1)) {
        return code;
    }
    let clock = FileClock { real: SystemClock::new(), ahead: std::env::var_os("LAB_AHEAD").unwrap().into() };
    let resolver: Arc<dyn Resolve> = match std::env::var_os("LAB_HOSTS") {
        Some(hosts) => Arc::new(FileResolver { hosts: hosts.into() }),
        None => Arc::new(SystemResolver::default()),
    };
    let world = World { clock: Arc::new(clock), entropy: Arc::new(SystemEntropy), resolver };
    palyra_daemon::serve_with(None, world, |_| {}).unwrap();
    ExitCode::SUCCESS
}
