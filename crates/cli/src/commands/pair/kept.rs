//! `palyra pair --list` and `palyra pair --forget`: the daemons that this device is paired with, and one less of them.
//!
//! Guarantees: nobody is asked; only what is kept here is looked at.
//! Does not: revoke anything. Whoever forgets a daemon is still known there.

use palyra_identity::{Address, DeviceIdentity};
use palyra_types::{Timestamp, visible::visible};
use serde::Serialize;

use crate::{
    Outcome,
    exit::Exit,
    failure::Failure,
    paired::{DaemonName, Paired, PairedDaemon},
    table::{self, moment_or},
    terminal::{GOOD, Terminal},
};

#[derive(Serialize)]
struct Kept<'a> {
    name: &'a str,
    address: &'a Address,
    device: &'a str,
    principal: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<Timestamp>,
}

impl<'a> Kept<'a> {
    fn of(PairedDaemon { name, identity, .. }: &'a PairedDaemon) -> Self {
        let DeviceIdentity { address, device, principal, role, .. } = identity;
        let (name, device, role) = (name.as_str(), device.as_str(), role.as_deref());
        Self { name, address, device, principal, role, until: identity.until().ok() }
    }

    fn row(&self) -> [String; 6] {
        [
            self.name.to_owned(),
            self.address.to_string(),
            self.device.to_owned(),
            visible(self.principal),
            self.role.map_or_else(|| "-".to_owned(), visible),
            moment_or(self.until, "-"),
        ]
    }
}

/// Lists them.
pub(super) fn list(paired: &Paired, terminal: &Terminal) -> Outcome {
    let daemons: Vec<PairedDaemon> =
        paired.names()?.iter().map(|name| paired.read(name)).collect::<Result<_, Failure>>()?;
    let kept: Vec<Kept<'_>> = daemons.iter().map(Kept::of).collect();
    if terminal.json {
        terminal.document("paired", serde_json::json!({ "daemons": kept }));
        return Ok(Exit::Ok);
    }
    let rows: Vec<[String; 6]> = kept.iter().map(Kept::row).collect();
    table::print(["NAME", "ADDRESS", "DEVICE", "FOR", "ROLE", "CERTIFICATE UNTIL"], &rows, terminal);
    if rows.is_empty() {
        terminal.talk("this device is paired with no daemon; `palyra pair ADDRESS` does that");
    }
    Ok(Exit::Ok)
}

/// Forgets one.
pub(super) fn forget(name: &DaemonName, paired: &Paired, terminal: &Terminal) -> Outcome {
    // What cannot be read can be forgotten all the same.
    let device = paired.read(name).ok().map(|daemon| daemon.identity.device);
    let file = paired.forget(name).map_err(|failure| match paired.names() {
        Ok(names) if !names.is_empty() => {
            failure.advised("not_paired", "`palyra pair --list` shows those that are kept")
        }
        _ => failure,
    })?;
    if terminal.json {
        terminal.document("pair.forgotten", serde_json::json!({ "name": name.as_str(), "file": file }));
        return Ok(Exit::Ok);
    }
    terminal.out(format!("{} {name}", terminal.paint(GOOD, "✔ forgotten")));
    if let Some(device) = device {
        terminal.talk(format!("the daemon still knows this device, unless `palyra devices revoke {device}` was said"));
    }
    Ok(Exit::Ok)
}
