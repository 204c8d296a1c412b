//! The way to a directory that the operator named.
//!
//! Guarantees: links on it are followed, as the operator may have meant them, but none that stands in a workspace: programs can put links there,
//! and would choose what is mounted for the next call. What is returned has no link on it.
//! Does not: open anything. Whoever opens what is returned follows no link, so that nothing can come in between.

use std::{
    io,
    path::{Component, Path, PathBuf},
};

use palyra_types::AbsolutePath;

use crate::workspace::WorkspaceError;

/// Where a path really leads, given the roots of workspaces in which no link on the way may stand.
pub(crate) fn follow(path: &AbsolutePath, workspaces: &[AbsolutePath]) -> Result<AbsolutePath, WorkspaceError> {
    let mut here = PathBuf::from("/");
    let mut ahead: Vec<PathBuf> = backwards(Path::new(path.as_str()));
    let mut links = 0;
    while let Some(step) = ahead.pop() {
        if step.as_os_str() == ".." {
            here.pop();
            continue;
        }
        let next = here.join(&step);
        match std::fs::read_link(&next) {
            Ok(target) => {
                links += 1;
                if links > MOST_LINKS {
                    return Err(WorkspaceError::Loop(path.to_string()));
                }
                if workspaces.iter().any(|root| next.starts_with(root.as_str())) {
                    return Err(WorkspaceError::LinkInWorkspace(next.to_string_lossy().into_owned()));
                }
                if target.is_absolute() {
                    here = PathBuf::from("/");
                }
                ahead.extend(backwards(&target));
            }
            // What is no link is said to be no good argument.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => here = next,
            Err(error) => return Err(WorkspaceError::from_io(path.as_str(), &error)),
        }
    }
    let real = here.to_str().ok_or_else(|| WorkspaceError::NotUnicode(path.to_string()))?;
    Ok(AbsolutePath::parse(real)?)
}

/// The steps of a path, the first one last.
fn backwards(path: &Path) -> Vec<PathBuf> {
    let step = |component: Component<'_>| match component {
        Component::Normal(name) => Some(PathBuf::from(name)),
        Component::ParentDir => Some(PathBuf::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().rev().filter_map(step).collect()
}

/// As many as the kernel follows.
const MOST_LINKS: usize = 40;

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    fn path(of: &Path) -> AbsolutePath {
        AbsolutePath::parse(of.to_str().unwrap()).unwrap()
    }

    #[test]
    fn links_of_the_operator_are_followed_as_the_kernel_does() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("data/project/src")).unwrap();
        symlink("data", root.join("short")).unwrap();
        symlink(root.join("short/project"), root.join("long")).unwrap();
        symlink("../project/./src", root.join("data/project/up")).unwrap();
        for asked in ["data/project", "short/project", "long", "long/src", "long/up", "data/project/up"] {
            let asked = root.join(asked);
            assert_eq!(follow(&path(&asked), &[]), Ok(path(&asked.canonicalize().unwrap())), "{asked:?}");
        }
        symlink("b", root.join("a")).unwrap();
        symlink("a", root.join("b")).unwrap();
        assert!(matches!(follow(&path(&root.join("a")), &[]), Err(WorkspaceError::Loop(_))));
        assert!(matches!(follow(&path(&root.join("none")), &[]), Err(WorkspaceError::Absent(_))));
    }

    /// A program of the outer workspace could choose the inner one.
    #[test]
    fn a_link_in_a_workspace_leads_nowhere() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("outer/real")).unwrap();
        symlink("/etc", root.join("outer/inner")).unwrap();
        symlink(root.join("outer"), root.join("to-outer")).unwrap();
        let outer = [path(&root.join("outer"))];
        for asked in ["outer/inner", "to-outer/inner", "outer/inner/ssh"] {
            let answer = follow(&path(&root.join(asked)), &outer);
            assert!(matches!(answer, Err(WorkspaceError::LinkInWorkspace(_))), "{asked}: {answer:?}");
        }
        assert_eq!(follow(&path(&root.join("to-outer/real")), &outer), Ok(path(&root.join("outer/real"))));
    }
}
