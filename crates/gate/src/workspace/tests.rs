//! The workspace, attacked: ways out of it, and swaps in a race.

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use super::*;

/// Ends the other side of a race, also when this side fails.
pub(crate) struct Ends<'a>(pub(crate) &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn absolute(path: &Path) -> AbsolutePath {
    AbsolutePath::parse(path.to_str().unwrap()).unwrap()
}

fn open(path: &Path, state: &Path) -> Result<Workspace, WorkspaceError> {
    Workspace::open(WorkspaceName::parse("main").unwrap(), &absolute(path), &absolute(state))
}

#[test]
fn the_whole_machine_and_the_state_directory_are_no_workspaces() {
    let place = tempfile::tempdir().unwrap();
    let real = fs::canonicalize(place.path()).unwrap();
    fs::create_dir_all(real.join("state/policies")).unwrap();
    symlink(real.join("state"), real.join("alias")).unwrap();
    symlink("/", real.join("root")).unwrap();
    let state = real.join("state");
    assert_eq!(open(Path::new("/"), &state).unwrap_err(), WorkspaceError::WholeMachine);
    assert_eq!(open(&real.join("root"), &state).unwrap_err(), WorkspaceError::WholeMachine);
    for inside in ["state", "state/policies", "alias", "alias/policies"] {
        assert!(matches!(open(&real.join(inside), &state), Err(WorkspaceError::InsideState(_))), "{inside}");
        assert!(
            matches!(open(&real.join(inside), &real.join("alias")), Err(WorkspaceError::InsideState(_))),
            "{inside}"
        );
    }
    assert!(matches!(open(&real.join("absent"), &state), Err(WorkspaceError::Absent(_))));
    fs::write(real.join("file"), "").unwrap();
    assert!(open(&real.join("file"), &state).is_err());
}

#[test]
fn a_workspace_knows_its_real_path_and_hides_a_state_directory_that_does_not_exist_yet() {
    let place = tempfile::tempdir().unwrap();
    let real = fs::canonicalize(place.path()).unwrap();
    fs::create_dir(real.join("work")).unwrap();
    symlink("work", real.join("alias")).unwrap();
    let workspace = open(&real.join("alias"), &real.join("alias/later/state")).unwrap();
    assert_eq!(workspace.root(), &absolute(&real.join("work")));
    fs::create_dir_all(real.join("work/later/state")).unwrap();
    assert!(workspace.resolve("later").is_ok());
    assert_eq!(workspace.resolve("later/state"), Err(WorkspaceError::Absent("later/state".to_owned())));
}

#[test]
fn a_name_that_looks_deleted_is_a_name_and_a_moved_workspace_is_noticed() {
    let place = tempfile::tempdir().unwrap();
    let real = fs::canonicalize(place.path()).unwrap();
    fs::create_dir(real.join("work")).unwrap();
    fs::write(real.join("work/x (deleted)"), "").unwrap();
    let workspace = open(&real.join("work"), &real.join("state")).unwrap();
    assert_eq!(workspace.resolve("x (deleted)").unwrap().path, absolute(&real.join("work/x (deleted)")));
    fs::rename(real.join("work"), real.join("moved")).unwrap();
    assert!(matches!(workspace.resolve("x (deleted)"), Err(WorkspaceError::Changed(_))));
    fs::remove_dir_all(real.join("moved")).unwrap();
    assert!(workspace.resolve("x (deleted)").is_err());
}

/// The kernel tells the path of a deleted entry as `x (deleted)`, which is the name of another file here.
#[test]
fn a_file_that_is_deleted_meanwhile_never_lends_its_name_to_another() {
    let place = tempfile::tempdir().unwrap();
    let real = fs::canonicalize(place.path()).unwrap();
    fs::write(real.join("x (deleted)"), "another").unwrap();
    let workspace = open(&real, Path::new("/nonexistent-state")).unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                fs::write(real.join("x"), "x").unwrap();
                fs::remove_file(real.join("x")).unwrap();
            }
        });
        let _end = Ends(&done);
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(1) {
            if let Ok(found) = workspace.resolve("x") {
                assert_eq!(found.path, absolute(&real.join("x")));
            }
        }
    });
}
