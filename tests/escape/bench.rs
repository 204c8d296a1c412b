//! Where attacks are tried: a real daemon with a workspace, things outside that they are after, and services of the machine that must not be
//! reached.

use std::{
    fs,
    io::{Read, Write},
    net::TcpListener,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            fs::{MetadataExt, PermissionsExt, lchown, symlink},
            net::{SocketAddr, UnixDatagram, UnixListener},
        },
    },
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
    time::Duration,
};

use palyra_api::call::{Call, NewCall, Output};
use palyra_client::{Client, ClientError};
use palyra_tests::daemon::{DaemonLab, DaemonPlan, tool};
use serde_json::{Value, json};

use crate::escape::host::{self, Host};

/// Who the daemon runs as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identity {
    /// Root, with a workspace of root.
    Root,
    /// An ordinary user.
    Ordinary,
}

/// A daemon, and what is around it.
pub struct Bench {
    pub lab: DaemonLab,
    pub identity: Identity,
    /// What is in the environment of every attack, and of nothing else.
    pub mark: String,
    /// A directory beside the workspace that everybody on this machine may use.
    pub outside: PathBuf,
    /// A service of this machine.
    pub service: TcpListener,
    /// The port of one that a rule lists, which sends everybody on to the other.
    pub listed: u16,
    /// Sockets of this machine, in the workspace.
    pub stream: UnixListener,
    pub datagrams: UnixDatagram,
    _abstract: UnixListener,
}

/// What came of an attack.
#[derive(Debug)]
pub struct Ran {
    /// The last line that it printed.
    pub line: String,
    pub stderr: String,
    pub call: Call,
}

impl Bench {
    /// One for attacks whose defences all hold. Nothing for a user that this machine cannot run it as.
    pub fn new(identity: Identity) -> Option<Self> {
        Self::with(identity, plan())
    }

    /// One whose daemon lists hosts, which are all on this machine.
    pub fn with_hosts(identity: Identity, plan: DaemonPlan) -> Option<Self> {
        Self::with(identity, plan.hosts(NAMES))
    }

    /// One whose daemon is like this.
    pub fn with(identity: Identity, plan: DaemonPlan) -> Option<Self> {
        let is_root = rustix::process::geteuid().is_root();
        let plan = match identity {
            Identity::Root if !is_root => return None,
            Identity::Root => plan,
            Identity::Ordinary => plan.ordinary_user(),
        };
        let mut lab = plan.make();
        let workspace = lab.workspace().to_owned();
        let root = workspace.parent().unwrap();
        let outside = root.join("outside");
        fs::create_dir(&outside).unwrap();
        for name in ["secret", "target"] {
            fs::write(outside.join(name), CANARY).unwrap();
            open_to_all(&outside.join(name), 0o666);
        }
        // Permissions are to hold nobody back: the enclosure is.
        open_to_all(root, 0o755);
        open_to_all(&outside, 0o777);
        fs::copy(attacks(), workspace.join("attacks")).unwrap();
        fs::copy(attacks(), outside.join("attacks")).unwrap();
        let stream = UnixListener::bind(workspace.join("stream.sock")).unwrap();
        let datagrams = UnixDatagram::bind(workspace.join("datagrams.sock")).unwrap();
        stream.set_nonblocking(true).unwrap();
        datagrams.set_nonblocking(true).unwrap();
        for name in ["stream.sock", "datagrams.sock"] {
            open_to_all(&workspace.join(name), 0o777);
        }
        symlink(&outside, workspace.join("way-out")).unwrap();
        for (name, target) in [("oldroot", "/oldroot"), ("newroot", "/newroot")] {
            symlink(target, workspace.join(name)).unwrap();
        }
        // One that has everything in it: the state directory and what lies outside of the other one.
        let config = lab.home().join("config.toml");
        // And two of which one lies in the other, with a directory that all programs can read.
        for name in ["outer/inner", "outer/tools"] {
            fs::create_dir_all(root.join(name)).unwrap();
        }
        fs::write(root.join("outer/tools/tool"), "a tool\n").unwrap();
        let more: String = [("above", ""), ("outer", "/outer"), ("inner", "/outer/inner")]
            .map(|(name, below)| format!("[[workspace]]\nname = \"{name}\"\npath = \"{}{below}\"\n", root.display()))
            .concat();
        let readable = format!("[sandbox]\nread_only = [\"/opt\", \"{}/outer/tools\"]", root.display());
        let service = TcpListener::bind("127.0.0.1:0").unwrap();
        service.set_nonblocking(true).unwrap();
        let listed = send_on(service.local_addr().unwrap().port());
        let ports = [
            ("{service}", service.local_addr().unwrap().port()),
            ("{listed}", listed),
            ("{local}", lab.local().port()),
            ("{control}", lab.control().port()),
        ];
        let rules = ports.iter().fold(RULES.to_owned(), |rules, (word, port)| rules.replace(word, &port.to_string()));
        let rules = if lab.has_hosts() { rules } else { String::new() };
        fs::write(&config, fs::read_to_string(&config).unwrap().replace("[sandbox]", &readable) + &more + &rules)
            .unwrap();
        let mark = format!("escape-{}-{}", std::process::id(), root.file_name().unwrap().to_string_lossy());
        let abstract_name = SocketAddr::from_abstract_name(&mark).unwrap();
        let owner = fs::metadata(&workspace).unwrap();
        for path in
            host::walk(&workspace).into_iter().chain(host::walk(&root.join("outer"))).chain([root.join("outer")])
        {
            lchown(path, Some(owner.uid()), Some(owner.gid())).unwrap();
        }
        lab.start();
        let _abstract = UnixListener::bind_addr(&abstract_name).unwrap();
        Some(Self { lab, identity, mark, outside, service, listed, stream, datagrams, _abstract })
    }

