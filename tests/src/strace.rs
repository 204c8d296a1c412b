//! strace between a program and the kernel: it makes system calls fail, and kills a program before it makes one.
//!
//! Guarantees: a [`Fault`] is in force as soon as it is there, in every thread of the daemon, and ends with its value; how many calls it
//! failed is counted, so that a test can tell a fault that was survived from one that was never felt. A program that is [`killed_before`] a
//! call has done all that comes before the call, and has not made it.
//! Takes: strace, which `scripts/setup` installs, and root or `CAP_SYS_PTRACE` for a daemon that runs already. A test fails without them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a fault that cannot be set up ends the test"
)]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::daemon::{DaemonLab, program, signal};

/// System calls of a daemon that fail, as long as this lives.
pub struct Fault {
    strace: Child,
    directory: TempDir,
}

impl Fault {
    /// Lets calls fail when they are about these files.
    #[must_use]
    pub fn begin(lab: &DaemonLab, call: &str, error: &str, paths: &[PathBuf]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let said = fs::File::create(directory.path().join("said")).unwrap();
        let mut command = lab.command(Path::new("strace"));
        command.args(["-f", "-p", &lab.pid().to_string(), "-o"]).arg(directory.path().join("calls"));
        command.args(["-e", &format!("trace={call}"), "-e", &format!("inject={call}:error={error}")]);
        for path in paths {
            command.arg("-P").arg(path);
        }
        let strace = command.stdin(Stdio::null()).stderr(said).spawn();
        let mut fault = Self { strace: strace.expect("strace is installed; scripts/setup does that"), directory };
        let begun = Instant::now();
        while !fault.said().contains(" attached") {
            let ended = fault.strace.try_wait().unwrap();
            assert!(ended.is_none(), "strace cannot attach, which takes root or CAP_SYS_PTRACE: {}", fault.said());
            assert!(begun.elapsed() < Duration::from_secs(20), "strace does not attach: {}", fault.said());
            std::thread::sleep(Duration::from_millis(2));
        }
        fault
    }

    /// Lets them succeed again, and says how many failed.
    #[must_use]
    pub fn end(mut self) -> usize {
        // It ends by itself with the daemon.
        if self.strace.try_wait().unwrap().is_none() {
            signal(self.strace.id(), "TERM");
            self.strace.wait().unwrap();
        }
        fs::read_to_string(self.directory.path().join("calls")).unwrap().matches("(INJECTED)").count()
    }

    fn said(&self) -> String {
        fs::read_to_string(self.directory.path().join("said")).unwrap()
    }
}

impl Drop for Fault {
    fn drop(&mut self) {
        let _ = self.strace.kill();
        let _ = self.strace.wait();
    }
}

/// A program of this workspace that is killed before it makes a system call for the so-manieth time.
#[must_use]
pub fn killed_before(lab: &DaemonLab, step: (&str, u32), name: &str) -> Command {
    killed_by(lab.command(Path::new("strace")), step, name)
}

/// The same, by the strace that is the last word of a command.
#[must_use]
pub fn killed_by(mut strace: Command, (call, which): (&str, u32), name: &str) -> Command {
    strace.args(["-f", "-o", "/dev/null", "-e", &format!("trace={call}")]);
    strace.args(["-e", &format!("inject={call}:signal=KILL:when={which}")]).arg(program(name));
    strace
}
