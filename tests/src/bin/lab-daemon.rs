//! The daemon with a clock that tests set: the file that `LAB_AHEAD` names says how many milliseconds it is ahead.

#![allow(clippy::unwrap_used, reason = "a daemon that cannot start ends the test")]

use std::{path::PathBuf, sync::Arc};

use palyra_types::{
    Clock, Timestamp,
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

fn main() {
    let clock = FileClock { real: SystemClock::new(), ahead: std::env::var_os("LAB_AHEAD").unwrap().into() };
    palyra_daemon::serve_with(None, Arc::new(clock), Arc::new(SystemEntropy), |_| {}).unwrap();
}