    /// The directory that everything of it is in.
    pub fn root(&self) -> &Path {
        self.lab.workspace().parent().unwrap()
    }

    /// The machine as it is now.
    pub fn host(&self) -> Host {
        Host::now(self.root(), &self.outside)
    }

    /// Runs an attack as the agent.
    pub async fn attack(&self, args: &[&str]) -> Ran {
        let argv: Vec<&str> = std::iter::once("./attacks").chain(args.iter().copied()).collect();
        self.run(&self.lab.agent(), &argv).await
    }

    /// Runs a line of the shell as the agent.
    pub async fn shell(&self, line: &str) -> Ran {
        self.run(&self.lab.agent(), &["/bin/sh", "-c", line]).await
    }

    /// Runs a command in tier C, on behalf of somebody, and sees to it that it was attested so.
    pub async fn run(&self, by: &Client, argv: &[&str]) -> Ran {
        let argv: Vec<String> = argv.iter().map(|arg| self.fill_in(arg)).collect();
        let call = by.propose(&self.call(&argv), None).await;
        let call = call.unwrap_or_else(|error| panic!("{argv:?}: {error:?}\n{}", self.lab.log()));
        Ran::of(call)
    }

    /// A call of a command in tier C.
    pub fn call(&self, argv: &[String]) -> NewCall {
        tool("process.run", json!({ "command": argv, "tier": "c", "env": { "ESCAPE_MARK": self.mark } }))
    }

    /// Calls a tool of the daemon itself. It must not take long, whatever it finds.
    pub async fn tool(&self, name: &str, args: Value) -> Result<String, String> {
        let agent = self.lab.agent();
        let call = tool(name, args);
        let answer = tokio::time::timeout(Duration::from_secs(10), agent.propose(&call, None)).await;
        match answer.expect("a tool of the daemon hangs") {
            Ok(call) => match call.receipt.as_ref().map(|receipt| receipt.ending().to_owned()) {
                Some(ending) if ending == "completed" => Ok(serde_json::to_string(&call.output).unwrap()),
                ending => Err(format!("{ending:?} {:?}", call.refusal)),
            },
            Err(ClientError::Refused { error, .. }) => Err(format!("{}: {}", error.code, error.message)),
            Err(other) => panic!("{other:?}"),
        }
    }

    /// Words in braces stand for what is known only here.
    fn fill_in(&self, arg: &str) -> String {
        let lab = &self.lab;
        let port = |address: std::net::SocketAddr| address.port().to_string();
        let words = [
            ("{above}", self.root().display().to_string()),
            ("{outside}", self.outside.display().to_string()),
            ("{workspace}", lab.workspace().display().to_string()),
            ("{service}", port(self.service.local_addr().unwrap())),
            ("{listed}", self.listed.to_string()),
            ("{local}", port(lab.local())),
            ("{control}", port(lab.control())),
            ("{daemon}", lab.pid().to_string()),
            ("{mark}", self.mark.clone()),
        ];
        words.iter().fold(arg.to_owned(), |text, (word, value)| text.replace(word, value))
    }

    /// Removes what attacks made in the workspace, and what they made of what was there.
    pub fn clean(&self) {
        open_to_all(&self.lab.workspace().join("attacks"), 0o755);
        for entry in fs::read_dir(self.lab.workspace()).unwrap().flatten() {
            if !PLANTED.iter().any(|name| entry.file_name() == *name) {
                let is_directory = entry.file_type().unwrap().is_dir();
                let removed =
                    if is_directory { fs::remove_dir_all(entry.path()) } else { fs::remove_file(entry.path()) };
                removed.unwrap();
            }
        }
    }

    /// Whether somebody inside has reached one of the services of this machine.
    pub fn was_reached(&self) -> bool {
        let mut message = [0; 64];
        self.service.accept().is_ok() || self.stream.accept().is_ok() || self.datagrams.recv(&mut message).is_ok()
    }
}

