//! A real daemon to try things on: the program itself, in a process of its own, with real commands and a state directory of its own.
//!
//! The clock can be set where a test needs that: then it is the same daemon, started by this crate's `lab-daemon`, whose clock reads how far
//! ahead it is from a file. As root it can run as an ordinary user, too.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    reason = "a laboratory that cannot be set up ends the test, and it starts the program that is tested"
)]

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU16, Ordering},
    time::{Duration, Instant},
};

use palyra_api::{
    approval::{Answers, Approval, ApprovalQuery, Approve, Deny, Scope},
    call::{Call, NewCall},
};
use palyra_client::{Bearer, Client, ClientError, DeviceKeys, Endpoint};
use palyra_identity::DeviceIdentity;
use palyra_types::{ToolName, WorkspaceName, id::CallId};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// What a daemon is to be like.
#[derive(Default, Clone)]
pub struct DaemonPlan {
    config: String,
    policies: Vec<(String, String)>,
    user: Option<String>,
    own_clock: bool,
    descriptors: Option<u32>,
    hosts: Option<String>,
    variables: Vec<(String, String)>,
}

impl DaemonPlan {
    /// With this configuration, besides the listeners and the workspace.
    #[must_use]
    pub fn config(mut self, toml: &str) -> Self {
        self.config.push_str(toml);
        self.config.push('\n');
        self
    }

    /// With this file of policies of its own.
    #[must_use]
    pub fn policies(mut self, name: &str, cedar: &str) -> Self {
        self.policies.push((name.to_owned(), cedar.to_owned()));
        self
    }

    /// As an ordinary user, if the test is run by root. Others are ordinary users anyway.
    #[must_use]
    pub fn ordinary_user(mut self) -> Self {
        self.user = is_root().then(|| "65534".to_owned());
        self
    }

    /// With a clock that the test sets.
    #[must_use]
    pub const fn own_clock(mut self) -> Self {
        self.own_clock = true;
        self
    }

    /// Where these are all the hosts that there are: a line `name address…` for each.
    #[must_use]
    pub fn hosts(mut self, hosts: &str) -> Self {
        self.hosts = Some(hosts.to_owned());
        self.own_clock()
    }

    /// With so many descriptors and no more.
    #[must_use]
    pub const fn descriptors(mut self, most: u32) -> Self {
        self.descriptors = Some(most);
        self
    }

    /// With this variable in its environment.
    #[must_use]
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Starts it in a fresh directory, and waits until it serves.
    #[must_use]
    pub fn start(self) -> DaemonLab {
        let mut lab = self.make();
        lab.start();
        lab
    }

    /// Makes the directory, and starts nothing.
    #[must_use]
    pub fn make(self) -> DaemonLab {
        let root = tempfile::tempdir().unwrap();
        let (home, workspace) = (root.path().join("state"), root.path().join("workspace"));
        fs::create_dir(&workspace).unwrap();
        let policies = home.join("policies");
        fs::create_dir_all(&policies).unwrap();
        let (control, local) = (free_port(), free_port());
        let pace = if self.config.contains("[access]") { "" } else { PACE };
        let config = format!(
            "[listen]\ncontrol = \"{control}\"\nlocal = \"{local}\"\ndrain_seconds = 2\n{pace}{}\n[[workspace]]\nname = \"lab\"\npath = \"{}\"\n",
            self.config,
            workspace.display()
        );
        fs::write(home.join("config.toml"), config).unwrap();
        for (name, text) in &self.policies {
            fs::write(policies.join(name), text).unwrap();
        }
        let ahead = root.path().join("ahead");
        fs::write(&ahead, "0").unwrap();
        if let Some(hosts) = &self.hosts {
            fs::write(root.path().join("hosts"), hosts).unwrap();
        }
        let private = Command::new("chmod").args(["-R", "go="]).arg(&home).status().unwrap();
        assert!(private.success());
        let lab = DaemonLab {
            plan: self,
            control,
            local,
            home,
            workspace,
            ahead,
            child: None,
            log: root.path().join("log"),
            root,
        };
        lab.hand_over();
        lab
    }
}

