//! Why a job was refused, or the schedule cannot be used.

use std::{io, path::PathBuf};

use palyra_types::{entropy::NoEntropy, visible::visible};

use crate::{
    id::JobId,
    job::{MOST_JSON_BYTES, MOST_TIMEOUT_SECONDS},
    store::{MOST_JOBS, MOST_JOBS_OF_ONE},
};

/// Why a job was refused, or the schedule cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ScheduleError {
    /// A name that cannot be.
    #[error("`{}` is no {what} of 1 to {most} visible characters", visible(.text))]
    Label {
        /// What was being named.
        what: &'static str,
        /// The text as given.
        text: String,
        /// The most characters that it may have.
        most: usize,
    },
    /// Too much JSON.
    #[error("the {what} of the job are {length} bytes long; the limit is {MOST_JSON_BYTES}")]
    TooLong {
        /// What is too long.
        what: &'static str,
        /// Its length.
        length: usize,
    },
    /// A run may not take so long, or so short.
    #[error("a run cannot be given {0} seconds; expected 1 to {MOST_TIMEOUT_SECONDS}")]
    Timeout(u32),
    /// The owner has such a job.
    #[error("there is a job `{}` already", visible(.0))]
    Taken(String),
    /// The time is past.
    #[error("the time is past, so the job would never be due")]
    NeverDue,
    /// The owner has enough jobs.
    #[error("the owner has {MOST_JOBS_OF_ONE} jobs, which is the limit")]
    TooManyOfOne,
    /// There are enough jobs.
    #[error("there are {MOST_JOBS} jobs, which is the limit")]
    TooMany,
    /// No such job.
    #[error("there is no job {0}")]
    Unknown(JobId),
    /// The file or the directory cannot be used.
    #[error("{}: {source}", .path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The file or the directory belongs to somebody else, or is no file or directory.
    #[error("`{}` is not a {expected} of this user", .0.display(), expected = .1)]
    NotOurs(PathBuf, &'static str),
    /// The file holds something else.
    #[error("`{}` is no schedule", .0.display())]
    Foreign(PathBuf),
    /// A later version wrote the file.
    #[error("the schedule is of version {found}; this program knows versions up to {known}")]
    Newer {
        /// The version of the file.
        found: i64,
        /// The latest version that is understood.
        known: i64,
    },
    /// Another program has the schedule open.
    #[error("another program has the schedule open")]
    InUse,
    /// What the file holds cannot be read.
    #[error("the schedule holds something that cannot be read: {0}")]
    Damaged(String),
    /// There is no randomness to make an id of.
    #[error(transparent)]
    Entropy(#[from] NoEntropy),
    /// The database refused.
    #[error("the schedule: {0}")]
    Database(#[from] rusqlite::Error),
}

impl ScheduleError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::Label { .. } => "use a shorter name, of visible characters on one line",
            Self::TooLong { .. } => "put what is long into a file of the workspace, and name it in the arguments",
            Self::Timeout(_) => "give a run between a second and a day",
            Self::Taken(_) => "choose another name, or delete that job first",
            Self::NeverDue => "choose a time to come",
            Self::TooManyOfOne | Self::TooMany => "delete jobs that are not needed any more",
            Self::Unknown(_) => "list the jobs to see which there are",
            Self::File { .. } | Self::Database(_) => {
                "check that the disk has room, and that the daemon's user owns the file"
            }
            Self::NotOurs(..) => "give it to the daemon's user, or move it away",
            Self::Foreign(_) => "move the file away, or name another directory",
            Self::Newer { .. } => "start the version of Palyra that wrote it, or restore the file from a backup",
            Self::InUse => "stop the other daemon first",
            Self::Damaged(_) => "delete the job that is named, or restore the file from a backup",
            Self::Entropy(_) => "try again when the operating system gives randomness",
        }
    }
}
