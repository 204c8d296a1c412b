//! The tree of processes below the init: finding it, signalling it, ending it.
//!
//! Guarantees: [`end`] returns only when no descendant is left, whatever sessions, groups or parents they gave themselves: an
//! orphan becomes a child of the init, which is its subreaper. A signal never reaches a process outside the tree.
//! Does not: end processes that a service outside the tree starts on the program's behalf.

use alloc::{collections::BTreeSet, ffi::CString, vec, vec::Vec};
use core::time::Duration;

use crate::{
    kernel::{self, Open},
    supervisor,
};

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
        let until = Until::after(grace);
        signal_new(kernel::SIGTERM, &mut BTreeSet::new());
        while let Some(left) = until.left() {
            wait_for_child(signals, left);
            if !collect(&mut each) {
                return;
            }
        }
    }
    let mut pause = Duration::from_millis(1);
    loop {
        // A process that has SIGKILL coming can no longer fork, so each pass leaves only what was born during it. Under a storm of
        // forks it may take a while until the killed get to die; they are not looked at again.
        let mut killed = BTreeSet::new();
        while signal_new(kernel::SIGKILL, &mut killed) > 0 {
            kill_children();
        }
        kill_children();
        // Each end wakes this up. A process that the kernel does not let go of is asked about less and less often.
        let until = Until::after(pause);
        while let Some(left) = until.left() {
            wait_for_child(signals, left);
            if !collect(&mut each) {
                return;
            }
        }
        pause = (pause * 2).min(Duration::from_millis(250));
    }
}

/// As [`end`], for the first process of an enclosure: every process that it can signal is one of the tree.
pub fn end_all(signals: i32, grace: Duration, mut each: impl FnMut(Collected)) {
    if !collect(&mut each) {
        return;
    }
    let (mut signal, mut pause) = if grace.is_zero() {
        (kernel::SIGKILL, Duration::from_millis(1))
    } else {
        (kernel::SIGTERM, grace)
    };
    loop {
        kernel::kill(EVERYBODY, signal);
        let until = Until::after(pause);
        while let Some(left) = until.left() {
            wait_for_child(signals, left);
            if !collect(&mut each) {
                return;
            }
        }
        // What is born while the signal goes round gets the next one.
        pause = if signal == kernel::SIGKILL { (pause * 2).min(Duration::from_millis(250)) } else { Duration::from_millis(1) };
        signal = kernel::SIGKILL;
    }
}

