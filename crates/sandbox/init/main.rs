//! The init: a small program between the daemon and one tool, which starts the tool, watches it and leaves nothing behind.
//!
//! It is started in three ways. As the launcher it becomes bubblewrap, which starts it once more, as the first process of an
//! [`enclosure`]. Otherwise there is no enclosure, and the machine is the tool's.
//!
//! The daemon starts it with the control socket as standard input and another socket as standard output. It forks a process that reads
//! one order from the latter, which may be long in coming, and becomes the tool. It ends the tool's whole tree when the tool ends, when
//! the wall clock runs out, when the daemon asks for it and when the daemon is gone.
//! It does without the standard library and the C library, so that it is there at once and its fork is a small one.
//! Guarantees: it exits only when no descendant is left. Nothing of the daemon's memory is forked, whatever its size.
//! Refuses: to start a tool with fewer layers than its reports say.

#![no_std]
#![no_main]
#![deny(unsafe_code)]

extern crate alloc;

#[allow(dead_code, reason = "the other side writes blueprints")]
mod blueprint;
mod enclosure;
mod files;
mod filter;
#[allow(unsafe_code, reason = "the one place where the init meets the kernel")]
mod kernel;
mod landlock;
mod launcher;
mod limits;
mod notices;
mod probe;
mod program;
#[allow(dead_code, reason = "the other side writes orders and reads reports")]
mod protocol;
mod supervisor;
mod tree;

use crate::{blueprint::Blueprint, kernel::Prctl, protocol::Step};

fn main(mode: &[u8]) {
    let done = match mode {
        b"launch" => launcher::launch(),
        b"enclosed" => enclosure::build().and_then(|blueprint| run(Some(blueprint))),
        _ => run(None),
    };
    if let Err((step, errno)) = done {
        supervisor::report(&protocol::Report::Refused { step, errno: errno.0 });
    }
}

fn run(enclosure: Option<Blueprint>) -> Result<(), (Step, kernel::Errno)> {
    let at = |step| move |errno| (step, errno);
    kernel::set_name(c"palyra-init");
    // Out of the daemon's process group: Ctrl-C on its terminal is for the daemon to handle.
    kernel::setsid().map_err(at(Step::Supervise))?;
    // When memory runs out, let it be taken from here and not from the daemon. Whoever is worse off already stays so.
    let _ = kernel::write_file(c"/proc/self/oom_score_adj", b"500");
    // SECURITY: a tool of the same user could otherwise trace the init and have it do anything.
    #[cfg(weak)]
    let is_open = enclosure.as_ref().is_some_and(|blueprint| blueprint.is_without(blueprint::weakness::INIT));
    #[cfg(not(weak))]
    let is_open = false;
    if !is_open {
        kernel::prctl(Prctl::SetDumpable, 0).map_err(at(Step::Supervise))?;
    }
    kernel::prctl(Prctl::SetChildSubreaper, 1).map_err(at(Step::Supervise))?;
    let signals = kernel::take_signals().map_err(at(Step::Supervise))?;
    supervisor::supervise(signals, enclosure.as_ref())
}
