//! What is refused before anything starts, and as what.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use std::{fs, os::unix::fs::symlink, path::Path};

use palyra_sandbox::{
    EgressHost, EgressPlan, Ended, Interpreters, ProcessPlan, SandboxProcessRunErrorKind as Kind, SandboxProcessRunner,
    egress::HostRule,
};
use palyra_types::{host::HostName, sandbox::EgressEnforcementMode};

use crate::lab::{self, Lab, absolute};

#[test]
fn all_of_this_holds_for_an_ordinary_user_too() {
    lab::again_as_an_ordinary_user(module_path!());
}

#[tokio::test]
async fn a_nul_anywhere_is_refused() {
    let lab = Lab::new();
    let plan = || lab.plan("/bin/true", &[]);
    let with_env = |name: &str, value: &str| {
        let mut plan = plan();
        plan.env.insert(name.to_owned(), value.to_owned());
        plan
    };
    let in_argument = ProcessPlan { args: vec!["a\0b".to_owned()], ..plan() };
    let in_name = ProcessPlan { argv0: Some("\0".to_owned()), ..plan() };
    for plan in
        [in_argument, in_name, with_env("A", "\0"), with_env("\0", "a"), with_env("", "a"), with_env("A=B", "c")]
    {
        assert_eq!(kind(&lab, &plan).await, Kind::InvalidInput, "{plan:?}");
    }
}

#[tokio::test]
async fn more_than_the_kernel_takes_is_refused() {
    let lab = Lab::new();
    let long = ProcessPlan { args: vec!["x".repeat(1 << 20)], ..lab.plan("/bin/true", &[]) };
    assert_eq!(kind(&lab, &long).await, Kind::InvalidInput);
    let huge = ProcessPlan { args: vec!["x".repeat(100_000); 200], ..lab.plan("/bin/true", &[]) };
    assert_eq!(kind(&lab, &huge).await, Kind::InvalidInput);
    let fitting = ProcessPlan { args: vec!["x".repeat(100_000); 15], ..lab.plan("/bin/true", &[]) };
    assert_eq!(lab.run(&fitting).await.ended, Ended::Exited(0));
}

#[tokio::test]
async fn a_working_directory_outside_the_workspace_is_refused_even_behind_a_link() {
    let lab = Lab::new();
    symlink("/etc", lab.workspace().join("link")).unwrap();
    fs::create_dir(lab.workspace().join("inner")).unwrap();
    symlink("inner", lab.workspace().join("within")).unwrap();
    fs::create_dir(lab.outside().join("workspace-2")).unwrap();
    let in_directory = |path: &Path| ProcessPlan { cwd: absolute(path), ..lab.plan("/bin/pwd", &[]) };
    for outside in [lab.workspace().join("link"), lab.outside(), lab.outside().join("workspace-2"), "/".into()] {
        assert_eq!(kind(&lab, &in_directory(&outside)).await, Kind::OutsideWorkspace, "{outside:?}");
    }
    assert_eq!(kind(&lab, &in_directory(&lab.workspace().join("missing"))).await, Kind::DirectoryUnusable);
    lab.file("file", "");
    assert_eq!(kind(&lab, &in_directory(&lab.workspace().join("file"))).await, Kind::DirectoryUnusable);
    let outcome = lab.run(&in_directory(&lab.workspace().join("within"))).await;
    assert_eq!(lab::text(&outcome.stdout.bytes).trim(), lab.workspace().join("inner").to_str().unwrap());
}

#[tokio::test]
async fn a_program_that_is_none_is_refused_by_kind() {
    let lab = Lab::new();
    let of = |path: &Path| lab.plan(path.to_str().unwrap(), &[]);
    assert_eq!(kind(&lab, &of("/no/such/program".as_ref())).await, Kind::ProgramNotFound);
    assert_eq!(kind(&lab, &of("/tmp".as_ref())).await, Kind::NotExecutable);
    assert_eq!(kind(&lab, &of(&lab.file("plain", "x"))).await, Kind::NotExecutable);
    assert_eq!(kind(&lab, &of(&lab.executable("nonsense", "\x7fELF nonsense"))).await, Kind::NotExecutable);
    assert_eq!(kind(&lab, &of(&lab.executable("empty", ""))).await, Kind::NotExecutable);
    symlink("/nowhere", lab.workspace().join("dangling")).unwrap();
    assert_eq!(kind(&lab, &of(&lab.workspace().join("dangling"))).await, Kind::ProgramNotFound);
}

