//! `palyra sessions …` and `palyra runs …`: what was said with agent models, and how it is forgotten.

use clap::Subcommand;
use palyra_api::session::{SaidMessage, SaidRun, Session, SessionQuery, SessionRunsQuery, Transcript, TranscriptQuery};
use palyra_client::Client;
use palyra_types::{
    id::{RunId, SessionId},
    visible::visible,
};
use serde_json::Value;

use crate::{
    Outcome,
    at::At,
    connection::meet,
    exit::Exit,
    failure::Failure,
    keyboard::Keyboard,
    short_id::{Sort, meant},
    table::{self, moment},
    terminal::{BOLD, DIM, Terminal, shown_block},
};

#[derive(Subcommand)]
pub(crate) enum SessionsCommand {
    /// List the sessions in which something was said with an agent model, newest first.
    List,
    /// List the runs of one.
    Show {
        /// The session: its id, or the beginning or the end of it.
        id: String,
    },
    /// Forget what was said in one, for good. The journal keeps its calls.
    Forget {
        /// The session: its id, or the beginning or the end of it.
        id: String,
        /// Do not ask.
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Subcommand)]
pub(crate) enum RunsCommand {
    /// Print what was said in a run.
    Show {
        /// The run, by its id.
        id: String,
    },
}

pub(crate) fn run(command: SessionsCommand, at: &At, terminal: &Terminal) -> Outcome {
    meet(at, terminal, async |daemon| match command {
        SessionsCommand::List => list(daemon, terminal).await,
        SessionsCommand::Show { id } => show(daemon, &id, terminal).await,
        SessionsCommand::Forget { id, yes } => forget(daemon, &id, yes, terminal).await,
    })
}

pub(crate) fn runs(command: RunsCommand, at: &At, terminal: &Terminal) -> Outcome {
    meet(at, terminal, async |daemon| match command {
        RunsCommand::Show { id } => transcript(daemon, &id, terminal).await,
    })
}

async fn list(client: &Client, terminal: &Terminal) -> Outcome {
    let sessions = all(client).await?;
    if terminal.json {
        terminal.document("sessions", &sessions);
        return Ok(Exit::Ok);
    }
    let row = |session: &Session| {
        let Session { id, principal, runs, messages, last, .. } = session;
        [id.to_string(), visible(principal), runs.to_string(), messages.to_string(), moment(*last)]
    };
    let rows: Vec<_> = sessions.iter().map(row).collect();
    table::print(["SESSION", "WHOSE", "RUNS", "MESSAGES", "LAST"], &rows, terminal);
    if rows.is_empty() {
        terminal.talk("nothing that was said with an agent model is kept");
    }
    Ok(Exit::Ok)
}

async fn show(client: &Client, text: &str, terminal: &Terminal) -> Outcome {
    let id = find(client, text).await?;
    let mut query = SessionRunsQuery { after: None, limit: Some(MOST_AT_ONCE) };
    let mut found = client.session(id, &query).await?;
    while let Some(next) = found.next {
        query.after = Some(next);
        let more = client.session(id, &query).await?;
        found.runs.extend(more.runs);
        found.next = more.next;
    }
    if terminal.json {
        terminal.document("session", &found);
        return Ok(Exit::Ok);
    }
    let row = |run: &SaidRun| {
        let SaidRun { id, model, messages, first, .. } = run;
        [id.to_string(), visible(model), messages.to_string(), moment(*first)]
    };
    let rows: Vec<_> = found.runs.iter().map(row).collect();
    table::print(["RUN", "MODEL", "MESSAGES", "BEGUN"], &rows, terminal);
    Ok(Exit::Ok)
}

async fn forget(client: &Client, text: &str, yes: bool, terminal: &Terminal) -> Outcome {
    let id = find(client, text).await?;
    if !yes {
        confirm(id).await?;
    }
    let forgotten = client.forget_session(id).await?;
    if terminal.json {
        terminal.document("session.forgotten", forgotten);
    } else {
        terminal.out(format!("forgotten  {id}, with {} runs", forgotten.runs));
    }
    Ok(Exit::Ok)
}

