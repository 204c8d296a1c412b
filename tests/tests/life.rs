//! The daemon's life: starts only when all is in order, reloads all or nothing, drains, and leaves everything attested.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test that cannot go on ends, and it starts the program that is tested"
)]

use std::{fs, net::TcpListener, os::unix::fs::PermissionsExt, process::Stdio, time::Duration};

use palyra_api::{call::CallState, journal::RecordQuery};
use palyra_client::ClientError;
use palyra_tests::daemon::{DaemonLab, DaemonPlan, accepted, approve, asked, command, over, program, tool};
use serde_json::json;

/// Lets `sleep` run unasked.
const SLEEP: &str = r#"
@id("sleep") permit (principal, action == Palyra::Action::"tool.execute", resource)
when { context has process && context.process.name == "sleep" };
"#;

/// What a daemon says that does not start.
fn refused(lab: &DaemonLab) -> String {
    let told = lab.command(&program("palyrad")).stdin(Stdio::null()).output().unwrap();
    assert_eq!(told.status.code(), Some(1));
    String::from_utf8(told.stderr).unwrap()
}

#[test]
fn a_state_directory_that_others_can_reach_keeps_it_from_starting() {
    let lab = DaemonPlan::default().make();
    fs::set_permissions(lab.home(), fs::Permissions::from_mode(0o755)).unwrap();
    let said = refused(&lab);
    assert!(said.contains("has mode 0755") && said.contains("help:  chmod 700"), "{said}");
}

#[test]
fn a_port_that_is_taken_keeps_it_from_starting() {
    let lab = DaemonPlan::default().make();
    let squatter = TcpListener::bind(lab.local()).unwrap();
    let said = refused(&lab);
    assert!(said.contains("cannot be had") && said.contains("[listen]"), "{said}");
    drop(squatter);
}

#[test]
fn a_first_start_that_finds_no_port_leaves_nothing_behind() {
    let (lab, root) = (DaemonPlan::default().make(), tempfile::tempdir().unwrap());
    let squatter = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = squatter.local_addr().unwrap().to_string();
    for (program_name, args) in [("palyra", &["up"][..]), ("palyrad", &[])] {
        let mut first = lab.command(&program(program_name));
        // In the home directory a workspace would be made, too.
        first
            .args(args)
            .current_dir(root.path())
            .env("HOME", root.path())
            .env_remove("PALYRA_HOME")
            .env_remove("XDG_DATA_HOME");
        let local = lab.local().to_string();
        first.env("PALYRA_LISTEN__LOCAL", local).env("PALYRA_LISTEN__CONTROL", &taken);
        let told = first.stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8(told.stderr).unwrap();
        assert_eq!(told.status.code(), Some(1), "{said}");
        assert!(said.contains(&format!("the port at {taken} cannot be had")), "{said}");
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0, "{program_name}");
    }
}

#[test]
fn a_second_daemon_on_the_same_state_does_not_start() {
    let lab = DaemonLab::new();
    let said = refused(&lab);
    assert!(said.contains("error: the daemon does not start"), "{said}");
    let pid = lab.pid();
    assert!(
        said.contains(&format!("runs already, as process {pid}\nhelp:  use it (`palyra status`), or stop")),
        "{said}"
    );
    let mut other = lab.command(&program("palyrad"));
    other.env("PALYRA_LISTEN__LOCAL", "127.0.0.1:19997").env("PALYRA_LISTEN__CONTROL", "127.0.0.1:19998");
    let told = other.output().unwrap();
    assert_eq!(told.status.code(), Some(1));
    let said = String::from_utf8_lossy(&told.stderr);
    assert!(said.contains(&format!("runs already, as process {pid}")), "{said}");
}

