//! `palyra policy diff A B`: what one policy set decides differently from another, newly allowed first and in red.

use std::{
    collections::{BTreeSet, HashSet},
    path::{Path, PathBuf},
};

use clap::Args;
use palyra_policy::{
    PolicyEvaluationConfig, Preset, Snapshot, builtin_tools,
    compare::{Change, Comparison, Side, compare},
    corpus::{builtin, witnesses},
    request::{CallRequest, PolicyRequestContext},
    suite::{DEFAULT_CLOCK, Suite},
};
use palyra_types::{AbsolutePath, Timestamp, WorkspaceName};

use crate::{
    Outcome,
    exit::Exit,
    failure::Failure,
    selection::{HERE, Selected, Selection},
    terminal::{BAD, BOLD, DIM, GOOD, Terminal, WAIT},
};

#[derive(Args)]
pub(crate) struct DiffArgs {
    /// The set before: a preset's name, a .cedar file or a directory of them.
    before: String,
    /// The set after.
    after: String,
    /// Requests from these test files instead of the built-in corpus. Can be given again.
    #[arg(long, value_name = "PATH")]
    corpus: Vec<PathBuf>,
    /// Take [policy] and [[workspace]] for both sides from this configuration file.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Exit 1 if anything is newly allowed, or a new policy decided none of the requests.
    #[arg(long)]
    exit_code: bool,
}

pub(crate) fn run(args: &DiffArgs, terminal: &Terminal) -> Outcome {
    let (mut before, mut after) = (args.side(&args.before, terminal)?, args.side(&args.after, terminal)?);
    let requests = corpus(&args.corpus, &[&before.set, &after.set], &mut [&mut before.config, &mut after.config])?;
    let comparison = compare(
        Side { set: &before.set, config: &before.config },
        Side { set: &after.set, config: &after.config },
        &requests,
    );
    let newly_allowed = comparison.flips.iter().any(|flip| flip.change == Change::NewlyAllowed);
    if terminal.json {
        terminal.document("policy.diff", &comparison);
    } else {
        show(&comparison, terminal);
    }
    let alarming = newly_allowed || !comparison.untried.is_empty();
    Ok(if args.exit_code && alarming { Exit::Failure } else { Exit::Ok })
}

impl DiffArgs {
    fn side(&self, name: &str, terminal: &Terminal) -> Result<Selected, Failure> {
        let preset = Preset::parse(name).ok().filter(|_| !Path::new(name).exists());
        let policies = if preset.is_some() { Vec::new() } else { vec![PathBuf::from(name)] };
        Selection { preset, policies, config: self.config.clone() }.load(terminal)
    }
}

/// The requests of test files, or the built-in corpus and the witnesses of these sets. The built-in requests are made in a workspace
/// that is added to the configurations.
pub(crate) fn corpus(
    files: &[PathBuf],
    sets: &[&Snapshot],
    configs: &mut [&mut PolicyEvaluationConfig],
) -> Result<Vec<(CallRequest, PolicyRequestContext)>, Failure> {
    if !files.is_empty() {
        let mut requests = Vec::new();
        for path in files {
            for suite in Suite::read_all(path)? {
                for config in configs.iter_mut() {
                    config.workspaces.extend(suite.config.workspaces.clone());
                }
                requests.extend(suite.cases.into_iter().map(|case| (case.call, case.context)));
            }
        }
        return Ok(requests);
    }
    let broken =
        |error: String| Failure::new(Exit::Failure, "broken_build", "the built-in corpus cannot be used", error, "");
    let root = AbsolutePath::parse("/workspace").map_err(|error| broken(error.to_string()))?;
    let name = WorkspaceName::parse(HERE).map_err(|error| broken(error.to_string()))?;
    for config in configs {
        config.workspaces.insert(name.clone(), root.clone());
    }
    let clock = Timestamp::parse(DEFAULT_CLOCK).map_err(|error| broken(error.to_string()))?;
    let tools = builtin_tools()?;
    let documents = builtin(&root).into_iter().chain(sets.iter().flat_map(|set| witnesses(set, &root)));
    let mut seen = HashSet::new();
    // A witness is made from literals, and a literal may fit nowhere; such a request is no request.
    let requests = documents.filter_map(|document| document.read(clock, &tools).ok());
    Ok(requests.filter(|request| seen.insert(format!("{request:?}"))).collect())
}

/// Prints what changed, group by group.
pub(crate) fn show(comparison: &Comparison, terminal: &Terminal) {
    let mut last = None;
    for group in comparison.groups() {
        let flip = group.first;
        if last != Some(flip.change) {
            let style = match flip.change {
                Change::NewlyAllowed => BAD,
                Change::NewlyAsked | Change::NoLongerUnasked => WAIT,
                Change::NewlyDenied => GOOD,
            };
            let count = comparison.flips.iter().filter(|other| other.change == flip.change).count();
            terminal.out(terminal.paint(style, &format!("{} {} ({count})", glyph(flip.change), flip.change.title())));
            last = Some(flip.change);
        }
        terminal.out(format!("  {}", flip.what));
        let by = if flip.by.is_empty() { flip.reason.clone() } else { format!("by {}", flip.by.join(", ")) };
        terminal.out(terminal.paint(DIM, &format!("      {} → {}, {by}", flip.before, flip.after)));
        terminal.out(terminal.paint(DIM, &format!("      for {}", list(&group.who))));
        if !group.plans.is_empty() {
            terminal.out(terminal.paint(DIM, &format!("      in {}", list(&group.plans))));
        }
    }
    let summary = format!("{} of {} requests are decided differently", comparison.flips.len(), comparison.tried);
    terminal.out(terminal.paint(BOLD, &summary));
    if !comparison.untried.is_empty() {
        let ids: Vec<_> = comparison.untried.iter().map(|id| id.as_str()).collect();
        terminal.out(
            terminal
                .paint(WAIT, &format!("! decided none of them, so what they change is unknown: {}", ids.join(", "))),
        );
        terminal.out("  name requests that meet them in a test file and pass it as the corpus");
    }
}

/// Words in a row.
pub(crate) fn list(words: &BTreeSet<&str>) -> String {
    words.iter().copied().collect::<Vec<_>>().join(", ")
}

const fn glyph(change: Change) -> &'static str {
    match change {
        Change::NewlyAllowed => "▲▲",
        Change::NewlyAsked => "▲",
        Change::NewlyDenied => "▼▼",
        Change::NoLongerUnasked => "▼",
    }
}
