//! How a journal begins: its key has another name until its first record is durable.
//!
//! Guarantees: where `signing.key` is, there was a journal. If there is none any more, it has vanished, and no second history begins under
//! its key. A first start that was killed at any point is gone on with by the next one, under the same key.
//! Does not: notice when the key was taken away together with the database. Whoever keeps the public key elsewhere does.

use std::{fs, path::Path};

use palyra_types::{Clock, Entropy, id::NodeId};
use zeroize::Zeroizing;

use super::{DATABASE_FILE, disk, disk_kind, open::Existing};
use crate::{
    key::{BEGUN_KEY_FILE, JournalKey, KeyError, SIGNING_KEY_FILE, VERIFY_KEY_FILE, write_new},
    trouble::Trouble,
};

/// A journal's key, and how far the journal has come.
pub(super) struct Founding {
    key: JournalKey,
    stage: Stage,
}

enum Stage {
    /// Nothing is there but perhaps an empty database. The key is in memory only.
    New(Zeroizing<String>),
    /// The key is kept under its first name: the first record may be durable or not.
    Begun,
    /// The first record was durable once.
    Founded,
}

impl Founding {
    /// The key of a directory, or one that nobody has yet.
    pub(super) fn at(directory: &Path, clock: &dyn Clock, entropy: &dyn Entropy) -> Result<Self, Trouble> {
        for (file, stage) in [(SIGNING_KEY_FILE, Stage::Founded), (BEGUN_KEY_FILE, Stage::Begun)] {
            match JournalKey::load(&directory.join(file)) {
                Err(KeyError::Io(_, error)) if error.kind() == std::io::ErrorKind::NotFound => {}
                loaded => return Ok(Self { key: loaded.map_err(trouble)?, stage }),
            }
        }
        let node = NodeId::generate(clock.now(), entropy).map_err(|error| Trouble::Key(error.to_string()))?;
        let (key, text) = JournalKey::generate(&format!("{ORIGIN}{node}"), entropy).map_err(trouble)?;
        Ok(Self { key, stage: Stage::New(text) })
    }

    /// The key.
    pub(super) const fn key(&self) -> &JournalKey {
        &self.key
    }

    /// Which chain it signs.
    pub(super) fn node(&self) -> Result<NodeId, Trouble> {
        let name = self.key.public().name();
        let id = name.strip_prefix(ORIGIN).and_then(|id| NodeId::parse(id).ok());
        id.ok_or_else(|| Trouble::Key(format!("its name `{name}` is not that of a journal")))
    }

    /// Whether the database must be there. One that must and is not is not made.
    pub(super) fn expects(&self, directory: &Path) -> Result<Existing, Trouble> {
        if !matches!(self.stage, Stage::Founded) {
            return Ok(Existing::Optional);
        }
        let length = match fs::metadata(directory.join(DATABASE_FILE)) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => 0,
            file => file.map_err(disk)?.len(),
        };
        if length == 0 { Err(vanished(directory)) } else { Ok(Existing::Required) }
    }

    /// Says what it means that the database does not open.
    pub(super) fn explain(&self, trouble: Trouble) -> Trouble {
        match (&self.stage, trouble) {
            (Stage::New(_), Trouble::Key(_)) => {
                Trouble::Key("it is missing, and there are records that it signed".to_owned())
            }
            (_, trouble) => trouble,
        }
    }

    /// Keeps the key before anything is signed with it, unless it is kept already. `is_empty` says whether the database has no record.
    pub(super) fn begin(&self, directory: &Path, is_empty: bool) -> Result<(), Trouble> {
        match &self.stage {
            // SECURITY: an emptied database must not get a new history under the old key. Somebody who pinned the key, and has no checkpoint,
            // would take it for the whole.
            Stage::Founded if is_empty => Err(vanished(directory)),
            Stage::New(text) => write_new(&directory.join(BEGUN_KEY_FILE), text.as_bytes(), 0o600).map_err(trouble),
            Stage::Founded | Stage::Begun => Ok(()),
        }
    }

    /// Gives the key its name, now that the first record is durable.
    pub(super) fn complete(self, directory: &Path) -> Result<JournalKey, Trouble> {
        if !matches!(self.stage, Stage::Founded) {
            // The private key last: a directory that has it has everything.
            write_new(&directory.join(VERIFY_KEY_FILE), self.key.public().text().as_bytes(), 0o644).map_err(trouble)?;
            fs::rename(directory.join(BEGUN_KEY_FILE), directory.join(SIGNING_KEY_FILE)).map_err(disk)?;
            fs::File::open(directory).and_then(|directory| directory.sync_all()).map_err(disk)?;
        }
        Ok(self.key)
    }
}

fn vanished(directory: &Path) -> Trouble {
    Trouble::Vanished(directory.to_owned())
}

fn trouble(error: KeyError) -> Trouble {
    match error {
        KeyError::Io(_, error) if disk_kind(&error).is_some() => disk(error),
        error => Trouble::Key(error.to_string()),
    }
}

/// What the origin of every journal starts with.
const ORIGIN: &str = "palyra.local/journal/";
