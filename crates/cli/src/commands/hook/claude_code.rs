//! `palyra hook claude-code`: hands what Claude Code says to the daemon, and the daemon's decision to Claude Code.
//!
//! Guarantees: whatever goes wrong is a deny, said in both ways that Claude Code knows: as JSON on stdout, and by exit code 2 with the reason on
//! stderr, which blocks whatever stdout says. It answers within its own time, because Claude Code goes on when a hook takes longer than it was
//! given. An event that is no question never blocks anything. Shows an agent's token to the daemon of the state directory while that runs, or
//! to the one that is named, and to nobody else; never shows the owner's certificate.

use std::{
    env,
    io::{self, Read, Write},
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    time::Duration,
};

use clap::{Args, ValueEnum};
use palyra_api::authorize::{Asking, HookQuery};
use palyra_client::{Bearer, Client, ClientError, Endpoint};
use palyra_daemon::Serving;
use palyra_identity::private_file;
use palyra_types::visible::visible;
use serde_json::{Map, Value, json};
use zeroize::Zeroizing;

use crate::{
    at::At,
    connection::{block_on, home},
    exit::Exit,
    failure::Failure,
    holder::Holder,
    lifetime::Lifetime,
};

#[derive(Args)]
pub(crate) struct ClaudeCodeArgs {
    /// The file that holds the agent's token. Without it, the variable PALYRA_TOKEN does.
    #[arg(long, value_name = "FILE")]
    pub(super) token_file: Option<PathBuf>,
    /// Where the daemon's listener for programs is, such as http://127.0.0.1:7717. Without it, the daemon of the state directory is asked, if it runs.
    #[arg(long, value_name = "URL")]
    pub(super) daemon: Option<String>,
    /// What happens where policy asks: Claude Code asks its user, or a person is asked by Palyra while Claude Code waits.
    #[arg(long, value_enum, default_value_t = OnAsk::Defer)]
    pub(super) on_ask: OnAsk,
    /// How many seconds it takes at most before it denies. Without it, 30, or 570 if it waits for a person.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86_000))]
    pub(super) within: Option<u32>,
    /// Put it into the settings of Claude Code, with a token of its own.
    #[arg(long, conflicts_with_all = ["uninstall", "print"])]
    install: bool,
    /// Take it out of them again. The token is left to `palyra tokens revoke`.
    #[arg(long, conflicts_with = "print")]
    uninstall: bool,
    /// Print what would be put there.
    #[arg(long)]
    print: bool,
    /// Whose settings: those of the user, or those of the project in this directory that are not shared.
    #[arg(long, value_enum, default_value_t = Scope::User)]
    pub(super) scope: Scope,
    /// Whom the token of an installation stands for.
    #[arg(long = "for", value_name = "PRINCIPAL", default_value = "agent:claude-code")]
    pub(super) holder: Holder,
    /// How long that token works, such as 30d.
    #[arg(long, value_name = "TIME", default_value = "90d")]
    pub(super) expires: Lifetime,
}

/// What happens where policy asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum OnAsk {
    /// Claude Code asks its user.
    Defer,
    /// A person is asked by Palyra.
    Wait,
}

/// Whose settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Scope {
    /// The user's.
    User,
    /// The project's in this directory.
    Project,
}

/// What the command is run for.
pub(super) enum Wants {
    Answer,
    Print,
    Install,
    Uninstall,
}

impl ClaudeCodeArgs {
    pub(super) const fn wants(&self) -> Wants {
        match (self.install, self.uninstall, self.print) {
            (true, ..) => Wants::Install,
            (_, true, _) => Wants::Uninstall,
            (_, _, true) => Wants::Print,
            (false, false, false) => Wants::Answer,
        }
    }

    /// How long it takes at most.
    pub(super) fn seconds(&self) -> u32 {
        self.within.unwrap_or(match self.on_ask {
            OnAsk::Defer => 30,
            OnAsk::Wait => 570,
        })
    }
}

