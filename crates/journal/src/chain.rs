//! Checks records one after the other: spelling, number, link, body.
//!
//! Guarantees: constant memory but for the ranges of erased bodies; the first bad record is the one that is named, also when only the
//! record after it shows that it was exchanged.
//! Does not: know where the records come from, or keep a tree. Whoever verifies a directory or a bundle does.

use palyra_types::Sha256Digest;
use serde::Deserialize;

use crate::{
    body::{SALT_LENGTH, commitment},
    fault::{Failure, Fault},
    ranges::Ranges,
    record::{Record, RecordKind},
};

/// A record as it was found.
#[derive(Clone, Copy)]
pub(crate) struct Entry<'a> {
    pub(crate) text: &'a str,
    pub(crate) salt: Option<&'a [u8]>,
    pub(crate) body: Option<&'a str>,
}

/// A chain as far as it was checked.
pub(crate) struct Chain {
    first: u64,
    next: u64,
    last: Sha256Digest,
    /// A record that the one after it does not link to. The record after that tells which of the two is bad.
    suspect: Option<u64>,
    missing: Ranges,
    erased: Ranges,
    /// Up to where records were dropped, as the records themselves tell.
    dropped: u64,
}

/// What a chain held, once all of it was checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tally {
    /// How many bodies are gone.
    pub(crate) erased: u64,
    /// How many bodies are there although a record tells of their erasure.
    pub(crate) unfinished: u64,
    /// The first body that is gone without a record that tells of it.
    pub(crate) unaccounted: Option<u64>,
}

impl Chain {
    /// A chain that goes on at this record, behind a record of this hash.
    pub(crate) fn from(first: u64, last: Sha256Digest) -> Self {
        let (missing, erased) = (Ranges::default(), Ranges::default());
        Self { first, next: first, last, suspect: None, missing, erased, dropped: 0 }
    }

    /// The number of the record that comes next.
    pub(crate) const fn next(&self) -> u64 {
        self.next
    }

    /// The hash of the last record.
    pub(crate) const fn last(&self) -> Sha256Digest {
        self.last
    }

    /// Up to where records were dropped, as the records themselves tell.
    pub(crate) const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Checks the next record, and returns its hash.
    pub(crate) fn take(&mut self, entry: Entry<'_>) -> Result<Sha256Digest, Failure> {
        let seq = self.next;
        let taken = self.step(entry).map_err(|failure| match self.suspect {
            Some(suspect) if suspect < failure.seq => Failure::new(suspect, Fault::Replaced),
            _ => failure,
        })?;
        self.next = seq + 1;
        self.last = taken;
        Ok(taken)
    }

    fn step(&mut self, entry: Entry<'_>) -> Result<Sha256Digest, Failure> {
        let seq = self.next;
        let record = Record::parse(entry.text).map_err(|error| Failure::new(seq, Fault::Malformed(error)))?;
        if record.seq != seq {
            return Err(Failure::new(seq, Fault::Misplaced { claims: record.seq }));
        }
        self.link(record.prev)?;
        self.check_body(&record, entry)?;
        Ok(Record::hash(entry.text))
    }

    fn link(&mut self, prev: Sha256Digest) -> Result<(), Failure> {
        let seq = self.next;
        match (self.suspect, prev == self.last) {
            (None, true) => Ok(()),
            // The record before this one is confirmed by this one, so the one before that was exchanged.
            (Some(suspect), true) => Err(Failure::new(suspect, Fault::Replaced)),
            (Some(suspect), false) => {
                self.suspect = None;
                Err(Failure::new(suspect + 1, Fault::Unlinked))
            }
            (None, false) if seq == self.first => Err(Failure::new(seq, Fault::Unlinked)),
            (None, false) => {
                self.suspect = Some(seq - 1);
                Ok(())
            }
        }
    }

    /// Checks a body, and reads those that tell of erased and dropped records.
    pub(crate) fn check_body(&mut self, record: &Record, entry: Entry<'_>) -> Result<(), Failure> {
        let fail = |fault| Err(Failure::new(record.seq, fault));
        match (entry.salt, entry.body) {
            (Some(salt), Some(body)) => {
                // INVARIANT: the salt has one length, or bytes could move between salt and body and hash alike.
                if salt.len() != SALT_LENGTH || commitment(salt, body.as_bytes()) != record.body {
                    return fail(Fault::BodyChanged);
                }
                self.heed(record, body)
            }
            (None, None) if record.kind.is_about_the_journal() => fail(Fault::BodyMissing),
            (None, None) => {
                self.missing.insert(record.seq, record.seq);
                Ok(())
            }
            _ => fail(Fault::BodyTorn),
        }
    }

    fn heed(&mut self, record: &Record, body: &str) -> Result<(), Failure> {
        let notice = |_| Failure::new(record.seq, Fault::Notice);
        match record.kind {
            RecordKind::JournalErased => {
                let notice: ErasedNotice = serde_json::from_str(body).map_err(notice)?;
                // A record speaks about those before it only.
                notice.records.iter().filter(|&(_, last)| last < record.seq).for_each(|(first, last)| {
                    self.erased.insert(first, last);
                });
            }
            RecordKind::JournalDropped => {
                let notice: DroppedNotice = serde_json::from_str(body).map_err(notice)?;
                self.dropped = self.dropped.max(notice.last.saturating_add(1));
            }
            _ => {}
        }
        Ok(())
    }

    /// What is left to say once every record was checked.
    pub(crate) fn finish(self) -> Result<Tally, Failure> {
        if let Some(suspect) = self.suspect {
            return Err(Failure::new(suspect, Fault::Replaced));
        }
        let erased = self.missing.count();
        let announced = self.erased.from(self.first).count();
        let unaccounted = self.missing.first_outside(&self.erased);
        Ok(Tally { erased, unfinished: announced.saturating_sub(erased), unaccounted })
    }
}

/// The body of a `journal.erased` record, as far as verification reads it.
#[derive(Deserialize)]
struct ErasedNotice {
    records: Ranges,
}

/// The body of a `journal.dropped` record, as far as verification reads it.
#[derive(Deserialize)]
struct DroppedNotice {
    last: u64,
}
