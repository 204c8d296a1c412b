//! Secrets at a real gate, in real enclosures: used without being seen, and never anywhere that they may not go.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test that cannot go on ends"
)]

use std::{collections::BTreeSet, fs, sync::Arc};

use palyra_gate::{Completed, DecisionScope, Output, Refusal, ToolProposal, safekeeping::VaultState};
use palyra_journal::RecordKind;
use palyra_tests::{
    Lab, Plan,
    canary::{LOOK, backwards, told_in},
    scripted::Names,
    site::{Site, make_repository},
    vault::ground,
};
use palyra_types::{HostName, Principal, SecretRef};
use palyra_vault::{BindingTerms, NewSecret, PathPrefix, Position, SecretValue, Vault, VaultChange};
use serde_json::{Value, json};
use tempfile::TempDir;

const NAME: &str = "api.lab.test";
const OTHER: &str = "other.lab.test";
const VALUE: &str = "s3cr3t-K3y/of+the=host";

/// Everything is allowed that the baseline and the egress allow.
const ALLOW_ALL: &str = "@id(\"lab.all\") permit (principal, action, resource);";

/// A gate with a vault, and a site whose private part the secret opens.
struct World {
    lab: Lab,
    site: Site,
    files: TempDir,
}

impl World {
    async fn new() -> Self {
        Self::with(ALLOW_ALL).await
    }

    async fn with(policies: &str) -> Self {
        let files = tempfile::tempdir().unwrap();
        fs::create_dir(files.path().join("private")).unwrap();
        fs::write(files.path().join("private/greeting"), "come in\n").unwrap();
        fs::write(files.path().join("greeting"), "hello\n").unwrap();
        let site = Site::start_with_key(&[NAME, OTHER], files.path(), VALUE).await;
        let mut config = site.configuration(&[NAME, OTHER], files.path());
        config += "[policy]\nallow_sensitive_tools = true\n";
        let names = Names::default().with(NAME, "127.0.0.1").with(OTHER, "127.0.0.1");
        let lab = Plan::default().config(&config).policies(policies).net(names.connector()).open().await;
        let world = Self { lab, site, files };
        world.open_vault().await;
        world.put("global/key", VALUE).await;
        world
    }

    async fn open_vault(&self) {
        self.lab.gate.open_vault(ground(self.files.path()), None).await.unwrap();
    }

    fn vault(&self) -> Arc<Vault> {
        let VaultState::Open(vault) = &*self.lab.gate.vault() else { panic!("the vault is closed") };
        Arc::clone(vault)
    }

    async fn change(&self, change: VaultChange) -> palyra_vault::Added {
        self.lab.gate.change_vault(change, &ada()).await.unwrap()
    }

    async fn put(&self, name: &str, value: &str) {
        let value = SecretValue::new(value.as_bytes().to_vec()).unwrap();
        let new = NewSecret { secret: secret(name), value, expires: None, rotate_after_days: None, note: None };
        self.change(VaultChange::Add { secrets: vec![new], bindings: Vec::new() }).await;
    }

    async fn bind(&self, name: &str, positions: &[&str], paths: &[&str]) -> u64 {
        let terms = BindingTerms {
            port: self.site.port(),
            positions: positions.iter().map(|text| Position::parse(text).unwrap()).collect(),
            paths: paths.iter().map(|text| PathPrefix::parse(text).unwrap()).collect(),
            ..BindingTerms::usual(secret(name), HostName::parse(NAME).unwrap())
        };
        self.change(VaultChange::Add { secrets: Vec::new(), bindings: vec![terms] }).await.bindings[0].id
    }

    fn url(&self, host: &str, path: &str) -> String {
        format!("https://{host}:{}{path}", self.site.port())
    }

    /// A call that uses the secret in the variable `KEY`.
    fn shell(&self, script: &str) -> ToolProposal {
        let script = script.replace("SITE", &self.url(NAME, "")).replace("OTHER", &self.url(OTHER, ""));
        let args = json!({ "command": ["sh", "-c", script], "secrets": { "KEY": "global/key" } });
        self.lab.call("process.run", args)
    }

    async fn run(&self, script: &str) -> Ran {
        let ran = Ran::of(self.lab.gate.run(self.shell(script)).await.unwrap());
        self.nothing_leaked().await;
        ran
    }

