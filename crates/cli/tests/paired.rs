//! Devices, tokens and members against a real daemon: what the command line prints, keeps and exits with.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test that cannot go on fails; the programs under test are started here"
)]

use std::{
    fs,
    io::{Read, Write},
    net::TcpListener,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Output, Stdio},
    sync::mpsc::{Receiver, channel},
    thread::sleep,
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

/// A daemon on ports of its own, and a directory for what others keep.
struct Lab {
    directory: TempDir,
    daemon: Child,
    address: String,
}

impl Lab {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let home = directory.path().join("daemon");
        fs::DirBuilder::new().mode(0o700).create(&home).unwrap();
        let [control, local] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [control, local] = [control, local].map(|listener| listener.local_addr().unwrap().to_string());
        let workspace = directory.path().join("shop");
        fs::create_dir(&workspace).unwrap();
        let config = format!(
            "[listen]\ncontrol = \"{control}\"\nlocal = \"{local}\"\n[[workspace]]\nname = \"shop\"\npath = \"{}\"\n",
            workspace.display()
        );
        fs::write(home.join("config.toml"), config).unwrap();
        fs::set_permissions(home.join("config.toml"), fs::Permissions::from_mode(0o600)).unwrap();
        Self::start(directory, palyra(&home, &["up"]), control)
    }

    /// A daemon whose ports a variable names when it starts; what was founded before, and its configuration, name others.
    fn elsewhere() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let home = directory.path().join("daemon");
        said(&mut palyra(&home, &["init"])).ok();
        let [control, local] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [control, local] = [control, local].map(|listener| listener.local_addr().unwrap().to_string());
        let mut up = palyra(&home, &["up"]);
        up.env("PALYRA_LISTEN__CONTROL", &control).env("PALYRA_LISTEN__LOCAL", local);
        Self::start(directory, up, control)
    }

    fn start(directory: TempDir, mut up: Command, control: String) -> Self {
        let daemon = up.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let lab = Self { directory, daemon, address: control };
        let begun = Instant::now();
        while said(&mut lab.owner(&["status"])).code != 0 {
            assert!(begun.elapsed() < PATIENCE, "the daemon does not start");
            sleep(Duration::from_millis(100));
        }
        lab
    }

    /// A command of whoever owns the daemon.
    fn owner(&self, args: &[&str]) -> Command {
        palyra(&self.home("daemon"), args)
    }

    /// A command on another device.
    fn device(&self, args: &[&str]) -> Command {
        palyra(&self.home("device"), args)
    }

    fn home(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// What the other device keeps of its daemons, but for what an interrupted program has left to be tidied up.
    fn kept(&self) -> Vec<String> {
        let entries = fs::read_dir(self.home("device/paired")).into_iter().flatten();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| !name.starts_with('.')).collect()
    }

    /// Opens a pairing.
    fn open(&self, args: &[&str]) -> Value {
        let args = [&["--json", "devices", "pair"], args].concat();
        said(&mut self.owner(&args)).ok().json()
    }

    /// Begins to pair the other device, with a code by standard input.
    fn begin(&self, code: &str, args: &[&str]) -> Child {
        let args = [&["pair", "--code-file", "-"], args].concat();
        let mut pair = self.device(&args);
        let mut pair = pair.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        pair.stdin.take().unwrap().write_all(code.as_bytes()).unwrap();
        pair
    }

    /// Waits until a device has shown that it knows the code, and says its fingerprint.
    fn proved(&self, pairing: &str) -> String {
        let begun = Instant::now();
        loop {
            let state = said(&mut self.owner(&["--json", "devices", "pairing", pairing])).ok().json();
            if let Some(fingerprint) = state["device"]["observed"]["fingerprint"].as_str() {
                return fingerprint.to_owned();
            }
            assert!(state["state"] == "waiting" && begun.elapsed() < PATIENCE, "{state}");
            sleep(Duration::from_millis(50));
        }
    }

    /// Pairs the other device, with everything that this takes.
    fn pair(&self, open: &[&str], pair: &[&str]) -> Said {
        let open = self.open(open);
        let pairing = open["id"].as_str().unwrap();
        let pair = [&[self.address.as_str()], pair].concat();
        let device = self.begin(open["pin"].as_str().unwrap(), &pair);
        let fingerprint = self.proved(pairing);
        said(&mut self.owner(&["devices", "confirm", pairing, &fingerprint])).ok();
        ended(device)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

fn palyra(home: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_palyra"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    command.args(args).env_clear().env("PATH", path).env("PALYRA_HOME", home).env("NO_COLOR", "1").stdin(Stdio::null());
    command
}

/// What a command came to.
#[derive(Debug)]
struct Said {
    code: i32,
    out: String,
    err: String,
}

impl Said {
    fn of(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Self { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
    }

    fn ok(self) -> Self {
        assert_eq!(self.code, 0, "{self:?}");
        self
    }

    /// The data of the document that was printed.
    fn json(&self) -> Value {
        let document: Value = serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"));
        document["data"].clone()
    }
}

fn said(command: &mut Command) -> Said {
    Said::of(command.output().unwrap())
}

fn ended(child: Child) -> Said {
    Said::of(child.wait_with_output().unwrap())
}

fn signal(name: &str, child: &Child) {
    assert!(Command::new("kill").args(["-s", name, &child.id().to_string()]).status().unwrap().success());
}

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn a_device_is_paired_by_pin_and_speaks_for_its_person_until_it_is_revoked() {
    let lab = Lab::new();
    let paired = lab.pair(&["--role", "operator", "--name", "phone"], &["--name", "home"]).ok();
    assert!(paired.err.contains("try it: `palyra whoami`"), "the only daemon needs no name: {paired:?}");
    assert_eq!(lab.kept(), ["home.json"]);

    let me = said(&mut lab.device(&["--json", "whoami"])).ok().json();
    let id = me["device"].as_str().unwrap();
    assert_eq!(
        (me["principal"].as_str(), &me["roles"], me["daemon"]["name"].as_str(), me["daemon"]["address"].as_str()),
        (Some("user:owner"), &serde_json::json!(["operator"]), Some("home"), Some(lab.address.as_str()))
    );
    let listed = said(&mut lab.device(&["devices", "list"])).ok();
    assert!(
        listed.out.lines().any(|line| line.starts_with(&format!("*  {id}")) && line.contains("phone")),
        "{listed:?}"
    );

    // What only makes sense on the daemon's own machine, and what must not name a directory of this one.
    assert_eq!(said(&mut lab.device(&["demo"])).code, 2);
    let ran = said(&mut lab.device(&["run", "--yes", "--", "pwd"])).ok();
    assert_eq!(ran.out.trim_end(), lab.home("shop").to_str().unwrap());

    let revoked = said(&mut lab.owner(&["devices", "revoke", id.split_at(id.len() - 6).1])).ok();
    assert_eq!(revoked.out, format!("✔ revoked device {id}\n"));
    let refused = said(&mut lab.device(&["--json", "whoami"]));
    assert_eq!((refused.code, refused.json()["error"]["code"].as_str()), (1, Some("revoked")));

    // Paired again, in place of what is left of the first time.
    let again = lab.pair(&[], &[]).ok();
    assert!(again.err.contains("what was kept as home before is replaced"), "{again:?}");
    assert!(again.err.contains("try it: `palyra whoami`"), "{again:?}");
    assert_eq!(lab.kept(), ["home.json"]);

    // Paired once more, beside one that works: now a name is wanted.
    let more = lab.pair(&[], &[]).ok();
    assert!(more.err.contains("try it: `palyra --at 127.0.0.1 whoami`"), "{more:?}");
    let unsaid = said(&mut lab.device(&["whoami"]));
    assert!(unsaid.code == 2 && unsaid.err.contains("paired with 2 daemons: 127.0.0.1, home"), "{unsaid:?}");
    said(lab.device(&["whoami"]).env("PALYRA_AT", "127.0.0.1")).ok();

    let nope = said(&mut lab.device(&["pair", "--forget", "nope"]));
    assert!(
        nope.code == 1 && nope.err.contains("it is paired with 127.0.0.1, home\nhelp:  `palyra pair --list`"),
        "{nope:?}"
    );
    // Half an installation is no reason to ask a daemon elsewhere.
    let forgotten = said(&mut lab.device(&["pair", "--forget", "home"])).ok();
    assert_eq!(forgotten.out, "✔ forgotten home\n");
    let kept = said(&mut lab.device(&["--json", "pair", "--list"])).ok().json();
    assert_eq!(
        (kept["daemons"].as_array().unwrap().len(), &kept["daemons"][0]["name"], &kept["daemons"][0]["address"]),
        (1, &"127.0.0.1".into(), &lab.address.as_str().into())
    );
    let doctor = said(&mut lab.device(&["doctor"])).ok();
    assert!(
        doctor.out.starts_with("✔ paired         127.0.0.1 at 127.0.0.1:") && !doctor.out.contains("palyra init"),
        "{doctor:?}"
    );
    said(lab.device(&["whoami"]).env("PALYRA_AT", "")).ok();
    fs::create_dir(lab.home("device/identity")).unwrap();
    let half = said(&mut lab.device(&["whoami"]));
    assert!(half.code == 6 && half.err.contains("identity/device.json is missing"), "{half:?}");
}

#[test]
fn the_text_of_a_qr_code_is_enough_and_another_authority_costs_no_guess() {
    let lab = Lab::new();
    let open = lab.open(&[]);
    let (pairing, qr) = (open["id"].as_str().unwrap(), open["qr"].as_str().unwrap());
    let (before, after) = qr.split_once("&f=").unwrap();
    let (authority, secret) = after.split_once("&s=").unwrap();
    let first = if authority.starts_with('A') { 'B' } else { 'A' };
    let stranger = ended(lab.begin(&format!("{before}&f={first}{}&s={secret}", authority.split_at(1).1), &[]));
    assert!(stranger.code == 6 && stranger.err.contains("is not the daemon of the QR code"), "{stranger:?}");
    let elsewhere = ended(lab.begin(qr, &["127.0.0.1:1"]));
    assert!(elsewhere.code == 2 && elsewhere.err.contains("and 127.0.0.1:1 was given"), "{elsewhere:?}");
    let state = said(&mut lab.owner(&["--json", "devices", "pairing", pairing])).ok().json();
    assert_eq!((&state["state"], &state["guesses"]), (&"waiting".into(), &3.into()));

    let device = lab.begin(qr, &[]);
    let fingerprint = lab.proved(pairing);
    let other = said(&mut lab.owner(&["devices", "confirm", pairing, "0000-0000-0000-0000-0000-0000-0000-0000"]));
    assert!(other.code == 1 && other.err.contains("another device was meant"), "{other:?}");
    said(&mut lab.owner(&["devices", "confirm", pairing, &fingerprint])).ok();
    let device = ended(device).ok();
    assert!(device.err.contains(&format!("this device's key: {fingerprint}")), "{device:?}");
    said(&mut lab.device(&["status"])).ok();
}

#[test]
fn whoever_interrupts_a_pairing_keeps_nothing_and_the_daemon_neither() {
    let lab = Lab::new();
    for name in ["INT", "TERM", "KILL"] {
        let open = lab.open(&[]);
        let pairing = open["id"].as_str().unwrap();
        let device = lab.begin(open["pin"].as_str().unwrap(), &[&lab.address]);
        lab.proved(pairing);
        signal(name, &device);
        let device = ended(device);
        assert_eq!(device.code, if name == "KILL" { -1 } else { 130 }, "{name}: {device:?}");
        let begun = Instant::now();
        while said(&mut lab.owner(&["--json", "devices", "pairing", pairing])).ok().json()["state"] != "over" {
            assert!(begun.elapsed() < PATIENCE, "{name}");
        }
        assert_eq!(lab.kept(), [""; 0], "{name}");
    }
    let devices = said(&mut lab.owner(&["--json", "devices", "list"])).ok().json();
    assert_eq!(devices["devices"].as_array().unwrap().len(), 1, "{devices}");
    let wrong = lab.open(&[]);
    let pin = if wrong["pin"] == "000000" { "111 111" } else { "000 000" };
    let device = ended(lab.begin(pin, &[&lab.address]));
    assert!(device.code == 1 && device.err.contains("which shows the guesses that are left"), "{device:?}");
    assert_eq!(lab.kept(), [""; 0]);
}

#[test]
fn a_pairing_is_ended_by_its_id_and_with_whoever_holds_it() {
    let lab = Lab::new();
    let open = lab.open(&[]);
    let pairing = open["id"].as_str().unwrap();
    let device = lab.begin(open["pin"].as_str().unwrap(), &[&lab.address]);
    lab.proved(pairing);
    let over = said(&mut lab.owner(&["--json", "devices", "pairing", pairing, "--end"])).ok().json();
    assert_eq!(over["state"], "over");
    let device = ended(device);
    assert!(device.code == 4 && device.err.contains("the person at the other screen said no"), "{device:?}");
    let late = said(&mut lab.owner(&["devices", "confirm", pairing, "0000"]));
    assert!(late.code == 1 && late.err.contains("help:  open another one: `palyra devices pair`"), "{late:?}");

    for name in ["INT", "TERM", "HUP"] {
        let mut pair = lab.owner(&["devices", "pair"]);
        let mut pair = pair.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (mut shown, mut piece) = (String::new(), [0; 256]);
        while !shown.contains("the pairing is ") {
            let count = pair.stderr.as_mut().unwrap().read(&mut piece).unwrap();
            assert!(count > 0, "{name}: {shown}");
            shown.push_str(&String::from_utf8_lossy(&piece[..count]));
        }
        signal(name, &pair);
        assert_eq!(ended(pair).code, 130, "{name}");
        // There is one at a time, so the next one opens only once this is over.
    }
    lab.open(&[]);
}

#[test]
fn a_device_that_is_not_there_is_not_taken_for_the_one_in_use() {
    let lab = Lab::new();
    let typo = said(&mut lab.owner(&["devices", "revoke", "dev-typo"]));
    assert!(typo.code == 1 && typo.err.contains("help:  `palyra devices list` shows them"), "{typo:?}");
    assert!(!typo.err.contains("device.json"), "{typo:?}");

    lab.pair(&["--name", "phone"], &["--name", "home"]).ok();
    let me = said(&mut lab.device(&["--json", "whoami"])).ok().json();
    let id = me["device"].as_str().unwrap().strip_prefix("dev-").unwrap();
    let revoked = said(&mut lab.device(&["devices", "revoke", id.split_at(6).0])).ok();
    assert!(revoked.err.contains("`palyra pair --forget home` removes it"), "{revoked:?}");
    let listed = said(&mut lab.owner(&["devices", "list"])).ok();
    assert!(!listed.out.contains("phone") && listed.err.contains("1 revoked; "), "{listed:?}");
    assert!(said(&mut lab.owner(&["devices", "list", "--all"])).ok().out.contains("phone"));
}

#[test]
fn the_daemons_own_command_line_follows_a_rotation_wherever_the_daemon_serves() {
    let lab = Lab::elsewhere();
    let file = lab.home("daemon/identity/device.json");
    let address = || serde_json::from_str::<Value>(&fs::read_to_string(&file).unwrap()).unwrap()["address"].clone();
    let before = address();
    assert_ne!(before, lab.address.as_str(), "the file is to name another address than the daemon's");
    for (step, phase) in [("announce", "announced"), ("switch", "switched")] {
        assert_eq!(said(&mut lab.owner(&["--json", "devices", "authority", step])).ok().json()["phase"], phase);
    }
    assert_eq!(said(&mut lab.owner(&["whoami"])).ok().err, "");
    assert_eq!(said(&mut lab.owner(&["--json", "devices", "authority", "finish"])).ok().json()["phase"], "steady");
    assert_eq!(said(&mut lab.owner(&["whoami"])).ok().err, "");
    assert_eq!(address(), before);
}

#[test]
fn an_authority_is_replaced_at_once_by_a_device_that_does_not_cut_itself_off() {
    let lab = Lab::new();
    lab.pair(&[], &[]).ok();
    for step in ["announce", "switch", "finish"] {
        let mut args = vec!["devices", "authority", step];
        args.extend((step != "announce").then_some("--even-if-behind"));
        said(&mut lab.owner(&args)).ok();
    }
    said(&mut lab.owner(&["whoami"])).ok();
    let left = said(&mut lab.device(&["whoami"]));
    let again = format!("`palyra pair {} --name 127.0.0.1`", lab.address);
    assert!(
        left.code != 0 && left.err.contains("if its authority was replaced") && left.err.contains(&again),
        "{left:?}"
    );
    let doctor = said(&mut lab.device(&["doctor"]));
    assert!(doctor.code == 1 && doctor.out.starts_with("✖ paired") && doctor.out.contains(&again), "{doctor:?}");
    for args in [["devices", "list"], ["devices", "authority"]] {
        let told = said(&mut lab.owner(&args)).ok();
        assert!(
            told.out.contains("cut off") && told.err.contains("`palyra devices revoke ID`, and pair it again"),
            "{told:?}"
        );
    }

    // Both ways to pair again replace what is of no use, and nothing that works is replaced.
    let again = lab.pair(&[], &[]).ok();
    assert!(again.err.contains("what was kept as 127.0.0.1 before is replaced"), "{again:?}");
    assert_eq!(lab.kept(), ["127.0.0.1.json"]);
    let taken = said(&mut lab.device(&["pair", &lab.address, "--name", "127.0.0.1", "--code-file", "/dev/null"]));
    assert!(taken.code == 2 && taken.err.contains("paired with a daemon named `127.0.0.1` already"), "{taken:?}");
    let me = said(&mut lab.device(&["--json", "whoami"])).ok().json();
    said(&mut lab.owner(&["devices", "revoke", me["device"].as_str().unwrap()])).ok();
    lab.pair(&[], &["--name", "127.0.0.1"]).ok();
    assert_eq!(lab.kept(), ["127.0.0.1.json"]);
    said(&mut lab.device(&["whoami"])).ok();
}

#[test]
fn an_agents_device_waits_for_the_person_who_is_asked_and_is_told_the_outcome() {
    let lab = Lab::new();
    lab.pair(&["--for", "agent:ci"], &[]).ok();
    for (args, answer, code) in [
        (vec!["run", "--workspace", "shop", "--", "echo", "hello"], "approve", 0),
        (vec!["run", "--workspace", "shop", "--yes", "--", "echo", "hello"], "deny", 125),
        (vec!["call", "process.run", "--workspace", "shop", "--arg", r#"command:=["echo","hello"]"#], "deny", 4),
    ] {
        let mut asking = lab.device(&args);
        let asking = asking.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let begun = Instant::now();
        let id = loop {
            let waiting = said(&mut lab.owner(&["--json", "approvals", "list"])).ok().json();
            if let Some(id) = waiting["approvals"][0]["id"].as_str() {
                break id.to_owned();
            }
            assert!(begun.elapsed() < PATIENCE, "{args:?}");
            sleep(Duration::from_millis(50));
        };
        // Long enough for a command that gives up.
        sleep(Duration::from_millis(300));
        said(&mut lab.owner(&["approvals", answer, &id])).ok();
        let came = ended(asking);
        assert!(came.code == code && came.err.contains("a person is asked, and the call waits"), "{came:?}");
        assert!(came.err.contains("`palyra approvals watch`"), "{came:?}");
        assert_eq!(came.out.contains("hello"), answer == "approve", "{came:?}");
        assert_eq!(came.err.contains("`--yes` does not count"), args.contains(&"--yes"), "{came:?}");
    }
}

#[test]
fn a_daemon_that_runs_is_told_of_at_once() {
    let lab = Lab::new();
    let (begun, pid) = (Instant::now(), lab.daemon.id());
    let up = said(&mut lab.owner(&["up"]));
    assert!(up.code == 1 && up.err.contains(&format!("runs already, as process {pid}")), "{up:?}");
    let init = said(&mut lab.owner(&["init"])).ok();
    assert!(init.err.contains(&format!("the daemon runs, as process {pid}")), "{init:?}");
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
}

#[test]
fn a_doctor_asks_the_daemon_whether_it_lets_this_device_in() {
    let mut lab = Lab::new();
    lab.pair(&[], &["--name", "home"]).ok();
    let file = lab.home("daemon/identity/device.json");
    let before = fs::read(&file).unwrap();
    for step in ["announce", "switch", "finish"] {
        said(&mut lab.owner(&["devices", "authority", step, "--even-if-behind"])).ok();
    }
    // As if this machine's own command line had not followed.
    let after = fs::read(&file).unwrap();
    fs::write(&file, before).unwrap();
    let doctor = said(&mut lab.owner(&["doctor"]));
    assert!(doctor.code == 1 && doctor.out.contains("✖ device         it is cut off"), "{doctor:?}");
    assert!(
        doctor.out.contains("`palyra init` makes its certificate anew") && !doctor.out.contains("is taken"),
        "{doctor:?}"
    );
    let cut_off = said(&mut lab.owner(&["whoami"]));
    assert!(cut_off.err.contains("if the authority was replaced: stop the daemon; `palyra init`"), "{cut_off:?}");
    fs::write(&file, after).unwrap();

    let me = said(&mut lab.owner(&["--json", "whoami"])).ok().json();
    said(&mut lab.owner(&["devices", "revoke", me["device"].as_str().unwrap(), "--even-the-last"])).ok();
    let doctor = said(&mut lab.owner(&["doctor"]));
    assert!(doctor.code == 1 && doctor.out.contains("✖ device         the device was revoked"), "{doctor:?}");
    assert!(doctor.out.contains("identity/device.json") && !doctor.out.contains("is taken"), "{doctor:?}");

    lab.daemon.kill().unwrap();
    lab.daemon.wait().unwrap();
    let doctor = said(&mut lab.device(&["doctor"])).ok();
    assert!(
        doctor.out.starts_with("! paired         home at ") && doctor.out.contains("check that it runs"),
        "{doctor:?}"
    );
    let mut up = lab.owner(&["--json", "up"]);
    lab.daemon = up.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let (mut shown, mut piece) = (String::new(), [0; 1024]);
    while !shown.ends_with("}\n") {
        let count = lab.daemon.stdout.as_mut().unwrap().read(&mut piece).unwrap();
        assert!(count > 0, "{shown}");
        shown.push_str(&String::from_utf8_lossy(&piece[..count]));
    }
    assert!(shown.contains("\"console\": null"), "a link that cannot work: {shown}");
}

#[test]
fn devices_follow_a_rotation_of_the_authority_with_what_they_do_anyway() {
    let lab = Lab::new();
    lab.pair(&[], &[]).ok();
    let step = |step: &str| said(&mut lab.owner(&["--json", "devices", "authority", step]));
    assert_eq!(step("announce").ok().json()["phase"], "announced");
    let early = step("switch");
    assert!(early.code == 1 && early.json()["error"]["code"] == "behind", "{early:?}");
    said(&mut lab.device(&["status"])).ok();
    assert_eq!(step("switch").ok().json()["phase"], "switched");
    let early = step("finish");
    assert!(early.code == 1 && early.json()["error"]["code"] == "behind", "{early:?}");
    said(&mut lab.device(&["status"])).ok();
    let finished = step("finish").ok();
    assert_eq!((&finished.json()["phase"], finished.err.as_str()), (&"steady".into(), ""));
    said(&mut lab.device(&["status"])).ok();
    said(&mut lab.owner(&["status"])).ok();
}

#[test]
fn a_secret_is_printed_alone_and_once_and_members_are_who_a_device_was_paired_for() {
    let lab = Lab::new();
    let create =
        &["tokens", "create", "--name", "ci", "--for", "agent:ci", "--scope", "calls.create", "--expires", "30d"];
    let minted = said(&mut lab.owner(create)).ok();
    let secret = minted.out.strip_suffix('\n').unwrap();
    assert!(secret.starts_with("plr_agent_") && !secret.contains(char::is_whitespace), "{minted:?}");
    assert!(minted.err.contains("Authorization: Bearer $TOKEN") && !minted.err.contains(secret), "{minted:?}");
    let listed = said(&mut lab.owner(&["--json", "tokens", "list"])).ok();
    assert!(!listed.out.contains(secret), "{listed:?}");
    let tokens = listed.json();
    let id = tokens["tokens"].as_array().unwrap().iter().find(|token| token["name"] == "ci").unwrap()["id"].clone();
    said(&mut lab.owner(&["tokens", "rotate", id.as_str().unwrap(), "--overlap", "1h"])).ok();
    said(&mut lab.owner(&["tokens", "revoke", id.as_str().unwrap(), "--family"])).ok();
    let left = said(&mut lab.owner(&["tokens", "list"])).ok();
    assert!(!left.out.contains("agent:ci") && left.err.contains("2 that do not work any more"), "{left:?}");

    let invite = &["access", "members", "invite", "ada", "--role", "operator"];
    let off = said(&mut lab.owner(invite));
    assert!(off.code == 1 && off.err.contains("palyra access flags set NAME on"), "{off:?}");
    said(&mut lab.owner(&["access", "flags", "set", "team_mode", "on"])).ok();
    let invited = said(&mut lab.owner(invite)).ok();
    assert!(invited.err.contains("`palyra devices pair --for user:ada`"), "{invited:?}");
    lab.pair(&["--for", "user:ada"], &[]).ok();
    let me = said(&mut lab.device(&["whoami"])).ok();
    assert!(me.out.starts_with("principal   user:ada\nroles       operator\n"), "{me:?}");
    assert_eq!(said(&mut lab.device(create)).code, 3, "an operator mints nothing");
    said(&mut lab.owner(&["access", "members", "set", "ada", "--role", "admin"])).ok();
    let removed = said(&mut lab.owner(&["--json", "access", "members", "remove", "ada"])).ok().json();
    assert_eq!(removed["devices"].as_array().unwrap().len(), 1, "{removed}");
    assert_eq!(said(&mut lab.device(&["whoami"])).code, 1);
    said(&mut lab.owner(&["access", "members", "invite", "user:bob", "--role", "operator"])).ok();
    let members = said(&mut lab.owner(&["--json", "access", "members"])).ok().json();
    assert_eq!(members["invitations"][0]["user"], "bob", "{members}");
    let nobody = said(&mut lab.owner(&["access", "members", "uninvite", "eve"]));
    assert!(nobody.code == 1 && nobody.err.starts_with("error: nobody of that name is invited"), "{nobody:?}");
    said(&mut lab.owner(&["access", "members", "uninvite", "user:bob"])).ok();
    let unknown = said(&mut lab.owner(&["devices", "pair", "--for", "user:eve"]));
    assert!(unknown.code == 1 && unknown.err.contains("`palyra access members invite eve "), "{unknown:?}");
    let last = said(&mut lab.owner(&["access", "members", "remove", "owner"]));
    assert!(last.code == 1 && last.err.contains("make somebody else an owner first"), "{last:?}");
}

/// A command on a terminal of its own, what it shows there, and what is typed.
struct Screen {
    shell: Child,
    keys: ChildStdin,
    shown: Receiver<Vec<u8>>,
    seen: String,
}

impl Screen {
    fn open(lab: &Lab, args: &str) -> Self {
        let line = format!("stty cols 100 rows 60; exec {} {args}", env!("CARGO_BIN_EXE_palyra"));
        let mut script = Command::new("script");
        let script =
            script.args(["-qec", &line, "/dev/null"]).env("PALYRA_HOME", lab.home("daemon")).env("NO_COLOR", "1");
        let script = script.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut shell = script.spawn().unwrap();
        let (keys, mut screen) = (shell.stdin.take().unwrap(), shell.stdout.take().unwrap());
        let (tell, shown) = channel();
        std::thread::spawn(move || {
            let mut piece = [0; 1024];
            while let Ok(count @ 1..) = screen.read(&mut piece) {
                let _ = tell.send(piece[..count].to_vec());
            }
        });
        Self { shell, keys, shown, seen: String::new() }
    }

    fn type_in(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for a text, and returns what was shown before it.
    fn read_until(&mut self, text: &str) -> String {
        while !self.seen.contains(text) {
            let piece = self.shown.recv_timeout(PATIENCE);
            let piece = piece.unwrap_or_else(|_| panic!("the screen does not show `{text}`:\n{}", self.seen));
            self.seen.push_str(&String::from_utf8_lossy(&piece));
        }
        let (before, after) = self.seen.split_once(text).unwrap();
        let (before, after) = (before.to_owned(), after.to_owned());
        self.seen = after;
        before
    }

    fn close(mut self) -> Option<i32> {
        drop(self.keys);
        self.shell.wait().unwrap().code()
    }
}

/// The PIN on a screen.
fn pin(shown: &str) -> String {
    let is_pin = |line: &&str| line.len() == 7 && line.bytes().filter(u8::is_ascii_digit).count() == 6;
    shown.lines().map(str::trim).find(is_pin).unwrap_or_else(|| panic!("no PIN in:\n{shown}")).to_owned()
}

#[test]
fn a_person_is_shown_a_code_and_then_the_device_and_is_asked_before_it_is_let_in() {
    let lab = Lab::new();
    let mut screen = Screen::open(&lab, "devices pair");
    // Typed too early: it must not answer a question that was not there yet.
    screen.type_in("y\n");
    let shown = screen.read_until("Ctrl-C ends it");
    let below = shown.rsplit_once("\u{1b}[30;107m").unwrap_or_else(|| panic!("no QR code in:\n{shown}")).1;
    assert!(below.contains(&format!("palyra pair {}", lab.address)) && below.contains(&pin(&shown)), "{shown}");
    let device = lab.begin(&pin(&shown), &[&lab.address]);
    let asked = screen.read_until("pair it? [y/N] ");
    let (observed, reported) = asked.split_once("reported, by the device, and checked by nobody").unwrap();
    assert!(observed.contains("address  127.0.0.1:") && reported.contains("name     "), "{asked}");
    sleep(Duration::from_millis(700));
    assert_eq!(lab.kept(), [""; 0], "what was typed before has answered");
    screen.type_in("y\n");
    screen.read_until("✔ paired");
    assert_eq!(screen.close(), Some(0));
    ended(device).ok();
    assert_eq!(lab.kept(), ["127.0.0.1.json"]);

    // Nothing was sent yet, so no guess is lost.
    let mut screen = Screen::open(&lab, &format!("pair {}", lab.address));
    screen.read_until("PIN, or the text of the QR code: ");
    screen.type_in("\u{3}");
    screen.read_until("the code still works while its time lasts");
    assert_eq!(screen.close(), Some(130));

    // Who is about to cut off what they use is asked.
    let me = said(&mut lab.owner(&["--json", "whoami"])).ok().json();
    let mut screen = Screen::open(&lab, &format!("devices revoke {}", me["device"].as_str().unwrap()));
    screen.read_until("revoke it? [y/N] ");
    screen.type_in("\n");
    screen.read_until("nothing was revoked");
    assert_eq!(screen.close(), Some(4));
    said(&mut lab.owner(&["whoami"])).ok();

    let mut screen = Screen::open(&lab, "devices pair --no-qr");
    let shown = screen.read_until("Ctrl-C ends it");
    assert!(!shown.contains("\u{1b}[30;107m") && !shown.contains("palyra://"), "{shown}");
    let device = lab.begin(&pin(&shown), &[&lab.address]);
    screen.read_until("pair it? [y/N] ");
    screen.type_in("\n");
    screen.read_until("nothing was paired");
    assert_eq!(screen.close(), Some(4));
    let device = ended(device);
    assert_eq!((device.code, lab.kept().len()), (4, 1), "{device:?}");
}