/// Answers a hook.
pub(super) fn answer(args: &ClaudeCodeArgs, at: &At) -> Exit {
    // SECURITY: Claude Code goes on after any exit code but 2, that of a panic among them.
    let decided = catch_unwind(AssertUnwindSafe(|| decide(args, at)));
    match decided.unwrap_or_else(|_| Answer::Denied("the hook itself failed".to_owned())) {
        Answer::Told(value) if say(&value) => Exit::Ok,
        Answer::Told(_) => block("the decision could not be handed on"),
        Answer::Denied(why) => {
            say(&denial(&why));
            block(&why)
        }
        Answer::Unheard(why) => {
            let _ = writeln!(io::stderr(), "Palyra: {}", visible(&why));
            if say(&json!({})) { Exit::Ok } else { Exit::Failure }
        }
    }
}

/// What comes of a hook.
enum Answer {
    /// What the daemon says.
    Told(Value),
    /// Nobody decided, which denies.
    Denied(String),
    /// What was no question could not be told to anybody.
    Unheard(String),
}

fn decide(args: &ClaudeCodeArgs, at: &At) -> Answer {
    let said = match read() {
        Ok(said) => said,
        Err(why) => return Answer::Denied(why),
    };
    // What cannot be read is taken for a question.
    let event = serde_json::from_slice::<Map<String, Value>>(&said)
        .ok()
        .and_then(|said| said.get("hook_event_name")?.as_str().map(str::to_owned));
    let is_question = event.is_none_or(|event| event == "PreToolUse");
    match ask(args, at, said) {
        Ok(value) if !is_question || is_decision(&value) => Answer::Told(value),
        Ok(_) => Answer::Denied("the daemon's answer is no decision".to_owned()),
        Err(why) if is_question => Answer::Denied(why),
        Err(why) => Answer::Unheard(why),
    }
}

/// Asks the daemon, in the time that there is.
fn ask(args: &ClaudeCodeArgs, at: &At, said: Vec<u8>) -> Result<Value, String> {
    at.unnamed("a hook").map_err(told)?;
    let bearer = Bearer::parse(&token(args)?).map_err(|error| error.to_string())?;
    let endpoint = endpoint(args)?;
    let on_ask = match args.on_ask {
        OnAsk::Defer => Asking::Defer,
        OnAsk::Wait => Asking::Wait,
    };
    let within = Duration::from_secs(args.seconds().into());
    let client = Client::local(endpoint).with_bearer(bearer).with_patience(within);
    let asking = async {
        let query = HookQuery { on_ask: Some(on_ask) };
        let answer = tokio::time::timeout(within, client.claude_code_hook(said, &query)).await;
        Ok::<_, Failure>(
            answer.unwrap_or_else(|_| Err(ClientError::Slow { address: client.address(), patience: within })),
        )
    };
    let answer = block_on(asking).map_err(told)?;
    answer.map_err(|error| untold(error, on_ask, within))
}

/// Why the daemon did not decide.
fn untold(error: ClientError, on_ask: Asking, within: Duration) -> String {
    match (error, on_ask) {
        (ClientError::Refused { error, .. }, _) => match error.help {
            Some(help) => format!("{} ({help})", error.message),
            None => error.message,
        },
        (ClientError::Slow { .. }, Asking::Wait) => {
            format!("nobody answered within {} s (`--within` gives a person more time)", within.as_secs())
        }
        (error @ ClientError::Slow { .. }, Asking::Defer) => format!("{error} (look at the daemon's log)"),
        (error, _) => format!("{error} (start the daemon: `palyra up`)"),
    }
}

/// What Claude Code hands over.
fn read() -> Result<Vec<u8>, String> {
    let mut said = Vec::new();
    let read = io::stdin().lock().take(LONGEST + 1).read_to_end(&mut said);
    match read {
        Err(error) => Err(format!("what it is about cannot be read: {error}")),
        Ok(length) if u64::try_from(length).unwrap_or(u64::MAX) > LONGEST => {
            Err(format!("what it is about is longer than {LONGEST} bytes"))
        }
        Ok(_) => Ok(said),
    }
}

