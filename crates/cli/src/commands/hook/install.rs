//! `palyra hook claude-code --install`: the hook in the settings of Claude Code, with a token of its own.
//!
//! Guarantees: the token can propose and nothing else, is minted by the owner's device as any token is, and is kept where only its user reads
//! it; its text is printed nowhere. The settings name the file, not the token.

use std::{
    env,
    path::{Path, PathBuf},
};

use palyra_api::token::NewToken;
use palyra_client::{Bearer, Client};
use palyra_identity::private_file;
use palyra_types::visible::visible;
use zeroize::Zeroizing;

use super::{
    claude_code::{ClaudeCodeArgs, OnAsk, Scope},
    settings::{Hook, Settings, SettingsError},
};
use crate::{
    Outcome,
    at::At,
    connection::{Connection, home},
    exit::Exit,
    failure::Failure,
    terminal::Terminal,
};

/// Prints what would be put into the settings.
pub(super) fn print(args: &ClaudeCodeArgs, at: &At, terminal: &Terminal) -> Outcome {
    at.unnamed(WHAT)?;
    let command = command(args, &token_file(args)?)?;
    let hook = Hook { command: &command, timeout: timeout(args) };
    let settings = serde_json::json!({ "hooks": { "PreToolUse": [hook.group()] } });
    terminal.out_rows(serde_json::to_string_pretty(&settings).unwrap_or_default());
    Ok(Exit::Ok)
}

/// Puts the hook into the settings.
pub(super) fn install(args: &ClaudeCodeArgs, at: &At, terminal: &Terminal) -> Outcome {
    at.unnamed(WHAT)?;
    let path = settings_file(args)?;
    // Read first: what cannot be changed needs no token.
    let mut settings = Settings::read(&path).map_err(|error| unchanged(&error))?;
    let token_file = token_file(args)?;
    let connection = Connection::find(at, terminal)?;
    connection.here(WHAT)?;
    let is_new = connection.run(async |daemon| keep_token(args, &token_file, daemon, &connection).await)?;
    let command = command(args, &token_file)?;
    settings.put(&Hook { command: &command, timeout: timeout(args) }).map_err(|error| unchanged(&error))?;
    settings.write().map_err(|error| unchanged(&error))?;
    terminal.talk(format!("Claude Code asks Palyra from now on: {}", settings.path().display()));
    let token = if is_new { "a new token" } else { "the token that was there" };
    terminal.talk(format!("  with {token} for {} in {}", args.holder, token_file.display()));
    terminal.talk("  sessions that are open ask once they are started anew");
    Ok(Exit::Ok)
}

/// Takes the hook out of the settings.
pub(super) fn uninstall(args: &ClaudeCodeArgs, terminal: &Terminal) -> Outcome {
    let mut settings = Settings::read(&settings_file(args)?).map_err(|error| unchanged(&error))?;
    if !settings.take().map_err(|error| unchanged(&error))? {
        terminal.talk(format!("the hook is not in {}", settings.path().display()));
        return Ok(Exit::Ok);
    }
    settings.write().map_err(|error| unchanged(&error))?;
    terminal.talk(format!("Claude Code does not ask Palyra any more: {}", settings.path().display()));
    terminal.talk("its token works until it is revoked: `palyra tokens list`, `palyra tokens revoke ID`");
    Ok(Exit::Ok)
}

/// Keeps a token for the hook, unless there is one that works. Tells whether it is new.
async fn keep_token(
    args: &ClaudeCodeArgs,
    path: &Path,
    daemon: &Client,
    connection: &Connection,
) -> Result<bool, Failure> {
    if let Ok(bytes) = private_file::read(path, LONGEST_TOKEN) {
        let text = Zeroizing::new(String::from_utf8_lossy(&bytes).trim().to_owned());
        // The daemon has shown who it is: whoever else sat on its port would learn the token.
        daemon.readiness().await?;
        if let Ok(bearer) = Bearer::parse(&text) {
            let identity = Client::local(connection.local()?).with_bearer(bearer).identity().await;
            if identity.is_ok_and(|identity| identity.principal == args.holder.to_string()) {
                return Ok(false);
            }
        }
    }
    let new = NewToken {
        name: "hook of Claude Code".to_owned(),
        principal: args.holder.to_string(),
        scopes: vec!["calls.create".to_owned()],
        lifetime_seconds: args.expires.seconds(),
        role: None,
        channel: None,
        workspaces: None,
        per_minute: None,
        concurrent: None,
    };
    let secret = Zeroizing::new(daemon.mint_token(&new).await?.secret);
    let line = Zeroizing::new(format!("{}\n", *secret));
    private_file::write(path, line.as_bytes()).map_err(|error| {
        let help = "make its directory yours alone, or name another file with --token-file";
        Failure::new(Exit::Failure, "unwritable", "the token cannot be kept", error.to_string(), help)
    })?;
    Ok(true)
}

