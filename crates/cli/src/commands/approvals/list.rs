//! `palyra approvals list`: the questions that wait for an answer.

use palyra_api::approval::Approval;
use palyra_client::Client;
use palyra_types::visible::visible;

use super::pages::Pages;
use crate::{
    Outcome,
    exit::Exit,
    question::duration,
    terminal::{BOLD, DIM, Terminal, WAIT, shown},
};

pub(super) async fn run(client: &Client, terminal: &Terminal) -> Outcome {
    let mut pages = Pages::new(client);
    if terminal.json {
        // One document holds them all.
        let mut approvals = Vec::new();
        while let Some(mut page) = pages.next().await? {
            approvals.append(&mut page);
        }
        terminal.document(
            "approvals",
            serde_json::json!({
                "seq": pages.seq(), "approvals": approvals, "unreadable": pages.unreadable(),
            }),
        );
        return Ok(Exit::Ok);
    }
    let mut count = 0;
    while let Some(page) = pages.next().await? {
        page.iter().for_each(|approval| line(approval, terminal));
        count += page.len();
    }
    if !pages.unreadable().is_empty() {
        let named: Vec<String> = pages.unreadable().iter().map(ToString::to_string).collect();
        terminal.talk(format!(
            "{} waiting that cannot be read, and that nobody can answer; they end with their time: {}",
            named.len(),
            named.join(", ")
        ));
    }
    match count {
        0 if !pages.unreadable().is_empty() => {}
        0 => terminal.talk("nothing waits for an answer"),
        count => terminal.talk(format!("{count} waiting; `palyra approvals show ID` shows one whole")),
    }
    Ok(Exit::Ok)
}

fn line(approval: &Approval, terminal: &Terminal) {
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
