//! Files of a skill: in the directories that it was granted, and nowhere else.
//!
//! Guarantees: a path is read as one of the granted directories and a way below it; what it really leads to must lie in that directory, and policy is
//! asked about that very path; it is then opened without following any link, so a swap in between fails.
//! Refuses: what is neither a file nor a directory. Does not: check a permit. It is for this crate, which does.

use std::{collections::BTreeMap, sync::Arc};

use palyra_package::FileAccess;
use palyra_skills::host::{FileEntry, FileKind, HostRefusal};
use palyra_types::{
    AbsolutePath,
    visible::{is_hidden, visible},
};

use crate::{
    tool::{IntendError, SkillDirectory},
    tools::{FileError, files as work},
    workspace::{Kind, Resolved, Workspace, WorkspaceError},
};

/// Whether policy lets a path be touched.
type May = Arc<dyn Fn(&AbsolutePath) -> bool + Send + Sync>;

/// The files that one call of a skill may use.
#[derive(Clone)]
pub(super) struct SkillFiles {
    pub(super) workspace: Option<Arc<Workspace>>,
    pub(super) directories: Arc<BTreeMap<String, SkillDirectory>>,
    pub(super) may_read: May,
    pub(super) may_write: May,
}

impl SkillFiles {
    /// The content of a file.
    pub(super) fn read(&self, path: &str, most: u64) -> Result<Vec<u8>, HostRefusal> {
        let place = self.place(path, FileAccess::Read)?;
        let found = self.existing(&place)?.file().map_err(|error| refused(path, &error))?;
        self.allowed(&found, FileAccess::Read)?;
        let content =
            work::read_whole(place.workspace, &found, most.saturating_add(1)).map_err(|error| failed(path, &error))?;
        if u64::try_from(content.len()).unwrap_or(u64::MAX) > most {
            return Err(HostRefusal::TooLarge(format!("`{}` is larger than {most} bytes", visible(path))));
        }
        Ok(content)
    }

    /// Makes or replaces a file.
    pub(super) fn write(&self, path: &str, content: Vec<u8>) -> Result<(), HostRefusal> {
        let place = self.place(path, FileAccess::Write)?;
        let (target, replaces) =
            work::destination(place.workspace, &place.asked).map_err(|error| refused_intent(path, &error))?;
        self.inside(&place, &target)?;
        self.allowed(&target, FileAccess::Write)?;
        work::write_whole(place.workspace, &target, replaces, &content).map_err(|error| failed(path, &error))
    }

    /// What is in a directory.
    pub(super) fn list(&self, path: &str) -> Result<Vec<FileEntry>, HostRefusal> {
        let place = self.place(path, FileAccess::Read)?;
        let found = self.existing(&place)?.directory().map_err(|error| refused(path, &error))?;
        self.allowed(&found, FileAccess::Read)?;
        let mut entries = Vec::new();
        let met = work::entries(place.workspace, &found, &|path| (self.may_read)(path))
            .map_err(|error| failed(path, &error))?;
        for (name, kind, size) in met {
            entries.push(FileEntry { name, kind: kind_of(kind), size });
            if entries.len() > MOST_ENTRIES {
                return Err(HostRefusal::TooLarge(format!("`{}` has more than {MOST_ENTRIES} entries", visible(path))));
            }
        }
        Ok(entries)
    }

    /// What is at a path.
    pub(super) fn stat(&self, path: &str) -> Result<FileEntry, HostRefusal> {
        let place = self.place(path, FileAccess::Read)?;
        let Resolved { path: real, kind, size } = self.existing(&place)?;
        self.allowed(&real, FileAccess::Read)?;
        Ok(FileEntry { name: real.file_name().to_owned(), kind: kind_of(kind), size })
    }

    /// Removes a file.
    pub(super) fn delete(&self, path: &str) -> Result<(), HostRefusal> {
        let place = self.place(path, FileAccess::Write)?;
        let found = self.existing(&place)?.file().map_err(|error| refused(path, &error))?;
        self.allowed(&found, FileAccess::Write)?;
        work::remove(place.workspace, &found).map_err(|error| failed(path, &error))
    }

