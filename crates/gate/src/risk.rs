//! How much is at stake in a call, with the reasons.
//!
//! What counts is what the call could do behind the walls that its plan has, not what the program is usually for: `find`, `sort` and
//! `git log` read, and also write or start programs when an argument or a file of the workspace says so. A list of programs that only read
//! would be a guess, and a person would trust it. So every program in tier B, which contains nothing, is at least high.
//!
//! Does not: decide anything. It tells a person where to look.

use std::collections::BTreeSet;

use palyra_policy::Touch;
use palyra_sandbox::egress::fetch::Scheme;
use palyra_types::{
    Action, EgressEnforcementMode, SandboxTier, ToolCapability,
    process::{is_interpreter, is_launcher},
    word::words,
};
use serde::{Deserialize, Serialize};

use crate::{
    plan::Plan,
    service::{Deputy, ServiceWork},
    tool::{HostPort, Intent, Work},
};

words! {
    /// How much is at stake, from little to much.
    pub enum RiskLevel ("risk level") {
        /// Nothing is changed or leaves.
        Low = "low",
        /// Something in the workspace is changed.
        Medium = "medium",
        /// A program runs that nothing contains, or that can run anything inside its sandbox; or something may be sent.
        High = "high",
        /// A program runs that can run anything, and nothing contains it; or secrets are seen.
        Critical = "critical",
    }
}

/// How much is at stake, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Risk {
    /// How much.
    pub level: RiskLevel,
    /// Why, in sentences without a full stop.
    pub reasons: Vec<String>,
}

/// What is at stake in a call.
#[must_use]
pub fn assess(intent: &Intent, plan: &Plan, capabilities: &BTreeSet<ToolCapability>) -> Risk {
    let mut found = Vec::new();
    if let (Work::Process(work), Plan::Process { tier, .. }) = (&intent.work, plan) {
        let name = work.program.file_name();
        let open_ended = is_interpreter(name) || is_launcher(name) || !work.scripts.is_empty();
        match (tier, open_ended) {
            (SandboxTier::B, true) => {
                found.push((RiskLevel::Critical, format!("`{name}` can run anything, and tier b does not contain it")));
            }
            (SandboxTier::B, false) => {
                let why = format!("`{name}` can read and write whatever the daemon's user can");
                found.push((RiskLevel::High, why));
            }
            (SandboxTier::A | SandboxTier::C, true) => {
                found.push((RiskLevel::High, format!("`{name}` can run anything inside its sandbox")));
            }
            (SandboxTier::A | SandboxTier::C, false) => {
                found.push((RiskLevel::Medium, "a contained program may change the workspace".to_owned()));
            }
        }
        if work.program_sha256.is_some() {
            found.push((RiskLevel::High, "the program itself can be changed by the agent".to_owned()));
        }
    }
    if let Work::Elsewhere(work) = &intent.work {
        let process = work.process.as_ref();
        found.extend(process.map(|process| {
            let name = process.program.file_name();
            match process.names().any(|name| is_interpreter(name) || is_launcher(name)) {
                true => (RiskLevel::Critical, format!("`{name}` can run anything, and nothing contains it")),
                false => (RiskLevel::High, format!("`{name}` can do whatever the agent's user can")),
            }
        }));
        let unknown = process.is_none() && capabilities.contains(&ToolCapability::ProcessExec);
        found.extend(unknown.then(|| (RiskLevel::High, "nobody here knows what the tool does".to_owned())));
    }
    if let Work::Fetch(work) = &intent.work {
        if let Some(body) = &work.body {
            found.push((RiskLevel::High, format!("it sends {} bytes to {}", body.len(), work.host)));
        }
        if work.url.scheme() == Scheme::Http {
            found.push((RiskLevel::High, NOT_ENCRYPTED.to_owned()));
        }
    }
    if let Work::Service(ServiceWork { deputy: Some(deputy), .. }) = &intent.work {
        found.extend(of_deputy(deputy));
    }
    if let Work::Skill(work) = &intent.work
        && work.signed_by.is_none()
    {
        found.push((RiskLevel::Medium, format!("nobody signed the skill {}: it is being developed", work.skill)));
    }
    if matches!(plan.egress(), Some(EgressEnforcementMode::None | EgressEnforcementMode::Preflight)) {
        found.push((RiskLevel::High, "its network is not held back".to_owned()));
    }
    for touch in &intent.touches {
        match touch {
            Touch::Write(path) => found.push((RiskLevel::Medium, format!("it writes {path}"))),
            Touch::Connect(host, port) => found.push((RiskLevel::High, format!("it connects to {host}:{port}"))),
            Touch::Use(secret) => found.push((RiskLevel::High, format!("it uses the secret {secret}"))),
            Touch::Reveal(secret) => found.push((RiskLevel::Critical, format!("it is given the secret {secret}"))),
            Touch::Object { action, resource } if action.is_sensitive() => {
                found.push((RiskLevel::High, format!("{action} on {resource} cannot be undone")));
            }
            Touch::Object { action, resource } if !reads(*action) => {
                found.push((RiskLevel::Medium, format!("{action} on {resource}")));
            }
            Touch::Read(_) | Touch::Execute(_) | Touch::Object { .. } => {}
        }
    }
    if capabilities.contains(&ToolCapability::SecretsRead) {
        found.push((RiskLevel::Critical, "it sees secrets".to_owned()));
    }
    let level = found.iter().map(|(level, _)| *level).max().unwrap_or(RiskLevel::Low);
    found.sort_by_key(|(level, _)| std::cmp::Reverse(*level));
    let reasons = found.into_iter().map(|(_, why)| palyra_types::visible::visible(&why)).take(MOST_REASONS).collect();
    Risk { level, reasons }
}