    async fn fetch(&self, mut args: Value) -> Value {
        args["secrets"] = json!({ "KEY": "global/key" });
        let done = self.lab.gate.run(self.lab.call("http.fetch", args)).await.unwrap();
        self.nothing_leaked().await;
        let Output::Value { value } = done.output else { panic!("{done:?}") };
        assert!(!value.to_string().contains(VALUE), "{value}");
        value
    }

    /// The value is in no record, in no form.
    async fn nothing_leaked(&self) {
        for record in self.lab.records().await {
            let text = record.body.clone().unwrap_or_default();
            assert_eq!(told_in(text.as_bytes(), VALUE), None, "{:?} tells it: {text}", record.record.kind);
        }
    }

    async fn told(&self, kind: RecordKind) -> Vec<Value> {
        let records = self.lab.records().await;
        let about = records.iter().filter(|one| one.record.kind == kind);
        about.map(|one| serde_json::from_str(one.body.as_ref().unwrap()).unwrap()).collect()
    }
}

fn secret(name: &str) -> SecretRef {
    SecretRef::parse(name).unwrap()
}

fn ada() -> Principal {
    Principal::parse("user:ada@owner").unwrap()
}

/// What came of a program.
#[derive(Debug)]
struct Ran {
    code: Option<i32>,
    stdout: String,
    stderr: String,
    refusals: BTreeSet<String>,
    attested: Value,
}

