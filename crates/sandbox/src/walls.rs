//! The rules that hide directories, built once for many calls.
//!
//! Landlock can only allow, so hiding a directory means to allow every neighbour of it and of the directories above it. That takes a
//! walk through all of them, and is worth keeping: the kernel gives such rules as a descriptor.
//! Guarantees: rules are used only while every directory above a hidden one, and what is mounted, is as it was when they were built.
//! What they hide, they always hide: a change can only make them allow too little.
//! Does not: wait for rules. Who finds none builds its own.

use std::{
    fs::File,
    io,
    os::fd::OwnedFd,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rustix::event::{PollFd, PollFlags, Timespec};

use crate::{
    image::Image,
    init::{Idle, receive, send},
    protocol::{Order, Stamp},
    runner::hidden_as_bytes,
    stamp::{is_settled, stamp_at},
};

/// The rules that were built last.
#[derive(Debug)]
pub struct Walls(Mutex<Kept>);

#[derive(Debug)]
struct Kept {
    /// Tells whether anything was mounted or unmounted since it was asked last. Without it, nothing is kept.
    mounts: Option<File>,
    /// How often something was.
    mounted: u64,
    /// One for each list of hidden directories, of which a daemon has hardly more than one.
    known: Vec<Known>,
}

/// A neighbourhood that a call has seen, and the rules for it, if any were built.
#[derive(Debug)]
struct Known {
    neighbourhood: Neighbourhood,
    rules: Option<Arc<OwnedFd>>,
}

/// What rules depend on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neighbourhood {
    hidden: Vec<PathBuf>,
    /// Every directory above them.
    above: Vec<Option<Stamp>>,
    /// How often something had been mounted.
    mounted: u64,
}

/// What there is for a call.
pub enum Found {
    /// Rules that can be used.
    Rules(Arc<OwnedFd>),
    /// None.
    Nothing,
    /// None, but for two calls in a row nothing has changed, so it is worth building some for the next.
    NothingYet(Neighbourhood),
}

impl Walls {
    /// No rules so far. They are of use only where the kernel can hide.
    pub fn new(can_hide: bool) -> Self {
        let mounts = can_hide.then(|| File::open("/proc/self/mountinfo").ok()).flatten();
        Self(Mutex::new(Kept { mounts, mounted: 0, known: Vec::new() }))
    }

    /// Looks for rules that hide these directories.
    pub fn find(&self, hidden: &[PathBuf]) -> Found {
        let mut kept = self.kept();
        let Some(now) = kept.look(hidden) else { return Found::Nothing };
        let Some(known) = kept.known.iter().find(|known| known.neighbourhood == now) else {
            kept.keep(Known { neighbourhood: now, rules: None });
            return Found::Nothing;
        };
        match &known.rules {
            Some(rules) => Found::Rules(Arc::clone(rules)),
            None if now.is_settled() => Found::NothingYet(now),
            None => Found::Nothing,
        }
    }

    /// Builds rules and keeps them, if nothing changes meanwhile. Failing is no harm: who needs rules builds its own.
    pub fn build(&self, neighbourhood: Neighbourhood, image: &Image) {
        let Ok(rules) = build(&neighbourhood.hidden, image) else { return };
        let mut kept = self.kept();
        if kept.look(&neighbourhood.hidden).as_ref() == Some(&neighbourhood) {
            kept.keep(Known { neighbourhood, rules: Some(Arc::new(rules)) });
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    /// What there is around these directories now.
    fn look(&mut self, hidden: &[PathBuf]) -> Option<Neighbourhood> {
        self.mounted += u64::from(has_changed(self.mounts.as_ref()?));
        let above = hidden.iter().flat_map(|hidden| hidden.ancestors().skip(1)).map(stamp_at).collect();
        Some(Neighbourhood { hidden: hidden.to_vec(), above, mounted: self.mounted })
    }

    fn keep(&mut self, new: Known) {
        self.known.retain(|known| known.neighbourhood.hidden != new.neighbourhood.hidden);
        if self.known.len() == MOST_KNOWN {
            self.known.remove(0);
        }
        self.known.push(new);
    }
}

impl Neighbourhood {
    fn is_settled(&self) -> bool {
        self.above.iter().flatten().all(is_settled)
    }
}

/// The process that would become a tool builds them, in place of that: it alone speaks to the kernel about Landlock.
fn build(hidden: &[PathBuf], image: &Image) -> io::Result<OwnedFd> {
    let Idle { init, control, orders } = Idle::new(image)?;
    let order = Order {
        hidden: hidden_as_bytes(hidden),
        is_for_walls: true,
        wall_ms: u64::try_from(LONGEST.as_millis()).unwrap_or(u64::MAX),
        ..Order::default()
    };
    let rules = send(&orders, &order, &[]).and_then(|_| receive(&orders, LONGEST));
    drop((control, orders));
    init.collect_blocking();
    rules
}

/// Whether there is something new to hear from `/proc/self/mountinfo`.
fn has_changed(mounts: &File) -> bool {
    let mut polled = [PollFd::new(mounts, PollFlags::PRI)];
    rustix::event::poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) != Ok(0)
}

/// How long building rules may take.
const LONGEST: Duration = Duration::from_secs(10);

/// For how many lists of hidden directories rules are kept.
const MOST_KNOWN: usize = 4;

#[cfg(test)]
mod tests {
    use std::{fs, thread, time::Instant};

    use super::*;

    #[test]
    fn rules_are_built_for_what_stays_as_it_is_and_forgotten_when_it_changes() {
        let image = Image::new().unwrap();
        let walls = Walls::new(true);
        let place = tempfile::tempdir().unwrap();
        let hidden = vec![fs::canonicalize(place.path()).unwrap().join("above/hidden")];
        fs::create_dir_all(&hidden[0]).unwrap();
        let rules = find_rules(&walls, &hidden, &image);
        fs::write(place.path().join("above/neighbour"), "").unwrap();
        assert!(!matches!(walls.find(&hidden), Found::Rules(_)), "there is a neighbour that they do not know");
        let others = find_rules(&walls, &hidden, &image);
        assert!(!Arc::ptr_eq(&rules, &others));
        assert!(!matches!(walls.find(&[]), Found::Rules(_)), "they hide something else");
        let nothing = find_rules(&walls, &[], &image);
        assert!(!Arc::ptr_eq(&nothing, &others));
    }

    #[test]
    fn where_nothing_can_be_hidden_no_rules_are_looked_for() {
        let walls = Walls::new(false);
        for _ in 0..3 {
            assert!(matches!(walls.find(&[]), Found::Nothing));
        }
    }

    /// Asks until there are rules. What others do in the directories above may bring them down again.
    fn find_rules(walls: &Walls, hidden: &[PathBuf], image: &Image) -> Arc<OwnedFd> {
        let began = Instant::now();
        let mut built = false;
        loop {
            match walls.find(hidden) {
                Found::Rules(rules) => {
                    assert!(built, "nobody built them");
                    return rules;
                }
                Found::NothingYet(neighbourhood) => {
                    walls.build(neighbourhood, image);
                    built = true;
                }
                Found::Nothing => thread::sleep(Duration::from_millis(1)),
            }
            assert!(began.elapsed() < Duration::from_secs(20), "there are never any rules");
        }
    }
}
