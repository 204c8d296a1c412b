//! `palyra policy simulate`: decides many requests, and shows what candidate policies would change.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use clap::Args;
use palyra_policy::{
    Snapshot, Verdict,
    compare::{Comparison, Side, compare, plan, what, who},
    directory::read_policies,
};
use serde::Serialize;

use super::diff::{corpus, list, show};
use crate::{
    Outcome,
    exit::Exit,
    selection::Selection,
    terminal::{DIM, Terminal},
};

#[derive(Args)]
pub(crate) struct SimulateArgs {
    /// Requests from test files. Without any, a built-in corpus and what the policies talk about.
    requests: Vec<PathBuf>,
    /// Candidate policies on top of the set. Only what they change is shown. Can be given again.
    #[arg(long, value_name = "PATH")]
    with: Vec<PathBuf>,
    #[command(flatten)]
    selection: Selection,
}

#[derive(Serialize)]
struct Line {
    who: String,
    what: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<String>,
    verdict: Verdict,
    reason: String,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Report {
    Decisions { decisions: Vec<Line> },
    Changes(Comparison),
}

pub(crate) fn run(args: &SimulateArgs, terminal: &Terminal) -> Outcome {
    let mut selected = args.selection.load(terminal)?;
    let mut sources = selected.sources.clone();
    for path in &args.with {
        sources.extend(read_policies(path)?);
    }
    let candidate = Snapshot::load(&sources)?;
    let requests = corpus(&args.requests, &[&selected.set, &candidate], &mut [&mut selected.config])?;
    if !args.with.is_empty() {
        let before = Side { set: &selected.set, config: &selected.config };
        let after = Side { set: &candidate, config: &selected.config };
        let comparison = compare(before, after, &requests);
        if terminal.json {
            terminal.document("policy.simulation", Report::Changes(comparison));
        } else {
            show(&comparison, terminal);
        }
        return Ok(Exit::Ok);
    }
    let decisions: Vec<Line> = requests
        .iter()
        .map(|(call, context)| {
            let decision = selected.set.decide_call(call, context, &selected.config);
            let reason = decision.deciding().next().map_or_else(String::new, |part| part.decision.reason());
            let (who, what, plan) = (who(&call.request.principal), what(call, context), plan(context));
            Line { who, what, plan, verdict: decision.verdict, reason }
        })
        .collect();
    if terminal.json {
        terminal.document("policy.simulation", Report::Decisions { decisions });
        return Ok(Exit::Ok);
    }
    // Requests that differ only in who asks and in which plan are told together.
    let mut groups: BTreeMap<_, Vec<&Line>> = BTreeMap::new();
    for line in &decisions {
        groups.entry((line.verdict, &line.what, &line.reason)).or_default().push(line);
    }
    for ((verdict, what, reason), lines) in groups {
        let who: BTreeSet<&str> = lines.iter().map(|line| line.who.as_str()).collect();
        let plans: BTreeSet<&str> = lines.iter().filter_map(|line| line.plan.as_deref()).collect();
        terminal.out(format!("{}  {what}", terminal.verdict(verdict)));
        terminal.out(terminal.paint(DIM, &format!("         {reason}")));
        terminal.out(terminal.paint(DIM, &format!("         for {}", list(&who))));
        if !plans.is_empty() {
            terminal.out(terminal.paint(DIM, &format!("         in {}", list(&plans))));
        }
    }
    let count = |verdict| decisions.iter().filter(|line| line.verdict == verdict).count();
    let (allowed, asked, denied) = (count(Verdict::Allow), count(Verdict::Ask), count(Verdict::Deny));
    terminal.talk(format!("{} requests: {allowed} allowed, {asked} asked, {denied} denied", decisions.len()));
    Ok(Exit::Ok)
}
