//! The control listener, met by Python.

use std::{path::Path, process::Command};

use palyra_tests::daemon::DaemonPlan;
use serde_json::{Value, json};

use crate::tls::{curl::NO_READING, key_files::KeyFiles, program::run};

#[tokio::test]
async fn a_device_in_python_is_answered_and_follows_what_happens() {
    let lab = DaemonPlan::default().policies("no.cedar", NO_READING).start();
    let device = lab.device();
    let files = KeyFiles::of(&device);
    let identity = serde_json::to_value(lab.owner().identity().await.unwrap()).unwrap();
    let mut python = Command::new("python3");
    python.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tls/client.py")).arg(lab.control().port().to_string());
    python.args([files.certificate(), files.key(), files.authorities()]).arg(lab.agent_token());
    let ran = run(&mut python, "");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let answered = |version: &str| json!({ "version": version, "status": 200, "body": identity });
    let under_each_name = ["TLSv1.2", "TLSv1.3"].repeat(2).into_iter().map(answered).collect::<Vec<_>>();
    assert_eq!(
        serde_json::from_str::<Value>(&ran.out).unwrap(),
        json!({
            "identity": under_each_name,
            "denied": [403, "denied_by_policy"],
            "proposal": {
                "content-type": "text/event-stream",
                "tool": "fs.list",
                "device": device.device.to_string(),
            },
            "two credentials": [400, "two_credentials"],
            "no certificate": {
                "TLSv1.2": "TLSV13_ALERT_CERTIFICATE_REQUIRED",
                "TLSv1.3": "TLSV13_ALERT_CERTIFICATE_REQUIRED",
            },
        })
    );
}