/// What is at stake where a program or a server of somebody else does it. What they do with a call is known to nobody here, so what they could
/// do with it counts.
fn of_deputy(deputy: &Deputy) -> Vec<(RiskLevel, String)> {
    let mut found = Vec::new();
    let places: Vec<String> = deputy.places().iter().map(|HostPort { host, port }| format!("{host}:{port}")).collect();
    let places = places.join(", ");
    match deputy {
        Deputy::Program { program, workspace, .. } => {
            let why = format!("nobody here knows what `{program}` does inside its sandbox");
            found.push((RiskLevel::Medium, why));
            if let Some(workspace) = workspace {
                found.push((RiskLevel::Medium, format!("it may change the workspace {workspace}")));
            }
            if !places.is_empty() {
                let why = format!("it may send what it is given and what it reads to {places}");
                found.push((RiskLevel::High, why));
            }
        }
        Deputy::Server { is_local: true, .. } => {
            let why = format!("its arguments are sent to a program at {places}, which nothing here contains");
            found.push((RiskLevel::High, why));
        }
        Deputy::Server { is_encrypted, .. } => {
            found.push((RiskLevel::High, format!("its arguments leave this machine: they are sent to {places}")));
            found.extend((!is_encrypted).then(|| (RiskLevel::High, NOT_ENCRYPTED.to_owned())));
        }
    }
    let secrets = deputy.secrets().iter();
    found.extend(secrets.map(|secret| (RiskLevel::High, format!("it uses the secret {secret}"))));
    found
}

/// Whether an action only tells something.
const fn reads(action: Action) -> bool {
    matches!(action, Action::MemorySearch | Action::MemoryList | Action::CronList)
}

const NOT_ENCRYPTED: &str =
    "what it sends and gets can be read and changed on the way: the connection is not encrypted";

/// Nobody reads more.
const MOST_REASONS: usize = 8;

#[cfg(test)]
mod tests {
    use palyra_types::{HostName, SecretRef, WorkspaceName};

    use super::*;
    use crate::{service::ServiceTerms, tool::Report};

    /// What is at stake where this does it, and its network is held like this.
    fn done_by(deputy: Deputy, egress: Option<EgressEnforcementMode>) -> Risk {
        let tier = egress.is_some().then_some(SandboxTier::C);
        let terms = ServiceTerms { tier, egress, ..ServiceTerms::default() };
        let (service, operation, about) = ("mcp.tea".to_owned(), "brew".to_owned(), std::collections::BTreeMap::new());
        let work = Work::Service(ServiceWork { service, operation, about, terms, deputy: Some(deputy) });
        assess(&Intent { touches: Vec::new(), work }, &Plan::Service { terms }, &BTreeSet::new())
    }

