//! `palyra tour`: real decisions by the real engine, with their explanations, ending with a rule that changes one.

use palyra_daemon::explanation::told;
use palyra_policy::{Explanation, Preset, RequestDocument, Snapshot, SourceFile, builtin_tools};
use palyra_types::{Clock, clock::SystemClock};
use serde::Serialize;

use crate::{
    Outcome,
    exit::Exit,
    failure::Failure,
    report,
    terminal::{BOLD, DIM, Terminal},
};

/// What is shown: a sentence and the request behind it.
const STOPS: &[(&str, &str)] = &[
    (
        "An agent reads a file of the workspace. Reading runs.",
        "resource = 'tool:fs.read'\nreads = ['/home/ada/shop/README.md']",
    ),
    (
        "It wants to run the tests. A person is asked, and a rule could stop the asking.",
        "resource = 'tool:process.run'\nrun = ['/usr/bin/cargo', 'test']\ncwd = '/home/ada/shop'\ntier = 'c'\negress = 'strict'",
    ),
    (
        "It wants a tool that nobody listed. Nothing permits it; the near misses say why.",
        "resource = 'tool:shell.anything'",
    ),
    (
        "It tries to approve its own call by running Palyra. A hard forbid; no rule can lift it.",
        "resource = 'tool:process.run'\nrun = ['/bin/bash', '-c', 'palyra approvals approve --all']\ntier = 'c'\negress = 'strict'",
    ),
    ("It wants to forget everything. That always asks.", "action = 'memory.purge'\nresource = 'memory:agent:claude'"),
];

#[derive(Serialize)]
struct Stop {
    says: &'static str,
    parts: Vec<Explanation>,
}

pub(crate) fn run(terminal: &Terminal) -> Outcome {
    let preset = Preset::DEFAULT;
    let set = Snapshot::load(&[preset.source()])?;
    let mut stops = Vec::new();
    if !terminal.json {
        terminal.out(format!("Policy preset `{preset}`: {}.", preset.summary()));
        let count = set.policies().len();
        terminal.out(terminal.paint(DIM, &format!("{count} policies, digest {}", set.digest())));
    }
    let mut rule = None;
    for (says, request) in STOPS {
        let parts = explain(&set, request)?;
        if rule.is_none() && request.contains("cargo") {
            rule = parts.iter().find_map(|part| part.suggestion.clone());
        }
        tell(terminal, says, &parts);
        stops.push(Stop { says, parts });
    }
    if let Some(rule) = rule {
        let says = "Back to the tests, with the suggested rule added. They run unasked now; nothing else does.";
        let set = Snapshot::load(&[preset.source(), SourceFile::operator("my-rule.cedar", rule)])?;
        let parts = explain(&set, STOPS.get(1).map_or("", |(_, request)| request))?;
        tell(terminal, says, &parts);
        stops.push(Stop { says, parts });
    }
    if terminal.json {
        terminal.document("tour", stops);
    } else {
        terminal.out("");
        terminal.out("Try it yourself:");
        terminal.out("  palyra policy explain -- cargo test");
        terminal.out("  palyra policy diff cautious workspace");
        terminal.out("  palyra policy test policies/tests");
    }
    Ok(Exit::Ok)
}

fn explain(set: &Snapshot, request: &str) -> Result<Vec<Explanation>, Failure> {
    let broken = |error: String| Failure::new(Exit::Failure, "broken_build", "the tour cannot be given", error, "");
    let changes = "workspaces = { shop = '/home/ada/shop' }"
        .parse()
        .map_err(|error: toml::de::Error| broken(error.to_string()))?;
    let config =
        palyra_policy::suite::merge(Some(Preset::DEFAULT), changes).map_err(|error| broken(error.to_string()))?;
    let defaults: RequestDocument =
        toml::from_str("principal = 'agent:claude'\naction = 'tool.execute'\nchannel = 'mcp'\nworkspace = 'shop'")
            .map_err(|error| broken(error.to_string()))?;
    let request: RequestDocument = toml::from_str(request).map_err(|error| broken(error.to_string()))?;
    let (call, context) = request.or(&defaults).read(SystemClock::new().now(), &builtin_tools()?)?;
    Ok(set.explain_call(&call, &context, &config))
}

fn tell(terminal: &Terminal, says: &str, parts: &[Explanation]) {
    if terminal.json {
        return;
    }
    terminal.out("");
    terminal.out(terminal.paint(BOLD, says));
    for part in parts {
        report::explanation(&told(part), terminal);
    }
}