#[tokio::test]
async fn interpreters_are_refused_by_any_name() {
    let lab = Lab::new();
    symlink("/bin/sh", lab.workspace().join("git")).unwrap();
    symlink("/bin/true", lab.workspace().join("bash")).unwrap();
    let script = lab.executable("script", "#!/bin/true\n");
    let link = lab.workspace().join("git");
    let link = link.to_str().unwrap();
    for (program, args) in [
        ("/bin/sh", &["-c", "true"][..]),
        ("/usr/bin/perl", &["-e", "1"]),
        (link, &[]),
        (lab.workspace().join("bash").to_str().unwrap(), &[]),
        (script.to_str().unwrap(), &[]),
        ("/usr/bin/env", &["bash", "-c", "true"]),
        ("/usr/bin/env", &["-S", "sh -c true"]),
        ("/usr/bin/env", &["A=1", "/usr/bin/perl"]),
        ("/usr/bin/env", &[link]),
        ("/usr/bin/timeout", &["1", "nice", "python3", "-c", ""]),
        ("/usr/bin/find", &[".", "-exec", "sh", "-c", "true", ";"]),
    ] {
        let plan = ProcessPlan { interpreters: Interpreters::Refuse, ..lab.plan(program, args) };
        assert_eq!(kind(&lab, &plan).await, Kind::InterpreterDenied, "{program} {args:?}");
        assert_eq!(lab.processes(), [0; 0]);
    }
}

#[tokio::test]
async fn programs_that_only_mention_interpreters_are_not_refused() {
    let lab = Lab::new();
    for (program, args) in [
        ("/bin/ls", &["-d", "/bin/sh"][..]),
        ("/usr/bin/find", &[".", "-name", "node"]),
        ("/usr/bin/env", &["true", "bashful"]),
        ("/bin/echo", &["bash"]),
    ] {
        let plan = ProcessPlan { interpreters: Interpreters::Refuse, ..lab.plan(program, args) };
        let mut plan = plan;
        plan.env.insert("PATH".to_owned(), lab::SEARCH_PATH.to_owned());
        assert_eq!(lab.run(&plan).await.ended, Ended::Exited(0), "{program} {args:?}");
    }
}

#[tokio::test]
async fn egress_is_checked_before_the_start_and_strict_is_not_claimed() {
    let lab = Lab::new();
    let host = |name: &str, port| EgressHost { host: HostName::parse(name).unwrap(), port };
    let rule = toml::from_str::<HostRule>("host = \"crates.io\"").unwrap();
    let runner = SandboxProcessRunner::new([rule]).unwrap();
    let plan = |mode, hosts| ProcessPlan { egress: EgressPlan { mode, hosts }, ..lab.plan("/bin/true", &[]) };
    let run = async |plan: ProcessPlan| {
        let running = runner.start(&plan, palyra_sandbox::RunInput::default()).await.map_err(|error| error.kind)?;
        Ok(running.outcome().await.ended)
    };
    let (none, preflight) = (EgressEnforcementMode::None, EgressEnforcementMode::Preflight);
    assert_eq!(run(plan(preflight, vec![host("Crates.io", 443)])).await, Ok(Ended::Exited(0)));
    assert_eq!(run(plan(preflight, vec![])).await, Ok(Ended::Exited(0)));
    assert_eq!(run(plan(preflight, vec![host("crates.io", 80)])).await, Err(Kind::EgressDenied));
    assert_eq!(run(plan(preflight, vec![host("crates.io", 443), host("x.org", 443)])).await, Err(Kind::EgressDenied));
    assert_eq!(run(plan(none, vec![host("x.org", 1)])).await, Ok(Ended::Exited(0)));
    assert_eq!(run(plan(EgressEnforcementMode::Strict, vec![])).await, Err(Kind::Unavailable));
}

#[test]
fn equal_plans_have_one_spelling() {
    let lab = Lab::new();
    let mut plan = lab.plan("/bin/true", &["a"]);
    plan.env.insert("A".to_owned(), "1".to_owned());
    let spelled = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::to_string(&plan.clone()).unwrap(), spelled);
    assert_eq!(serde_json::from_str::<ProcessPlan>(&spelled).unwrap(), plan);
    assert!(spelled.contains(r#""env":{"A":"1","MARK":"#), "{spelled}");
}

async fn kind(lab: &Lab, plan: &ProcessPlan) -> Kind {
    let error = lab.try_run(plan).await.unwrap_err();
    assert!(!error.to_string().is_empty() && !error.advice().is_empty());
    error.kind
}
