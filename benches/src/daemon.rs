//! A daemon to measure: the program as this profile builds it, in a process of its own, with a state directory of its own on a real disk.
//!
//! Guarantees: no limit on the pace of a principal or on the calls of a run is in the way; the process is gone when this is.

#![allow(clippy::disallowed_methods, reason = "it starts what is measured")]

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    path::PathBuf,
    process::{Child, Command},
    time::{Duration, Instant},
};

use palyra_api::{member::SetFlag, token::NewToken};
use palyra_client::{Client, DeviceKeys, Endpoint};
use palyra_identity::DeviceIdentity;
use tempfile::TempDir;

use crate::place::directory;

/// A daemon in a process of its own.
pub struct Daemon {
    home: TempDir,
    control: SocketAddr,
    local: SocketAddr,
    child: Option<Child>,
}

/// What a daemon is started with.
pub struct DaemonPlan<'a> {
    /// The preset in force.
    pub preset: &'a str,
    /// More of its configuration.
    pub config: &'a str,
    /// Policies beside the preset.
    pub policies: &'a str,
}

impl Default for DaemonPlan<'_> {
    fn default() -> Self {
        Self { preset: "observe", config: "", policies: "" }
    }
}

impl Daemon {
    /// Starts one on a fresh state directory, in which agents may only look around.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(&DaemonPlan::default())
    }

    /// The same, by another plan.
    #[must_use]
    pub fn start_with(plan: &DaemonPlan<'_>) -> Self {
        let DaemonPlan { preset, config, policies } = plan;
        let (home, control, local) = (directory(), free(), free());
        let (state, workspace) = (home.path().join("state"), home.path().join("workspace"));
        fs::create_dir(&workspace).expect("a directory");
        fs::create_dir(&state).expect("a directory");
        let config = format!(
            "[listen]\ncontrol = \"{control}\"\nlocal = \"{local}\"\n{CONFIG}[policy]\npreset = \"{preset}\"\n{config}[[workspace]]\nname = \"lab\"\npath = \"{}\"\n",
            workspace.display()
        );
        fs::write(state.join("config.toml"), config).expect("a file");
        fs::create_dir(state.join("policies")).expect("a directory");
        fs::write(state.join("policies/measurement.cedar"), policies).expect("a file");
        let private = Command::new("chmod").args(["-R", "go="]).arg(&state).status().expect("chmod");
        assert!(private.success(), "the state directory is not private");
        let mut daemon = Self { home, control, local, child: None };
        daemon.up();
        daemon
    }

    /// Starts it, and says how long it took until it was ready.
    pub fn up(&mut self) -> Duration {
        let begun = Instant::now();
        let mut command = Command::new(program("palyrad"));
        self.child = Some(command.env("PALYRA_HOME", self.state()).spawn().expect("it starts"));
        let client = Client::local(Endpoint::parse(&format!("http://{}", self.local)).expect("an address"));
        let runtime = runtime();
        while !runtime.block_on(client.readiness()).is_ok_and(|readiness| readiness.ready) {
            assert!(begun.elapsed() < Duration::from_secs(20), "it does not get ready");
            std::thread::sleep(Duration::from_millis(1));
        }
        begun.elapsed()
    }

    /// Stops it, and says how large its journal is.
    pub fn stop(&mut self) -> u64 {
        let mut child = self.child.take().expect("it runs");
        let told = Command::new("kill").args(["-s", "TERM", &child.id().to_string()]).status().expect("kill");
        assert!(told.success() && child.wait().expect("it ends").success(), "it does not stop in good order");
        fs::metadata(self.state().join("journal/journal.db")).expect("a journal").len()
    }

    /// The id of its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
    }

    /// The address of the listener for devices.
    #[must_use]
    pub const fn control(&self) -> SocketAddr {
        self.control
    }

    /// The address of the listener for programs on this machine.
    #[must_use]
    pub const fn local(&self) -> SocketAddr {
        self.local
    }

    /// The state directory.
    #[must_use]
    pub fn state(&self) -> PathBuf {
        self.home.path().join("state")
    }

    /// The device that the owner's command line is.
    #[must_use]
    pub fn device(&self) -> DeviceIdentity {
        DeviceIdentity::read(&self.state().join("identity/device.json")).expect("a device")
    }

    /// The owner's way in.
    #[must_use]
    pub fn owner(&self) -> Client {
        let DeviceIdentity { authorities, certificate, key, .. } = &self.device();
        let keys = DeviceKeys { authorities, certificate, key };
        Client::control(&self.control.to_string(), keys).expect("the owner's keys")
    }

    /// Switches a part of it on.
    pub fn switch_on(&self, flag: &str) {
        let switching = self.owner();
        runtime().block_on(switching.set_flag(flag, &SetFlag { on: true })).expect("a flag");
    }

    /// Mints so many tokens, each of an agent of its own and as fast as a token can be.
    #[must_use]
    pub fn tokens(&self, count: usize) -> Vec<String> {
        self.tokens_for(&["calls.create", "calls.read"], count)
    }

    /// The same for these scopes.
    #[must_use]
    pub fn tokens_for(&self, scopes: &[&str], count: usize) -> Vec<String> {
        let owner = self.owner();
        let runtime = runtime();
        let minted = (0..count).map(|number| {
            let new = NewToken {
                name: format!("measurement {number}"),
                principal: format!("agent:measurement-{number}"),
                scopes: scopes.iter().map(ToString::to_string).collect(),
                channel: None,
                lifetime_seconds: 3_600,
                role: None,
                workspaces: None,
                per_minute: Some(100_000),
                concurrent: Some(1_000),
            };
            runtime.block_on(owner.mint_token(&new)).expect("a token").secret
        });
        minted.collect()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A program that was built by the same profile as this one.
#[must_use]
pub fn program(name: &str) -> PathBuf {
    let here = std::env::current_exe().expect("this program");
    // target/<profile>/deps/<this program>
    let path = here.ancestors().nth(2).expect("a target directory").join(name);
    assert!(path.is_file(), "{} is not there: `make bench` builds it first", path.display());
    path
}

fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port")
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Refused attempts are told as warnings, which would stand between the figures. One client calls more often than any agent does.
const CONFIG: &str = "\
[log]
level = \"error\"
[access]
principal_per_minute = 100000000
[budget]
calls = 1000000
";
