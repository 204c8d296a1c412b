//! Which paths a program was given that its enclosure does not hold: for whoever wonders why a file was not there.
//!
//! Guarantees: worked out from the arguments and the mounts. Of the machine only the names at its top are looked at, so that nobody learns from
//! it which files there are.
//! Does not: know what a program opens of its own accord.

use std::fs;

use palyra_types::path::AbsolutePath;

use super::bubblewrap::SystemTree;
use crate::{
    blueprint::SECRETS,
    plan::{EnclosurePlan, ProcessPlan},
};

/// The paths among the arguments of a plan that lie outside of its enclosure, or are hidden in it.
pub fn outside(plan: &ProcessPlan, enclosure: &EnclosurePlan, system: &SystemTree) -> Vec<String> {
    let mounted = || enclosure.read_only.iter().chain([&plan.workspace]);
    let is_hidden = |path: &AbsolutePath| plan.hidden.iter().any(|hidden| path.is_within(hidden));
    let is_held = |path: &AbsolutePath| {
        // Directories above a mount are there, too, if only as the way to it.
        system.holds(path)
            || mounted().any(|mount| path.is_within(mount) || mount.is_within(path))
            || path.ancestors().chain([path.as_str()]).any(|above| OWN.contains(&above))
    };
    let mut found = Vec::new();
    for path in plan.args.iter().filter_map(|arg| path_in(arg)) {
        let is_missing = (is_hidden(&path) || !is_held(&path)) && is_of_this_machine(&path);
        if is_missing && !found.contains(&path) && found.len() < MOST {
            found.push(path);
        }
    }
    found.iter().map(|path| path.as_str().to_owned()).collect()
}

/// The path that an argument is, or that stands behind the `=` of one.
fn path_in(arg: &str) -> Option<AbsolutePath> {
    let text = if arg.starts_with('/') { arg } else { arg.split_once('=')?.1 };
    AbsolutePath::parse(text.strip_suffix('/').unwrap_or(text)).ok().filter(|_| text.len() <= LONGEST)
}

/// Whether the machine has something where the path begins. Many an argument begins with a slash and is no path.
fn is_of_this_machine(path: &AbsolutePath) -> bool {
    let top = path.as_str().split('/').nth(1).filter(|top| !top.is_empty());
    top.is_some_and(|top| fs::symlink_metadata(format!("/{top}")).is_ok())
}

/// What every enclosure has of its own, or may have.
pub const OWN: &[&str] = &["/etc", "/dev", "/proc", "/tmp", "/var/tmp", SECRETS];

/// How many are told, and how long one may be.
const MOST: usize = 8;
const LONGEST: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Containment, EgressPlan, Interpreters, Limits, UnixSockets};
    use palyra_types::sandbox::EgressEnforcementMode;

    fn told(args: &[&str]) -> Vec<String> {
        let path = |text: &str| AbsolutePath::parse(text).unwrap();
        let enclosure = EnclosurePlan {
            read_only: vec![path("/opt/tools")],
            temporary_bytes: 1,
            unix_sockets: UnixSockets::Refuse,
            ports: Default::default(),
            intercepts: false,
        };
        let plan = ProcessPlan {
            program: path("/usr/bin/cat"),
            argv0: None,
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
            cwd: path("/var/work/shop"),
            env: Default::default(),
            workspace: path("/var/work/shop"),
            hidden: vec![path("/var/work/shop/state")],
            limits: Limits::default(),
            egress: EgressPlan { mode: EgressEnforcementMode::Strict, hosts: Vec::new() },
            interpreters: Interpreters::Refuse,
            containment: Containment::Enclosure(enclosure.clone()),
        };
        outside(&plan, &enclosure, &SystemTree::of_this_machine().unwrap())
    }

    #[test]
    fn paths_outside_are_told_once_in_whatever_way_they_are_given() {
        assert_eq!(told(&["/root/.ssh/id", "--key=/root/.ssh/id", "of=/var/log/x"]), ["/root/.ssh/id", "/var/log/x"]);
        assert_eq!(
            told(&["/var/work/other/", "/var/work/shop/state/x"]),
            ["/var/work/other", "/var/work/shop/state/x"]
        );
    }

    #[test]
    fn what_the_enclosure_holds_is_not_told() {
        for arg in
            ["/usr/lib", "/bin/sh", "/etc/passwd", "/tmp/x", "/var/tmp/x", "/proc/1", "/dev/null", "/opt/tools/x"]
        {
            assert_eq!(told(&[arg]), Vec::<String>::new(), "{arg}");
        }
        for arg in ["/", "/var", "/var/work", "/var/work/shop", "/var/work/shop/src", "relative", "a=b", "="] {
            assert_eq!(told(&[arg]), Vec::<String>::new(), "{arg}");
        }
    }

    #[test]
    fn what_only_looks_like_a_path_is_not_told() {
        for arg in ["/^begin/d", "/pattern/ { print }", "s/a/b/", "/no-such-top/x", "//"] {
            assert_eq!(told(&[arg]), Vec::<String>::new(), "{arg}");
        }
    }
}