/// The agent's token.
fn token(args: &ClaudeCodeArgs) -> Result<Zeroizing<String>, String> {
    let text = match &args.token_file {
        Some(path) => {
            let bytes = private_file::read(path, LONGEST_TOKEN).map_err(|error| error.to_string())?;
            Zeroizing::new(String::from_utf8_lossy(&bytes).trim().to_owned())
        }
        None => Zeroizing::new(
            env::var("PALYRA_TOKEN")
                .map_err(|_| "there is no token: set PALYRA_TOKEN or name a file with --token-file".to_owned())?,
        ),
    };
    Ok(text)
}

/// Where the daemon is: where it is said to be, or where the one of the state directory serves.
fn endpoint(args: &ClaudeCodeArgs) -> Result<Endpoint, String> {
    if let Some(named) = &args.daemon {
        return Endpoint::parse(named).map_err(|error| error.to_string());
    }
    let home = home().map_err(told)?;
    // SECURITY: whoever else sits on the port where a daemon usually is, or was, would learn the token and decide.
    let serving = Serving::now(&home).ok_or("no daemon of this state directory runs (start it: `palyra up`)")?;
    Endpoint::parse(&format!("http://{}", serving.local)).map_err(|error| error.to_string())
}

/// A failure in a line.
fn told(failure: Failure) -> String {
    format!("{}: {} ({})", failure.what, failure.cause, failure.help)
}

/// Whether Claude Code finds a decision in it.
fn is_decision(value: &Value) -> bool {
    let decision = value.pointer("/hookSpecificOutput/permissionDecision").and_then(Value::as_str);
    let event = value.pointer("/hookSpecificOutput/hookEventName").and_then(Value::as_str);
    event == Some("PreToolUse") && matches!(decision, Some("allow" | "ask" | "deny"))
}

fn denial(why: &str) -> Value {
    json!({ "hookSpecificOutput": {
        "hookEventName": "PreToolUse",
        "permissionDecision": "deny",
        "permissionDecisionReason": format!("Palyra did not decide, so this does not run: {}", visible(why)),
    } })
}

/// Says it to Claude Code. Tells whether that worked.
fn say(value: &Value) -> bool {
    let mut out = io::stdout().lock();
    writeln!(out, "{value}").and_then(|()| out.flush()).is_ok()
}

/// Blocks what Claude Code is about to do.
fn block(why: &str) -> Exit {
    let _ = writeln!(io::stderr(), "Palyra did not decide, so this does not run: {}", visible(why));
    Exit::Usage
}

/// The longest that is handed to the daemon: what it reads at most.
const LONGEST: u64 = 2 << 20;

/// Longer than any token.
const LONGEST_TOKEN: u64 = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_who_does_not_answer_is_no_daemon_that_does_not() {
        let within = Duration::from_secs(7);
        let slow = || ClientError::Slow { address: "127.0.0.1:1".to_owned(), patience: within };
        let waited = untold(slow(), Asking::Wait, within);
        assert_eq!(waited, "nobody answered within 7 s (`--within` gives a person more time)");
        let deferred = untold(slow(), Asking::Defer, within);
        assert_eq!(deferred, "the daemon at 127.0.0.1:1 did not answer within 7s (look at the daemon's log)");
    }

    #[test]
    fn exit_code_two_is_the_one_that_blocks() {
        assert_eq!(block("nobody is there").code(), 2);
    }

    #[test]
    fn only_what_claude_code_reads_as_a_decision_is_one() {
        let with = |event: &str, decision: Value| json!({ "hookSpecificOutput": { "hookEventName": event, "permissionDecision": decision } });
        for decision in ["allow", "ask", "deny"] {
            assert!(is_decision(&with("PreToolUse", json!(decision))));
        }
        for other in [
            with("PreToolUse", json!("approve")),
            with("PreToolUse", json!(true)),
            with("PostToolUse", json!("allow")),
            json!({}),
            json!([]),
            json!({ "permissionDecision": "allow" }),
        ] {
            assert!(!is_decision(&other), "{other}");
        }
        assert!(is_decision(&denial("x")));
    }
}