/// The file that the token is kept in, in full: Claude Code runs the hook anywhere.
fn token_file(args: &ClaudeCodeArgs) -> Result<PathBuf, Failure> {
    let named = match &args.token_file {
        Some(path) => path.clone(),
        None => home()?.path().join("hooks/claude-code.token"),
    };
    std::path::absolute(&named).map_err(|error| {
        Failure::new(Exit::Failure, "no_directory", "there is no working directory", error.to_string(), "change to one")
    })
}

/// The settings that are meant.
fn settings_file(args: &ClaudeCodeArgs) -> Result<PathBuf, Failure> {
    match args.scope {
        // It names files of this machine, so it is not for those who share the project.
        Scope::Project => Ok(PathBuf::from(".claude/settings.local.json")),
        Scope::User => {
            let own = env::var_os("CLAUDE_CONFIG_DIR").filter(|own| !own.is_empty()).map(PathBuf::from);
            let usual = || Some(PathBuf::from(env::var_os("HOME").filter(|home| !home.is_empty())?).join(".claude"));
            let directory = own.or_else(usual).ok_or_else(|| {
                let help = "set HOME or CLAUDE_CONFIG_DIR, or use --scope project";
                Failure::new(
                    Exit::Failure,
                    "no_home",
                    "there is no place for a user's settings",
                    "HOME is not set",
                    help,
                )
            })?;
            Ok(directory.join("settings.json"))
        }
    }
}

/// What a shell is handed.
fn command(args: &ClaudeCodeArgs, token_file: &Path) -> Result<String, Failure> {
    let program = env::current_exe().map_err(|error| {
        let help = "run it by its whole path";
        Failure::new(Exit::Failure, "no_program", "this program does not know where it is", error.to_string(), help)
    })?;
    let mut words = vec![text(&program)?, "hook".to_owned(), "claude-code".to_owned()];
    words.extend(["--token-file".to_owned(), text(token_file)?]);
    if let Some(daemon) = &args.daemon {
        words.extend(["--daemon".to_owned(), daemon.clone()]);
    }
    if args.on_ask == OnAsk::Wait {
        words.extend(["--on-ask", "wait"].map(str::to_owned));
    }
    if let Some(within) = args.within {
        words.extend(["--within".to_owned(), within.to_string()]);
    }
    let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    // The variables that name the state directory may be unset where Claude Code runs, and the daemon is found by it.
    let home = match &args.daemon {
        Some(_) => String::new(),
        None => format!("PALYRA_HOME={} ", quoted(&text(home()?.path())?)),
    };
    Ok(format!("{home}{}", words.join(" ")))
}

/// How long Claude Code gives the hook: longer than it takes, because Claude Code goes on when the time is over.
fn timeout(args: &ClaudeCodeArgs) -> u32 {
    args.seconds().saturating_add(30)
}

fn text(path: &Path) -> Result<String, Failure> {
    path.to_str().map(str::to_owned).ok_or_else(|| {
        let cause = format!("{} is not in Unicode", path.display());
        Failure::new(Exit::Failure, "not_unicode", "the settings cannot name it", cause, "use another path")
    })
}

/// A word as a shell reads it back.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

fn unchanged(error: &SettingsError) -> Failure {
    let help = "correct the file, or print what belongs there: `palyra hook claude-code --print`";
    Failure::new(
        Exit::Failure,
        "settings",
        "the settings of Claude Code are as they were",
        visible(&error.to_string()),
        help,
    )
}

const WHAT: &str = "a hook";

/// Longer than any token.
const LONGEST_TOKEN: u64 = 1_024;
