//! The vault over the real daemon and the real command line: what can be done with secrets, by whom, and what happens when the vault does
//! not open. Nothing that comes back ever holds a value; that is what `vault_use.rs` looks for.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on ends"
)]

use std::{fs, os::unix::fs::PermissionsExt};

use palyra_api::{
    device::NewPairing,
    token::NewToken,
    vault::{Encoding, ExportVault, NewBinding, PutSecret, RemoveSecret, UnlockVault, VaultState},
};
use palyra_client::Client;
use palyra_tests::{
    daemon::{DaemonLab, DaemonPlan, asked, no, refused, tool},
    paired::pair,
    token::token,
    vault::{contents, value},
};
use palyra_types::{HostName, SecretRef, Timestamp, ToolName, WorkspaceName, WorkspaceRole};
use serde_json::json;
use zeroize::Zeroizing;

fn secret(text: &str) -> SecretRef {
    SecretRef::parse_or_global(text).unwrap()
}

fn binding(name: &str, host: &str) -> NewBinding {
    NewBinding {
        secret: secret(name),
        host: HostName::parse(host).unwrap(),
        port: None,
        positions: Vec::new(),
        paths: Vec::new(),
        tools: Vec::new(),
    }
}

fn passphrase(words: &str) -> UnlockVault {
    UnlockVault { passphrase: Some(Zeroizing::new(words.to_owned())) }
}

