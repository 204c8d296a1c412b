//! `palyra doctor`: looks at everything that Palyra needs here, and says what to do about what is missing.

use std::{
    env,
    net::{SocketAddr, TcpListener},
    path::Path,
};

use palyra_api::health::{Check, CheckState};
use palyra_daemon::{Contact, Installation, Serving, environment, sandbox};
use palyra_identity::{Phase, private_file};
use palyra_types::{Clock, StateHome, Timestamp, clock::SystemClock};
use serde::Serialize;

use crate::{
    Outcome,
    at::At,
    connection::{Connection, block_on, is_bare, pair_again},
    exit::Exit,
    failure::Failure,
    paired::{DaemonName, Paired, PairedDaemon},
    terminal::{BAD, GOOD, Terminal, WAIT},
};

#[derive(Serialize)]
struct Report {
    ok: bool,
    checks: Vec<Check>,
}

pub(crate) fn run(at: &At, terminal: &Terminal) -> Outcome {
    at.unnamed("looking at this machine")?;
    let checks = installation(terminal);
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
fn installation(terminal: &Terminal) -> Vec<Check> {
    let home = match StateHome::find(|name| env::var_os(name)) {
        Ok(home) => home,
        Err(error) => return vec![bad("state", error.to_string(), "set PALYRA_HOME to an absolute path")],
    };
    let found = match Installation::find(&home, environment()) {
        Ok(found) => found,
        Err(error) => {
            let paired = Paired::of(&home);
            if is_bare(&home) && paired.names().is_ok_and(|names| !names.is_empty()) {
                return self::paired(&paired, SystemClock::new().now(), terminal);
            }
            // The daemon may have been started before that was so.
            let told = daemon(terminal).unwrap_or_default();
            return [bad("state", error.to_string(), error.advice())].into_iter().chain(told).collect();
        }
    };
    let now = SystemClock::new().now();
    let mut checks = vec![good("state", format!("{}, for you alone", home.path().display()))];
    let (told, serving) = (daemon(terminal), serving(&home));
    let device = device(&found, told.as_ref().map_err(|failure| serving.map(|_| failure)), now);
    checks.extend([authority(&found, now), device, registry(&found), policies(&found)]);
    checks.extend(workspaces(&found));
    checks.extend(presence(&found));
    match (told, serving) {
        (Ok(told), _) => checks.extend(told),
        (Err(failure), Some(serving)) => {
            checks.push(unasked(serving, &failure));
            checks.extend(sandbox(&found));
        }
        (Err(_), None) => {
            checks.extend([port("local port", found.local()), port("control port", found.control())]);
            checks.extend(sandbox(&found));
        }
    }
    checks
}

/// What this device is to daemons elsewhere, on a machine that has none of its own.
fn paired(paired: &Paired, now: Timestamp, terminal: &Terminal) -> Vec<Check> {
    let check = |name: &DaemonName| match paired.read(name) {
        Ok(daemon) => one_paired(daemon, now, terminal),
        Err(failure) => bad("paired", format!("{name}: {}", failure.cause), failure.help),
    };
    paired.names().unwrap_or_default().iter().map(check).collect()
}

/// What this device is to one of them, as that daemon says.
fn one_paired(daemon: PairedDaemon, now: Timestamp, terminal: &Terminal) -> Check {
    let (until, place) = (daemon.identity.until(), format!("{} at {}", daemon.name, daemon.identity.address));
    let again = pair_again(&daemon.name, &daemon.identity.address);
    let again = format!("{again}; or forget it: `palyra pair --forget {}`", daemon.name);
    let until = match until {
        Ok(until) if until > now => until,
        Ok(until) => return bad("paired", format!("{place}, certificate over since {until}"), again),
        Err(error) => return bad("paired", format!("{place}: {error}"), again),
    };
    let connection = Connection::away(daemon, terminal);
    let asked = connection.daemon().and_then(|daemon| block_on(async { Ok(daemon.identity().await?) }));
    match asked.map_err(|failure| connection.advised(failure)) {
        Ok(_) => good("paired", format!("{place}, which lets this device in; certificate until {until}")),
        Err(failure) if failure.code == "unreachable" || failure.code == "slow" => {
            doubtful("paired", &format!("{place}: {}", failure.cause), &failure.help)
        }
        Err(failure) => bad("paired", format!("{place}: {}", failure.cause), failure.help),
    }
}

/// What tier C would hold, tried here and now, since there is no daemon to say so.
fn sandbox(found: &Installation) -> Vec<Check> {
    let directory = found.home().path().join(format!("doctor-{}", std::process::id()));
    let checks = sandbox::checks(&sandbox::find(found.config(), &directory));
    let _ = std::fs::remove_dir_all(&directory);
    checks
}

/// How long the authority holds, and whether it is being replaced.
fn authority(found: &Installation, now: Timestamp) -> Check {
    let validity = found.authority().validity();
    let until = validity.until;
    match found.authority().phase() {
        _ if until <= now => {
            bad("authority", format!("it is over since {until}"), "replace it: `palyra devices authority announce`")
        }
        Phase::Steady if validity.renewal_is_due(now) => {
            doubtful("authority", &format!("valid until {until}"), "replace it: `palyra devices authority announce`")
        }
        Phase::Steady => good("authority", format!("valid until {until}")),
        phase => doubtful(
            "authority",
            &format!("valid until {until}, and being replaced: {phase}"),
            "`palyra devices authority` says what comes next",
        ),
    }
}

/// Whether the daemon takes this command's own certificate: it has told something, or nothing, and one that runs may have said why.
fn device(found: &Installation, told: Result<&Vec<Check>, Option<&Failure>>, now: Timestamp) -> Check {
    let refused = told.err().flatten().filter(|failure| NOT_LET_IN.contains(&failure.code.as_ref()));
    if let Some(refused) = refused {
        // Who listens is known: the daemon told where it serves.
        return match refused.code.as_ref() {
            "stranger" | "not_taken" => bad("device", CUT_OFF, MADE_ANEW),
            _ => bad("device", refused.cause.clone(), refused.help.clone()),
        };
    }
    match found.identity().until() {
        Ok(until) if until > now && told.is_ok() => {
            good("device", format!("it is let in; its certificate is valid until {until}, and renewed by itself"))
        }
        Ok(until) if until > now => doubtful(
            "device",
            &format!("its certificate is valid until {until}; no daemon says whether it is let in"),
            "start the daemon, then `palyra doctor` again",
        ),
        Ok(until) => bad("device", format!("its certificate is over since {until}"), "make it anew: `palyra init`"),
        Err(error) => bad("device", error.to_string(), error.advice()),
    }
}

/// Whether it can be told who is let in.
fn registry(found: &Installation) -> Check {
    let path = found.files().registry;
    let content = match private_file::read(&path, LARGEST_REGISTRY) {
        Ok(content) => content,
        Err(error) => return bad("registry", error.to_string(), error.advice()),
    };
    match serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(&content) {
        Ok(_) => good("registry", "it says who is let in, to you alone".to_owned()),
        Err(error) => bad("registry", format!("{}: {error}", path.display()), "restore it from a backup"),
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

/// What the daemon of this installation says about itself, if it is there and lets this device in. Nobody else is listened to.
fn daemon(terminal: &Terminal) -> Result<Vec<Check>, Failure> {
    let connection = Connection::find(&At::Unnamed, terminal)?;
    let client = connection.daemon()?;
    let asked = block_on(async {
        // How ready it is, it tells to everybody.
        client.identity().await?;
        let mut checks = client.readiness().await?.checks;
        // Why the vault is not open, it tells to those who may see what is in it.
        if let (Some(check), Ok(status)) = (checks.iter_mut().find(|one| one.name == "vault"), client.vault().await) {
            check.detail =
                status.message.map_or(check.detail.clone(), |message| format!("{}: {message}", check.detail));
            check.fix = status.help.or(check.fix.take());
        }
        Ok(checks)
    });
    asked.map_err(|failure| connection.advised(failure))
}

/// The daemon of this state directory that runs, if it serves where it is looked for. A variable may name another place.
fn serving(home: &StateHome) -> Option<Serving> {
    let contact = Contact::find(home, environment()).ok()?;
    let is_there =
        |serving: &Serving| serving.local == contact.local() && serving.control.port() == contact.control().port();
    Serving::now(home).filter(is_there)
}

/// A daemon of this state directory that runs, and could not be asked.
fn unasked(serving: Serving, failure: &Failure) -> Check {
    let Serving { pid, control, local } = serving;
    let place = format!("it runs as process {pid}, at {control} and {local}");
    if NOT_LET_IN.contains(&failure.code.as_ref()) {
        return doubtful("daemon", &format!("{place}, and does not tell this device how it is"), "see device, above");
    }
    bad("daemon", format!("{place}, and does not answer: {}", failure.cause), failure.help.clone())
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

const CUT_OFF: &str = "it is cut off: the authority was replaced, and it has not followed";

const MADE_ANEW: &str = "stop the daemon; `palyra init` makes its certificate anew, and `palyra up` starts the daemon";

/// What is told by or about a daemon that lets this device in no more, or that this device does not trust any more.
const NOT_LET_IN: &[&str] = &["revoked", "unknown_device", "unauthenticated", "expired", "not_taken", "stranger"];

/// More than a daemon writes.
const LARGEST_REGISTRY: u64 = 64 << 20;
