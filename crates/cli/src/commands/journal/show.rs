//! `palyra journal show`: a record or a call, whole.

use clap::Args;
use palyra_types::visible::{visible, visible_block};

use crate::{
    Outcome,
    at::At,
    commands::why,
    connection::meet,
    exit::Exit,
    outcome,
    terminal::{BOLD, Terminal},
};

#[derive(Args)]
pub(crate) struct ShowArgs {
    /// The number of a record, or the id of a call.
    #[arg(value_name = "SEQ|CALL")]
    what: String,
}

pub(super) fn run(args: &ShowArgs, at: &At, terminal: &Terminal) -> Outcome {
    meet(at, terminal, async |daemon| {
        // An id has 26 characters; no record has a number that long.
        if let Ok(seq) = args.what.parse::<u64>() {
            let record = daemon.record(seq).await?;
            if terminal.json {
                terminal.document("journal.record", &record);
                return Ok(Exit::Ok);
            }
            terminal.out(format!(
                "record {}  {}  {}",
                record.seq,
                terminal.paint(BOLD, &visible(&record.kind)),
                record.time
            ));
            terminal.out(format!("  hash    {}", record.hash));
            terminal.out(format!("  header  {}", visible(&record.record)));
            match &record.body {
                None => terminal.out("  body    (erased)"),
                Some(body) => {
                    terminal.out("  body");
                    let text = serde_json::to_string_pretty(body).unwrap_or_else(|_| body.to_string());
                    for line in visible_block(&text).lines() {
                        terminal.out(format!("    {line}"));
                    }
                }
            }
            return Ok(Exit::Ok);
        }
        let call = daemon.call(why::find(daemon, &args.what).await?).await?;
        if terminal.json {
            terminal.document("call", &call);
        } else {
            outcome::call(&call, terminal);
        }
        Ok(Exit::Ok)
    })
}
