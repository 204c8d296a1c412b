//! A hidden directory is out of reach, for root too, and everything around it is not.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use std::{fs, os::unix::fs::symlink, time::Duration};

use palyra_sandbox::{Ended, Layer, ProcessPlan, SandboxProcessRunErrorKind};

use crate::lab::{self, Lab, absolute, text};

#[test]
fn all_of_this_holds_for_an_ordinary_user_too() {
    lab::again_as_an_ordinary_user(module_path!());
}

#[tokio::test]
async fn a_hidden_directory_cannot_be_read_listed_or_changed() {
    let lab = with_secret();
    let hidden = lab.outside().join("state");
    symlink(&hidden, lab.workspace().join("link")).unwrap();
    for attempt in [
        "cat $H/deep/secret",
        "ls $H",
        "ls $H/deep",
        "cat link/deep/secret",
        "cat /proc/self/root$H/deep/secret",
        "cd $H/deep && cat secret",
        "cat $H/../state/deep/secret",
        "echo x > $H/deep/secret",
        "echo x >> $H/deep/secret",
        "echo x > $H/new",
        "mkdir $H/new",
        "rm $H/deep/secret",
        "rm -r $H",
        "rmdir $H/empty",
        "mv $H moved",
        "mv $H/deep/secret .",
        "ln $H/deep/secret hard",
        "ln -s x $H/new",
        "mkfifo $H/new",
        "truncate -s 0 $H/deep/secret",
        "cp $H/deep/tool here",
        "$H/deep/tool",
        "tar cf - $H | grep -a secret-text",
    ] {
        let mut plan = lab.shell(attempt);
        plan.env.insert("H".to_owned(), hidden.to_str().unwrap().to_owned());
        plan.hidden = vec![absolute(&hidden)];
        let outcome = lab.run(&plan).await;
        assert!(outcome.layers.iter().any(|layer| matches!(layer, Layer::HiddenPaths { .. })), "needs Landlock 3");
        assert_ne!(outcome.ended, Ended::Exited(0), "{attempt}");
        assert!(!text(&outcome.stdout.bytes).contains("secret-text"), "{attempt}");
    }
    assert_eq!(fs::read_to_string(hidden.join("deep/secret")).unwrap(), "secret-text");
    let mut names: Vec<_> = fs::read_dir(&hidden).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["deep", "empty"]);
}

#[tokio::test]
async fn modes_can_be_changed_and_the_content_stays_hidden() {
    let lab = with_secret();
    let hidden = lab.outside().join("state");
    let script =
        "chmod 777 $H $H/deep/secret && stat -c %s:%a $H/deep/secret; cat $H/deep/secret; ls $H; echo x > $H/new";
    let mut plan = hiding(&lab, lab.shell(script));
    plan.env.insert("H".to_owned(), hidden.to_str().unwrap().to_owned());
    let outcome = lab.run(&plan).await;
    // Once this fails, Landlock has learnt to hold that back too, and what is said about it can go.
    assert_eq!(text(&outcome.stdout.bytes), "11:777\n", "{outcome:?}");
    assert_eq!(text(&outcome.stderr.bytes).matches("Permission denied").count(), 3, "{outcome:?}");
}

#[tokio::test]
async fn everything_else_can_still_be_used() {
    let lab = with_secret();
    let script = r#"set -e
        echo a > a; mkdir d; mv a d/a; ln d/a d/b; cat d/b; rm -r d; ls . >/dev/null; mkfifo f; rm f
        t=$(mktemp -d /var/tmp/hiding.XXXXXX); echo b > $t/b; cat $t/b; mv $t/b .; rm -r $t
        echo c > /dev/null; ls /usr >/dev/null; cat /etc/hostname >/dev/null; cat /proc/self/stat >/dev/null
        truncate -s 0 b; echo fine"#;
    let outcome = lab.run(&hiding(&lab, lab.shell(script))).await;
    assert_eq!((outcome.ended, text(&outcome.stdout.bytes)), (Ended::Exited(0), "a\nb\nfine\n"), "{outcome:?}");
}

