//! Whether the daemon can do its work, and what it looked at.

use palyra_api::health::{Check, CheckState, Readiness};
use palyra_gate::safekeeping::VaultState;

use crate::{app::App, sandbox};

/// Looks at everything that calls need.
#[must_use]
pub fn of(app: &App) -> Readiness {
    let mut checks = vec![journal(app), policies(app), workspaces(app), stopping(app)];
    checks.extend(sandbox::checks(&app.gate.containment()));
    checks.push(vault(app));
    checks.push(skills(app));
    checks.extend(sinks(app));
    Readiness { ready: checks.iter().all(|check| check.state != CheckState::Bad), checks }
}

fn journal(app: &App) -> Check {
    match app.gate.trouble() {
        None => good("journal", format!("{} records, and it can be written", app.hub.size())),
        Some(trouble) => bad("journal", trouble.to_string(), trouble.advice()),
    }
}

fn policies(app: &App) -> Check {
    let snapshot = app.gate.engine().snapshot();
    let refused = app.policies.lock().unwrap_or_else(std::sync::PoisonError::into_inner).refused.clone();
    match refused {
        None => good("policies", format!("{} policies are in force", snapshot.policies().len())),
        // Anybody may ask; what stands in the files is not for everybody.
        Some(_) => Check {
            name: "policies".to_owned(),
            state: CheckState::Doubtful,
            detail: "what is on disk is not in force, because a reload was refused".to_owned(),
            fix: Some("`palyra policy check` and `palyra reload` say why".to_owned()),
        },
    }
}

fn workspaces(app: &App) -> Check {
    match app.gate.config().workspace.len() {
        0 => Check {
            name: "workspaces".to_owned(),
            state: CheckState::Doubtful,
            detail: "none is configured, so agents cannot work on files or run programs".to_owned(),
            fix: Some("add one to config.toml: [[workspace]] name = \"…\" path = \"…\"".to_owned()),
        },
        count => good("workspaces", format!("{count} configured")),
    }
}

fn stopping(app: &App) -> Check {
    if *app.stopping.borrow() {
        return bad("daemon", "it is stopping".to_owned(), "wait for the next one");
    }
    good("daemon", format!("version {}", env!("CARGO_PKG_VERSION")))
}

/// Calls that need no secret run either way. Why it is not open may name files, which is not for everybody.
fn vault(app: &App) -> Check {
    let told = |detail: &str| Check {
        name: "vault".to_owned(),
        state: CheckState::Doubtful,
        detail: detail.to_owned(),
        fix: Some("`palyra vault status` says why, and what to do".to_owned()),
    };
    match &*app.gate.vault() {
        VaultState::Open(vault) => good("vault", format!("it is open; `{}` holds its key", vault.backend())),
        VaultState::Closed(closed) if closed.is_locked => told("it is locked"),
        VaultState::Closed(_) => told("it is closed"),
    }
}

/// Calls of built-in tools run either way. Why they are closed may name files, which is not for everybody.
fn skills(app: &App) -> Check {
    let doubtful = |detail: String, fix: &str| Check {
        name: "skills".to_owned(),
        state: CheckState::Doubtful,
        detail,
        fix: Some(fix.to_owned()),
    };
    match app.gate.skills() {
        Err(_) => doubtful("they are closed".to_owned(), "`palyra skills list` says why, and what to do"),
        Ok(_) if !app.gate.config().skills.enabled => {
            doubtful("they are switched off".to_owned(), "set `enabled = true` under [skills] in config.toml")
        }
        Ok(installed) => {
            let stopped = installed.skills().filter(|skill| skill.quarantine.is_some()).count();
            good("skills", format!("{} installed, {stopped} in quarantine", installed.skills().len()))
        }
    }
}

fn sinks(app: &App) -> Vec<Check> {
    let status = app.publisher.as_ref().map(palyra_journal::Publisher::status).unwrap_or_default();
    status
        .into_iter()
        .map(|sink| match sink.failing {
            None => good("checkpoints", format!("sent to {}", sink.sink)),
            Some(failing) => Check {
                name: "checkpoints".to_owned(),
                state: CheckState::Doubtful,
                detail: format!("{} fails since {}: {}", sink.sink, failing.since, failing.error),
                fix: Some("look at [journal] in config.toml".to_owned()),
            },
        })
        .collect()
}

fn good(name: &str, detail: String) -> Check {
    Check { name: name.to_owned(), state: CheckState::Good, detail, fix: None }
}

fn bad(name: &str, detail: String, fix: &str) -> Check {
    Check { name: name.to_owned(), state: CheckState::Bad, detail, fix: Some(fix.to_owned()) }
}
