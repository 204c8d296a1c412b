//! The files that the command of a server names, and that its program may not see.
//!
//! Does not: know which directories the daemon's configuration adds to what programs see. It names what is worth a look once a server cannot
//! be spoken with.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

/// The first file of this machine that a command names, and that is neither the system's nor in the workspace.
pub(super) fn unseen(command: &[String], workspace: Option<&Path>) -> Option<PathBuf> {
    // A program sees its workspace, and works there.
    let workspace = workspace.and_then(|path| fs::canonicalize(path).ok());
    let base = workspace.clone().or_else(|| env::current_dir().ok())?;
    let (program, arguments) = command.split_first()?;
    // One without a directory is found by the daemon, where its configuration says.
    let program = program.contains('/').then(|| base.join(program));
    let arguments = arguments.iter().map(|word| base.join(word));
    let files = program.into_iter().chain(arguments).filter_map(|path| fs::canonicalize(path).ok());
    let is_seen = |path: &PathBuf| {
        SYSTEM.iter().any(|directory| path.starts_with(directory))
            || workspace.as_ref().is_some_and(|workspace| path.starts_with(workspace))
    };
    files.filter(|path| path.is_file()).find(|path| !is_seen(path))
}

/// What every program sees.
const SYSTEM: [&str; 5] = ["/usr", "/bin", "/sbin", "/lib", "/lib64"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_outside_of_the_workspace_and_the_system_is_named() {
        let (inside, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let file = |directory: &Path| {
            let file = directory.join("server.py");
            fs::write(&file, "").unwrap();
            fs::canonicalize(file).unwrap()
        };
        let (own, other) = (file(inside.path()), file(outside.path()));
        let of = |words: &[&str], workspace: Option<&Path>| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            unseen(&words, workspace)
        };
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        assert_eq!(of(&["/usr/bin/env", text(&other).as_str()], Some(inside.path())), Some(other.clone()));
        assert_eq!(of(&["/usr/bin/env", text(&own).as_str()], None), Some(own.clone()));
        assert_eq!(of(&[text(&other).as_str()], None), Some(other));
        assert_eq!(of(&["/usr/bin/env", text(&own).as_str()], Some(inside.path())), None);
        assert_eq!(of(&["/usr/bin/env", "server.py", "--stdio"], Some(inside.path())), None);
        assert_eq!(of(&["/usr/bin/env", "/nowhere/server.py"], None), None);
        assert_eq!(of(&[], None), None);
    }
}
