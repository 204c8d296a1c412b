//! What one call has said and asked for: its log, what it wrote, and how often it called the host.
//!
//! Guarantees: all of it is bounded. A log that is full loses what comes after and says so; an answer that is too large ends the call; so
//! does a call of the host too many.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use palyra_package::SkillLimits;

use crate::{
    host::LogLevel,
    outcome::{LogLine, SkillFailure},
};

/// What one call has said and asked for. The streams that it holds write into the same ledger.
#[derive(Clone)]
pub(crate) struct Ledger(Arc<Mutex<Entries>>);

/// Everything in a ledger.
pub(crate) struct Entries {
    /// What was granted and asked of the host, by function.
    pub(crate) host_calls: BTreeMap<&'static str, u64>,
    /// The log.
    pub(crate) log: Vec<LogLine>,
    /// Whether the log had no room for something.
    pub(crate) log_truncated: bool,
    /// What a command wrote to its standard output.
    pub(crate) written: Vec<u8>,
    /// The end of what a command wrote to its standard error.
    pub(crate) complained: Vec<u8>,
    partial: BTreeMap<LogLevel, Vec<u8>>,
    calls: u64,
    most_calls: u64,
    log_left: u64,
    output_limit: u64,
}

/// The error that carries why a call ends through wasmtime.
#[derive(Debug)]
pub(crate) struct Ended(pub(crate) SkillFailure);

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Ended {}

/// Ends the call.
pub(crate) fn end(failure: SkillFailure) -> wasmtime::Error {
    wasmtime::Error::new(Ended(failure))
}

impl Ledger {
    /// An empty ledger.
    pub(crate) fn new(limits: &SkillLimits) -> Self {
        Self(Arc::new(Mutex::new(Entries {
            host_calls: BTreeMap::new(),
            log: Vec::new(),
            log_truncated: false,
            written: Vec::new(),
            complained: Vec::new(),
            partial: BTreeMap::new(),
            calls: 0,
            most_calls: limits.host_calls,
            log_left: limits.log_bytes,
            output_limit: limits.output_bytes,
        })))
    }

    /// Remembers that something was asked of the host which it answers by a grant. Standard streams and the like are nobody's concern.
    pub(crate) fn note(&self, function: &'static str) {
        *self.entries().host_calls.entry(function).or_default() += 1;
    }

    /// Counts a call of the host.
    ///
    /// # Errors
    /// When it is one too many.
    pub(crate) fn count(&self) -> wasmtime::Result<()> {
        let mut entries = self.entries();
        entries.calls += 1;
        match entries.calls > entries.most_calls {
            true => Err(end(SkillFailure::TooManyHostCalls { limit: entries.most_calls })),
            false => Ok(()),
        }
    }

    /// Writes a line, as far as there is room. Gives back what was written.
    pub(crate) fn log(&self, level: LogLevel, message: &str) -> Option<String> {
        let mut entries = self.entries();
        let room = usize::try_from(entries.log_left).unwrap_or(usize::MAX);
        let kept = message.get(..message.floor_char_boundary(room)).unwrap_or_default();
        entries.log_truncated |= kept.len() < message.len();
        // An empty line takes room too: otherwise there could be any number of them.
        let taken = u64::try_from(kept.len()).unwrap_or(u64::MAX).max(1);
        if entries.log_left == 0 || (kept.is_empty() && !message.is_empty()) {
            entries.log_truncated = true;
            return None;
        }
        entries.log_left = entries.log_left.saturating_sub(taken);
        entries.log.push(LogLine { level, message: kept.to_owned() });
        Some(kept.to_owned())
    }

    /// Takes what a skill writes to a stream that ends in the log. Gives back the lines that are complete.
    pub(crate) fn say(&self, level: LogLevel, bytes: &[u8]) -> Vec<String> {
        let mut lines = Vec::new();
        let mut entries = self.entries();
        let mut partial = std::mem::take(entries.partial(level));
        drop(entries);
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            partial.extend_from_slice(piece);
            if piece.ends_with(b"\n") || partial.len() > LINE_BYTES {
                lines.extend(self.log(level, String::from_utf8_lossy(&partial).trim_end_matches('\n')));
                partial.clear();
            }
        }
        *self.entries().partial(level) = partial;
        lines
    }

    /// Ends the lines that have no end.
    pub(crate) fn end_lines(&self) {
        for &level in LogLevel::ALL {
            let partial = std::mem::take(self.entries().partial(level));
            if !partial.is_empty() {
                self.log(level, &String::from_utf8_lossy(&partial));
            }
        }
    }

    /// Takes what a command writes to its standard output.
    ///
    /// # Errors
    /// When that is more than an answer may be.
    pub(crate) fn write(&self, bytes: &[u8]) -> wasmtime::Result<()> {
        let mut entries = self.entries();
        let total = u64::try_from(entries.written.len().saturating_add(bytes.len())).unwrap_or(u64::MAX);
        if total > entries.output_limit {
            return Err(end(SkillFailure::OutputTooLarge { limit: entries.output_limit }));
        }
        entries.written.extend_from_slice(bytes);
        Ok(())
    }

    /// Takes what a command writes to its standard error. The end of it is its message if it fails.
    pub(crate) fn complain(&self, bytes: &[u8]) {
        let mut entries = self.entries();
        entries.complained.extend_from_slice(bytes);
        let surplus = entries.complained.len().saturating_sub(COMPLAINT_BYTES);
        entries.complained.drain(..surplus);
    }

    /// Everything.
    pub(crate) fn entries(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entries {
    fn partial(&mut self, level: LogLevel) -> &mut Vec<u8> {
        self.partial.entry(level).or_default()
    }

    /// What a command wrote to its standard error last, as text.
    pub(crate) fn complaint(&self) -> String {
        String::from_utf8_lossy(&self.complained).trim().to_owned()
    }
}

/// A line that is longer becomes several.
const LINE_BYTES: usize = 8_192;
const COMPLAINT_BYTES: usize = 2_048;

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(log_bytes: u64) -> Ledger {
        Ledger::new(&SkillLimits { log_bytes, ..SkillLimits::default() })
    }

    #[test]
    fn a_log_is_cut_between_characters_and_says_so() {
        let ledger = ledger(5);
        assert_eq!(ledger.log(LogLevel::Info, "abc"), Some("abc".to_owned()));
        assert!(!ledger.entries().log_truncated);
        assert_eq!(ledger.log(LogLevel::Info, "dä€"), Some("d".to_owned()));
        assert!(ledger.entries().log_truncated);
    }

    #[test]
    fn empty_lines_fill_a_log_too() {
        let ledger = ledger(3);
        for _ in 0..100 {
            ledger.log(LogLevel::Info, "");
        }
        assert_eq!(ledger.entries().log.len(), 3);
        assert!(ledger.entries().log_truncated);
    }
}