impl Ran {
    fn of(done: Completed) -> Self {
        let Output::Process { exit_code, stdout, stderr, .. } = &done.output else { panic!("{done:?}") };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let attested = serde_json::to_value(&done.receipt.attestation).unwrap();
        let reasons = attested["reasons"].as_array().cloned().unwrap_or_default();
        let refusals = reasons.iter().filter_map(|one| one["refusal"]["kind"].as_str().map(str::to_owned)).collect();
        let (stdout, stderr) = (text(&stdout.bytes), text(&stderr.bytes));
        assert!(!stdout.contains(VALUE) && !stderr.contains(VALUE), "{stdout} {stderr}");
        Self { code: *exit_code, stdout, stderr, refusals, attested }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn curl_uses_a_secret_that_it_never_sees() {
    let world = World::new().await;
    world.bind("global/key", &["header:authorization"], &[]).await;
    let ran = world.run("curl -sS -H \"Authorization: Bearer $KEY\" SITE/private/greeting").await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "come in\n"), "{ran:?}");
    assert_eq!(world.site.received()[0].header("authorization"), Some(format!("Bearer {VALUE}").as_str()));
    let used = world.told(RecordKind::VaultUsed).await;
    assert_eq!(used.len(), 1, "{used:?}");
    assert_eq!(
        (&used[0]["secret"], &used[0]["host"], &used[0]["position"], &used[0]["handed"]),
        (&json!("global/key"), &json!(NAME), &json!("header:authorization"), &json!("unseen"))
    );
    // The receipt says the same.
    assert_eq!(ran.attested["secrets"], json!([used[0]]), "{:?}", ran.attested);
    // Basic is looked into.
    let ran = world.run("curl -sS -u \"me:$KEY\" SITE/private/greeting").await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "come in\n"), "{ran:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn inside_the_sandbox_the_value_is_nowhere() {
    let world = World::new().await;
    world.bind("global/key", &["header:authorization"], &[]).await;
    world.lab.write("needles", &backwards(VALUE));
    world.lab.write("look.py", LOOK);
    let ran = world.run("/usr/bin/python3 look.py SITE").await;
    assert_eq!((ran.code, ran.stdout.trim()), (Some(0), "True [] True"), "{ran:?}");
    assert_eq!(world.site.requests(), 5);
    for received in world.site.received() {
        assert_eq!(received.header("authorization"), Some(format!("Bearer {VALUE}").as_str()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_placeholder_anywhere_else_is_refused_and_told() {
    let world = World::new().await;
    world.bind("global/key", &["header:authorization"], &["/private/"]).await;
    let wrong = [
        "curl -sS -H \"Authorization: Bearer $KEY\" SITE/echo",
        "curl -sS -H \"X-Other: $KEY\" SITE/private/greeting",
        "curl -sS \"SITE/private/greeting?key=$KEY\"",
        "curl -sS \"SITE/private/$KEY\"",
        "curl -sS --path-as-is -H \"Authorization: Bearer $KEY\" SITE/private/../echo",
        "curl -sS -d \"text and $KEY\" SITE/private/greeting",
        "printf '%s' \"x$KEY\" | curl -sS -T - SITE/private/greeting",
    ];
    for script in wrong {
        let ran = world.run(script).await;
        assert!(ran.stdout.contains("where no binding lets it go"), "{script}: {ran:?}");
        assert_eq!(ran.refusals, BTreeSet::from(["secret_misplaced".to_owned()]), "{script}: {ran:?}");
    }
    for received in world.site.received() {
        assert!(!received.text().contains("palyraplaceholder") && !received.text().contains(VALUE), "{received:?}");
    }
    let misused = world.told(RecordKind::VaultMisused).await;
    assert_eq!(misused.len(), wrong.len());
    assert!(misused.iter().all(|one| one["secret"] == "global/key" && one["host"] == NAME), "{misused:?}");
    // To another host it goes as it is, encrypted, and is worth nothing there.
    let ran = world.run("curl -sS -H \"Authorization: Bearer $KEY\" OTHER/echo").await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let last = world.site.received().pop().unwrap();
    assert!(last.header("authorization").unwrap().starts_with("Bearer palyraplaceholder"), "{last:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_placeholder_that_is_split_over_chunks_is_found() {
    let world = World::new().await;
    world.bind("global/key", &["header:authorization"], &[]).await;
    let script = format!(
        r#"
import http.client, os, ssl
key = os.environ["KEY"]
def pieces():
    yield b"before "
    for letter in key: yield letter.encode()
    yield b" after"
connection = http.client.HTTPSConnection("{NAME}", {})
connection.request("POST", "/echo", body=pieces(), headers={{"Transfer-Encoding": "chunked"}}, encode_chunked=True)
answer = connection.getresponse()
print(answer.status, answer.read().decode())
"#,
        world.site.port()
    );
    world.lab.write("split.py", &script);
    let ran = world.run("unset https_proxy HTTPS_PROXY; /usr/bin/python3 split.py").await;
    assert!(ran.stdout.starts_with("403 ") && ran.stdout.contains("in the body"), "{ran:?}");
    assert!(world.site.received().iter().all(|one| !one.text().contains("palyraplaceholder")));
}

#[tokio::test(flavor = "multi_thread")]
async fn query_and_body_take_a_secret_where_that_is_bound() {
    let world = World::new().await;
    world.bind("global/key", &["query:key", "body"], &[]).await;
    let ran = world
        .run("curl -sS \"SITE/echo?a=1&key=$KEY\" -H 'Content-Type: application/json' -d \"{\\\"k\\\":\\\"$KEY\\\"}\"")
        .await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let received = world.site.received().pop().unwrap();
    assert_eq!(received.line, "POST /echo?a=1&key=s3cr3t-K3y%2Fof%2Bthe%3Dhost HTTP/1.1");
    assert_eq!(received.body, format!("{{\"k\":\"{VALUE}\"}}").as_bytes());
    assert!(ran.stdout.contains("**********"), "{ran:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn git_and_node_use_it_too() {
    let world = World::new().await;
    world.bind("global/key", &["header:authorization"], &[]).await;
    make_repository(world.files.path(), "private/project.git", "cloned\n");
    let by_header =
        "git -c http.extraHeader=\"Authorization: Bearer $KEY\" clone -q SITE/private/project.git by-header";
    let ran = world.run(by_header).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let host = format!("{NAME}:{}", world.site.port());
    let ran = world.run(&format!("git clone -q https://me:$KEY@{host}/private/project.git by-password")).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for place in ["by-header", "by-password"] {
        assert_eq!(world.lab.read(&format!("{place}/readme")).as_deref(), Some("cloned\n"));
        assert!(!world.lab.read(&format!("{place}/.git/config")).unwrap().contains(VALUE));
    }
    let node = format!(
        "node -e \"fetch('{}', {{ headers: {{ authorization: 'Bearer ' + process.env.KEY }} }}).then(r => r.text()).then(t => process.stdout.write(t))\"",
        world.url(NAME, "/private/greeting")
    );
    let ran = world.run(&node).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "come in\n"), "{ran:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn http_fetch_uses_the_same_bindings() {
    let world = World::new().await;
    world.bind("global/key", &["header:authorization", "query:key"], &[]).await;
    let bearer = json!({ "authorization": "Bearer {{KEY}}" });
    let value = world.fetch(json!({ "url": world.url(NAME, "/private/greeting"), "headers": bearer })).await;
    assert_eq!((&value["status"], &value["text"]), (&json!(200), &json!("come in\n")), "{value}");
    let value = world.fetch(json!({ "url": world.url(NAME, "/echo/base64?key={{KEY}}"), "headers": bearer })).await;
    let text = value["text"].as_str().unwrap();
    assert!(text.contains("*******"), "{value}");
    assert_eq!(value["sha256"], palyra_types::Sha256Digest::of(text.as_bytes()).to_string(), "of what is told");
    assert!(
        world.site.received()[1].line.contains("key=s3cr3t-K3y%2Fof%2Bthe%3Dhost"),
        "{:?}",
        world.site.received()[1]
    );
    let body = json!({ "url": world.url(NAME, "/echo"), "method": "POST", "body": "{{KEY}}" });
    let value = world.fetch(body).await;
    assert!(value["error"]["message"].as_str().unwrap().contains("in the body"), "{value}");
    let value = world.fetch(json!({ "url": world.url(OTHER, "/echo"), "headers": bearer })).await;
    assert!(value["error"]["message"].as_str().unwrap().contains("no binding lets it go"), "{value}");
    let value = world.fetch(json!({ "url": world.url(NAME, "/packed"), "headers": bearer })).await;
    assert!(value["error"]["message"].as_str().unwrap().contains("cannot be looked through"), "{value}");
    assert_eq!(world.told(RecordKind::VaultMisused).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_binding_policy_says_no_and_says_why() {
    let world = World::new().await;
    let refused = world.lab.gate.run(world.shell("true")).await.unwrap_err();
    assert!(matches!(refused, Refusal::Denied(_)), "{refused:?}");
    assert!(refused.to_string().starts_with("no binding lets this tool send the secret anywhere"), "{refused}");
    assert!(refused.advice().contains("palyra vault bind"), "{}", refused.advice());
    // Whether there is such a secret is not told.
    let args = json!({ "command": ["true"], "secrets": { "KEY": "global/no-such-secret" } });
    let unknown = world.lab.gate.run(world.lab.call("process.run", args)).await.unwrap_err();
    assert_eq!(unknown.to_string(), refused.to_string());
    // Nor does a secret of somebody else's scope help.
    world.put("agent:somebody-else/key", VALUE).await;
    world.bind("agent:somebody-else/key", &["header:authorization"], &[]).await;
    let args = json!({ "command": ["true"], "secrets": { "KEY": "agent:somebody-else/key" } });
    let foreign = world.lab.gate.run(world.lab.call("process.run", args)).await.unwrap_err();
    let why = "the secret belongs to another workspace, agent, skill or session";
    assert!(foreign.to_string().starts_with(why), "{foreign}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_raw_value_is_asked_about_each_time_and_taken_out_of_what_is_told() {
    let world = World::new().await;
    let args = json!({
        "command": ["sh", "-c", "printf %s \"$RAW\" | wc -c; cat \"$FILE\" | wc -c; echo \"$RAW\"; cat \"$FILE\" | base64; ls -l \"$FILE\" | cut -c1-10; echo x > \"$FILE\""],
        "secret_values": { "RAW": "global/key" }, "secret_files": { "FILE": "global/key" },
    });
    let proposal = || world.lab.call("process.run", args.clone());
    let running = world.lab.propose(proposal());
    let question = world.lab.asked(1).await.remove(0);
    assert_eq!(question.risk.level.as_str(), "critical");
    let told: Vec<String> = question.work.secrets().iter().map(palyra_gate::secret::SecretUse::words).collect();
    assert_eq!(
        told,
        [
            "is given the value of the secret global/key in the variable RAW",
            "is given the value of the secret global/key in a file, whose path is in the variable FILE"
        ]
    );
    // It cannot be given for more than this call.
    let wide =
        world.lab.approve(question.id, DecisionScope::Timeboxed { minutes: 5, pattern: Default::default() }).await;
    assert!(wide.unwrap_err().to_string().contains("one call at a time"));
    world.lab.approve(question.id, DecisionScope::Once).await.unwrap();
    let ran = Ran::of(running.await.unwrap().unwrap());
    let lines: Vec<&str> = ran.stdout.lines().collect();
    let length = VALUE.len().to_string();
    assert_eq!(lines[..3], [length.as_str(), &length, &"*".repeat(VALUE.len())], "{ran:?}");
    assert!(lines[3].starts_with("*****") && lines[4] == "-r--------", "{ran:?}");
    assert!(ran.stderr.contains("denied") || ran.stderr.contains("Read-only"), "{ran:?}");
    // Both are told, in either order.
    let mut used = world.told(RecordKind::VaultUsed).await;
    used.sort_by_key(|one| one["handed"] != "variable");
    assert_eq!(used.iter().map(|one| one["handed"].as_str().unwrap()).collect::<Vec<_>>(), ["variable", "file"]);
    assert_eq!(ran.attested["secrets"], Value::from(used));
    world.nothing_leaked().await;
    drop(world.lab.propose(proposal()));
    assert_eq!(world.lab.asked(1).await.len(), 1, "it is asked again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_raw_value_in_the_name_of_a_host_is_not_told() {
    const RAW: &str = "r4wvalue9x8y7z6";
    let world = World::new().await;
    world.put("global/raw", RAW).await;
    let script = "curl -sS https://$RAW.example/; curl -sS http://$RAW.example/; getent hosts $RAW.example; true";
    let args = json!({ "command": ["sh", "-c", script], "secret_values": { "RAW": "global/raw" } });
    let running = world.lab.propose(world.lab.call("process.run", args));
    let question = world.lab.asked(1).await.remove(0);
    world.lab.approve(question.id, DecisionScope::Once).await.unwrap();
    let done = running.await.unwrap().unwrap();
    let told = serde_json::to_string(&done.receipt.attestation).unwrap();
    assert!(told.contains("***************.example"), "{told}");
    assert_eq!(told_in(told.as_bytes(), RAW), None, "{told}");
    for record in world.lab.records().await {
        let text = record.body.clone().unwrap_or_default();
        assert_eq!(told_in(text.as_bytes(), RAW), None, "{:?} tells it: {text}", record.record.kind);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_bound_changes_at_once_for_calls_that_wait_and_for_those_that_run() {
    let world = World::new().await;
    let id = world.bind("global/key", &["header:authorization"], &[]).await;
    let script = "curl -sS -H \"Authorization: Bearer $KEY\" SITE/private/greeting; touch first; while [ ! -e go ]; do sleep 0.02; done; \
        curl -sS -H \"Authorization: Bearer $KEY\" SITE/private/greeting";
    let running = world.lab.propose(world.shell(script));
    while world.lab.read("first").is_none() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    world.change(VaultChange::Unbind(id)).await;
    world.lab.write("go", "");
    let ran = Ran::of(running.await.unwrap().unwrap());
    assert!(ran.stdout.starts_with("come in\n"), "{ran:?}");
    assert!(ran.stdout.contains("where no binding lets it go"), "{ran:?}");
    assert_eq!(world.site.requests(), 1);
    assert!(world.lab.gate.run(world.shell("true")).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_approved_with_where_its_secrets_may_go_then_and_not_later() {
    let asks = "@id(\"lab.ask\") permit (principal, action, resource) when { context.approved };";
    let world = World::with(asks).await;
    world.bind("global/key", &["header:authorization"], &[]).await;
    let running = world.lab.propose(world.shell("true"));
    let question = world.lab.asked(1).await.remove(0);
    assert!(question.work.secrets()[0].words().contains("in the header `authorization`"));
    world.bind("global/key", &["body"], &[]).await;
    world.lab.approve(question.id, DecisionScope::Once).await.unwrap();
    assert!(matches!(running.await.unwrap(), Err(Refusal::Mismatch { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_to_be_had_is_told_and_nothing_runs() {
    let world = World::new().await;
    world.bind("global/key", &["header:authorization"], &[]).await;
    let twice = json!({ "command": ["true"], "env": { "KEY": "a" }, "secrets": { "KEY": "global/key" } });
    let refused = world.lab.gate.run(world.lab.call("process.run", twice)).await.unwrap_err();
    assert!(refused.to_string().contains("given twice"), "{refused}");
    let weak = json!({ "command": ["true"], "tier": "b", "secrets": { "KEY": "global/key" } });
    let done = world.lab.gate.run(world.lab.call("process.run", weak)).await.unwrap();
    assert_eq!(done.receipt.attestation.tier, Some(palyra_types::SandboxTier::C), "it runs where it can be used");
    // A value that is too short could not be taken out of answers.
    world.put("global/key", "tiny").await;
    let ran = world.run("curl -sS -H \"Authorization: Bearer $KEY\" SITE/private/greeting").await;
    assert!(ran.stdout.contains("could not be taken out of answers"), "{ran:?}");
    world.change(VaultChange::Remove { secret: secret("global/key"), version: None }).await;
    assert!(world.lab.gate.run(world.shell("true")).await.is_err());
    assert_eq!(world.vault().count(), 0);
}
