//! `palyra doctor`: looks at everything that Palyra needs here, and says what to do about what is missing.

use std::{
    env,
    net::{SocketAddr, TcpListener},
    path::Path,
};

use palyra_api::health::{Check, CheckState};
use palyra_client::Client;
use palyra_daemon::{Contact, Installation, certificate::valid_until, environment, sandbox};
use palyra_types::{Clock, StateHome, clock::SystemClock};
use serde::Serialize;

use crate::{
    Outcome,
    exit::Exit,
    terminal::{BAD, GOOD, Terminal, WAIT},
};

#[derive(Serialize)]
struct Report {
    ok: bool,
    checks: Vec<Check>,
}

pub(crate) fn run(terminal: &Terminal) -> Outcome {
    let checks = installation();
    let ok = checks.iter().all(|check| check.state != CheckState::Bad);
    if terminal.json {
        terminal.document("doctor", Report { ok, checks });
    } else {
        for check in &checks {
            let (glyph, style) = match check.state {
                CheckState::Good => ("✔", GOOD),
                CheckState::Doubtful => ("!", WAIT),
                CheckState::Bad => ("✖", BAD),
            };
            terminal.out(format!("{} {:<14} {}", terminal.paint(style, glyph), check.name, check.detail));
            if let Some(fix) = &check.fix {
                terminal.out(format!("  {:<14} {fix}", ""));
            }
        }
    }
    Ok(if ok { Exit::Ok } else { Exit::Failure })
}

/// What is installed, and whether a daemon serves it.
fn installation() -> Vec<Check> {
    let home = match StateHome::find(|name| env::var_os(name)) {
        Ok(home) => home,
        Err(error) => return vec![bad("state", error.to_string(), "set PALYRA_HOME to an absolute path")],
    };
    let found = match Installation::find(&home, environment()) {
        Ok(found) => found,
        Err(error) => {
            // The daemon may have been started before that was so.
            let told = daemon(&home).into_iter().flatten();
            return [bad("state", error.to_string(), error.advice())].into_iter().chain(told).collect();
        }
    };
    let mut checks = vec![good("state", format!("{}, for you alone", home.path().display())), certificate(&found)];
    checks.push(policies(&found));
    checks.extend(workspaces(&found));
    checks.extend(presence(&found));
    match daemon(&home) {
        Some(told) => checks.extend(told),
        None => {
            checks.extend([port("local port", found.local()), port("control port", found.control())]);
            checks.extend(sandbox(&found));
        }
    }
    checks
}

/// What tier C would hold, tried here and now, since there is no daemon to say so.
fn sandbox(found: &Installation) -> Vec<Check> {
    let directory = found.home().path().join(format!("doctor-{}", std::process::id()));
    let checks = sandbox::checks(&sandbox::find(found.config(), &directory));
    let _ = std::fs::remove_dir_all(&directory);
    checks
}

fn certificate(found: &Installation) -> Check {
    let now = SystemClock::new().now();
    match valid_until(found.keys().certificate()) {
        Some(until) if until > now => good("certificate", format!("valid until {until}, and made anew before that")),
        _ => doubtful("certificate", "it has run out", "start the daemon anew: `palyra up`"),
    }
}

fn policies(found: &Installation) -> Check {
    let loaded =
        found.config().policies(&found.home().policies()).and_then(|sources| palyra_policy::Snapshot::load(&sources));
    match loaded {
        Ok(set) => good("policy files", format!("{} policies are sound", set.policies().len())),
        Err(error) => bad("policy files", error.to_string(), "`palyra policy check` shows what is wrong"),
    }
}

/// The workspaces whose directories are not there.
fn workspaces(found: &Installation) -> impl Iterator<Item = Check> {
    let missing = found.config().workspace.iter().filter(|one| !Path::new(one.path.as_str()).is_dir());
    missing.map(|one| {
        let name = format!("workspace {}", one.name);
        bad(
            &name,
            format!("{} is no directory", one.path),
            "make it, or mend [[workspace]] in config.toml and `palyra reload`",
        )
    })
}

/// Whether there is a PIN, where answers want one.
fn presence(found: &Installation) -> Option<Check> {
    let wanted = found.config().wants_pin();
    let help = "`palyra approvals pin`, then start the daemon anew; or `presence = \"none\"` under [approvals]";
    match found.presence() {
        Ok(None) if wanted => Some(bad("pin", "answers want one, and none is set", help)),
        Err(error) => Some(bad("pin", error.to_string(), error.advice())),
        Ok(_) => None,
    }
}

/// What the daemon of this installation says about itself, if it is there. Nobody else is listened to.
fn daemon(home: &StateHome) -> Option<Vec<Check>> {
    let contact = Contact::find(home, environment()).ok()?;
    let client = Client::control(contact.control(), contact.keys().certificate()).ok()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    let readiness = runtime.block_on(client.readiness()).ok()?;
    Some(readiness.checks)
}

/// Whether a port could be had.
fn port(name: &str, address: SocketAddr) -> Check {
    match TcpListener::bind(address) {
        Ok(_) => doubtful(name, &format!("{address} is free; no daemon runs"), "start one: `palyra up`"),
        Err(error) => bad(
            name,
            format!("{address} is taken, and not by this daemon: {error}"),
            "choose another port under [listen] in config.toml",
        ),
    }
}

fn good(name: &str, detail: String) -> Check {
    Check { name: name.to_owned(), state: CheckState::Good, detail, fix: None }
}

fn doubtful(name: &str, detail: &str, fix: &str) -> Check {
    Check { name: name.to_owned(), state: CheckState::Doubtful, detail: detail.to_owned(), fix: Some(fix.to_owned()) }
}

fn bad(name: &str, detail: impl Into<String>, fix: impl Into<String>) -> Check {
    Check { name: name.to_owned(), state: CheckState::Bad, detail: detail.into(), fix: Some(fix.into()) }
}