#[test]
fn what_is_configured_wrongly_keeps_it_from_starting_and_says_where() {
    for (config, expected) in [
        ("[lisen]\n", "did you mean `listen`?"),
        ("[budget]\ncals = 1\n", "unknown field `cals`"),
        ("[policy]\npreset = \"bold\"\n", "bold"),
        ("nonsense", "makes no sense"),
        ("[log]\nlevel = \"=,=\"\n", "[log]"),
    ] {
        let said = refused(&DaemonPlan::default().config(config).make());
        assert!(said.contains(expected) && said.contains("help:"), "{said}");
    }
    let said = refused(&DaemonPlan::default().policies("bad.cedar", "permit (principal, action, resource)").make());
    assert!(said.contains("bad.cedar:1") && said.contains("palyra policy check"), "{said}");
}

#[test]
fn commands_reach_the_daemon_that_runs_whatever_became_of_its_configuration() {
    let mut lab = DaemonLab::new();
    let config = lab.home().join("config.toml");
    let good = fs::read_to_string(&config).unwrap();
    let says = |lab: &DaemonLab, args: &[&str]| {
        let told = lab.palyra().args(args).stdin(Stdio::null()).output().unwrap();
        (told.status.code(), String::from_utf8_lossy(&[told.stdout, told.stderr].concat()).into_owned())
    };
    fs::write(&config, "nonsense").unwrap();
    assert_eq!(says(&lab, &["status"]).0, Some(0));
    assert_eq!(says(&lab, &["approvals", "list"]).0, Some(0));
    let (code, said) = says(&lab, &["doctor"]);
    assert!(code == Some(1) && said.contains("makes no sense") && said.contains("journal"), "{said}");
    let (code, said) = says(&lab, &["reload"]);
    assert!(code == Some(1) && said.contains("makes no sense"), "{said}");
    // Other ports count from the next start on.
    let other = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    fs::write(&config, good.replace(&lab.local().to_string(), &other)).unwrap();
    let (code, said) = says(&lab, &["status"]);
    assert!(code == Some(0) && said.contains(&lab.local().to_string()), "{said}");
    // What a daemon leaves that was killed misleads nobody, and the next one puts its own in that place.
    lab.kill();
    let (code, said) = says(&lab, &["status"]);
    assert!(code == Some(6) && lab.home().join("serving.json").exists(), "{said}");
    fs::write(&config, good).unwrap();
    lab.start();
    assert_eq!(says(&lab, &["status"]).0, Some(0));
    assert!(lab.stop().success());
    assert!(!lab.home().join("serving.json").exists());
}

#[test]
fn who_follows_is_told_once_that_the_daemon_is_away_and_that_it_is_back_wherever_that_is() {
    let mut lab = DaemonLab::new();
    let follow = |args: &[&str]| lab.palyra().args(args).stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let followers = [follow(&["approvals", "watch"]), follow(&["journal", "tail", "--follow"])];
    std::thread::sleep(Duration::from_secs(2));
    assert!(lab.stop().success());
    std::thread::sleep(Duration::from_millis(2_500));
    let ports = [(), ()].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [control, local] = ports.each_ref().map(|port| port.local_addr().unwrap().to_string());
    drop(ports);
    let mut elsewhere = lab.command(&program("palyrad"));
    elsewhere.env("PALYRA_LISTEN__CONTROL", control).env("PALYRA_LISTEN__LOCAL", local);
    let mut elsewhere = elsewhere.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(6));
    for follower in followers {
        let pid = follower.id().to_string();
        assert!(std::process::Command::new("kill").args(["-s", "INT", &pid]).status().unwrap().success());
        let told = follower.wait_with_output().unwrap();
        let said = String::from_utf8(told.stderr).unwrap();
        assert_eq!(told.status.code(), Some(0), "{said}");
        let (away, back) = (said.matches("trying again").count(), said.matches("the daemon is back").count());
        assert_eq!((away, back), (1, 1), "{said}");
    }
    elsewhere.kill().unwrap();
    elsewhere.wait().unwrap();
}

