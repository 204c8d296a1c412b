//! The daemon against its own description: schemathesis makes up requests that fit `/openapi.json`, and some that do not, and looks whether
//! every answer is one that the description names.
//!
//! What it may make up is kept harmless by `tests/schemathesis/hooks.py`. The tool comes from `scripts/setup`, and the test fails without it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "what cannot be set up ends the test")]

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use palyra_api::{member::SetFlag, token::NewToken};
use palyra_tests::{
    daemon::{DaemonLab, accepted, command},
    token::token,
};

#[tokio::test]
async fn what_the_owner_is_answered_is_what_is_described() {
    let lab = DaemonLab::new();
    for flag in lab.owner().flags().await.unwrap().flags {
        lab.owner().set_flag(&flag.name, &SetFlag { on: true }).await.unwrap();
    }
    // A token of theirs that may be used for everything: a session of the console would be ended on the way.
    let new = NewToken {
        name: "schemathesis".to_owned(),
        scopes: lab.owner().scopes().await.unwrap().scopes.into_iter().map(|scope| scope.name).collect(),
        per_minute: Some(100_000),
        ..token("user:owner", &[])
    };
    let minted = lab.owner().mint_token(&new).await.unwrap();
    try_as(&lab, &minted.secret).await;
}

#[tokio::test]
async fn what_an_agent_is_answered_is_what_is_described() {
    let lab = DaemonLab::new();
    try_as(&lab, &lab.agent_token()).await;
}

async fn try_as(lab: &DaemonLab, bearer: &str) {
    let waiting = lab.agent().propose(&accepted(command(["true"])), None).await.unwrap();
    let (call, run, approval) = (waiting.id, waiting.run, waiting.approval.unwrap());
    let (tool, files) = (schemathesis(), Path::new(env!("CARGO_MANIFEST_DIR")).join("schemathesis"));
    let scratch = tempfile::tempdir().unwrap();
    #[expect(clippy::disallowed_methods, reason = "a test starts the tool that tries the daemon")]
    let output = Command::new(tool)
        .arg("--config-file")
        .arg(files.join("schemathesis.toml"))
        .arg("run")
        .arg(format!("http://{}/openapi.json", lab.local()))
        // It keeps notes where it is started.
        .current_dir(scratch.path())
        .env("PYTHONPATH", &files)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("PALYRA_BEARER", bearer)
        .env("PALYRA_CALL", call.to_string())
        .env("PALYRA_RUN", run.to_string())
        .env("PALYRA_APPROVAL", approval.to_string())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}\n{}", String::from_utf8_lossy(&output.stdout), lab.log());
}

/// The program in the environment that `scripts/setup` makes in the target directory, which this test was built in.
fn schemathesis() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let found = test
        .ancestors()
        .map(|directory| directory.join("schemathesis-venv/bin/schemathesis"))
        .find(|path| path.exists());
    found.expect("schemathesis is missing: run `scripts/setup`")
}
