//! `fs.write`: creates, replaces or extends a file of the workspace.
//!
//! Guarantees: readers see the old content or the new, never a mixture; a file is replaced by another one, so nothing is written
//! through a hard link; permission bits stay, set-id bits never do; what was decided about is what is written: a link or a
//! file that appeared meanwhile makes it fail. Does not keep extended attributes.

use std::{
    fs::File,
    io::Write,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::atomic::{AtomicU64, Ordering},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use palyra_policy::Touch;
use palyra_types::{AbsolutePath, JsonError, JsonObject, Sha256Digest, ToolMetadata};
use rustix::{
    fs::{
        AtFlags, Gid, Mode, OFlags, RawMode, RenameFlags, Stat, Uid, fchmod, fchown, fstat, fsync, mkdirat, openat,
        renameat, renameat_with, statat, unlinkat,
    },
    io::Errno,
    process::geteuid,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    files::{FileError, Heed, read_some},
    read,
};
use crate::{
    tool::{FileWork, IntendError, Intent, Place, Tool, ToolDefinition, Work},
    workspace::{Kind, Workspace, WorkspaceError},
};

pub(super) struct FsWrite(ToolDefinition);

impl FsWrite {
    pub(super) fn new(metadata: ToolMetadata) -> Result<Self, JsonError> {
        let schema = json!({
            "type": "object",
            "properties": {
                "path": { "type": "string", "minLength": 1, "description": "The file, relative to the workspace." },
                "content": { "type": "string", "description": "What to write." },
                "encoding": { "enum": ["utf-8", "base64"], "description": "How `content` is encoded; utf-8 if left out." },
                "mode": { "enum": ["create", "replace", "append"], "description": "`create` refuses a file that exists; `replace`, the default, and `append` create one that does not." },
                "make_directories": { "type": "boolean", "description": "Makes the directories on the way to the file." }
            },
            "required": ["path", "content"],
            "additionalProperties": false
        });
        let description =
            "Writes a file of the workspace as a whole: others see the old content or the new, never a mixture.";
        ToolDefinition::new(metadata, description, schema).map(Self)
    }
}

palyra_types::words! {
    enum WriteMode ("mode") {
        Create = "create",
        Replace = "replace",
        Append = "append",
    }
}

palyra_types::words! {
    enum Encoding ("encoding") {
        Utf8 = "utf-8",
        Base64 = "base64",
    }
}

impl Tool for FsWrite {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn intend(&self, args: &JsonObject, place: &Place<'_>) -> Result<Intent, IntendError> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Args<'a> {
            path: &'a str,
            content: &'a str,
            encoding: Option<Encoding>,
            mode: Option<WriteMode>,
            #[serde(default)]
            make_directories: bool,
        }
        let Args { path: text, content, encoding, mode, make_directories } = read(args)?;
        let mode = mode.unwrap_or(WriteMode::Replace);
        let content = match encoding.unwrap_or(Encoding::Utf8) {
            Encoding::Utf8 => content.as_bytes().to_vec(),
            Encoding::Base64 => STANDARD.decode(content).map_err(|_| IntendError::NotBase64)?,
        };
        let workspace = place.workspace()?;
        let (path, directories, replaces) = match destination(workspace, text, make_directories) {
            // Somebody may have made the file between two looks at it; a link that leads to nothing is there at the second time, too.
            Err(IntendError::Workspace(WorkspaceError::DanglingLink(_))) => {
                destination(workspace, text, make_directories)?
            }
            found => found?,
        };
        if replaces && mode == WriteMode::Create {
            return Err(IntendError::Exists(path));
        }
        let written = directories.iter().chain([&path]);
        Ok(Intent {
            touches: written.cloned().map(Touch::Write).collect(),
            work: Work::Files(FileWork::Write {
                replaces,
                appends: mode == WriteMode::Append,
                directories,
                content_sha256: Sha256Digest::of(&content),
                content,
                path,
            }),
        })
    }
}

/// The real path of a file that is to be written, the directories to be made for it, and whether it is there already.
pub(super) fn destination(
    workspace: &Workspace,
    text: &str,
    make_directories: bool,
) -> Result<(AbsolutePath, Vec<AbsolutePath>, bool), IntendError> {
    match workspace.resolve(text) {
        Ok(found) => Ok((found.file()?, Vec::new(), true)),
        Err(WorkspaceError::Absent(_)) => {
            let (path, directories) = place_for_new(workspace, text, make_directories)?;
            Ok((path, directories, false))
        }
        Err(error) => Err(error.into()),
    }
}

/// The real path of a file that is to be created, and the directories to be made for it, outermost first.
fn place_for_new(
    workspace: &Workspace,
    text: &str,
    make_directories: bool,
) -> Result<(AbsolutePath, Vec<AbsolutePath>), IntendError> {
    let asked = workspace.locate(workspace.root(), text)?;
    if workspace.is_hidden(&asked) {
        return Err(WorkspaceError::Denied(text.to_owned()).into());
    }
    let mut missing = vec![asked.file_name()];
    for ancestor in asked.ancestors() {
        let parent = match workspace.resolve(ancestor) {
            Ok(found) => found.directory()?,
            Err(WorkspaceError::Absent(_)) if ancestor != workspace.root().as_str() => {
                missing.push(ancestor.rsplit('/').next().unwrap_or_default());
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        // SECURITY: what resolves to nothing may still be a link that leads to nothing yet.
        if let Some(first) = missing.last()
            && statat(&workspace.open_directory(&parent)?, *first, AtFlags::SYMLINK_NOFOLLOW).is_ok()
        {
            return Err(WorkspaceError::DanglingLink(text.to_owned()).into());
        }
        let mut paths = Vec::new();
        let mut path = parent;
        for name in missing.iter().rev() {
            path = path.join(name)?;
            paths.push(path.clone());
        }
        let file = paths.pop().unwrap_or(path);
        if workspace.is_hidden(&file) {
            return Err(WorkspaceError::Denied(text.to_owned()).into());
        }
        return if paths.is_empty() || make_directories {
            Ok((file, paths))
        } else {
            Err(IntendError::NoDirectory(text.to_owned()))
        };
    }
    Err(WorkspaceError::Absent(text.to_owned()).into())
}

/// A file to write.
pub(super) struct Task<'a> {
    pub(super) path: &'a AbsolutePath,
    pub(super) replaces: bool,
    pub(super) appends: bool,
    pub(super) directories: &'a [AbsolutePath],
    pub(super) content: &'a [u8],
}

pub(super) fn perform(task: &Task<'_>, workspace: &Workspace, heed: Heed<'_>) -> Result<Value, FileError> {
    let _writing = workspace.writing();
    heed.go_on()?;
    let Task { path, replaces, directories, .. } = *task;
    let changed = || FileError::from(WorkspaceError::Changed(path.clone()));
    for directory in directories {
        make_directory(workspace, directory)?;
    }
    let parent = open_parent(workspace, path)?;
    let old = match statat(&parent, path.file_name(), AtFlags::SYMLINK_NOFOLLOW) {
        Ok(status) if replaces && Kind::of(&status) == Kind::File => Some(status),
        Err(Errno::NOENT) if !replaces => None,
        _ => return Err(changed()),
    };
    let mut content = if task.appends && replaces { old_content(workspace, path, heed)? } else { Vec::new() };
    content.extend_from_slice(task.content);

    let scratch = Scratch::create(parent.as_fd(), path)?;
    scratch.fill(&content, old.as_ref())?;
    scratch.become_file(path.file_name(), replaces).map_err(|errno| match errno {
        Errno::EXIST => changed(),
        errno => FileError::errno(path, errno),
    })?;
    fsync(&parent).map_err(|errno| FileError::errno(path, errno))?;
    Ok(json!({
        "path": path, "created": !replaces, "bytes_written": task.content.len(), "size": content.len(),
        "sha256": Sha256Digest::of(&content),
    }))
}

/// Removes a file. A link in its place is not it.
pub(super) fn remove(workspace: &Workspace, path: &AbsolutePath) -> Result<(), FileError> {
    let _writing = workspace.writing();
    let parent = open_parent(workspace, path)?;
    let failed = |errno: Errno| FileError::errno(path, errno);
    let status = statat(&parent, path.file_name(), AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
    if Kind::of(&status) != Kind::File {
        return Err(WorkspaceError::Changed(path.clone()).into());
    }
    unlinkat(&parent, path.file_name(), AtFlags::empty()).map_err(failed)?;
    fsync(&parent).map_err(failed)
}

fn make_directory(workspace: &Workspace, directory: &AbsolutePath) -> Result<(), FileError> {
    let failed = |errno: Errno| FileError::errno(directory, errno);
    let parent = open_parent(workspace, directory)?;
    mkdirat(&parent, directory.file_name(), Mode::from_raw_mode(0o777)).map_err(|errno| match errno {
        // It was absent when it was judged; whoever made it may have made it a link.
        Errno::EXIST => WorkspaceError::Changed(directory.clone()).into(),
        errno => failed(errno),
    })?;
    let made = workspace.open_directory(directory)?;
    give_to_owner(made.as_fd(), &fstat(&parent).map_err(failed)?).map_err(failed)
}

fn open_parent(workspace: &Workspace, path: &AbsolutePath) -> Result<OwnedFd, FileError> {
    let parent = AbsolutePath::parse(path.ancestors().next().unwrap_or("/")).map_err(WorkspaceError::from)?;
    Ok(workspace.open_directory(&parent)?)
}

fn old_content(workspace: &Workspace, path: &AbsolutePath, heed: Heed<'_>) -> Result<Vec<u8>, FileError> {
    let (mut file, status) = workspace.open_file(path)?;
    let size = u64::try_from(status.st_size).unwrap_or(u64::MAX);
    let too_large = |size| FileError::TooLarge { path: path.clone(), size, limit: APPENDABLE };
    if size > APPENDABLE {
        return Err(too_large(size));
    }
    let content = read_some(&mut file, APPENDABLE.saturating_add(1), path, heed)?;
    match u64::try_from(content.len()) {
        Ok(length) if length <= APPENDABLE => Ok(content),
        _ => Err(too_large(size)),
    }
}

/// A file under a name of its own, which is removed unless it takes the place of another.
struct Scratch<'a> {
    directory: BorrowedFd<'a>,
    path: &'a AbsolutePath,
    name: String,
    file: File,
}

impl<'a> Scratch<'a> {
    fn create(directory: BorrowedFd<'a>, path: &'a AbsolutePath) -> Result<Self, FileError> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        for _ in 0..TRIES {
            let number = SCRATCH.fetch_add(1, Ordering::Relaxed);
            let name = format!(".palyra-{}-{number}.tmp", std::process::id());
            match openat(directory, name.as_str(), flags, Mode::from_raw_mode(0o666)) {
                Ok(file) => return Ok(Self { directory, path, name, file: file.into() }),
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(FileError::errno(path, errno)),
            }
        }
        Err(FileError::errno(path, Errno::EXIST))
    }

    fn fill(&self, content: &[u8], old: Option<&Stat>) -> Result<(), FileError> {
        let failed = |errno: Errno| FileError::errno(self.path, errno);
        if old.is_some() {
            // Nobody reads the new content who could not read the old.
            fchmod(&self.file, Mode::from_raw_mode(0o600)).map_err(failed)?;
        }
        (&self.file).write_all(content).map_err(|error| FileError::io(self.path, &error))?;
        match old {
            Some(old) => {
                give_to_owner(self.file.as_fd(), old).map_err(failed)?;
                fchmod(&self.file, Mode::from_raw_mode(old.st_mode & PERMISSIONS)).map_err(failed)?;
            }
            None => give_to_owner(self.file.as_fd(), &fstat(self.directory).map_err(failed)?).map_err(failed)?,
        }
        fsync(&self.file).map_err(failed)
    }

    fn become_file(mut self, name: &str, replaces: bool) -> Result<(), Errno> {
        if replaces {
            renameat(self.directory, self.name.as_str(), self.directory, name)?;
        } else {
            renameat_with(self.directory, self.name.as_str(), self.directory, name, RenameFlags::NOREPLACE)?;
        }
        self.name.clear();
        Ok(())
    }
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        if !self.name.is_empty() {
            // There is nobody left to tell.
            let _ = unlinkat(self.directory, self.name.as_str(), AtFlags::empty());
        }
    }
}

/// A daemon that runs as root leaves files to whoever owns the old one or the directory, not to root.
fn give_to_owner(file: BorrowedFd<'_>, like: &Stat) -> Result<(), Errno> {
    if !geteuid().is_root() {
        return Ok(());
    }
    fchown(file, Some(Uid::from_raw(like.st_uid)), Some(Gid::from_raw(like.st_gid)))
}

static SCRATCH: AtomicU64 = AtomicU64::new(0);

/// How many names are tried for a scratch file.
const TRIES: usize = 16;

/// Read, write and execute, without the set-id and sticky bits.
const PERMISSIONS: RawMode = 0o777;

/// The largest file that is appended to.
const APPENDABLE: u64 = 64 << 20;