    fn risk(level: RiskLevel, reasons: &[&str]) -> Risk {
        Risk { level, reasons: reasons.iter().map(|&reason| reason.to_owned()).collect() }
    }

    fn at(host: &str, port: u16) -> HostPort {
        HostPort { host: HostName::parse(host).unwrap(), port }
    }

    fn secrets() -> BTreeSet<SecretRef> {
        ["global/tea", "global/pot"].iter().map(|secret| SecretRef::parse(secret).unwrap()).collect()
    }

    #[test]
    fn a_server_that_the_daemon_contains_is_as_risky_as_what_it_may_reach() {
        let program = |workspace: Option<&str>, hosts: Vec<HostPort>, secrets| Deputy::Program {
            program: "npx".to_owned(),
            workspace: workspace.map(|name| WorkspaceName::parse(name).unwrap()),
            hosts,
            secrets,
        };
        let strict = Some(EgressEnforcementMode::Strict);
        let unknown = "nobody here knows what `npx` does inside its sandbox";
        let writes = "it may change the workspace shop";
        assert_eq!(done_by(program(None, vec![], BTreeSet::new()), strict), risk(RiskLevel::Medium, &[unknown]));
        assert_eq!(
            done_by(program(Some("shop"), vec![], BTreeSet::new()), strict),
            risk(RiskLevel::Medium, &[unknown, writes])
        );
        let hosts = vec![at("api.example.org", 443), at("example.com", 8443)];
        let sends = "it may send what it is given and what it reads to api.example.org:443, example.com:8443";
        assert_eq!(
            done_by(program(Some("shop"), hosts, secrets()), strict),
            risk(
                RiskLevel::High,
                &[sends, "it uses the secret global/pot", "it uses the secret global/tea", unknown, writes]
            )
        );
        for loose in [EgressEnforcementMode::None, EgressEnforcementMode::Preflight] {
            assert_eq!(
                done_by(program(None, vec![], BTreeSet::new()), Some(loose)),
                risk(RiskLevel::High, &["its network is not held back", unknown])
            );
        }
    }

    #[test]
    fn what_a_server_elsewhere_is_sent_leaves_the_machine() {
        let server = |host: &str, (is_local, is_encrypted): (bool, bool), secrets| {
            done_by(Deputy::Server { place: at(host, 443), is_local, is_encrypted, secrets }, None)
        };
        let leaves = "its arguments leave this machine: they are sent to mcp.example.org:443";
        assert_eq!(server("mcp.example.org", (false, true), BTreeSet::new()), risk(RiskLevel::High, &[leaves]));
        assert_eq!(
            server("mcp.example.org", (false, false), secrets()),
            risk(
                RiskLevel::High,
                &[leaves, NOT_ENCRYPTED, "it uses the secret global/pot", "it uses the secret global/tea"]
            )
        );
        assert_eq!(
            server("127.0.0.1", (true, false), BTreeSet::new()),
            risk(
                RiskLevel::High,
                &["its arguments are sent to a program at 127.0.0.1:443, which nothing here contains"]
            )
        );
    }

    #[test]
    fn using_a_secret_is_high_and_being_given_one_is_critical() {
        let secret = SecretRef::parse("workspace:shop/github").unwrap();
        let assess = |touches: Vec<Touch>| {
            assess(&Intent { touches, work: Work::Report { about: Report::Status } }, &Plan::Daemon, &BTreeSet::new())
        };
        let used =
            Risk { level: RiskLevel::High, reasons: vec!["it uses the secret workspace:shop/github".to_owned()] };
        assert_eq!(assess(vec![Touch::Use(secret.clone())]), used);
        let given = "it is given the secret workspace:shop/github".to_owned();
        let both = Risk { level: RiskLevel::Critical, reasons: [vec![given], used.reasons].concat() };
        assert_eq!(assess(vec![Touch::Use(secret.clone()), Touch::Reveal(secret)]), both);
    }
}