/// Ends the tree with nothing but what is there already, for an init that gets no memory any more and can do nothing else.
///
/// Does nothing in a process that is no init: it has no children.
pub fn leave_nothing() {
    while collect(drop) {
        kill_children();
        kernel::poll([], Some(Duration::from_millis(1)));
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
    kernel::poll([signals], Some(timeout));
    drain(signals);
}

/// Kills the init's own children, from a list that the kernel keeps where it is built to. Takes neither memory nor descriptors.
///
/// SECURITY: with `/proc` mounted to hide processes, a program of another user that makes itself undumpable is in no listing. It
/// is in this one, at the latest when its parent is gone, and its number cannot be reused before the init collects it.
fn kill_children() {
    let mut text = [0; 1 << 10];
    let mut place = 0;
    while let Ok(read) = kernel::read_at(supervisor::CHILDREN, place, &mut text) {
        let whole = text.get(..read).and_then(|text| text.get(..=text.iter().rposition(u8::is_ascii_whitespace)?));
        let Some(whole) = whole else { return };
        for child in whole.split(u8::is_ascii_whitespace).filter_map(number) {
            kernel::kill(child, kernel::SIGKILL);
        }
        place += whole.len();
    }
}

/// Sends a signal to every process of the tree that is not among `done`, and returns how many those were.
fn signal_new(signal: i32, done: &mut BTreeSet<(i32, u64)>) -> usize {
    let mut new = 0;
    each_member(|pid, seen| {
        if !done.insert((pid, seen.started)) {
            return;
        }
        new += 1;
        // The number may belong to another process by now. The descriptor cannot: what is read after it was opened is about
        // the process that it names, or about none.
        let Ok(process) = kernel::pidfd_open(pid) else { return };
        if Seen::of(pid).is_some_and(|now| now.started == seen.started) {
            // Also to those that are listed as dead: a process whose first thread has ended is, while its others run on.
            kernel::pidfd_send_signal(process, signal);
        }
        kernel::close(process);
    });
    new
}

/// Meets the processes of the tree: the init's own children first, the newest first, since a program that passes itself on from
/// process to process is always the newest, and an orphan.
///
/// Misses what is born meanwhile. Who needs that repeats it.
fn each_member(mut meet: impl FnMut(i32, &Seen)) {
    let own = kernel::own_pid();
    let mut pids = numbered_entries_of_proc();
    pids.sort_unstable_by(|a, b| b.cmp(a));
    let (mut tree, mut others) = (BTreeSet::from([own]), Vec::new());
    for pid in pids {
        match Seen::of(pid) {
            Some(seen) if seen.parent == own => {
                tree.insert(pid);
                meet(pid, &seen);
            }
            Some(seen) => others.push((pid, seen)),
            None => {}
        }
    }
    // Children mostly have higher numbers than their parents, so this seldom takes more than two rounds.
    loop {
        let known = tree.len();
        others.reverse();
        others.retain(|(pid, seen)| {
            let member = tree.contains(&seen.parent);
            if member {
                tree.insert(*pid);
                meet(*pid, seen);
            }
            !member
        });
        if tree.len() == known {
            return;
        }
        others.reverse();
    }
}

/// What `/proc` says about a process.
struct Seen {
    parent: i32,
    started: u64,
}

impl Seen {
    fn of(pid: i32) -> Option<Self> {
        let text = read_file(&[b"/proc/", digits(pid).as_slice(), b"/stat"].concat())?;
        // The name stands in parentheses and may hold anything, parentheses and spaces too; nothing after it does.
        let after_name = text.iter().rposition(|&byte| byte == b')')?;
        let mut fields = text.get(after_name + 2..)?.split(|&byte| byte == b' ');
        // The fourth and the 22nd field of the line, where the state, just before the parent, is the third.
        let parent = number(fields.nth(1)?)?;
        let started = number(fields.nth(17)?)?;
        Some(Self { parent, started })
    }
}

/// The processes that `/proc` lists.
fn numbered_entries_of_proc() -> Vec<i32> {
    let mut pids = Vec::new();
    let Ok(listed) = kernel::open(c"/proc", Open::Read) else { return pids };
    let mut buffer = vec![0; 4 << 10];
    loop {
        let mut more = false;
        for entry in kernel::read_entries(listed, &mut buffer).into_iter().flatten() {
            more = true;
            pids.extend(number::<i32>(entry.name));
        }
        if !more {
            break;
        }
    }
    kernel::close(listed);
    pids
}

fn read_file(path: &[u8]) -> Option<Vec<u8>> {
    let file = kernel::open(&CString::new(path).ok()?, Open::Read).ok()?;
    let mut text = vec![0; 1 << 10];
    let mut have = 0;
    let whole = loop {
        match kernel::read(file, text.get_mut(have..).unwrap_or_default()) {
            Ok(0) => break Some(()),
            Ok(read) => have += read,
            Err(_) => break None,
        }
        if have == text.len() {
            text.resize(2 * have, 0);
        }
    };
    kernel::close(file);
    text.truncate(have);
    whole.map(|()| text)
}

/// A moment that may be over.
struct Until(u64);

impl Until {
    fn after(duration: Duration) -> Self {
        Self(kernel::now().saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }

    fn left(&self) -> Option<Duration> {
        self.0.checked_sub(kernel::now()).filter(|&left| left > 0).map(Duration::from_nanos)
    }
}

/// A process's number as `/proc` spells it.
fn digits(pid: i32) -> Vec<u8> {
    let mut rest = pid.unsigned_abs();
    let mut digits = Vec::new();
    loop {
        digits.push(b'0' + u8::try_from(rest % 10).unwrap_or_default());
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    digits.reverse();
    digits
}

fn number<N: core::str::FromStr>(bytes: &[u8]) -> Option<N> {
    core::str::from_utf8(bytes).ok()?.parse().ok()
}

/// For a signal: every process that the caller can signal, but itself.
const EVERYBODY: i32 = -1;
