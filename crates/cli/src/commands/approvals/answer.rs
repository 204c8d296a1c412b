//! `palyra approvals approve` and `deny`: answers a question. What is answered is shown first, and the answer carries its digest.

use clap::Args;
use palyra_api::approval::{Answers, Scope};
use palyra_client::Client;

use super::find;
use crate::{
    Outcome,
    exit::Exit,
    failure::Failure,
    keyboard::{self, Keyboard},
    prompt::{self, Decision, Manner},
    question,
    terminal::Terminal,
};

#[derive(Args)]
pub(crate) struct ApproveArgs {
    /// The question: its id, or the beginning or the end of it.
    id: String,
    /// Cover calls like this one, in this session.
    #[arg(long, conflicts_with = "minutes")]
    session: bool,
    /// Cover calls like this one, in this session, for some minutes.
    #[arg(long = "for", value_name = "MINUTES", value_parser = clap::value_parser!(u32).range(1..))]
    minutes: Option<u32>,
    /// With --session or --for: only the first N arguments are fixed, and any may follow.
    #[arg(long, value_name = "N")]
    fixed: Option<u32>,
    /// Answer all pending questions about exactly the same action.
    #[arg(long)]
    together: bool,
}

#[derive(Args)]
pub(crate) struct DenyArgs {
    /// The question: its id, or the beginning or the end of it.
    id: String,
    /// What the agent is told.
    #[arg(long, value_name = "TEXT")]
    message: Option<String>,
    /// Answer all pending questions about exactly the same action.
    #[arg(long)]
    together: bool,
}

pub(super) async fn approve(client: &Client, args: &ApproveArgs, terminal: &Terminal) -> Outcome {
    if args.fixed.is_some() && !args.session && args.minutes.is_none() {
        let help = "add --session or --for MINUTES, or leave --fixed out";
        let cause = "an answer to one call covers exactly its arguments";
        return Err(Failure::new(Exit::Usage, "usage", "--fixed makes no sense here", cause, help));
    }
    let scope = match (args.session, args.minutes) {
        (true, _) => Scope::Session,
        (false, Some(_)) => Scope::Timeboxed,
        (false, None) => Scope::Once,
    };
    let decision = Decision::Approve { scope, minutes: args.minutes };
    let manner = Manner { fixed: args.fixed, together: args.together, at_terminal: keyboard::is_there() };
    answer(client, &args.id, (&decision, manner), terminal).await
}

pub(super) async fn deny(client: &Client, args: &DenyArgs, terminal: &Terminal) -> Outcome {
    let decision = Decision::Deny { message: args.message.clone() };
    let manner = Manner { fixed: None, together: args.together, at_terminal: keyboard::is_there() };
    answer(client, &args.id, (&decision, manner), terminal).await
}

async fn answer(client: &Client, id: &str, (decision, manner): (&Decision, Manner), terminal: &Terminal) -> Outcome {
    let approval = find(client, id).await?;
    if !terminal.json {
        question::talk(&approval, terminal);
        if let Decision::Approve { scope, minutes } = decision {
            terminal.talk(format!("  the answer covers {}", question::scope(*scope, *minutes)));
        }
    }
    let mut keyboard = Keyboard::open();
    let Answers { answered } = prompt::answer(client, &approval, decision, manner, keyboard.as_mut()).await?;
    if terminal.json {
        terminal.document("approval.answers", Answers { answered });
    } else {
        for answer in &answered {
            terminal.out_rows(question::answered(answer, &|style, text| terminal.paint(style, text)));
        }
    }
    Ok(Exit::Ok)
}