impl Ran {
    fn of(call: Call) -> Self {
        let receipt = call.receipt.as_ref().unwrap_or_else(|| panic!("it did not run: {:?}", call.refusal));
        let executor = receipt.attestation.get("executor").and_then(Value::as_str);
        assert_eq!(executor, Some("sandbox_tier_c_linux_bubblewrap"));
        let Some(Output::Process { stdout, stderr, .. }) = &call.output else { panic!("no output: {call:?}") };
        let line = stdout.data.lines().last().unwrap_or_default().to_owned();
        Self { line, stderr: stderr.data.clone(), call }
    }

    /// The last line, with the signal that ended it, if one did.
    pub fn told(&self) -> String {
        let receipt = self.call.receipt.as_ref().unwrap();
        match receipt.signal() {
            Some(signal) => format!("{} signal {signal}", self.line),
            None => self.line.clone(),
        }
    }

    /// The reasons that the sandbox gives in the receipt.
    pub fn reasons(&self) -> Vec<Value> {
        let receipt = self.call.receipt.as_ref().unwrap();
        receipt.attestation["reasons"].as_array().cloned().unwrap_or_default()
    }

    /// The number in the last line that comes after a word.
    pub fn number_after(&self, word: &str) -> u64 {
        let rest = self.line.split_once(word).map(|(_, rest)| rest.trim()).unwrap_or_default();
        rest.split(' ').next().unwrap().parse().unwrap_or_else(|_| panic!("no number after {word}: {}", self.line))
    }
}

/// A daemon that runs whatever is proposed, within bounds that can be reached without harm.
pub fn plan() -> DaemonPlan {
    DaemonPlan::default()
        .config("[budget]\ncalls = 1000000\n[policy]\npreset = \"none\"\nallow_sensitive_tools = true")
        .config("[sandbox]\ntemporary_bytes = 16777216")
        .config("[sandbox.limits]\nprocesses = 64\nmemory = 134217728\naddress_space = 536870912\nfile_size = 33554432\nwall_ms = 30000")
        .policies("lab.cedar", "@id(\"all\") permit (principal, action, resource);")
}

/// The program of the attacks, compiled unless it is newer than its sources.
fn attacks() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("escape");
        let sources = SOURCES.map(|name| directory.join(name));
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("attacks");
        let changed = |path: &Path| fs::metadata(path).and_then(|status| status.modified()).ok();
        let newest = sources.iter().chain([&directory.join("attacks.h")]).map(|source| changed(source)).max();
        if Some(changed(&program)) <= newest {
            // Tests run at the same time, in processes of their own.
            let own = program.with_extension(std::process::id().to_string());
            let compile = |how: &[&str]| {
                Command::new("cc").args(["-O1", "-o"]).arg(&own).args(&sources).args(how).status().unwrap().success()
            };
            assert!(compile(&["-static"]) || compile(&[]), "the attacks do not compile");
            fs::rename(own, &program).unwrap();
        }
        program
    })
}

/// A server that answers every request with where else to go, and its port.
fn send_on(to: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // It ends with the test.
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
            let answer = format!(
                "HTTP/1.1 302 Found\r\nLocation: http://private.lab.test:{to}/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            );
            let _ = stream.read(&mut [0; 4096]).and_then(|_| stream.write_all(answer.as_bytes()));
        }
    });
    port
}

fn open_to_all(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// The parts of the program of the attacks.
const SOURCES: [&str; 4] = ["attacks.c", "files.c", "network.c", "processes.c"];

/// What files outside hold.
pub const CANARY: &str = "a canary of the machine\n";

/// What is in the workspace from the beginning.
const PLANTED: &[&str] = &["attacks", "stream.sock", "datagrams.sock", "way-out", "oldroot", "newroot"];

/// The names of the laboratory. Whatever is no address of this machine is never connected to.
const NAMES: &str = "\
listed.lab.test 127.0.0.1
sni.lab.test 127.0.0.1
private.lab.test 127.0.0.1
mapped.lab.test ::ffff:127.0.0.1
nat64.lab.test 64:ff9b::a9fe:a9fe
metadata.lab.test 169.254.169.254
unlisted.lab.test 127.0.0.1
wild.lab.test 127.0.0.1
evilwild.lab.test 127.0.0.1
listed.lab.test.evil.com 127.0.0.1
";

/// What is listed of them.
const RULES: &str = "
[[egress.host]]
host = \"listed.lab.test\"
ports = [{service}, {listed}, {local}, {control}, 443, 3128]
allow_private = true
tls = \"any\"
[[egress.host]]
host = \"sni.lab.test\"
ports = [{listed}]
allow_private = true
[[egress.host]]
host = \"*.wild.lab.test\"
ports = [{service}]
allow_private = true
tls = \"any\"
[[egress.host]]
host = \"private.lab.test\"
ports = [{service}]
tls = \"any\"
[[egress.host]]
host = \"mapped.lab.test\"
ports = [{service}]
tls = \"any\"
[[egress.host]]
host = \"nat64.lab.test\"
ports = [{service}]
allow_private = true
tls = \"any\"
[[egress.host]]
host = \"metadata.lab.test\"
ports = [{service}]
allow_private = true
tls = \"any\"
";