/// A daemon in a process of its own.
pub struct DaemonLab {
    plan: DaemonPlan,
    control: SocketAddr,
    local: SocketAddr,
    home: PathBuf,
    workspace: PathBuf,
    ahead: PathBuf,
    log: PathBuf,
    child: Option<Child>,
    root: TempDir,
}

impl DaemonLab {
    /// A daemon with the preset `cautious`.
    #[must_use]
    pub fn new() -> Self {
        DaemonPlan::default().start()
    }

    /// Starts it (again), and waits until it serves.
    pub fn start(&mut self) {
        self.spawn();
        let begun = Instant::now();
        while std::net::TcpStream::connect(self.local).is_err() || !self.healthy() {
            let child = self.child.as_mut().unwrap();
            if let Some(status) = child.try_wait().unwrap() {
                panic!("the daemon ended with {status}:\n{}", self.log());
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "the daemon does not serve:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Starts it, and does not wait.
    pub fn spawn(&mut self) {
        assert!(self.child.is_none(), "it runs already");
        let program = if self.plan.own_clock { program("lab-daemon") } else { program("palyrad") };
        let mut command = match self.plan.descriptors {
            None => self.command(&program),
            Some(most) => {
                let mut command = self.command(Path::new("prlimit"));
                command.arg(format!("--nofile={most}:{most}")).arg(&program);
                command
            }
        };
        command.envs(self.plan.variables.iter().map(|(name, value)| (name, value)));
        let log = fs::OpenOptions::new().create(true).append(true).open(&self.log).unwrap();
        self.child = Some(command.stdout(Stdio::null()).stderr(log).spawn().unwrap());
    }

    /// A command that sees this state directory, as the user that the daemon runs as.
    #[must_use]
    pub fn command(&self, program: &Path) -> Command {
        let mut command = match &self.plan.user {
            Some(user) => {
                let mut command = Command::new("setpriv");
                command.args(["--reuid", user, "--regid", user, "--clear-groups"]).arg(program);
                command
            }
            None => Command::new(program),
        };
        command.env("PALYRA_HOME", &self.home).env("LAB_AHEAD", &self.ahead).current_dir(&self.workspace);
        // A laboratory's vault must not reach for the keyring of whoever runs the tests.
        command.env_remove("DBUS_SESSION_BUS_ADDRESS").env_remove("XDG_RUNTIME_DIR");
        if self.plan.hosts.is_some() {
            command.env("LAB_HOSTS", self.root.path().join("hosts"));
        }
        command
    }

    /// The `palyra` command with this state directory, in the workspace.
    #[must_use]
    pub fn palyra(&self) -> Command {
        self.command(&program("palyra"))
    }

    /// Kills it, as nothing that it could prepare for.
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("it runs");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Sends it a signal, by name.
    pub fn signal(&self, name: &str) {
        signal(self.pid(), name);
    }

    /// Asks it to stop, waits until it has, and says how it ended.
    pub fn stop(&mut self) -> std::process::ExitStatus {
        self.signal("TERM");
        self.ended()
    }

    /// Waits until it has ended.
    pub fn ended(&mut self) -> std::process::ExitStatus {
        let mut child = self.child.take().expect("it runs");
        let begun = Instant::now();
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                return status;
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "the daemon does not stop:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The id of its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
    }

    /// The end of what it logged.
    #[must_use]
    pub fn log(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        lines.iter().skip(lines.len().saturating_sub(20)).fold(String::new(), |text, line| text + line + "\n")
    }

    /// Everything that it has written anywhere: its state, its log, and what calls have left in the workspace.
    #[must_use]
    pub fn written(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let (mut found, mut places) = (Vec::new(), vec![self.root.path().to_owned()]);
        while let Some(place) = places.pop() {
            for entry in fs::read_dir(place).unwrap() {
                let entry = entry.unwrap();
                match entry.file_type().unwrap() {
                    kind if kind.is_dir() => places.push(entry.path()),
                    kind if kind.is_file() => found.push((entry.path(), fs::read(entry.path()).unwrap())),
                    _ => {}
                }
            }
        }
        found
    }

    /// Sets how far its clock is ahead, if it has one of its own.
    pub fn set_ahead(&self, ahead: Duration) {
        let beside = self.ahead.with_extension("new");
        fs::write(&beside, ahead.as_millis().to_string()).unwrap();
        fs::rename(beside, &self.ahead).unwrap();
    }

    /// Other hosts than before.
    pub fn set_hosts(&self, hosts: &str) {
        let beside = self.root.path().join("hosts.new");
        fs::write(&beside, hosts).unwrap();
        fs::rename(beside, self.root.path().join("hosts")).unwrap();
    }

    /// Whether it knows the hosts of its plan and no others.
    #[must_use]
    pub const fn has_hosts(&self) -> bool {
        self.plan.hosts.is_some()
    }

    /// The state directory.
    #[must_use]
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// Where calls work.
    #[must_use]
    pub fn workspace(&self) -> &Path {
        &self.workspace
    }

    /// The journal's directory.
    #[must_use]
    pub fn journal(&self) -> PathBuf {
        self.home.join("journal")
    }

    /// The access registry, byte for byte.
    #[must_use]
    pub fn registry(&self) -> Vec<u8> {
        fs::read(self.home.join("access_registry.json")).unwrap()
    }

    /// What interrupted saves of the access registry left behind.
    #[must_use]
    pub fn leftovers(&self) -> Vec<String> {
        let names = fs::read_dir(&self.home).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with(".access_registry")).collect()
    }

    /// The address of the local listener.
    #[must_use]
    pub const fn local(&self) -> SocketAddr {
        self.local
    }

    /// The address of the control listener.
    #[must_use]
    pub const fn control(&self) -> SocketAddr {
        self.control
    }

    /// The agents' credential, as it stands in its file.
    #[must_use]
    pub fn agent_token(&self) -> String {
        fs::read_to_string(self.home.join("identity/agent.token")).unwrap().trim().to_owned()
    }

    /// The device that the owner's command line is.
    #[must_use]
    pub fn device(&self) -> DeviceIdentity {
        identity_in(&self.home.join("identity/device.json"))
    }

    /// The agent, on the local listener.
    #[must_use]
    pub fn agent(&self) -> Client {
        self.holder_of(&self.agent_token())
    }

    /// Whoever holds this bearer, on the local listener.
    #[must_use]
    pub fn holder_of(&self, bearer: &str) -> Client {
        self.stranger().with_bearer(Bearer::parse(bearer).unwrap())
    }

    /// Somebody without a credential, on the local listener.
    #[must_use]
    pub fn stranger(&self) -> Client {
        Client::local(Endpoint::parse(&format!("http://{}", self.local)).unwrap())
    }

    /// The owner, on the control listener.
    #[must_use]
    pub fn owner(&self) -> Client {
        self.of_device(&self.device())
    }

    /// Whoever uses this device, on the control listener.
    #[must_use]
    pub fn of_device(&self, device: &DeviceIdentity) -> Client {
        let DeviceIdentity { authorities, certificate, key, .. } = device;
        Client::control(&self.control.to_string(), DeviceKeys { authorities, certificate, key }).unwrap()
    }

    /// The owner, on the local listener, by a session of the console.
    pub async fn owner_locally(&self) -> Client {
        self.holder_of(&self.console().await)
    }

    /// A session of the console, opened by the owner: what its page sends as bearer.
    pub async fn console(&self) -> String {
        self.sign_in(&self.owner().console_link().await.unwrap().url).await
    }

    /// Exchanges a link for a session of the console, as its page does: what the page then sends as bearer.
    pub async fn sign_in(&self, url: &str) -> String {
        let code = url.split("#code=").nth(1).unwrap();
        let body = json!({ "code": code }).to_string();
        let head = format!(
            "POST /api/v1/console/session HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            self.local,
            body.len()
        );
        let mut stream = tokio::net::TcpStream::connect(self.local).await.unwrap();
        stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let answer: Value = serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap();
        answer["bearer"].as_str().unwrap().to_owned()
    }

    /// Whether it answers.
    fn healthy(&self) -> bool {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let client = self.stranger();
        std::thread::spawn(move || runtime.block_on(client.health()).is_ok()).join().unwrap()
    }

    /// Gives the directories to whoever the daemon runs as.
    fn hand_over(&self) {
        if let Some(user) = &self.plan.user {
            let given = Command::new("chown").args(["-R", &format!("{user}:{user}")]).arg(self.root.path()).status();
            assert!(given.unwrap().success());
        }
    }
}

impl Default for DaemonLab {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for DaemonLab {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A call of a tool in the workspace.
#[must_use]
pub fn tool(name: &str, args: Value) -> NewCall {
    let Value::Object(args) = args else { panic!("arguments are an object") };
    let workspace = Some(WorkspaceName::parse("lab").unwrap());
    NewCall { workspace, ..NewCall::new(ToolName::parse(name).unwrap(), args) }
}

/// A call that runs a program.
#[must_use]
pub fn command<const N: usize>(argv: [&str; N]) -> NewCall {
    tool("process.run", json!({ "command": argv.to_vec() }))
}

/// The same call, accepted: it goes on without its caller.
#[must_use]
pub fn accepted(call: NewCall) -> NewCall {
    NewCall { wait: false, ..call }
}

/// Waits until this many questions are pending, and returns them.
pub async fn asked(by: &Client, count: usize) -> Vec<Approval> {
    for _ in 0..2_000 {
        let pending = by.approvals(&ApprovalQuery::default()).await.unwrap().approvals;
        if pending.len() >= count {
            return pending;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{count} questions were to be asked")
}

/// Says yes to a question, once.
///
/// # Errors
/// When the answer does not count.
pub async fn approve(by: &Client, question: &Approval) -> Result<Answers, ClientError> {
    by.approve(question.id, &yes(question)).await
}

/// A yes to a question, once, at a terminal.
#[must_use]
pub fn yes(question: &Approval) -> Approve {
    Approve {
        digest: question.digest,
        scope: Scope::Once,
        minutes: None,
        fixed_arguments: None,
        together: false,
        at_terminal: true,
    }
}

/// A no to a question, at a terminal.
#[must_use]
pub fn no(question: &Approval, message: Option<&str>) -> Deny {
    Deny { digest: question.digest, message: message.map(str::to_owned), together: false, at_terminal: true }
}

/// Waits until a call is over, and returns it.
pub async fn over(by: &Client, id: CallId) -> Call {
    for _ in 0..4_000 {
        let call = by.call(id).await.unwrap();
        if call.state == palyra_api::call::CallState::Ended {
            return call;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("the call {id} does not come to its end")
}

/// The status and the code of a refusal. An error of any other kind ends the test.
#[must_use]
pub fn refused(error: ClientError) -> (u16, String) {
    match error {
        ClientError::Refused { status, error: body } => (status, body.code),
        other => panic!("{other}"),
    }
}

/// The identity of a device as it stands in its file, whoever owns that.
#[must_use]
pub fn identity_in(path: &Path) -> DeviceIdentity {
    let kept: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let text = |key: &str| kept[key].as_str().unwrap().to_owned();
    DeviceIdentity {
        name: text("name"),
        address: text("address").parse().unwrap(),
        authorities: text("authorities"),
        certificate: text("certificate"),
        key: text("key").into(),
        device: text("device").parse().unwrap(),
        principal: text("principal"),
        role: kept["role"].as_str().map(str::to_owned),
    }
}

/// A program of this workspace, beside the one that runs.
#[must_use]
pub fn program(name: &str) -> PathBuf {
    let here = std::env::current_exe().unwrap();
    let directory = here.ancestors().find(|path| path.join(name).is_file());
    directory.unwrap_or_else(|| panic!("{name} was not built: cargo build --workspace --bins")).join(name)
}

/// Sends a process a signal, by name.
pub(crate) fn signal(pid: u32, name: &str) {
    assert!(Command::new("kill").args(["-s", name, &pid.to_string()]).status().unwrap().success());
}

/// A port that nobody has, out of those that the kernel gives to connections, so that it stays free while the daemon is away.
fn free_port() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Tests run in processes of their own, whose numbers are close to each other.
    let start = (std::process::id() % 600) * 20;
    loop {
        let step = u32::from(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = u16::try_from(20_000 + (start + step) % 12_000).unwrap();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}

/// Tests ask faster than programs do.
const PACE: &str = "[access]\nprincipal_per_minute = 100000000\n";

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0)
}
