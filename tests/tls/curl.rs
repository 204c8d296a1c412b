//! The control listener, met by curl.

use std::process::Command;

use palyra_tests::daemon::{DaemonLab, DaemonPlan};
use serde_json::{Value, json};

use crate::tls::{
    key_files::KeyFiles,
    program::{Ran, run},
};

#[tokio::test]
async fn a_device_is_answered_under_each_name_of_the_daemon() {
    let lab = DaemonLab::new();
    let files = KeyFiles::of(&lab.device());
    let identity = serde_json::to_value(lab.owner().identity().await.unwrap()).unwrap();
    for host in ["127.0.0.1", "localhost"] {
        for version in [["--tlsv1.3", "--tls-max", "1.3"], ["--tlsv1.2", "--tls-max", "1.2"]] {
            let ran = run(as_device(&files, &version).arg(url(&lab, host, "/api/v1/identity")), "");
            assert_eq!(answer(&ran), (200, identity.clone()), "{host}, {version:?}");
        }
    }
}

#[test]
fn a_call_that_policy_forbids_is_denied() {
    let lab = DaemonPlan::default().policies("no.cedar", NO_READING).start();
    let files = KeyFiles::of(&lab.device());
    let body = json!({ "tool": "fs.list", "args": { "path": "." }, "workspace": "lab" }).to_string();
    let options = ["--header", "content-type: application/json", "--data", &body];
    let (status, told) = answer(&run(as_device(&files, &options).arg(url(&lab, "localhost", "/api/v1/calls")), ""));
    assert_eq!((status, &told["error"]["code"]), (403, &json!("denied_by_policy")), "{told}");
}

#[test]
fn who_shows_no_certificate_is_not_answered() {
    let lab = DaemonLab::new();
    let files = KeyFiles::of(&lab.device());
    let to = url(&lab, "localhost", "/healthz");
    let older = run(curl(&files).args(["--tls-max", "1.2"]).arg(&to), "");
    assert_eq!((older.code, older.out.as_str()), (Some(CERTIFICATE_WANTED), "\n000"), "{older:?}");
    assert!(older.err.contains("alert certificate required"), "{older:?}");
    // In TLS 1.3 a client learns of it only when it goes on, be it that it sends something or that it listens.
    let newer = run(curl(&files).arg(&to), "");
    assert!(matches!(newer.code, Some(NOT_SENT | NOT_RECEIVED)) && newer.out == "\n000", "{newer:?}");
}

#[test]
fn who_shows_a_token_besides_the_certificate_is_told_to_decide() {
    let lab = DaemonLab::new();
    let files = KeyFiles::of(&lab.device());
    let bearer = format!("authorization: Bearer {}", lab.agent_token());
    let ran = run(as_device(&files, &["--header", &bearer]).arg(url(&lab, "localhost", "/api/v1/identity")), "");
    let (status, told) = answer(&ran);
    assert_eq!((status, &told["error"]["code"]), (400, &json!("two_credentials")), "{told}");
}

#[test]
fn a_daemon_under_another_name_is_not_believed() {
    let lab = DaemonLab::new();
    let files = KeyFiles::of(&lab.device());
    let there = format!("elsewhere.test:{}:127.0.0.1", lab.control().port());
    let command = &mut as_device(&files, &["--resolve", &there]);
    let ran = run(command.arg(url(&lab, "elsewhere.test", "/healthz")), "");
    assert_eq!((ran.code, ran.out.as_str()), (Some(NOT_BELIEVED), "\n000"), "{ran:?}");
}

/// curl with nothing but what it is told here. The status stands behind the body, on a line of its own.
fn curl(files: &KeyFiles) -> Command {
    let mut command = Command::new("curl");
    command.args(["--disable", "--noproxy", "*", "--silent", "--show-error", "--write-out", "\\n%{http_code}"]);
    command.arg("--cacert").arg(files.authorities());
    command
}

fn as_device(files: &KeyFiles, options: &[&str]) -> Command {
    let mut command = curl(files);
    command.arg("--cert").arg(files.certificate()).arg("--key").arg(files.key()).args(options);
    command
}

fn url(lab: &DaemonLab, host: &str, path: &str) -> String {
    format!("https://{host}:{}{path}", lab.control().port())
}

fn answer(ran: &Ran) -> (u16, Value) {
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let (body, status) = ran.out.rsplit_once('\n').unwrap();
    (status.parse().unwrap(), serde_json::from_str(body).unwrap())
}

/// Reading is what agents and people may do unasked. Not here.
pub const NO_READING: &str = r#"
@id("no-reading") @why("there is nothing to see") forbid (principal, action == Palyra::Action::"fs.read", resource);
"#;

// How curl ends.
const NOT_SENT: i32 = 55;
const NOT_RECEIVED: i32 = 56;
const NOT_BELIEVED: i32 = 60;
const CERTIFICATE_WANTED: i32 = 98;
