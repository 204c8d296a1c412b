//! `palyra approvals …`: the questions that wait for a person.

mod answer;
mod list;
mod pages;
mod pin;
mod watch;

use clap::Subcommand;
use palyra_api::approval::Approval;
use palyra_client::Client;
use palyra_types::id::ApprovalId;

use self::pages::Pages;
use crate::{
    Outcome,
    at::At,
    connection::{block_on, meet},
    exit::Exit,
    failure::Failure,
    question,
    terminal::Terminal,
};

#[derive(Subcommand)]
pub(crate) enum ApprovalsCommand {
    /// List the questions that wait for an answer.
    List,
    /// Show a question, whole.
    Show {
        /// The question: its id, or the beginning or the end of it.
        id: String,
    },
    /// Say yes to a question.
    Approve(answer::ApproveArgs),
    /// Say no to a question.
    Deny(answer::DenyArgs),
    /// Follow questions as they come, and answer them at the terminal.
    Watch,
    /// Set the PIN that shows that a person is there. Read from the terminal, or from standard input. Needs no daemon.
    Pin,
}

pub(crate) fn run(command: ApprovalsCommand, at: &At, terminal: &Terminal) -> Outcome {
    if matches!(command, ApprovalsCommand::Pin) {
        return block_on(pin::run(at, terminal));
    }
    meet(at, terminal, async |daemon| match command {
        ApprovalsCommand::List => list::run(daemon, terminal).await,
        ApprovalsCommand::Show { id } => show(daemon, &id, terminal).await,
        ApprovalsCommand::Approve(args) => answer::approve(daemon, &args, terminal).await,
        ApprovalsCommand::Deny(args) => answer::deny(daemon, &args, terminal).await,
        ApprovalsCommand::Watch => watch::run(daemon, at, terminal).await,
        ApprovalsCommand::Pin => pin::run(at, terminal).await,
    })
}

async fn show(client: &Client, id: &str, terminal: &Terminal) -> Outcome {
    let approval = find(client, id).await?;
    if terminal.json {
        terminal.document("approval", &approval);
    } else {
        question::out(&approval, terminal);
        if let Some(answer) = &approval.answer {
            terminal.out_rows(format!("  {}", question::answered(answer, &|style, text| terminal.paint(style, text))));
        }
    }
    Ok(Exit::Ok)
}

/// The question that is meant: by its whole id, or by the beginning or the end of the id of one that is pending.
async fn find(client: &Client, text: &str) -> Result<Approval, Failure> {
    let text = text.trim().to_ascii_uppercase();
    if let Ok(id) = ApprovalId::parse(&text) {
        return Ok(client.approval(id).await?);
    }
    let refused = |cause: String| {
        let help = "`palyra approvals list` shows what waits; the whole id always works";
        Failure::new(Exit::Failure, "unknown_approval", "no such question", cause, help)
    };
    if text.len() < SHORTEST {
        return Err(refused(format!("`{text}` is too short; give at least {SHORTEST} characters")));
    }
    let (mut pages, mut found) = (Pages::new(client), Vec::new());
    while let Some(page) = pages.next().await? {
        found.extend(page.into_iter().filter(|approval| {
            let id = approval.id.to_string();
            id.starts_with(&text) || id.ends_with(&text)
        }));
    }
    match found.len() {
        0 => Err(refused(format!("no pending question has an id that begins or ends with `{text}`"))),
        1 => found.pop().ok_or_else(|| refused("it is gone".to_owned())),
        count => Err(refused(format!("{count} pending questions have an id that begins or ends with `{text}`"))),
    }
}

/// The shortest part of an id that is taken for it.
const SHORTEST: usize = 4;
