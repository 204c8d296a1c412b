//! `palyra approvals list`: the questions that wait for an answer.

use palyra_client::Client;
use palyra_types::visible::visible;

use super::pending;
use crate::{
    Outcome,
    exit::Exit,
    question::duration,
    terminal::{BOLD, DIM, Terminal, WAIT, shown},
};

pub(super) async fn run(client: &Client, terminal: &Terminal) -> Outcome {
    let (seq, approvals) = pending(client).await?;
    if terminal.json {
        terminal.document("approvals", serde_json::json!({ "seq": seq, "approvals": approvals }));
        return Ok(Exit::Ok);
    }
    for approval in &approvals {
        terminal.out_rows(format!(
            "{} {}  {}",
            terminal.paint(WAIT, "?"),
            terminal.paint(BOLD, &approval.id.to_string()),
            shown(&approval.summary)
        ));
        terminal.out_rows(terminal.paint(
            DIM,
            &format!(
                "    {} · risk {} · answer within {}",
                visible(&approval.principal),
                visible(&approval.risk.level),
                duration(approval.answer_within_ms)
            ),
        ));
    }
    match approvals.len() {
        0 => terminal.talk("nothing waits for an answer"),
        count => terminal.talk(format!("{count} waiting; `palyra approvals show ID` shows one whole")),
    }
    Ok(Exit::Ok)
}