async fn names(by: &Client) -> Vec<String> {
    by.secrets().await.unwrap().secrets.iter().map(|one| format!("{} v{}", one.secret, one.version)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_is_put_shown_bound_and_removed() {
    let lab = DaemonLab::new();
    let owner = lab.owner();
    let status = owner.vault().await.unwrap();
    assert_eq!((status.state, status.backend.as_deref()), (VaultState::Open, Some("key_file")));
    assert_eq!((status.secrets, status.key), (Some(0), Some(1)));
    let (github, shop) = (secret("github"), secret("workspace:lab/shop"));
    assert_eq!(owner.put_secret(&github, &value("one")).await.unwrap().version, 1);
    let noted = PutSecret { note: Some("for CI".to_owned()), rotate_after_days: Some(90), ..value("two") };
    assert_eq!(owner.put_secret(&github, &noted).await.unwrap().version, 2);
    let binary = PutSecret { encoding: Encoding::Base64, ..value("AP8=") };
    assert_eq!(owner.put_secret(&shop, &binary).await.unwrap().version, 1);
    assert_eq!(names(&owner).await, ["global/github v2", "workspace:lab/shop v1"]);
    let shown = owner.secret(&github).await.unwrap();
    assert_eq!((shown.note.as_deref(), shown.rotate_after_days, shown.is_due), (Some("for CI"), Some(90), false));
    assert_eq!(shown.versions.iter().map(|one| one.version).collect::<Vec<_>>(), [2, 1]);

    let bound = owner.bind_secret(&binding("github", "api.example.org")).await.unwrap();
    assert_eq!(bound.words, "to api.example.org port 443, in the header `authorization`");
    let again = owner.bind_secret(&binding("github", "api.example.org")).await.unwrap_err();
    assert_eq!(refused(again), (409, "already_bound".to_owned()));
    let narrow = NewBinding {
        port: Some(8443),
        positions: vec!["query:key".to_owned(), "body".to_owned()],
        paths: vec!["/v1/".to_owned()],
        tools: vec![ToolName::parse("process.run").unwrap()],
        ..binding("github", "api.example.org")
    };
    let narrow = owner.bind_secret(&narrow).await.unwrap();
    assert_eq!(
        narrow.words,
        "to api.example.org port 8443, in the parameter `key` and the body, for /v1/…, by process.run"
    );
    for (wrong, code) in [
        (NewBinding { positions: vec!["header:host".to_owned()], ..binding("github", "example.org") }, "bad_binding"),
        (NewBinding { paths: vec!["v1".to_owned()], ..binding("github", "example.org") }, "bad_binding"),
        (NewBinding { port: Some(0), ..binding("github", "example.org") }, "bad_binding"),
        (
            NewBinding { tools: vec![ToolName::parse("no.tool").unwrap()], ..binding("github", "example.org") },
            "unknown_tool",
        ),
        (binding("nothing", "example.org"), "unknown_secret"),
    ] {
        assert_eq!(refused(owner.bind_secret(&wrong).await.unwrap_err()).1, code, "{wrong:?}");
    }
    assert_eq!(owner.secret(&github).await.unwrap().bindings, [bound.clone(), narrow]);
    owner.unbind_secret(bound.id).await.unwrap();
    assert_eq!(refused(owner.unbind_secret(bound.id).await.unwrap_err()).1, "unknown_binding");

    owner.remove_secret(&github, &RemoveSecret { version: Some(1) }).await.unwrap();
    let gone = owner.remove_secret(&github, &RemoveSecret { version: Some(1) }).await.unwrap_err();
    assert_eq!(refused(gone), (404, "unknown_version".to_owned()));
    owner.remove_secret(&shop, &RemoveSecret::default()).await.unwrap();
    assert_eq!(refused(owner.secret(&shop).await.unwrap_err()), (404, "unknown_secret".to_owned()));
    assert_eq!(contents(&owner).await, [("global/github".to_owned(), "two".to_owned())]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_kept_is_refused_and_changes_nothing() {
    let lab = DaemonLab::new();
    let owner = lab.owner();
    let name = secret("x");
    let past = Timestamp::parse("2020-01-01T00:00:00Z").unwrap();
    for wrong in [
        value(""),
        value(&"x".repeat((64 << 10) + 1)),
        PutSecret { encoding: Encoding::Base64, ..value("no base 64") },
        PutSecret { expires_at: Some(past), ..value("x") },
        PutSecret { rotate_after_days: Some(0), ..value("x") },
        PutSecret { note: Some("x".repeat(513)), ..value("x") },
    ] {
        assert_eq!(refused(owner.put_secret(&name, &wrong).await.unwrap_err()), (422, "bad_secret".to_owned()));
    }
    let largest = owner.put_secret(&name, &value(&"\u{1}".repeat(64 << 10))).await.unwrap();
    assert_eq!(largest.version, 1);
    assert_eq!(refused(owner.put_secret(&name, &value(&"x".repeat(600 << 10))).await.unwrap_err()).0, 413);
    assert_eq!(owner.secrets().await.unwrap().secrets.len(), 1);
    for (to, code) in [
        (ExportVault::default(), "bad_recipient"),
        (ExportVault { recipients: vec!["AGE-SECRET-KEY-1XYZ".to_owned()], passphrase: None }, "bad_recipient"),
        (ExportVault { recipients: vec!["age1nobody".to_owned()], passphrase: None }, "bad_recipient"),
        (ExportVault { recipients: Vec::new(), passphrase: passphrase("short").passphrase }, "weak_passphrase"),
    ] {
        let error = owner.export_vault(&to).await.unwrap_err();
        assert!(!error.to_string().contains("SECRET-KEY"), "{error}");
        assert_eq!(refused(error).1, code);
    }
    for wrong in ["{}", r#"{"palyra_vault_backup":2}"#] {
        let error = owner.import_vault(Zeroizing::new(wrong.as_bytes().to_vec())).await.unwrap_err();
        assert_eq!(refused(error), (422, "bad_backup".to_owned()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_see_nothing_operators_see_names_admins_govern_and_the_bound_govern_their_own() {
    let lab = DaemonLab::new();
    let owner = lab.owner();
    for name in ["github", "workspace:lab/shop", "agent:local/own"] {
        owner.put_secret(&secret(name), &value("v")).await.unwrap();
    }
    let far = owner.bind_secret(&binding("github", "api.example.org")).await.unwrap();
    let near = owner.bind_secret(&binding("workspace:lab/shop", "api.example.org")).await.unwrap();

    assert_eq!(refused(lab.agent().secrets().await.unwrap_err()), (403, "missing_scope".to_owned()));
    let robot = NewPairing { role: None, principal: Some("agent:robot".to_owned()), name: None };
    let robot = lab.of_device(&pair(&lab, &robot).await);
    assert_eq!(refused(robot.secrets().await.unwrap_err()), (403, "denied_by_policy".to_owned()));
    assert_eq!(refused(robot.put_secret(&secret("github"), &value("v")).await.unwrap_err()).0, 403);

    let device =
        async |role| lab.of_device(&pair(&lab, &NewPairing { role: Some(role), principal: None, name: None }).await);
    let operator = device(WorkspaceRole::Operator).await;
    assert_eq!(operator.secrets().await.unwrap().secrets.len(), 3);
    let denied = (403, "denied_by_policy".to_owned());
    assert_eq!(refused(operator.put_secret(&secret("github"), &value("v")).await.unwrap_err()), denied);
    assert_eq!(refused(operator.bind_secret(&binding("github", "example.org")).await.unwrap_err()), denied);
    assert_eq!(refused(operator.unbind_secret(far.id).await.unwrap_err()), denied);
    assert_eq!(refused(operator.rotate_vault().await.unwrap_err()), denied);

    let admin = device(WorkspaceRole::Admin).await;
    assert_eq!(admin.put_secret(&secret("github"), &value("w")).await.unwrap().version, 2);
    assert_eq!(admin.rotate_vault().await.unwrap().key, Some(2));
    let adopting = admin.adopt_vault(&UnlockVault::default()).await.unwrap_err();
    assert_eq!(refused(adopting), (403, "above_own_role".to_owned()));

    // Somebody who belongs to one workspace.
    let workspaces = Some(vec![WorkspaceName::parse("lab").unwrap()]);
    let bound = NewToken { workspaces, ..token("user:owner", &["vault.read", "vault.manage"]) };
    let bound = lab.holder_of(&owner.mint_token(&bound).await.unwrap().secret);
    assert_eq!(names(&bound).await, ["workspace:lab/shop v1"]);
    assert_eq!(bound.vault().await.unwrap().secrets, Some(1));
    assert_eq!(bound.put_secret(&secret("workspace:lab/shop"), &value("w")).await.unwrap().version, 2);
    assert_eq!(bound.put_secret(&secret("workspace:lab/new"), &value("w")).await.unwrap().version, 1);
    bound.unbind_secret(near.id).await.unwrap();
    for beyond in ["github", "workspace:other/x", "agent:local/own"] {
        let beyond = secret(beyond);
        assert_eq!(refused(bound.secret(&beyond).await.unwrap_err()), (404, "unknown_secret".to_owned()));
        assert_eq!(refused(bound.put_secret(&beyond, &value("w")).await.unwrap_err()), denied, "{beyond}");
        let removed = bound.remove_secret(&beyond, &RemoveSecret::default()).await;
        assert_eq!(refused(removed.unwrap_err()), denied, "{beyond}");
        let there = binding(&beyond.to_string(), "example.org");
        assert_eq!(refused(bound.bind_secret(&there).await.unwrap_err()), denied, "{beyond}");
    }
    assert_eq!(refused(bound.unbind_secret(far.id).await.unwrap_err()), denied);
    assert_eq!(refused(bound.rotate_vault().await.unwrap_err()), denied);
    assert_eq!(refused(bound.unlock_vault(&UnlockVault::default()).await.unwrap_err()), denied);
    let document = Zeroizing::new(b"{}".to_vec());
    assert_eq!(refused(bound.import_vault(document).await.unwrap_err()), denied);
    // A token that may see does not govern.
    let reader = lab.holder_of(&owner.mint_token(&token("user:owner", &["vault.read"])).await.unwrap().secret);
    assert_eq!(reader.secrets().await.unwrap().secrets.len(), 4);
    let put = reader.put_secret(&secret("github"), &value("v")).await.unwrap_err();
    assert_eq!(refused(put), (403, "missing_scope".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vault_of_a_passphrase_is_locked_until_somebody_knows_it_and_after_every_start() {
    const WORDS: &str = "correct horse battery staple";
    let mut lab = DaemonPlan::default().config("[vault]\nbackend = \"passphrase\"").start();
    let owner = lab.owner();
    let status = owner.vault().await.unwrap();
    assert_eq!((status.state, status.backend.as_deref()), (VaultState::Locked, Some("passphrase")));
    assert!(status.is_new);
    let put = owner.put_secret(&secret("github"), &value("v")).await.unwrap_err();
    assert_eq!(refused(put), (409, "vault_locked".to_owned()));
    let unlock = async |by: &Client, words: &str| by.unlock_vault(&passphrase(words)).await;
    assert_eq!(refused(unlock(&owner, "short").await.unwrap_err()), (422, "weak_passphrase".to_owned()));
    let none = owner.unlock_vault(&UnlockVault::default()).await.unwrap_err();
    assert_eq!(refused(none), (422, "no_passphrase".to_owned()));
    assert_eq!(unlock(&owner, WORDS).await.unwrap().state, VaultState::Open);
    owner.put_secret(&secret("github"), &value("v")).await.unwrap();
    assert_eq!(owner.rotate_vault().await.unwrap().key, Some(2));

    lab.stop();
    lab.start();
    let owner = lab.owner();
    let status = owner.vault().await.unwrap();
    assert_eq!((status.state, status.is_new, status.secrets), (VaultState::Locked, false, None));
    assert_eq!(refused(unlock(&owner, "incorrect horse").await.unwrap_err()), (403, "wrong_passphrase".to_owned()));
    assert_eq!(owner.vault().await.unwrap().state, VaultState::Locked);
    // What needs no secret works meanwhile.
    let listed = lab.agent().propose(&tool("fs.list", json!({ "path": "." })), None).await.unwrap();
    assert_eq!(listed.receipt.unwrap().ending(), "completed");
    let status = unlock(&owner, WORDS).await.unwrap();
    assert_eq!((status.state, status.secrets, status.key), (VaultState::Open, Some(1), Some(2)));
    assert_eq!(contents(&owner).await, [("global/github".to_owned(), "v".to_owned())]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_passphrase_in_a_file_opens_the_vault_before_the_daemon_serves_if_it_is_its_owners_alone() {
    let words = tempfile::tempdir().unwrap();
    let file = words.path().join("words");
    fs::write(&file, "correct horse battery staple\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let config = format!("[vault]\nbackend = \"passphrase\"\npassphrase_file = \"{}\"", file.display());
    let mut lab = DaemonPlan::default().config(&config).start();
    assert_eq!(lab.owner().vault().await.unwrap().state, VaultState::Open);
    lab.stop();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    lab.start();
    let owner = lab.owner();
    let status = owner.vault().await.unwrap();
    assert_eq!(status.state, VaultState::Closed);
    assert!(status.message.unwrap().contains("words"));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(owner.unlock_vault(&UnlockVault::default()).await.unwrap().state, VaultState::Open);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vault_is_opened_by_whoever_holds_its_key_and_by_nobody_in_their_place() {
    let mut lab = DaemonLab::new();
    lab.owner().put_secret(&secret("github"), &value("v")).await.unwrap();
    assert!(lab.home().join("vault/secrets.vault").is_file());
    assert_eq!(fs::read_dir(lab.home().join("identity/vault")).unwrap().count(), 1);
    lab.stop();
    let config = fs::read_to_string(lab.home().join("config.toml")).unwrap();
    fs::write(lab.home().join("config.toml"), format!("{config}\n[vault]\nbackend = \"passphrase\"\n")).unwrap();
    lab.start();
    let owner = lab.owner();
    let status = owner.vault().await.unwrap();
    assert_eq!(status.state, VaultState::Closed);
    let why = status.message.unwrap();
    assert!(why.contains("held by `key_file`") && why.contains("`passphrase`"), "{why}");
    let unlocked = owner.unlock_vault(&passphrase("correct horse battery")).await.unwrap_err();
    assert_eq!(refused(unlocked), (409, "vault_closed".to_owned()));
    let readiness = owner.readiness().await.unwrap();
    let check = readiness.checks.iter().find(|check| check.name == "vault").unwrap();
    assert!(readiness.ready && check.detail == "it is closed", "{check:?}");
    let told = lab.agent().propose(&tool("daemon.status", json!({})), None).await.unwrap();
    assert!(
        serde_json::to_string(&told.output).unwrap().contains(r#"\"vault\":\"closed\""#) || {
            serde_json::to_value(&told.output).unwrap().to_string().contains("closed")
        }
    );
    // Named as it is recorded, it opens.
    lab.stop();
    fs::write(lab.home().join("config.toml"), format!("{config}\n[vault]\nbackend = \"key_file\"\n")).unwrap();
    lab.start();
    assert_eq!(lab.owner().vault().await.unwrap().secrets, Some(1));
    // Without its key it does not, and no other key is made.
    lab.stop();
    let keys = lab.home().join("identity/vault");
    fs::rename(&keys, lab.home().join("identity/away")).unwrap();
    lab.start();
    let status = lab.owner().vault().await.unwrap();
    assert!(status.state == VaultState::Closed && status.message.unwrap().contains("holds no key"));
    fs::rename(lab.home().join("identity/away"), &keys).unwrap();
    assert_eq!(lab.owner().unlock_vault(&UnlockVault::default()).await.unwrap().state, VaultState::Open);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_copy_stays_closed_until_an_owner_adopts_it() {
    let mut lab = DaemonLab::new();
    lab.owner().put_secret(&secret("old"), &value("v")).await.unwrap();
    lab.stop();
    let (file, copy) = (lab.home().join("vault/secrets.vault"), lab.home().join("copy"));
    fs::copy(&file, &copy).unwrap();
    lab.start();
    let kept = lab.owner().adopt_vault(&UnlockVault::default()).await.unwrap_err();
    assert_eq!(refused(kept), (409, "vault_open".to_owned()));
    lab.owner().put_secret(&secret("new"), &value("v")).await.unwrap();
    lab.stop();
    fs::rename(&copy, &file).unwrap();
    lab.start();
    let owner = lab.owner();
    let status = owner.vault().await.unwrap();
    assert_eq!(status.state, VaultState::Closed);
    assert!(status.message.as_ref().unwrap().contains("is an old copy"), "{status:?}");
    assert!(status.help.unwrap().contains("palyra vault adopt"));
    let put = owner.put_secret(&secret("x"), &value("v")).await.unwrap_err();
    assert_eq!(refused(put), (409, "vault_closed".to_owned()));
    let still = owner.unlock_vault(&UnlockVault::default()).await.unwrap_err();
    assert_eq!(refused(still), (409, "vault_closed".to_owned()));
    let admin = NewPairing { role: Some(WorkspaceRole::Admin), principal: None, name: None };
    let admin = lab.of_device(&pair(&lab, &admin).await);
    let adopting = admin.adopt_vault(&UnlockVault::default()).await.unwrap_err();
    assert_eq!(refused(adopting), (403, "above_own_role".to_owned()));
    assert_eq!(owner.adopt_vault(&UnlockVault::default()).await.unwrap().state, VaultState::Open);
    assert_eq!(names(&owner).await, ["global/old v1"]);
    lab.stop();
    lab.start();
    assert_eq!(names(&lab.owner()).await, ["global/old v1"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_file_stays_closed_and_says_where() {
    let mut lab = DaemonLab::new();
    lab.owner().put_secret(&secret("old"), &value("v")).await.unwrap();
    lab.stop();
    let file = lab.home().join("vault/secrets.vault");
    let mut bytes = fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&file, &bytes).unwrap();
    lab.start();
    let owner = lab.owner();
    let status = owner.vault().await.unwrap();
    assert!(status.state == VaultState::Closed && status.message.unwrap().contains("secrets.vault"));
    assert_eq!(refused(owner.adopt_vault(&UnlockVault::default()).await.unwrap_err()).1, "vault_closed");
    bytes[middle] ^= 1;
    fs::write(&file, &bytes).unwrap();
    assert_eq!(owner.unlock_vault(&UnlockVault::default()).await.unwrap().state, VaultState::Open);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_comes_back_elsewhere_with_its_bindings_and_nothing_twice() {
    let (here, there) = (DaemonLab::new(), DaemonLab::new());
    let (owner, other) = (here.owner(), there.owner());
    owner.put_secret(&secret("github"), &value("v")).await.unwrap();
    owner.bind_secret(&binding("github", "api.example.org")).await.unwrap();
    let words = "correct horse battery staple";
    let to = ExportVault { recipients: Vec::new(), passphrase: passphrase(words).passphrase };
    let backup = owner.export_vault(&to).await.unwrap();
    let file = there.workspace().join("backup.age");
    fs::write(&file, backup).unwrap();
    let import = |words: &str| {
        use std::{io::Write, process::Stdio};
        let mut command = there.palyra();
        command.args(["vault", "import", "backup.age", "--passphrase"]).env("NO_COLOR", "1");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(format!("{words}\n").as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap())
    };
    let (code, said) = import("another passphrase");
    assert!(code == Some(1) && said.contains("neither key nor passphrase opens the backup"), "{said}");
    let (code, said) = import(words);
    assert!(code == Some(0) && said.contains("1 secret and 1 binding; 0 left out"), "{said}");
    let (code, said) = import(words);
    assert!(code == Some(0) && said.contains("0 secrets and 0 bindings; 2 left out"), "{said}");
    // One that leads a secret elsewhere and does not hold it, as anybody with the public key could write it.
    let foreign = r#"{"palyra_vault_backup":1,"created":"2026-01-01T00:00:00Z","secrets":[],"bindings":[{"secret":"global/github",
        "host":"evil.example.org","port":443,"positions":["header:authorization"],"paths":[],"tools":[]}]}"#;
    fs::write(there.workspace().join("foreign.json"), foreign).unwrap();
    let done = there.palyra().args(["vault", "import", "foreign.json", "--plain"]).output().unwrap();
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(done.status.code() == Some(1) && said.contains("it binds global/github and does not hold it"), "{said}");
    assert_eq!(contents(&other).await, [("global/github".to_owned(), "v".to_owned())]);
    assert_eq!(other.secret(&secret("github")).await.unwrap().bindings.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_approves_a_call_reads_which_secrets_it_uses_and_where_they_may_go() {
    let lab = DaemonPlan::default().config("[policy]\nallow_sensitive_tools = true").start();
    let owner = lab.owner();
    owner.put_secret(&secret("github"), &value("v")).await.unwrap();
    owner.bind_secret(&binding("github", "api.example.org")).await.unwrap();
    let agent = lab.agent();
    let call = tool(
        "process.run",
        json!({ "command": ["uname"], "secrets": { "GH": "github" }, "secret_values": { "RAW": "github" } }),
    );
    let asking = tokio::spawn(async move { agent.propose(&call, None).await });
    let question = asked(&owner, 1).await.remove(0);
    let words = [
        "uses the secret global/github without seeing it: to api.example.org port 443, in the header `authorization`",
        "is given the value of the secret global/github in the variable RAW",
    ];
    assert_eq!(question.plan.secrets, words);
    let shown =
        lab.palyra().args(["approvals", "show", &question.id.to_string()]).env("NO_COLOR", "1").output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(words.iter().all(|words| shown.contains(words)), "{shown}");
    owner.deny(question.id, &no(&question, None)).await.unwrap();
    assert_eq!(refused(asking.await.unwrap().unwrap_err()).1, "denied_by_person");
}