/// The kinds of the last records of a journal that no daemon has open.
fn last_record(lab: &DaemonLab) -> String {
    let told = lab.palyra().args(["journal", "verify"]).output().unwrap();
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    let journal = rusqlite::Connection::open(lab.journal().join("journal.db")).unwrap();
    let sql = "SELECT record FROM records ORDER BY seq DESC LIMIT 1";
    journal.query_row(sql, [], |row| row.get(0)).unwrap()
}

#[test]
fn a_daemon_whose_terminal_is_closed_stops_in_good_order() {
    let lab = DaemonPlan::default().make();
    let script = "import os, pty, signal, sys, time\n\
        signal.alarm(30)\n\
        pid, terminal = pty.fork()\n\
        if pid == 0: os.execv(sys.argv[1], sys.argv[1:2])\n\
        while not os.path.exists(sys.argv[2]): time.sleep(0.05)\n\
        os.close(terminal)\n\
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n";
    let mut at_terminal = lab.command("/usr/bin/python3".as_ref());
    at_terminal.args(["-c", script]).arg(program("palyrad")).arg(lab.home().join("serving.json"));
    assert_eq!(at_terminal.status().unwrap().code(), Some(0));
    assert!(last_record(&lab).contains("daemon.stopped"));
}

#[test]
fn a_daemon_that_nobody_reads_the_log_of_works_as_any_other() {
    let lab = DaemonPlan::default().make();
    let mut daemon = lab.command(&program("palyrad")).stderr(Stdio::piped()).spawn().unwrap();
    drop(daemon.stderr.take());
    let says = |args: &[&str]| lab.palyra().args(args).stdin(Stdio::null()).output().unwrap();
    for _ in 0..400 {
        if says(&["status"]).status.success() {
            break;
        }
        std::thread::sleep(Duration::from_millis(25));
    }
    let told = says(&["reload"]);
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    fs::write(lab.home().join("config.toml"), "nonsense").unwrap();
    let told = says(&["reload"]);
    assert_eq!(told.status.code(), Some(1), "{}", String::from_utf8_lossy(&told.stderr));
    let pid = daemon.id().to_string();
    assert!(std::process::Command::new("kill").args(["-s", "TERM", &pid]).status().unwrap().success());
    assert!(daemon.wait().unwrap().success());
    assert!(last_record(&lab).contains("daemon.stopped"));
}

#[test]
fn whoever_sits_on_the_local_port_while_no_daemon_runs_does_not_get_the_agents_credential() {
    let mut lab = DaemonLab::new();
    assert!(lab.stop().success());
    let squatter = TcpListener::bind(lab.local()).unwrap();
    squatter.set_nonblocking(true).unwrap();
    for args in [&["call", "--as-agent", "tool.list"][..], &["demo", "--yes"]] {
        let told = lab.palyra().args(args).stdin(Stdio::null()).output().unwrap();
        assert_eq!(told.status.code(), Some(6), "{}", String::from_utf8_lossy(&told.stderr));
        assert_eq!(squatter.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "{args:?}");
    }
}