/// Asks whoever is at the terminal: what is forgotten never comes back.
async fn confirm(id: SessionId) -> Result<(), Failure> {
    let unsure = |cause: &str| {
        let help = format!("`palyra sessions show {id}` shows what it holds; say --yes if it is meant");
        Failure::new(Exit::Usage, "not_confirmed", "nothing was forgotten", cause, help)
    };
    let mut keyboard = Keyboard::open().ok_or_else(|| unsure("nobody is there to ask"))?;
    keyboard.show(&format!("everything that was said in the session {id} is erased, and never comes back"));
    keyboard.prompt("forget it? Type `forget`: ");
    match keyboard.line().await {
        Some(line) if line.trim() == "forget" => Ok(()),
        _ => Err(unsure("it was not confirmed")),
    }
}

async fn transcript(client: &Client, text: &str, terminal: &Terminal) -> Outcome {
    let run = RunId::parse(&text.trim().to_ascii_uppercase()).map_err(|error| {
        Failure::new(
            Exit::Usage,
            "bad_request",
            "no id of a run",
            error.to_string(),
            "`palyra sessions show` lists runs",
        )
    })?;
    let mut query = TranscriptQuery { after: None, limit: Some(MOST_AT_ONCE) };
    let mut whole = client.transcript(run, &query).await?;
    while let Some(next) = whole.next {
        query.after = Some(next);
        let more = client.transcript(run, &query).await?;
        whole.messages.extend(more.messages);
        whole.next = more.next;
    }
    if terminal.json {
        terminal.document("transcript", &whole);
        return Ok(Exit::Ok);
    }
    print(&whole, terminal);
    Ok(Exit::Ok)
}

fn print(transcript: &Transcript, terminal: &Terminal) {
    for message in &transcript.messages {
        let SaidMessage { role, name, call_id, time, cut, .. } = message;
        let more = [name, call_id].into_iter().flatten().map(|text| format!(" {}", visible(text))).collect::<String>();
        let mark = if *cut { " (cut)" } else { "" };
        let heading = format!("{}{}", visible(role), terminal.paint(DIM, &format!("{more} {}{mark}", moment(*time))));
        terminal.out_rows(terminal.paint(BOLD, &heading));
        for line in shown_block(&words(&message.content)).lines() {
            terminal.out_rows(format!("  {line}"));
        }
    }
    if transcript.messages.is_empty() {
        terminal.talk("nothing that was said in this run is kept");
    }
    if transcript.lost > 0 {
        terminal.talk(format!("{} messages of this run could not be kept", transcript.lost));
    }
}

/// What was said, as text: a text as it is, a text with calls below each other, anything else as JSON.
fn words(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Object(both) if both.contains_key("calls") => {
            let calls = both.get("calls").and_then(Value::as_array).into_iter().flatten();
            let call = |call: &Value| {
                let text = |name: &str| call.get("function").and_then(|one| one.get(name)).and_then(Value::as_str);
                format!("→ {} {}", text("name").unwrap_or_default(), text("arguments").unwrap_or_default())
            };
            let said = both.get("text").and_then(Value::as_str).filter(|said| !said.is_empty());
            said.map(str::to_owned).into_iter().chain(calls.map(call)).collect::<Vec<_>>().join("\n")
        }
        other => other.to_string(),
    }
}

async fn find(client: &Client, text: &str) -> Result<SessionId, Failure> {
    if let Ok(id) = SessionId::parse(&text.trim().to_ascii_uppercase()) {
        return Ok(id);
    }
    let named: Vec<(String, SessionId)> =
        all(client).await?.into_iter().map(|one| (one.id.to_string(), one.id)).collect();
    let help = "`palyra sessions list` shows them";
    let sort = Sort { one: "session", many: "sessions", code: "unknown_session", help };
    meant(&named, |(name, _)| name.as_str(), text, &sort).map(|(_, id)| *id)
}

async fn all(client: &Client) -> Result<Vec<Session>, Failure> {
    let mut query = SessionQuery { before: None, limit: Some(MOST_AT_ONCE) };
    let mut page = client.sessions(&query).await?;
    let mut sessions = page.sessions;
    while let Some(next) = page.next {
        query.before = Some(next);
        page = client.sessions(&query).await?;
        sessions.append(&mut page.sessions);
    }
    Ok(sessions)
}

const MOST_AT_ONCE: u32 = 500;
