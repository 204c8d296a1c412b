//! Workspaces that lie in each other, and what programs of one could do to calls in another.

use std::{
    fs,
    time::{Duration, Instant},
};

use palyra_api::call::{Call, NewCall, Output};
use palyra_client::ClientError;
use palyra_tests::daemon::{accepted, over, tool};
use palyra_types::WorkspaceName;
use serde_json::json;

use crate::escape::{
    bench::{Bench, CANARY, Identity, plan},
    host,
};

const BOTH: [Identity; 2] = [Identity::Root, Identity::Ordinary];

/// A program of the outer workspace chose what the inner one was, from the next reload on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_in_one_workspace_chooses_no_other() {
    for identity in BOTH {
        let Some(mut bench) = Bench::new(identity) else { continue };
        let before = bench.host();
        let planted = said(&bench, "outer", "mv inner real && ln -s ../outside inner && echo done").await;
        assert_eq!(planted.as_deref(), Ok("done\n"));
        let refused = bench.lab.owner().reload().await.unwrap_err();
        let ClientError::Refused { error, .. } = refused else { panic!("{refused:?}") };
        assert!(error.message.contains("stands in a workspace, where a program could have put it"), "{error:?}");
        let answer = said(&bench, "inner", "cat secret; echo x > planted").await;
        assert!(answer.is_err(), "{answer:?}");
        // A daemon that starts anew does not fall for it either.
        assert!(bench.lab.stop().success());
        bench.lab.spawn();
        assert!(!bench.lab.ended().success());
        assert!(bench.lab.log().contains("could have put it"), "{}", bench.lab.log());
        let inner = bench.root().join("outer/inner");
        fs::remove_file(&inner).unwrap();
        fs::rename(bench.root().join("outer/real"), inner).unwrap();
        bench.lab.start();
        assert_eq!(said(&bench, "inner", "pwd; ls").await.unwrap().lines().count(), 1);
        assert_eq!(bench.host().changes(&before), Vec::<String>::new());
    }
}

/// What was to be read could be put elsewhere by programs of a workspace that holds it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_to_be_read_stays_the_one_that_was_configured() {
    for identity in BOTH {
        let Some(bench) = Bench::with(identity, plan().config("[sandbox.warm]\neach = 0")) else { continue };
        let tools = bench.root().join("outer/tools");
        let read = format!("cat {0}/tool {0}/secret", tools.display());
        assert_eq!(said(&bench, "lab", &format!("cat {}/tool", tools.display())).await.as_deref(), Ok("a tool\n"));
        for plant in ["ln -s ../outside tools", "mkdir tools && echo other > tools/tool"] {
            let planted = said(&bench, "outer", &format!("mv tools kept && {plant} && echo done")).await;
            assert_eq!(planted.as_deref(), Ok("done\n"));
            let answer = said(&bench, "lab", &read).await;
            let refusal = answer.unwrap_err();
            assert!(refusal.contains("not the directory that it was when the configuration was read"), "{refusal}");
            if tools.is_symlink() {
                assert!(bench.lab.owner().reload().await.is_err());
            }
            said(&bench, "outer", "rm -r tools; mv kept tools").await.unwrap();
        }
        assert_eq!(said(&bench, "lab", &format!("cat {}/tool", tools.display())).await.as_deref(), Ok("a tool\n"));
    }
}

/// An ordinary user has bubblewrap bind by paths, which may lead elsewhere by then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workspace_that_is_exchanged_while_it_is_mounted_is_none() {
    for identity in BOTH {
        let Some(bench) = Bench::with(identity, plan().config("[sandbox.warm]\neach = 0")) else { continue };
        let root = bench.root().to_owned();
        // By this link the working directory is there in both cases.
        let prepare = "mkdir -p inner/outer/d; ln -s inner/outer/d d; echo done";
        fs::copy(bench.lab.workspace().join("attacks"), root.join("outer/attacks")).unwrap();
        assert_eq!(said(&bench, "outer", prepare).await.as_deref(), Ok("done\n"));
        let swap = ["./attacks", "swap", "inner", root.to_str().unwrap(), "4", "4000"];
        let agent = bench.lab.agent();
        let racing =
            agent.propose(&accepted(call("outer", json!({ "command": swap, "tier": "c" }))), None).await.unwrap();
        let (begun, mut tries, mut met) = (Instant::now(), 0, 0);
        while begun.elapsed() < Duration::from_millis(3_500) {
            let line = format!("cat {}/outer/inner/outside/secret; ls -d .", root.display());
            let args = json!({ "command": ["/bin/sh", "-c", line], "cwd": "outer/d", "tier": "c" });
            let answer = format!("{:?}", agent.propose(&call("inner", args), None).await);
            assert!(!answer.contains(CANARY.trim()), "{answer}");
            met += usize::from(answer.contains("exit_code: Some(0)") || answer.contains("exit_code: Some(1)"));
            tries += 1;
        }
        println!("{identity:?}: {tries} tries, {met} of them ran");
        assert!(tries > 30, "{tries} tries are too few to show anything");
        over(&agent, racing.id).await;
    }
}