    /// The granted directory that a path begins with, and what it asks for there.
    fn place<'a>(&'a self, path: &'a str, access: FileAccess) -> Result<Place<'a>, HostRefusal> {
        let (name, below) = path.split_once('/').unwrap_or((path, ""));
        let denied = |what: &str| Err(HostRefusal::Denied(format!("`{}` {what}", visible(name))));
        let Some(directory) = self.directories.get(name) else {
            return denied("is the name of no directory that was granted");
        };
        if directory.access < access {
            return denied("was granted for reading alone");
        }
        let Some(workspace) = self.workspace.as_deref() else {
            return Err(HostRefusal::Denied("the call has no workspace".to_owned()));
        };
        // A name that nobody can read is nothing to be left in somebody's workspace.
        if access == FileAccess::Write && below.chars().any(is_hidden) {
            return Err(HostRefusal::Invalid(format!("`{}` has hidden characters", visible(path))));
        }
        let below = if below.is_empty() { "." } else { below };
        let asked = workspace.locate(&directory.path, below).map_err(|error| refused(path, &error))?;
        if below.starts_with('/') || !asked.is_within(&directory.path) {
            return Err(HostRefusal::Denied(format!("`{}` leads out of its directory", visible(path))));
        }
        Ok(Place { workspace, directory: &directory.path, asked, named: path })
    }

    /// What is really there, if it lies in the directory.
    fn existing(&self, place: &Place<'_>) -> Result<Resolved, HostRefusal> {
        let found = place.workspace.resolve(place.asked.as_str()).map_err(|error| refused(place.named, &error))?;
        self.inside(place, &found.path)?;
        Ok(found)
    }

    fn inside(&self, place: &Place<'_>, real: &AbsolutePath) -> Result<(), HostRefusal> {
        match real.is_within(place.directory) {
            true => Ok(()),
            false => Err(HostRefusal::Denied("a link leads out of the directory".to_owned())),
        }
    }

    fn allowed(&self, path: &AbsolutePath, access: FileAccess) -> Result<(), HostRefusal> {
        let (may, what) = match access {
            FileAccess::Read => (&self.may_read, "read"),
            FileAccess::Write => (&self.may_write, "written"),
        };
        match may(path) {
            true => Ok(()),
            false => Err(HostRefusal::Denied(format!("policy does not let `{}` be {what}", visible(path.file_name())))),
        }
    }
}

/// Where a path leads to.
struct Place<'a> {
    workspace: &'a Workspace,
    directory: &'a AbsolutePath,
    asked: AbsolutePath,
    /// As the skill says it.
    named: &'a str,
}

const fn kind_of(kind: Kind) -> FileKind {
    match kind {
        Kind::File => FileKind::File,
        Kind::Directory => FileKind::Directory,
        _ => FileKind::Other,
    }
}

/// A skill is told what it asked for and what is wrong with that, and nothing of where its directories are.
fn refused(path: &str, error: &WorkspaceError) -> HostRefusal {
    let said = |what: &str| format!("`{}` {what}", visible(path));
    match error {
        WorkspaceError::Absent(_) => HostRefusal::Absent(said("does not exist")),
        WorkspaceError::NotAFile { kind, .. } => HostRefusal::Invalid(said(&format!("is a {kind}, not a file"))),
        WorkspaceError::NotADirectory { kind, .. } => {
            HostRefusal::Invalid(said(&format!("is a {kind}, not a directory")))
        }
        WorkspaceError::Path(_) => HostRefusal::Invalid(said("is no path without `..`")),
        WorkspaceError::LeadsOut(_) => HostRefusal::Denied(said("leads out of the workspace")),
        WorkspaceError::Changed(_) => HostRefusal::Failed(said("changed while it was looked at")),
        _ => HostRefusal::Denied(said("cannot be used")),
    }
}

fn refused_intent(path: &str, error: &IntendError) -> HostRefusal {
    match error {
        IntendError::Workspace(error) => refused(path, error),
        IntendError::NoDirectory(_) => {
            HostRefusal::Absent(format!("the directory of `{}` does not exist", visible(path)))
        }
        _ => HostRefusal::Invalid(format!("`{}` cannot be written", visible(path))),
    }
}

fn failed(path: &str, error: &FileError) -> HostRefusal {
    match error {
        FileError::Workspace(error) => refused(path, error),
        _ => HostRefusal::Failed(format!("`{}` cannot be used", visible(path))),
    }
}

/// How many entries of a directory a skill is told.
const MOST_ENTRIES: usize = 10_000;
