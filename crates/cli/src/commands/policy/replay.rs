//! `palyra policy replay`: what candidate policies would have decided otherwise, of what really was asked for.

use std::path::PathBuf;

use clap::Args;
use palyra_api::policy::{Flip, PolicyFile, Replay, ReplayReport};
use palyra_policy::directory::read_policies;
use palyra_types::visible::visible;

use crate::{
    Outcome,
    at::At,
    connection::meet,
    exit::Exit,
    terminal::{BAD, BOLD, DIM, GOOD, Terminal, WAIT, shown},
};

#[derive(Args)]
pub(crate) struct ReplayArgs {
    /// Candidate policies: .cedar files or directories of them.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Use them instead of the operator's own files; otherwise they are added.
    #[arg(long)]
    instead: bool,
    /// The preset beside them: its name, or none. Without it, that of the configuration.
    #[arg(long, value_name = "NAME")]
    preset: Option<String>,
    /// How many of the last decisions are tried.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    last: u32,
    /// Exit 1 if anything is newly allowed.
    #[arg(long)]
    exit_code: bool,
}

pub(crate) fn run(args: &ReplayArgs, at: &At, terminal: &Terminal) -> Outcome {
    let mut files = Vec::new();
    for path in &args.paths {
        for file in read_policies(path)? {
            files.push(PolicyFile { name: file.name().to_owned(), text: file.text().to_owned() });
        }
    }
    let candidate = Replay { files, instead: args.instead, preset: args.preset.clone(), last: args.last };
    let report = meet(at, terminal, async |daemon| Ok(daemon.replay(&candidate).await?))?;
    if terminal.json {
        terminal.document("policy.replay", &report);
    } else {
        show(&report, terminal);
    }
    // What is not told may be just that.
    let newly_allowed = report.untold > 0 || report.flips.iter().any(|flip| flip.change == NEWLY_ALLOWED);
    Ok(if args.exit_code && newly_allowed { Exit::Failure } else { Exit::Ok })
}

fn show(report: &ReplayReport, terminal: &Terminal) {
    let mut changes: Vec<&str> = Vec::new();
    for flip in &report.flips {
        if !changes.contains(&flip.change.as_str()) {
            changes.push(&flip.change);
        }
    }
    // What is newly allowed is what can do harm; it comes first, whatever the order is.
    changes.sort_by_key(|change| *change != NEWLY_ALLOWED);
    for change in changes {
        let flips: Vec<&Flip> = report.flips.iter().filter(|flip| flip.change == change).collect();
        let (glyph, style) = match change {
            NEWLY_ALLOWED => ("▲▲", BAD),
            "newly denied" => ("▼▼", GOOD),
            _ => ("◆", WAIT),
        };
        let times: u64 = flips.iter().map(|flip| flip.times).sum();
        terminal.out(terminal.paint(style, &format!("{glyph} {} ({}, {times} calls)", visible(change), flips.len())));
        for flip in flips {
            terminal.out_rows(format!("  {}", shown(&flip.what)));
            let plan = flip.plan.as_deref().map(|plan| format!(" in {}", visible(plan))).unwrap_or_default();
            let (before, after) = (visible(&flip.before), visible(&flip.after));
            terminal.out_rows(terminal.paint(DIM, &format!("      {before} → {after}, {}", shown(&flip.reason))));
            terminal.out(terminal.paint(
                DIM,
                &format!("      for {}{plan}, {} times, such as {}", visible(&flip.who), flip.times, flip.call),
            ));
        }
    }
    let summary = format!(
        "{} of {} decisions would be different",
        report.flips.iter().map(|flip| flip.times).sum::<u64>() + report.untold,
        report.tried
    );
    terminal.out(terminal.paint(BOLD, &summary));
    if report.untold > 0 {
        terminal
            .out(terminal.paint(BAD, &format!("! {} of them are not told; replay fewer with `--last`", report.untold)));
    }
    if report.skipped > 0 {
        terminal.out(
            terminal.paint(WAIT, &format!("! {} could not be tried: erased, or no longer readable", report.skipped)),
        );
    }
}

const NEWLY_ALLOWED: &str = "newly allowed";
