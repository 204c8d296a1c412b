//! `palyra up` starts the daemon here, with everything in it. `palyra init` makes what it needs and starts nothing.

use std::{
    env, fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::Args;
use palyra_daemon::{
    Daemon, Installation, ServeError, Serving, StartError, World, app::App, environment, installation::Files,
    ports_are_free, serve_with,
};
use palyra_identity::{DeviceIdentity, request_for};
use palyra_types::{AbsolutePath, StateHome, WorkspaceName, clock::SystemClock, entropy::SystemEntropy};
use serde::Serialize;

use crate::{
    Outcome,
    at::At,
    exit::Exit,
    failure::Failure,
    selection::absolute,
    terminal::{BOLD, Terminal},
};

#[derive(Args)]
pub(crate) struct UpArgs {
    /// The directory that agents may work in, for a new configuration. Without it the working directory, or `palyra-workspace` in the home
    /// directory if that is where you are.
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
}

/// Starts the daemon and serves until it is told to stop.
pub(crate) fn up(args: &UpArgs, at: &At, terminal: &Terminal) -> Outcome {
    at.unnamed("starting a daemon")?;
    let home = StateHome::find(|name| env::var_os(name)).map_err(|error| refused(&error.into()))?;
    // Known at once; whoever starts a daemon waits for a while for what an earlier one may hold still.
    if let Some(Serving { pid, .. }) = Serving::now(&home) {
        return Err(refused(&StartError::Running(pid).into()));
    }
    // Not even a workspace is made for a daemon that cannot start.
    ports_are_free(&home).map_err(|error| refused(&error))?;
    let workspace = workspace(args)?;
    let served = serve_with(workspace.as_ref(), World::real(), |daemon| {
        welcome(daemon, terminal);
    });
    served.map(|()| Exit::Ok).map_err(|error| refused(&error))
}

/// Makes the state directory.
pub(crate) fn init(args: &UpArgs, at: &At, terminal: &Terminal) -> Outcome {
    at.unnamed("making a state directory")?;
    #[derive(Serialize)]
    struct Made<'a> {
        state: &'a Path,
        workspaces: Vec<&'a str>,
    }
    let home = StateHome::find(|name| env::var_os(name)).map_err(|error| refused(&error.into()))?;
    let serving = Serving::now(&home);
    let made = match serving {
        // It looks after all of it, and nothing is missing.
        Some(_) => Installation::find(&home, environment()),
        None => {
            let workspace = workspace(args)?;
            Installation::make(
                &home,
                workspace.as_ref(),
                environment(),
                (Arc::new(SystemClock::new()), Arc::new(SystemEntropy)),
            )
        }
    };
    let made = made.map_err(|error| refused(&error.into()))?;
    let workspaces = made.config().workspace.iter().map(|one| one.path.as_str()).collect();
    if terminal.json {
        terminal.document("init", Made { state: home.path(), workspaces });
        return Ok(Exit::Ok);
    }
    terminal.out(format!("state      {}", home.path().display()));
    for path in workspaces {
        terminal.out(format!("workspace  {path}"));
    }
    match serving {
        Some(Serving { pid, .. }) => {
            terminal.talk(format!("the daemon runs, as process {pid}; nothing is made while it does"));
        }
        None => terminal.talk("start the daemon: `palyra up`"),
    }
    Ok(Exit::Ok)
}

