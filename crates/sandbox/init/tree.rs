//! The tree of processes below the init: finding it, signalling it, ending it.
//!
//! Guarantees: [`end`] returns only when no descendant is left, whatever sessions, groups or parents they gave themselves: an
//! orphan becomes a child of the init, which is its subreaper. A signal never reaches a process outside the tree.
//! Does not: end processes that a service outside the tree starts on the program's behalf.

use std::{
    collections::BTreeSet,
    fs,
    time::{Duration, Instant},
};

use crate::kernel;

/// A child that ended, and its wait status.
pub struct Collected {
    pub pid: i32,
    pub status: i32,
}

/// Collects the children that ended. Returns whether any child is left.
pub fn collect(mut each: impl FnMut(Collected)) -> bool {
    loop {
        match kernel::collect_child() {
            Ok(Some((pid, status))) => each(Collected { pid, status }),
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

/// Ends the tree: SIGTERM and the grace, unless that is zero, then SIGKILL until nothing is left.
pub fn end(signals: i32, grace: Duration, mut each: impl FnMut(Collected)) {
    if !collect(&mut each) {
        return;
    }
    if !grace.is_zero() {
        let until = Instant::now() + grace;
        signal_all(kernel::SIGTERM);
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            wait_for_child(signals, left);
            if !collect(&mut each) {
                return;
            }
        }
    }
    let mut pause = Duration::from_millis(1);
    loop {
        freeze();
        signal_all(kernel::SIGKILL);
        kill_children();
        // Each end wakes this up. A process that the kernel does not let go of is asked about less and less often.
        let until = Instant::now() + pause;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            wait_for_child(signals, left);
            if !collect(&mut each) {
                return;
            }
        }
        pause = (pause * 2).min(Duration::from_millis(250));
    }
}

/// How many processes the tree has, without the init.
pub fn size() -> u64 {
    let mut size = 0;
    each_member(|_, _| size += 1);
    size
}

/// Forgets the child signals that came so far.
pub fn drain(signals: i32) {
    let mut buffer = [0; 1024];
    while kernel::read(signals, &mut buffer).is_ok_and(|read| read > 0) {}
}

fn wait_for_child(signals: i32, timeout: Duration) {
    kernel::poll([signals], timeout);
    drain(signals);
}

/// Kills the init's own children, from a list that the kernel keeps where it is built to.
///
/// SECURITY: with `/proc` mounted to hide processes, a program of another user that makes itself undumpable is in no listing. It
/// is in this one, at the latest when its parent is gone, and its number cannot be reused before the init collects it.
fn kill_children() {
    let own = kernel::own_pid();
    let Ok(children) = fs::read_to_string(format!("/proc/{own}/task/{own}/children")) else { return };
    for child in children.split_ascii_whitespace().filter_map(|child| child.parse().ok()) {
        kernel::kill(child, kernel::SIGKILL);
    }
}

/// Stops every process of the tree, so that none can fork while the tree is killed.
fn freeze() {
    // A fork storm may need several passes; the bound only decides when killing starts, which is repeated anyway.
    for _ in 0..50 {
        if signal_all(kernel::SIGSTOP) == 0 {
            return;
        }
    }
}

/// Sends a signal to every process of the tree and returns how many were running when they got it.
fn signal_all(signal: i32) -> usize {
    let mut running = 0;
    each_member(|pid, seen| {
        // The number may belong to another process by now. The descriptor cannot: what is read after it was opened is about
        // the process that it names, or about none.
        let Ok(process) = kernel::pidfd_open(pid) else { return };
        if let Some(same) = Seen::of(pid).filter(|now| now.started == seen.started) {
            running += usize::from(!same.is_held());
            // Also to the dead: a process whose first thread has ended looks dead while its other threads run on.
            kernel::pidfd_send_signal(process, signal);
        }
        kernel::close(process);
    });
    running
}

/// Meets the processes of the tree.
///
/// The kernel lists processes by ascending number, and children mostly have higher ones than their parents, so one pass follows
/// the tree downwards and meets most of what is born meanwhile. Who needs the rest repeats it.
fn each_member(mut meet: impl FnMut(i32, &Seen)) {
    let mut tree = BTreeSet::from([kernel::own_pid()]);
    let Ok(entries) = fs::read_dir("/proc") else { return };
    for entry in entries.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let Some(seen) = Seen::of(pid).filter(|seen| tree.contains(&seen.parent)) else { continue };
        tree.insert(pid);
        meet(pid, &seen);
    }
}

/// What `/proc` says about a process.
struct Seen {
    state: u8,
    parent: i32,
    started: u64,
}

impl Seen {
    fn of(pid: i32) -> Option<Self> {
        let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
        // The name stands in parentheses and may hold anything, parentheses and spaces too; nothing after it does.
        let after_name = text.iter().rposition(|&byte| byte == b')')?;
        let mut fields = text.get(after_name + 2..)?.split(|&byte| byte == b' ');
        let state = *fields.next()?.first()?;
        let parent = number(fields.next()?)?;
        // The 22nd field of the line, where the state is the third and its parent the fourth.
        let started = number(fields.nth(17)?)?;
        Some(Self { state, parent, started })
    }

    /// Stopped, traced or dead.
    fn is_held(&self) -> bool {
        matches!(self.state, b'T' | b't' | b'Z' | b'X')
    }
}

fn number<N: std::str::FromStr>(bytes: &[u8]) -> Option<N> {
    std::str::from_utf8(bytes).ok()?.parse().ok()
}
