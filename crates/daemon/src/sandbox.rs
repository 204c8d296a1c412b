//! What the tiers really hold on this machine, as checks with what to do about them.
//!
//! Guarantees: a layer that is missing is told as missing, whether tier C does without it or not.

use std::path::Path;

use palyra_api::health::{Check, CheckState};
use palyra_gate::{Containment, Missing};

use crate::config::Config;

/// A tier C that is not to be had.
pub type Unavailable = palyra_gate::containment::Unavailable;

/// Tries what this machine has, for whoever asks without a daemon. What is made for that goes into this directory.
///
/// # Errors
/// When tier C is not to be had.
pub fn find(config: &Config, directory: &Path) -> Result<Containment, Unavailable> {
    Containment::find((&config.sandbox, &config.egress), directory.join("sandbox"))
}

/// The layers of tier C, one check for each kind.
#[must_use]
pub fn checks(containment: &Result<Containment, Unavailable>) -> Vec<Check> {
    let found = match containment {
        Ok(found) => found,
        Err(error) => {
            let detail = format!("is not to be had: {}; programs run in tier b where policy lets them", error.detail);
            return vec![doubtful("tier c", detail, error.advice())];
        }
    };
    let waiting = match found.waiting {
        1 => "1 enclosure waits".to_owned(),
        count => format!("{count} enclosures wait"),
    };
    let mut checks = vec![
        good("tier c", format!("contains programs, and was tried from inside; {waiting}")),
        bubblewrap(&found.bubblewrap),
        good("namespaces", found.namespaces.join(", ")),
        good("landlock", found.landlock.join(", ")),
        good("seccomp", found.seccomp.join(", ")),
        good("processes", found.others.join(", ")),
    ];
    if !found.cgroups.is_empty() {
        checks.push(good("cgroups", found.cgroups.join(", ")));
    }
    checks.push(good("refused inside", found.refused.join(", ")));
    checks
        .extend(found.missing.iter().map(|missing| doubtful(name_of(*missing), missing.to_string(), fix_of(*missing))));
    checks
}

/// Older versions follow a link of the workspace while they make mount points.
fn bubblewrap(version: &str) -> Check {
    let mut numbers = version.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
    let known = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if known >= MENDED {
        return good("bubblewrap", version.to_owned());
    }
    let detail = format!(
        "{version}, which may follow links while it makes mount points (CVE-2026-87766); none of Palyra's lies inside a workspace"
    );
    doubtful("bubblewrap", detail, "bring it up to date when your distribution has 0.12 or later")
}

const fn name_of(missing: Missing) -> &'static str {
    match missing {
        Missing::Cgroups | Missing::CgroupNamespace => "cgroups",
        Missing::Scopes => "landlock scopes",
        Missing::Notices => "seccomp notices",
    }
}

const fn fix_of(missing: Missing) -> &'static str {
    match missing {
        Missing::Cgroups => "run the daemon where cgroups are delegated to it: a systemd unit with Delegate=yes",
        Missing::Scopes | Missing::CgroupNamespace => "use a newer kernel",
        Missing::Notices => "nothing else may listen for refused system calls: start the daemon outside of a container",
    }
}

fn good(name: &str, detail: String) -> Check {
    Check { name: name.to_owned(), state: CheckState::Good, detail, fix: None }
}

fn doubtful(name: &str, detail: String, fix: &str) -> Check {
    Check { name: name.to_owned(), state: CheckState::Doubtful, detail, fix: Some(fix.to_owned()) }
}

/// The version of bubblewrap from which on it does not.
const MENDED: (u32, u32) = (0, 12);