/// The cover of a state directory was left out where a program had closed the way to it while an enclosure was made.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_way_keeps_no_cover_from_the_state_directory() {
    for identity in BOTH {
        let Some(bench) = Bench::new(identity) else { continue };
        let token = bench.lab.home().join("identity/device.json");
        let mode = fs::metadata(&token).unwrap().permissions();
        for _ in 0..3 {
            // Enclosures for the next calls are made meanwhile.
            said(&bench, "above", "chmod 000 $PWD; sleep 0.4; chmod 755 $PWD").await.unwrap();
        }
        for _ in 0..4 {
            let open =
                "chmod 755 st''ate st''ate/identity 2>&1; chmod 644 st''ate/identity/device.json 2>&1; echo tried";
            let answer = said(&bench, "above", open).await.unwrap();
            assert!(answer.contains("Read-only file system") && answer.contains("Permission denied"), "{answer}");
        }
        assert_eq!(fs::metadata(&token).unwrap().permissions(), mode);
    }
}

/// One that was killed while it built left a process that waited for it for ever, and a call without an end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bubblewrap_that_is_killed_while_it_builds_leaves_nothing_and_holds_nobody_up() {
    for identity in BOTH {
        let Some(mut bench) = Bench::with(identity, plan().config("[sandbox.warm]\neach = 0")) else { continue };
        let (agent, daemon) = (bench.lab.agent(), bench.lab.pid());
        let (mut killed, mut unfinished) = (0, 0);
        for round in 0..40_u64 {
            let begun = Instant::now();
            let running = tokio::spawn({
                let (agent, call) = (agent.clone(), call("lab", json!({ "command": ["/bin/true"], "tier": "c" })));
                async move { agent.propose(&call, None).await }
            });
            while begun.elapsed() < Duration::from_millis(500) && !running.is_finished() {
                if let Some(pid) = host::children(daemon).into_iter().find(|pid| !host::children(*pid).is_empty()) {
                    std::thread::sleep(Duration::from_micros(round * 37 % 1_500));
                    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
                    killed += usize::from(rustix::process::kill_process(pid, rustix::process::Signal::KILL).is_ok());
                    break;
                }
            }
            let ended = tokio::time::timeout(Duration::from_secs(5), running).await;
            let ended = ended.unwrap_or_else(|_| panic!("{identity:?}: no end after {killed} kills")).unwrap();
            unfinished += usize::from(
                !ended.is_ok_and(|call| call.receipt.as_ref().is_some_and(|receipt| receipt.ending() == "completed")),
            );
        }
        println!("{identity:?}: {killed} killed, {unfinished} calls did not come to their end");
        assert!(unfinished > 0, "none was killed in time");
        assert!(bench.lab.stop().success());
        let begun = Instant::now();
        while !host::enclosed(bench.root()).is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(2), "left: {:?}", host::enclosed(bench.root()));
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_that_an_enclosure_has_of_its_own_is_no_workspace_of_it() {
    let plan = plan().config("[[workspace]]\nname = \"temporary\"\npath = \"/tmp\"");
    let Some(bench) = Bench::with(Identity::Root, plan) else { return };
    let refusal = said(&bench, "temporary", "ls").await.unwrap_err();
    assert!(refusal.contains("an enclosure has its own /tmp"), "{refusal}");
}

fn call(workspace: &str, args: serde_json::Value) -> NewCall {
    NewCall { workspace: Some(WorkspaceName::parse(workspace).unwrap()), ..tool("process.run", args) }
}

/// What a line of the shell prints in a workspace, or why it does not run.
async fn said(bench: &Bench, workspace: &str, line: &str) -> Result<String, String> {
    let args = json!({ "command": ["/bin/sh", "-c", line], "tier": "c" });
    match bench.lab.agent().propose(&call(workspace, args), None).await {
        Ok(Call { output: Some(Output::Process { stdout, stderr, .. }), .. }) => Ok(stdout.data + &stderr.data),
        Ok(call) => Err(format!("{:?}", call.receipt.map(|receipt| receipt.attestation))),
        Err(error) => Err(format!("{error:?}")),
    }
}
