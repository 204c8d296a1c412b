//! Skills over the real daemon: installed, listed, called, granted, stopped, run once more and removed, by whom, and what is refused.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on ends"
)]

use std::{collections::BTreeMap, fs, path::PathBuf, time::Duration};

use palyra_api::{
    call::{Call, Output},
    device::NewPairing,
    health::CheckState,
    skill::{NewSkill, SignatureState, Skill, SkillGrants},
};
use palyra_client::{Client, ClientError, skills::new_skill};
use palyra_tests::{
    daemon::{DaemonLab, DaemonPlan, accepted, approve, asked, over, refused, tool},
    paired::pair,
    skill::{Publisher, package},
    token::token,
};
use palyra_types::{SkillId, WorkspaceRole};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// Reads its input and answers with it. As `spin` it never ends, and as `now` it looks at the clock first.
const PROGRAM: &str = r#"(module
  (import "wasi_snapshot_preview1" "args_get" (func $args_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "clock_time_get" (func $clock (param i32 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 2)
  (data (i32.const 0) "\00\10\00\00\00\80\00\00")
  (func (export "_start")
    (local $tool i32)
    (drop (call $args_get (i32.const 64) (i32.const 256)))
    (local.set $tool (i32.load8_u (i32.load (i32.const 68))))
    (if (i32.eq (local.get $tool) (i32.const 115)) (then (loop $for_ever (br $for_ever))))
    (if (i32.eq (local.get $tool) (i32.const 110))
      (then (drop (call $clock (i32.const 0) (i64.const 1) (i32.const 128)))))
    (drop (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 16)))
    (i32.store (i32.const 24) (i32.const 4096))
    (i32.store (i32.const 28) (i32.load (i32.const 16)))
    (drop (call $write (i32.const 1) (i32.const 24) (i32.const 1) (i32.const 32)))))"#;

const ID: &str = "lab/echo";

fn id() -> SkillId {
    SkillId::parse(ID).unwrap()
}

fn echo(version: &str) -> Vec<u8> {
    let more = "[capabilities]\nclock = true\n[limits]\ncpu_ms = 60000\nwall_ms = 60000\n";
    package(ID, version, &["echo", "spin", "now"], more, wat::parse_str(PROGRAM).unwrap())
}

fn signed(by: &Publisher, version: &str) -> NewSkill {
    let archive = echo(version);
    let signature = by.sign(&archive);
    new_skill(&archive, Some(signature))
}

fn clock() -> SkillGrants {
    SkillGrants { clock: true, ..SkillGrants::default() }
}

async fn installed(lab: &DaemonLab) -> (Publisher, Skill) {
    let publisher = Publisher::new("lab");
    lab.owner().pin_key("lab", &publisher.key.public().to_string()).await.unwrap();
    let skill = lab.owner().install_skill(&signed(&publisher, "1.0.0")).await.unwrap();
    (publisher, skill)
}

async fn call(by: &Client, name: &str) -> Result<Call, ClientError> {
    by.propose(&tool(&format!("skill.lab.echo.{name}"), json!({ "text": "hi" })), None).await
}

fn answer(call: &Call) -> Value {
    match call.output.as_ref().unwrap() {
        Output::Value { value } => value.clone(),
        other => panic!("{other:?}"),
    }
}

fn attested(call: &Call) -> Value {
    call.receipt.as_ref().unwrap().attestation.clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signed_skill_is_installed_listed_called_and_attested() {
    let lab = DaemonLab::new();
    let owner = lab.owner();
    assert_eq!(owner.skills().await.unwrap().skills, []);
    let publisher = Publisher::new("lab");
    let new = signed(&publisher, "1.0.0");
    let unknown = owner.inspect_skill(&new).await.unwrap();
    assert_eq!(unknown.signature.state, SignatureState::UnknownPublisher);
    assert_eq!(refused(owner.install_skill(&new).await.unwrap_err()), (422, "unknown_publisher".to_owned()));

    let pinned = owner.pin_key("lab", &publisher.key.public().to_file()).await.unwrap();
    let key = publisher.key.public();
    let told: Vec<_> =
        pinned.publishers.iter().flat_map(|one| &one.keys).map(|one| (&one.key_id, one.how.as_str())).collect();
    assert_eq!(told, [(&key.key_id(), "pinned")]);
    let known = owner.inspect_skill(&new).await.unwrap();
    assert_eq!((known.signature.state, known.signature.key_id), (SignatureState::Trusted, Some(key.key_id())));
    assert_eq!((known.installed, known.added, known.offer), (None, vec!["knows the time".to_owned()], clock()));
    assert_eq!(known.manifest["id"], ID);

    let skill = owner.install_skill(&new).await.unwrap();
    assert_eq!((skill.version.as_str(), skill.signed_by.as_deref()), ("1.0.0", Some(key.key_id().as_str())));
    assert_eq!((&skill.grants, &skill.may), (&SkillGrants::default(), &Vec::new()));
    assert_eq!(skill.asks, ["knows the time"]);
    assert_eq!((skill.installed_by.as_str(), skill.limits.cpu_ms), ("user:owner", 60_000));
    assert!(skill.tools.iter().all(|tool| tool.input_schema.is_some()));
    let listed = owner.skills().await.unwrap().skills;
    assert!(listed[0].tools.iter().all(|tool| tool.input_schema.is_none()));
    assert_eq!(owner.skill(&id()).await.unwrap(), skill);

    let tools = lab.agent().tools().await.unwrap().tools;
    let found = tools.iter().find(|tool| tool.name.as_str() == "skill.lab.echo.echo").unwrap();
    assert_eq!((found.skill.as_ref(), found.publisher.as_deref()), (Some(&id()), Some("lab")));
    let told = lab.agent().propose(&tool("tool.list", json!({})), None).await.unwrap();
    let told = answer(&told);
    assert!(told["tools"].as_array().unwrap().iter().any(|tool| tool["name"] == "skill.lab.echo.echo"));

    let done = call(&lab.agent(), "echo").await.unwrap();
    assert_eq!(answer(&done), json!({ "text": "hi" }));
    let proof = attested(&done);
    assert_eq!((&proof["executor"], &proof["ending"]), (&json!("wasm_tier_a"), &json!("completed")));
    assert_eq!(proof["skill"]["id"], ID);
    assert_eq!(proof["skill"]["publisher"], "lab");
    assert_eq!(proof["skill"]["signed_by"], json!(key.key_id()));
    assert_eq!(proof["skill"]["package_sha256"], json!(skill.package_sha256));
    assert_eq!(proof["skill"]["component_sha256"], json!(skill.component_sha256));

    let again = lab.agent().replay_call(done.id).await.unwrap();
    assert!(again.same, "{again:?}");
    assert_eq!((Some(again.attested), again.output), (again.replayed, json!({ "text": "hi" })));
    let other = lab.agent().propose(&tool("tool.list", json!({})), None).await.unwrap();
    assert_eq!(refused(lab.agent().replay_call(other.id).await.unwrap_err()), (409, "no_replay".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_signed_or_was_signed_by_others_is_not_installed() {
    let lab = DaemonLab::new();
    let owner = lab.owner();
    let (publisher, stranger) = (Publisher::new("lab"), Publisher::new("lab"));
    owner.pin_key("lab", &publisher.key.public().to_string()).await.unwrap();
    let unsigned = new_skill(&echo("1.0.0"), None);
    assert_eq!(refused(owner.install_skill(&unsigned).await.unwrap_err()), (422, "unsigned".to_owned()));
    let developed = NewSkill { development: true, ..unsigned.clone() };
    assert_eq!(refused(owner.install_skill(&developed).await.unwrap_err()), (422, "not_configured".to_owned()));
    let foreign = signed(&stranger, "1.0.0");
    assert_eq!(owner.inspect_skill(&foreign).await.unwrap().signature.state, SignatureState::Refused);
    assert_eq!(refused(owner.install_skill(&foreign).await.unwrap_err()), (422, "untrusted".to_owned()));
    let swapped = NewSkill { signature: signed(&publisher, "2.0.0").signature, ..unsigned.clone() };
    assert_eq!(refused(owner.install_skill(&swapped).await.unwrap_err()), (422, "bad_signature".to_owned()));
    let first = Some(stranger.key.public().to_string());
    let trusting = NewSkill { trust_on_first_use: first, ..foreign };
    assert_eq!(refused(owner.install_skill(&trusting).await.unwrap_err()), (422, "not_configured".to_owned()));
    let no_package = new_skill(b"no package at all", None);
    assert_eq!(refused(owner.install_skill(&no_package).await.unwrap_err()), (422, "bad_package".to_owned()));
    let no_text = NewSkill { package: "!".to_owned(), ..unsigned };
    assert_eq!(refused(owner.inspect_skill(&no_text).await.unwrap_err()), (422, "bad_package".to_owned()));
    assert_eq!(refused(owner.pin_key("lab", "no key").await.unwrap_err()), (422, "bad_key".to_owned()));
    assert_eq!(
        refused(owner.distrust_key("lab", "0000000000000000").await.unwrap_err()),
        (404, "unknown_key".to_owned())
    );
    assert_eq!(owner.skills().await.unwrap().skills, []);

    // An older version does not come back by itself.
    owner.install_skill(&signed(&publisher, "2.0.0")).await.unwrap();
    let older = signed(&publisher, "1.0.0");
    assert_eq!(refused(owner.install_skill(&older).await.unwrap_err()), (409, "version_rollback".to_owned()));
    let meant = NewSkill { allow_downgrade: true, ..older };
    assert_eq!(owner.install_skill(&meant).await.unwrap().version, "1.0.0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_configuration_lets_pass_is_installed_as_that() {
    let plan = DaemonPlan::default().config("[skills]\ndevelopment = true\ntrust_on_first_use = true");
    let lab = plan.start();
    let owner = lab.owner();
    let developed = NewSkill { development: true, ..new_skill(&echo("1.0.0"), None) };
    let skill = owner.install_skill(&developed).await.unwrap();
    assert_eq!((skill.development, skill.signed_by), (true, None));
    assert_eq!(answer(&call(&lab.agent(), "echo").await.unwrap()), json!({ "text": "hi" }));
    owner.remove_skill(&id()).await.unwrap();
    let publisher = Publisher::new("lab");
    let key = publisher.key.public();
    let trusting = NewSkill { trust_on_first_use: Some(key.to_string()), ..signed(&publisher, "1.0.0") };
    assert_eq!(owner.install_skill(&trusting).await.unwrap().signed_by, Some(key.key_id()));
    assert_eq!(owner.publishers().await.unwrap().publishers[0].keys[0].how, "first_use");
    owner.distrust_key("lab", &key.key_id()).await.unwrap();
    let known = owner.publishers().await.unwrap().publishers;
    assert_eq!((known[0].keys.len(), known[0].distrusted[0].key_id.clone()), (0, key.key_id()));
    assert!(owner.skill(&id()).await.unwrap().quarantine.is_some(), "what it signed must not run any more");
    assert_eq!(refused(owner.release_skill(&id()).await.unwrap_err()), (422, "untrusted".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_call_skills_operators_look_at_them_and_admins_govern() {
    let lab = DaemonLab::new();
    let owner = lab.owner();
    let (publisher, _) = installed(&lab).await;
    let new = signed(&publisher, "1.0.1");
    assert_eq!(refused(lab.agent().install_skill(&new).await.unwrap_err()), (403, "missing_scope".to_owned()));
    assert_eq!(lab.agent().skills().await.unwrap().skills.len(), 1);
    let robot = NewPairing { role: None, principal: Some("agent:robot".to_owned()), name: None };
    let robot = lab.of_device(&pair(&lab, &robot).await);
    let denied = (403, "denied_by_policy".to_owned());
    assert_eq!(robot.skills().await.unwrap().skills.len(), 1);
    assert_eq!(refused(robot.install_skill(&new).await.unwrap_err()), denied);
    assert_eq!(refused(robot.grant_skill(&id(), &clock()).await.unwrap_err()), denied);
    assert_eq!(refused(robot.pin_key("lab", &publisher.key.public().to_string()).await.unwrap_err()), denied);

    let device =
        async |role| lab.of_device(&pair(&lab, &NewPairing { role: Some(role), principal: None, name: None }).await);
    let operator = device(WorkspaceRole::Operator).await;
    assert_eq!(operator.skill(&id()).await.unwrap().version, "1.0.0");
    assert_eq!(operator.publishers().await.unwrap().publishers.len(), 1);
    assert_eq!(refused(operator.inspect_skill(&new).await.unwrap_err()), denied);
    assert_eq!(refused(operator.quarantine_skill(&id(), "no").await.unwrap_err()), denied);
    assert_eq!(refused(operator.remove_skill(&id()).await.unwrap_err()), denied);
    let admin = device(WorkspaceRole::Admin).await;
    assert_eq!(admin.install_skill(&new).await.unwrap().version, "1.0.1");

    let reader = lab.holder_of(&owner.mint_token(&token("user:owner", &["skills.read"])).await.unwrap().secret);
    assert_eq!(reader.publishers().await.unwrap().publishers.len(), 1);
    let newer = signed(&publisher, "1.0.2");
    assert_eq!(refused(reader.install_skill(&newer).await.unwrap_err()), (403, "missing_scope".to_owned()));
    let manager = lab.holder_of(&owner.mint_token(&token("user:owner", &["skills.manage"])).await.unwrap().secret);
    assert_eq!(manager.install_skill(&newer).await.unwrap().version, "1.0.2");
    let workspaces = Some(vec![palyra_types::WorkspaceName::parse("lab").unwrap()]);
    let bound = palyra_api::token::NewToken { workspaces, ..token("user:owner", &["skills.manage"]) };
    let bound = lab.holder_of(&owner.mint_token(&bound).await.unwrap().secret);
    assert_eq!(refused(bound.remove_skill(&id()).await.unwrap_err()), denied, "a skill is there in all workspaces");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_skill_may_what_it_was_granted_and_no_more() {
    let lab = DaemonLab::new();
    let (owner, agent) = (lab.owner(), lab.agent());
    let (publisher, _) = installed(&lab).await;
    assert_eq!(answer(&call(&agent, "now").await.unwrap())["error"]["code"], "not_granted");
    let unasked = SkillGrants { random: true, ..clock() };
    assert_eq!(refused(owner.grant_skill(&id(), &unasked).await.unwrap_err()), (422, "bad_grant".to_owned()));
    let granted = owner.grant_skill(&id(), &clock()).await.unwrap();
    assert_eq!((granted.grants, granted.may), (clock(), vec!["knows the time".to_owned()]));
    let told = call(&agent, "now").await.unwrap();
    assert_eq!((attested(&told)["ending"].clone(), answer(&told)), (json!("completed"), json!({ "text": "hi" })));
    let again = agent.replay_call(told.id).await.unwrap();
    assert!(again.same && again.host_calls > 0, "{again:?}");

    // An update keeps what was granted, and the same is asked for.
    let updated = owner.install_skill(&signed(&publisher, "1.1.0")).await.unwrap();
    assert_eq!((updated.version.as_str(), &updated.grants), ("1.1.0", &clock()));
    let nothing = owner.grant_skill(&id(), &SkillGrants::default()).await.unwrap();
    assert_eq!(nothing.grants, SkillGrants::default());
    assert_eq!(answer(&call(&agent, "now").await.unwrap())["error"]["code"], "not_granted");
    let missing = SkillId::parse("lab/nothing").unwrap();
    assert_eq!(refused(owner.grant_skill(&missing, &clock()).await.unwrap_err()), (404, "unknown_skill".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_is_shown_everything_about_a_skill_that_asks_and_agents_no_secrets() {
    let lab = DaemonLab::new();
    let (owner, agent) = (lab.owner(), lab.agent());
    let (publisher, _) = installed(&lab).await;
    fs::create_dir(lab.workspace().join("docs")).unwrap();
    let more = "[capabilities]\nclock = true\nkv = { bytes = 10, entries = 1 }\nfiles = { notes = \"write\" }\nsecrets = { KEY = \"opens\" }\n";
    let archive = package("lab/keeper", "1.0.0", &["echo"], more, wat::parse_str(PROGRAM).unwrap());
    let granted: SkillGrants = serde_json::from_value(json!({
        "kv": { "bytes": 10, "entries": 1 },
        "files": { "notes": { "path": "docs", "access": "write" } },
        "secrets": { "KEY": "global/key" },
    }))
    .unwrap();
    let new = NewSkill { grants: Some(granted.clone()), ..new_skill(&archive, Some(publisher.sign(&archive))) };
    let skill = owner.install_skill(&new).await.unwrap();
    assert_eq!((&skill.grants, skill.may.len()), (&granted, 3));
    let seen = agent.skill(&skill.id).await.unwrap();
    assert_eq!((seen.grants.files, seen.grants.secrets.len(), seen.may.len()), (granted.files.clone(), 0, 2));

    // Without the secret, which is bound to nothing.
    let rest = SkillGrants { secrets: BTreeMap::new(), ..granted };
    owner.grant_skill(&skill.id, &rest).await.unwrap();
    let waiting = agent.propose(&accepted(tool("skill.lab.keeper.echo", json!({}))), None).await.unwrap();
    let question = asked(&owner, 1).await.remove(0);
    let docs = lab.workspace().canonicalize().unwrap().join("docs");
    let told = question.skill.as_ref().unwrap();
    assert_eq!((told.id.as_str(), told.version.as_str(), told.tool.as_str()), ("lab/keeper", "1.0.0", "echo"));
    assert_eq!((told.publisher.as_str(), told.signed_by.clone()), ("lab", Some(publisher.key.public().key_id())));
    assert_eq!((told.package_sha256, told.component_sha256), (skill.package_sha256, skill.component_sha256));
    assert_eq!(told.directories["notes"].path.as_str(), docs.to_str().unwrap());
    assert_eq!((&told.may, &told.limits), (&owner.skill(&skill.id).await.unwrap().may, &skill.limits));
    let writes = format!("{}, what it keeps for its later calls, and nothing else", docs.display());
    assert_eq!((question.plan.tier.as_deref(), &question.plan.writes), (Some("a"), &writes));
    approve(&owner, &question).await.unwrap();
    assert_eq!(answer(&over(&agent, waiting.id).await), json!({}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quarantine_stops_what_runs_and_keeps_the_rest_from_beginning() {
    let lab = DaemonLab::new();
    let (owner, agent) = (lab.owner(), lab.agent());
    installed(&lab).await;
    let spinning = agent.propose(&accepted(tool("skill.lab.echo.spin", json!({}))), None).await.unwrap();
    while agent.call(spinning.id).await.unwrap().state != palyra_api::call::CallState::Started {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let stopped = owner.quarantine_skill(&id(), "it never ends").await.unwrap();
    let why = stopped.quarantine.unwrap();
    assert_eq!((why.reason.as_str(), why.by.as_str()), ("it never ends", "user:owner"));
    let ended = over(&agent, spinning.id).await;
    assert_eq!(attested(&ended)["ending"], "cancelled", "{:?}", ended.receipt);
    assert_eq!(refused(call(&agent, "echo").await.unwrap_err()), (403, "denied_by_policy".to_owned()));
    assert_eq!(refused(owner.quarantine_skill(&id(), "again").await.unwrap_err()).1, "already_quarantined");
    let ready = owner.readiness().await.unwrap();
    let check = ready.checks.iter().find(|check| check.name == "skills").unwrap();
    assert_eq!((check.state, check.detail.as_str()), (CheckState::Good, "1 installed, 1 in quarantine"));

    assert_eq!(owner.release_skill(&id()).await.unwrap().quarantine, None);
    assert_eq!(answer(&call(&agent, "echo").await.unwrap()), json!({ "text": "hi" }));
    assert_eq!(refused(owner.release_skill(&id()).await.unwrap_err()).1, "not_quarantined");
    owner.remove_skill(&id()).await.unwrap();
    assert_eq!(refused(call(&agent, "echo").await.unwrap_err()), (404, "unknown_tool".to_owned()));
    assert_eq!(refused(owner.skill(&id()).await.unwrap_err()), (404, "unknown_skill".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn skills_are_there_after_a_restart_and_a_changed_package_does_not_run() {
    let mut lab = DaemonLab::new();
    installed(&lab).await;
    assert!(lab.stop().success());
    lab.start();
    assert_eq!(answer(&call(&lab.agent(), "echo").await.unwrap()), json!({ "text": "hi" }));
    let file = package_file(&lab);
    let mut bytes = fs::read(&file).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&file, bytes).unwrap();
    let failed = call(&lab.agent(), "echo").await.unwrap();
    assert_eq!(attested(&failed)["ending"], "not_started", "{:?}", failed.output);
    assert_eq!(
        failed.output.as_ref().map(|output| matches!(output, Output::Value { value } if value.get("text").is_some())),
        Some(false)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn skills_that_cannot_be_opened_keep_nothing_else_from_working() {
    let mut lab = DaemonLab::new();
    installed(&lab).await;
    assert!(lab.stop().success());
    fs::write(lab.home().join("skills/registry.json"), "{}").unwrap();
    lab.start();
    let closed = lab.owner().skills().await.unwrap_err();
    assert!(closed.to_string().contains("registry"), "{closed}");
    assert_eq!(refused(closed), (409, "skills_closed".to_owned()));
    let told = lab.agent().skills().await.unwrap_err();
    assert!(!told.to_string().contains("registry"), "{told}");
    let ready = lab.owner().readiness().await.unwrap();
    let check = ready.checks.iter().find(|check| check.name == "skills").unwrap();
    assert_eq!((ready.ready, check.state, check.detail.as_str()), (true, CheckState::Doubtful, "they are closed"));
    assert!(lab.log().contains("skills are closed"), "{}", lab.log());
    assert_eq!(refused(call(&lab.agent(), "echo").await.unwrap_err()), (404, "unknown_tool".to_owned()));
    let status = lab.agent().propose(&tool("daemon.status", json!({})), None).await.unwrap();
    assert_eq!(answer(&status)["skills"], "closed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_is_too_long_is_refused_before_it_is_read() {
    let lab = DaemonLab::new();
    for (path, most) in [("/api/v1/skills", 96 << 20), ("/api/v1/skills/inspect", 96 << 20), ("/api/v1/calls", 2 << 20)]
    {
        assert_eq!(announced(&lab, path, most + 1).await, 413, "{path}");
        // Whoever may not is told so, and nothing of it is read either.
        assert_eq!(announced(&lab, path, most).await, 401, "{path}");
    }
    // Longer than any other body may be, and read as what it is.
    let large = new_skill(&vec![0; 5 << 20], None);
    assert_eq!(refused(lab.owner().install_skill(&large).await.unwrap_err()), (422, "bad_package".to_owned()));
}

/// The status that a request gets whose body is announced and does not come.
async fn announced(lab: &DaemonLab, path: &str, length: usize) -> u16 {
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n",
        lab.local()
    );
    let mut stream = TcpStream::connect(lab.local()).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    String::from_utf8_lossy(&answer).split(' ').nth(1).unwrap().parse().unwrap()
}

fn package_file(lab: &DaemonLab) -> PathBuf {
    let packages = fs::read_dir(lab.home().join("skills/packages")).unwrap().map(|entry| entry.unwrap().path());
    packages.into_iter().find(|path| path.extension().is_some_and(|end| end == "skill")).unwrap()
}