#[tokio::test]
async fn a_reload_puts_new_rules_in_force_and_a_bad_one_leaves_the_old_ones() {
    let lab = DaemonLab::new();
    let (owner, agent) = (lab.owner(), lab.agent());
    let before = owner.policy().await.unwrap();
    let waiting = agent.propose(&accepted(command(["sleep", "0"])), None).await.unwrap();
    assert_eq!(waiting.state, CallState::Waiting);
    fs::write(lab.home().join("policies/sleep.cedar"), SLEEP).unwrap();
    lab.signal("HUP");
    until_policies(&owner, |digest| digest != before.digest.to_string()).await;
    let ran = agent.propose(&command(["sleep", "0"]), None).await.unwrap();
    assert_eq!(ran.receipt.unwrap().ending(), "completed");

    let good = owner.policy().await.unwrap().digest;
    fs::write(lab.home().join("policies/bad.cedar"), "permit (").unwrap();
    let error = owner.reload().await.unwrap_err();
    let ClientError::Refused { status, error } = error else { panic!("{error}") };
    assert_eq!((status, error.code.as_str()), (422, "policies_invalid"));
    let after = owner.policy().await.unwrap();
    assert_eq!(after.digest, good);
    assert!(after.refused.unwrap().contains("bad.cedar"));
    let readiness = lab.stranger().readiness().await.unwrap();
    assert!(readiness.ready && readiness.checks.iter().any(|check| check.detail.contains("not in force")));
    // Both are journalled.
    let records = owner.records(&RecordQuery::default()).await.unwrap().records;
    let told: Vec<_> = records.iter().filter(|record| record.kind == "policy.reloaded").collect();
    assert_eq!(told.len(), 2);
    assert!(told[1].body.as_ref().unwrap()["refused"].as_str().unwrap().contains("bad.cedar"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reloads_at_once_never_mix_two_configurations() {
    let lab = DaemonLab::new();
    let path = lab.home().join("config.toml");
    let config = fs::read_to_string(&path).unwrap();
    for round in 0..10 {
        let preset = ["observe", "workspace"][round % 2];
        fs::write(lab.home().join("next"), format!("{config}\n[policy]\npreset = \"{preset}\"\n")).unwrap();
        fs::rename(lab.home().join("next"), &path).unwrap();
        let reloads: Vec<_> = (0..4)
            .map(|_| {
                let owner = lab.owner();
                tokio::spawn(async move { owner.reload().await })
            })
            .collect();
        for reload in reloads {
            reload.await.unwrap().unwrap();
        }
        let policy = lab.owner().policy().await.unwrap();
        assert_eq!(policy.preset, preset);
        assert!(policy.policies.iter().any(|one| one.id.starts_with(preset)), "{preset} is not in force");
    }
}

#[test]
fn a_credential_that_is_none_keeps_it_from_starting() {
    let mut lab = DaemonLab::new();
    lab.stop();
    let token = lab.home().join("identity/agent.token");
    let service = lab.agent_token().replace("plr_agent_", "plr_service_");
    for content in [String::new(), "x".to_owned(), service, "plr_".to_owned() + &"A".repeat(60_000)] {
        fs::write(&token, content).unwrap();
        let said = refused(&lab);
        assert!(said.contains("holds no credential of its own"), "{said}");
    }
}

#[tokio::test]
async fn a_configuration_that_cannot_be_used_changes_nothing() {
    let lab = DaemonLab::new();
    let owner = lab.owner();
    let path = lab.home().join("config.toml");
    let config = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("{config}\n[[workspace]]\nname = \"gone\"\npath = \"/no/such/place\"\n")).unwrap();
    let ClientError::Refused { status, error } = owner.reload().await.unwrap_err() else { panic!() };
    assert_eq!((status, error.code.as_str()), (422, "config_invalid"));
    assert_eq!(owner.workspaces().await.unwrap().workspaces.len(), 1);
    let second = lab.workspace().join("second");
    fs::create_dir(&second).unwrap();
    fs::write(&path, format!("{config}\n[[workspace]]\nname = \"second\"\npath = \"{}\"\n", second.display())).unwrap();
    owner.reload().await.unwrap();
    assert_eq!(owner.workspaces().await.unwrap().workspaces.len(), 2);
}

#[tokio::test]
async fn a_daemon_that_is_told_to_stop_lets_a_running_call_finish_and_keeps_accepted_ones() {
    let mut lab = DaemonPlan::default().policies("sleep.cedar", SLEEP).start();
    let agent = lab.agent();
    let running = tokio::spawn(async move { agent.propose(&command(["sleep", "0.7"]), None).await });
    let waiting = lab.agent().propose(&accepted(command(["true"])), None).await.unwrap();
    let owner = lab.owner();
    until_started(&owner).await;
    lab.signal("TERM");
    let finished = running.await.unwrap().unwrap();
    assert_eq!(finished.receipt.unwrap().ending(), "completed");
    assert!(lab.ended().success(), "{}", lab.log());
    lab.start();
    let owner = lab.owner();
    approve(&owner, &asked(&owner, 1).await[0]).await.unwrap();
    assert_eq!(over(&owner, waiting.id).await.receipt.unwrap().ending(), "completed");
    let kinds: Vec<_> =
        owner.records(&RecordQuery::default()).await.unwrap().records.into_iter().map(|record| record.kind).collect();
    assert_eq!(kinds.iter().filter(|kind| *kind == "daemon.started").count(), 2);
    assert_eq!(kinds.iter().filter(|kind| *kind == "daemon.stopped").count(), 1);
}

#[tokio::test]
async fn a_call_that_runs_too_long_is_ended_at_the_end_of_the_drain_and_attested() {
    let mut lab = DaemonPlan::default().policies("sleep.cedar", SLEEP).start();
    let agent = lab.agent();
    let running = tokio::spawn(async move { agent.propose(&command(["sleep", "60"]), None).await });
    until_started(&lab.owner()).await;
    assert!(lab.stop().success(), "{}", lab.log());
    let ended = running.await.unwrap().unwrap();
    assert_eq!(ended.receipt.unwrap().ending(), "cancelled");
}

#[tokio::test]
async fn whoever_hangs_up_withdraws_what_they_waited_for() {
    let lab = DaemonPlan::default().policies("sleep.cedar", SLEEP).start();
    let (owner, agent) = (lab.owner(), lab.agent());
    let asking = tokio::spawn(async move { agent.propose(&command(["true"]), None).await });
    let question = asked(&owner, 1).await.remove(0);
    asking.abort();
    let withdrawn = over(&owner, question.call).await;
    assert_eq!(withdrawn.refusal.unwrap().code, "cancelled");
    let agent = lab.agent();
    let running = tokio::spawn(async move { agent.propose(&command(["sleep", "60"]), None).await });
    let started = until_started(&owner).await;
    running.abort();
    assert_eq!(over(&owner, started).await.receipt.unwrap().ending(), "cancelled");
}

#[tokio::test]
async fn a_posture_that_is_set_holds_and_one_that_is_taken_away_does_not() {
    let lab = DaemonLab::new();
    let (owner, agent) = (lab.owner(), lab.agent());
    let list = tool("fs.list", json!({ "path": "." }));
    let disabled = palyra_api::tool::PostureSetting {
        layer: "global".to_owned(),
        key: String::new(),
        tool: list.tool.clone(),
        posture: palyra_types::Posture::Disabled,
    };
    owner.set_posture(&disabled).await.unwrap();
    assert_eq!(owner.postures().await.unwrap().postures, std::slice::from_ref(&disabled));
    let ClientError::Refused { error, .. } = agent.propose(&list, None).await.unwrap_err() else { panic!() };
    assert!(error.message.contains("baseline.posture-disabled"), "{}", error.message);
    let place = palyra_api::tool::PosturePlace { layer: "global".to_owned(), key: String::new(), tool: disabled.tool };
    owner.remove_posture(&place).await.unwrap();
    agent.propose(&list, None).await.unwrap();
    let ClientError::Refused { status, .. } = owner.remove_posture(&place).await.unwrap_err() else { panic!() };
    assert_eq!(status, 409);
}

async fn until_policies(owner: &palyra_client::Client, holds: impl Fn(String) -> bool) {
    for _ in 0..2_000 {
        if holds(owner.policy().await.unwrap().digest.to_string()) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("the policies do not change")
}

/// Waits until a call runs, and returns it.
async fn until_started(owner: &palyra_client::Client) -> palyra_types::id::CallId {
    let query = palyra_api::call::CallQuery { which: Some(palyra_api::call::CallSelection::Started), limit: None };
    for _ in 0..2_000 {
        if let Some(call) = owner.calls(&query).await.unwrap().calls.first() {
            return call.id;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("no call runs")
}