#[tokio::test]
async fn rules_that_are_used_again_hide_as_much_and_know_new_neighbours() {
    let lab = with_secret();
    let (secret, neighbour) = (lab.outside().join("state/deep/secret"), lab.outside().join("neighbour"));
    for round in 0..40 {
        // Old enough, now and then, that rules from before are used.
        tokio::time::sleep(Duration::from_millis(if round % 10 == 5 { 50 } else { 0 })).await;
        let text_of_round = format!("{round}\n");
        if round % 10 == 0 {
            let _ = fs::remove_file(&neighbour);
        }
        fs::write(&neighbour, &text_of_round).unwrap();
        let (secret, neighbour) = (secret.display(), neighbour.display());
        let outcome = lab.run(&hiding(&lab, lab.shell(&format!("cat {neighbour}; cat {secret}")))).await;
        assert_eq!((outcome.ended, text(&outcome.stdout.bytes)), (Ended::Exited(1), &*text_of_round));
    }
}

#[tokio::test]
async fn files_in_tmp_can_be_made_when_what_is_hidden_lies_elsewhere() {
    let lab = Lab::new();
    let elsewhere = tempfile::tempdir_in("/var/tmp").unwrap();
    let mut plan = lab.shell("t=$(mktemp /tmp/hiding.XXXXXX) && echo x > $t && cat $t && ls /tmp >/dev/null && rm $t");
    plan.hidden = vec![absolute(elsewhere.path())];
    assert_eq!(text(&lab.run(&plan).await.stdout.bytes), "x\n");
}

#[tokio::test]
async fn several_directories_can_be_hidden_and_links_to_them_are_followed() {
    let lab = with_secret();
    fs::create_dir(lab.outside().join("other")).unwrap();
    fs::write(lab.outside().join("other/secret"), "secret-text").unwrap();
    symlink(lab.outside().join("other"), lab.outside().join("alias")).unwrap();
    let outside = lab.outside();
    let outside = outside.to_str().unwrap();
    let mut plan = lab.shell(&format!("cat {outside}/state/deep/secret {outside}/other/secret {outside}/alias/secret"));
    plan.hidden = vec![absolute(&lab.outside().join("state")), absolute(&lab.outside().join("alias"))];
    let outcome = lab.run(&plan).await;
    assert_eq!((outcome.ended, outcome.stdout.total), (Ended::Exited(1), 0));
    assert_eq!(text(&outcome.stderr.bytes).matches("Permission denied").count(), 3);
}

#[tokio::test]
async fn a_directory_that_does_not_exist_yet_is_hidden_when_it_does() {
    let lab = Lab::new();
    let later = lab.outside().join("later");
    let mut plan =
        lab.shell(&format!("mkdir {0}; while ! [ -d {0} ]; do sleep 0.01; done; cat {0}/secret", later.display()));
    plan.hidden = vec![absolute(&later)];
    let running = lab.start(&plan).await;
    fs::create_dir(&later).unwrap();
    fs::write(later.join("secret"), "secret-text").unwrap();
    assert_eq!(running.outcome().await.stdout.total, 0);
}

#[tokio::test]
async fn a_plan_that_hides_its_own_working_directory_is_refused() {
    let lab = Lab::new();
    for hidden in [lab.workspace(), lab.outside(), "/".into()] {
        let plan = ProcessPlan { hidden: vec![absolute(&hidden)], ..lab.plan("/bin/true", &[]) };
        assert_eq!(lab.try_run(&plan).await.unwrap_err().kind, SandboxProcessRunErrorKind::InvalidInput);
    }
}

/// A directory `state` beside the workspace, with something in it.
fn with_secret() -> Lab {
    let lab = Lab::new();
    let state = lab.outside().join("state");
    fs::create_dir_all(state.join("deep")).unwrap();
    fs::create_dir(state.join("empty")).unwrap();
    fs::write(state.join("deep/secret"), "secret-text").unwrap();
    fs::copy("/bin/true", state.join("deep/tool")).unwrap();
    lab
}

fn hiding(lab: &Lab, plan: ProcessPlan) -> ProcessPlan {
    ProcessPlan { hidden: vec![absolute(&lab.outside().join("state"))], ..plan }
}
