//! What is left of a tree whose init was killed: found by the session, and killed.
//!
//! This is for kernels without Landlock's signal scope, where a program can kill its own init. The program itself dies with the
//! init by a death signal; its session is what can still be told apart from everything else.
//! Does not: find processes that started a session of their own.

use std::fs;

use rustix::process::{Pid, PidfdFlags, Signal};

/// Kills every process of a session. Repeated, as some may be born meanwhile.
pub fn kill_session(session: u32) {
    for _ in 0..PASSES {
        if kill_listed(session) == 0 {
            return;
        }
    }
}

fn kill_listed(session: u32) -> usize {
    let Ok(entries) = fs::read_dir("/proc") else { return 0 };
    let mut killed = 0;
    for entry in entries.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw) else {
            continue;
        };
        if session_of(pid) != Some(session) {
            continue;
        }
        // Opened first and asked again afterwards: the number may have changed hands.
        let Ok(process) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) else { continue };
        if session_of(pid) == Some(session) {
            let _ = rustix::process::pidfd_send_signal(process, Signal::KILL);
            killed += 1;
        }
    }
    killed
}

fn session_of(pid: Pid) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    // After the name in parentheses: state, parent, group, session.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(3)?.parse().ok()
}

const PASSES: usize = 20;