/// What a person needs to know once it serves.
fn welcome(daemon: &Daemon, terminal: &Terminal) {
    let app = daemon.app();
    let link = link(app);
    let config = app.gate.config();
    if terminal.json {
        #[derive(Serialize)]
        struct Serving<'a> {
            console: Option<&'a str>,
            local: String,
            journal: &'a Path,
        }
        let console = link.as_deref().ok();
        terminal.document("up", Serving { console, local: format!("http://{}", app.local), journal: &app.journal });
        return;
    }
    let line =
        |name: &str, text: String| terminal.out(format!("{}  {text}", terminal.paint(BOLD, &format!("{name:<9}"))));
    match link {
        Ok(link) => {
            line("console", format!("{link}  (works once, for five minutes; `{} open` makes another)", own_name()))
        }
        Err(error) => line("console", error),
    }
    let palyra = own_name();
    line("terminal", format!("{palyra} approvals watch  (in another terminal; `{palyra} demo` shows it at work)"));
    let places: Vec<_> = config.workspace.iter().map(|one| one.path.as_str()).collect();
    let preset = toml::Value::try_from(config.policy.preset).ok().and_then(|preset| preset.as_str().map(str::to_owned));
    let places = if places.is_empty() { "no workspace yet".to_owned() } else { places.join(", ") };
    line("policy", format!("preset {} for agents in {places}", preset.unwrap_or_default()));
    line("journal", app.journal.display().to_string());
    let here = absolute(None).ok();
    if here.is_some_and(|here| config.workspace.iter().all(|one| !here.is_within(&one.path))) {
        terminal.talk(format!(
            "this directory is no workspace; to let agents work here, add it to {} and run `{palyra} reload`",
            app.home.config().display()
        ));
    }
}

/// A link that opens the console once, for this machine's own device.
fn link(app: &App) -> Result<String, String> {
    let file = Files::of(&app.home).device;
    let device = DeviceIdentity::read(&file).map_err(|error| error.to_string())?;
    let key = request_for(&device.key).map_err(|error| error.to_string())?.key();
    if let Err(refusal) = app.access.by_device_key(&key) {
        return Err(format!(
            "no link, as this machine's own device is not let in: {refusal}; stop the daemon, remove {}, and `{} up` makes a new one",
            file.display(),
            own_name()
        ));
    }
    let link = app.console.link(key).map_err(|error| error.to_string())?;
    Ok(format!("http://{}/#code={}", app.local, *link.secret))
}

/// What to type for this program: its name if that finds it, else its path.
fn own_name() -> String {
    let Ok(own) = env::current_exe() else { return "palyra".to_owned() };
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).map(|directory| directory.join("palyra")).find(|file| file.is_file());
    let same = found.and_then(|found| fs::canonicalize(found).ok()).is_some_and(|found| found == own);
    if same { "palyra".to_owned() } else { own.display().to_string() }
}

/// The workspace that a new configuration gets.
fn workspace(args: &UpArgs) -> Result<Option<(WorkspaceName, AbsolutePath)>, Failure> {
    let here = match &args.workspace {
        Some(directory) => absolute(Some(directory))?,
        None => default_workspace()?,
    };
    let name: String = here
        .file_name()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' })
        .collect();
    let name = name.trim_start_matches(['.', '_', '-']).to_owned();
    let name = WorkspaceName::parse(&name).or_else(|_| WorkspaceName::parse("workspace"));
    Ok(name.ok().map(|name| (name, here)))
}

/// Where a person is; but for their home directory, which holds what no agent should see, and for the root of the file system.
fn default_workspace() -> Result<AbsolutePath, Failure> {
    let here = absolute(None)?;
    let home = env::var_os("HOME").map(PathBuf::from).and_then(|home| fs::canonicalize(home).ok());
    let too_wide = here.as_str() == "/" || home.as_deref().is_some_and(|home| home.starts_with(here.as_str()));
    match (too_wide, home) {
        (false, _) => Ok(here),
        (true, Some(home)) => {
            let own = home.join("palyra-workspace");
            fs::create_dir_all(&own).map_err(|error| {
                Failure::new(
                    Exit::Failure,
                    "no_workspace",
                    format!("{} cannot be made", own.display()),
                    error.to_string(),
                    "name a directory: `palyra up --workspace DIR`",
                )
            })?;
            absolute(Some(&own))
        }
        (true, None) => Err(Failure::new(
            Exit::Usage,
            "no_workspace",
            "the whole file system is no workspace",
            "you are in its root, and HOME names no directory",
            "name a directory: `palyra up --workspace DIR`",
        )),
    }
}

fn refused(error: &ServeError) -> Failure {
    let help = error.advice();
    Failure::new(Exit::Failure, "not_started", "the daemon does not start", error.to_string(), help)
}
