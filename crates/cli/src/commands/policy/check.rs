//! `palyra policy check`: loads policies the way a daemon would and tells everything that is wrong.

use std::path::PathBuf;

use clap::Args;
use palyra_policy::{Finding, Layer};
use palyra_types::Sha256Digest;
use serde::Serialize;

use crate::{
    Outcome,
    exit::Exit,
    report,
    selection::Selection,
    terminal::{BAD, GOOD, Terminal},
};

#[derive(Args)]
pub(crate) struct CheckArgs {
    /// .cedar files or directories of them. Without any, the installed policies.
    paths: Vec<PathBuf>,
    /// Treat warnings as errors.
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    selection: Selection,
}

#[derive(Serialize)]
struct Report<'a> {
    ok: bool,
    baseline: usize,
    operator: usize,
    digest: Sha256Digest,
    warnings: &'a [Finding],
}

pub(crate) fn run(args: &CheckArgs, terminal: &Terminal) -> Outcome {
    let mut selection = args.selection.clone();
    selection.policies.extend(args.paths.iter().cloned());
    let selected = selection.load(terminal)?;
    let count = |layer| selected.set.policies().filter(|policy| policy.layer == layer).count();
    let (baseline, operator) = (count(Layer::Baseline), count(Layer::Operator));
    let warnings = selected.set.warnings();
    let ok = !args.strict || warnings.is_empty();
    if terminal.json {
        terminal.document("policy.check", Report { ok, baseline, operator, digest: selected.set.digest(), warnings });
    } else {
        for warning in warnings {
            report::finding(warning, "warning", terminal);
        }
        terminal.out(format!(
            "{}: {operator} from {}, {baseline} from the baseline",
            if ok { terminal.paint(GOOD, "✔ sound") } else { terminal.paint(BAD, "✖ doubtful") },
            selected.origin
        ));
        terminal.out(format!("  digest {}", selected.set.digest()));
    }
    Ok(if ok { Exit::Ok } else { Exit::Failure })
}
