//! One record of the chain: a small header in canonical form that commits to a body.
//!
//! Guarantees: a record has one spelling (canonical JSON, keys sorted, no spaces), so its hash has one value; the hash is the leaf hash of
//! RFC 6962, which links the chain and fills the Merkle tree alike; the header names ids and nothing that could be secret.
//! Does not: hold what was said or done. That is the erasable [`Body`](crate::body::Body).

use palyra_types::{
    Sha256Digest, Timestamp,
    id::{ApprovalId, CallId, RunId, SessionId},
    word::words,
};
use serde::{Deserialize, Serialize};

use crate::{
    body::{Body, SALT_LENGTH},
    tree::leaf_hash,
};

words! {
    /// What a record is about.
    pub enum RecordKind ("kind of record") {
        /// The first record of a chain: its origin and its key.
        JournalCreated = "journal.created",
        /// Writing works again after it did not.
        JournalRecovered = "journal.recovered",
        /// Bodies were erased.
        JournalErased = "journal.erased",
        /// Older records were moved into a sealed segment.
        JournalSealed = "journal.sealed",
        /// A sealed segment was deleted to keep within the configured size.
        JournalDropped = "journal.dropped",
        /// A daemon started.
        DaemonStarted = "daemon.started",
        /// A daemon stopped in good order.
        DaemonStopped = "daemon.stopped",
        /// A call was proposed.
        ToolProposed = "tool.proposed",
        /// A call was allowed, asks or was refused.
        ToolDecided = "tool.decided",
        /// A person was asked.
        ApprovalRequested = "approval.requested",
        /// A question was answered, ran out or was withdrawn.
        ApprovalResolved = "approval.resolved",
        /// A call is about to run. Written before it does.
        ToolStarted = "tool.started",
        /// What a call did.
        ToolAttested = "tool.attested",
        /// A connection of a call ended, or was refused.
        EgressConnection = "egress.connection",
        /// A run was opened.
        RunOpened = "run.opened",
        /// A standing approval was ended.
        GrantEnded = "grant.ended",
        /// A tool's posture was set.
        PostureSet = "posture.set",
        /// A policy set came into force, or was refused.
        PolicyReloaded = "policy.reloaded",
        /// A presence PIN was given, rightly or wrongly.
        PresenceChecked = "presence.checked",
        /// Somebody may pair a device for a while.
        PairingOpened = "pairing.opened",
        /// A device tried to pair and did not, or the time for it ran out.
        PairingFailed = "pairing.failed",
        /// A device was paired.
        DevicePaired = "device.paired",
        /// A device got a new certificate for its key.
        DeviceRenewed = "device.renewed",
        /// A device was revoked.
        DeviceRevoked = "device.revoked",
        /// A token was minted.
        TokenMinted = "token.minted",
        /// A token was followed by a new one.
        TokenRotated = "token.rotated",
        /// Tokens were revoked.
        TokenRevoked = "token.revoked",
        /// Somebody was invited.
        MemberInvited = "member.invited",
        /// An invitation was taken back.
        MemberUninvited = "member.uninvited",
        /// Somebody became a member.
        MemberJoined = "member.joined",
        /// A member got another role or other workspaces.
        MemberChanged = "member.changed",
        /// A member was removed, with all their devices and tokens.
        MemberRemoved = "member.removed",
        /// A part of the daemon was switched on or off.
        FeatureSet = "feature.set",
        /// The authority that certifies devices went on to another phase of its rotation.
        AuthorityRotated = "authority.rotated",
        /// Somebody signed in to the console.
        ConsoleOpened = "console.opened",
        /// Somebody was not let in, so many times.
        AccessRefused = "access.refused",
        /// What was about to be granted was not, because it could not be kept.
        AccessUnkept = "access.unkept",
        /// The vault holds something else, or is sealed under another key.
        VaultChanged = "vault.changed",
        /// The vault was opened, or was not and why.
        VaultOpened = "vault.opened",
        /// A backup of the vault was made.
        VaultExported = "vault.exported",
        /// A secret went to a host in the place of its placeholder, or was given to a tool.
        VaultUsed = "vault.used",
        /// A placeholder stood where its secret may not go, so the request was refused.
        VaultMisused = "vault.misused",
        /// A skill was installed or updated.
        SkillInstalled = "skill.installed",
        /// What a skill may use was set.
        SkillGranted = "skill.granted",
        /// A skill must not run until a person has looked at it.
        SkillQuarantined = "skill.quarantined",
        /// A skill may run again.
        SkillReleased = "skill.released",
        /// A skill was removed.
        SkillRemoved = "skill.removed",
        /// A publisher's key counts from now on, or counts no more.
        PublisherTrusted = "publisher.trusted",
        /// What was about to be changed about skills was not, because it could not be kept.
        SkillUnkept = "skill.unkept",
        /// What a call of a skill said, and what it asked of the host, so that it can be run again.
        SkillRecorded = "skill.recorded",
        /// A request is about to leave for the server of a model.
        ModelRequested = "model.requested",
        /// What came of a request to a model.
        ModelAnswered = "model.answered",
        /// What was said in a session is about to be forgotten.
        TranscriptForgotten = "transcript.forgotten",
        /// Another program asked whether it may do something, and was told. Written before it is told.
        HookDecided = "hook.decided",
        /// Another program told of something that happened.
        HookTold = "hook.told",
        /// An MCP server was added.
        McpAdded = "mcp.added",
        /// An MCP server was removed, with what was pinned of it.
        McpRemoved = "mcp.removed",
        /// Definitions of an MCP server's tools count from now on.
        McpPinned = "mcp.pinned",
        /// An MCP server says something else of a tool than what is pinned, so the tool is not offered.
        McpChanged = "mcp.changed",
        /// A server is about to start, or was refused and why.
        ServerStarted = "server.started",
        /// A server ended, and why.
        ServerEnded = "server.ended",
        /// A call was scheduled.
        CronCreated = "cron.created",
        /// A schedule fires no more until it is resumed.
        CronPaused = "cron.paused",
        /// A schedule fires again.
        CronResumed = "cron.resumed",
        /// A schedule was deleted.
        CronDeleted = "cron.deleted",
        /// A schedule is due, and its call is about to be proposed.
        CronFired = "cron.fired",
        /// A schedule was due, and its call was not proposed.
        CronRefused = "cron.refused",
        /// Somebody who governs has deleted what others kept.
        MemoryPurged = "memory.purged",
    }
}

impl RecordKind {
    /// Whether it is about who is let in.
    #[must_use]
    pub const fn is_about_access(self) -> bool {
        matches!(
            self,
            Self::PairingOpened
                | Self::PairingFailed
                | Self::DevicePaired
                | Self::DeviceRenewed
                | Self::DeviceRevoked
                | Self::TokenMinted
                | Self::TokenRotated
                | Self::TokenRevoked
                | Self::MemberInvited
                | Self::MemberUninvited
                | Self::MemberJoined
                | Self::MemberChanged
                | Self::MemberRemoved
                | Self::FeatureSet
                | Self::AuthorityRotated
                | Self::ConsoleOpened
                | Self::AccessRefused
                | Self::AccessUnkept
        )
    }

    /// Whether it is about an MCP server behind the gateway.
    #[must_use]
    pub const fn is_about_mcp(self) -> bool {
        matches!(self, Self::McpAdded | Self::McpRemoved | Self::McpPinned | Self::McpChanged)
    }

    /// Whether it is about schedules, or about what agents keep.
    #[must_use]
    pub const fn is_about_keeping(self) -> bool {
        matches!(
            self,
            Self::CronCreated
                | Self::CronPaused
                | Self::CronResumed
                | Self::CronDeleted
                | Self::CronFired
                | Self::CronRefused
                | Self::MemoryPurged
        )
    }

    /// Whether it is the journal's own account of itself. Such bodies say nothing about anybody, verification reads them, and they are
    /// never erased.
    #[must_use]
    pub const fn is_about_the_journal(self) -> bool {
        matches!(
            self,
            Self::JournalCreated
                | Self::JournalRecovered
                | Self::JournalErased
                | Self::JournalSealed
                | Self::JournalDropped
        )
    }
}

/// What a record belongs to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// The conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// The task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// The call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
    /// The question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<ApprovalId>,
}

/// A record on its way to the journal, which gives it its number and links it.
#[derive(Debug, Clone)]
pub struct NewRecord {
    /// What it is about.
    pub kind: RecordKind,
    /// What it belongs to.
    pub subject: Subject,
    /// When it happened.
    pub time: Timestamp,
    /// What it says.
    pub body: Body,
}

/// The header of a record in the chain.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// The version of this form.
    v: u8,
    /// Its number; the first is 0. It is the index of its leaf in the tree, too.
    pub seq: u64,
    /// When it happened, in milliseconds since 1970.
    time: i64,
    /// What it is about.
    pub kind: RecordKind,
    /// The hash of the record before it. The first has the hash of the journal's origin.
    pub prev: Sha256Digest,
    /// What the body must hash to, salted.
    pub body: Sha256Digest,
    session: Option<SessionId>,
    run: Option<RunId>,
    call: Option<CallId>,
    approval: Option<ApprovalId>,
}

impl Record {
    /// Reads a record in its canonical spelling.
    ///
    /// # Errors
    /// When the text is no record, or spells it otherwise.
    pub fn parse(text: &str) -> Result<Self, RecordError> {
        let record: Self = serde_json::from_str(text).map_err(|_| RecordError::Unreadable)?;
        if record.v != VERSION {
            return Err(RecordError::Version(record.v));
        }
        if record.canonical() == text { Ok(record) } else { Err(RecordError::NotCanonical) }
    }

    /// Canonical JSON (RFC 8785). Every value is a number or plain ASCII, so nothing needs escaping, and the keys stand sorted.
    #[must_use]
    pub fn canonical(&self) -> String {
        let Self { time, kind, body, .. } = *self;
        let content = Content { kind, subject: self.subject(), time, body };
        let mut text = String::with_capacity(RECORD_LENGTH);
        content.spell_before_prev(&mut text);
        text.push_str(&self.prev.to_hex());
        content.spell_before_seq(&mut text);
        text.push_str(&self.seq.to_string());
        content.spell_rest(&mut text);
        text
    }

    /// When it happened.
    #[must_use]
    pub const fn time(&self) -> Timestamp {
        Timestamp::from_unix_millis(self.time)
    }

    /// What it belongs to.
    #[must_use]
    pub const fn subject(&self) -> Subject {
        Subject { session: self.session, run: self.run, call: self.call, approval: self.approval }
    }

    /// The hash of a record in its canonical spelling.
    #[must_use]
    pub fn hash(canonical: &str) -> Sha256Digest {
        leaf_hash(canonical.as_bytes())
    }
}

/// A record in its canonical spelling, but for the two values that its place in the chain decides.
///
/// Whoever commits spells it, so that the one thread that writes only fills the gaps.
#[derive(Debug)]
pub(crate) struct Draft {
    before_prev: String,
    before_seq: String,
    rest: String,
}

impl Draft {
    /// Everything that is known before the record has its place.
    pub(crate) fn of(new: &NewRecord) -> Self {
        let NewRecord { kind, subject, time, ref body } = *new;
        let content = Content { kind, subject, time: time.unix_millis(), body: body.commitment() };
        let mut draft = Self {
            before_prev: String::with_capacity(224),
            before_seq: String::with_capacity(48),
            rest: String::with_capacity(80),
        };
        content.spell_before_prev(&mut draft.before_prev);
        content.spell_before_seq(&mut draft.before_seq);
        content.spell_rest(&mut draft.rest);
        draft
    }

    /// The record in its place: behind the record of this hash.
    pub(crate) fn link(&self, seq: u64, prev: Sha256Digest) -> String {
        let mut text = String::with_capacity(RECORD_LENGTH);
        for part in [&self.before_prev, &prev.to_hex(), &self.before_seq, &seq.to_string(), &self.rest] {
            text.push_str(part);
        }
        text
    }
}

/// What a record says, wherever it stands.
struct Content {
    kind: RecordKind,
    subject: Subject,
    time: i64,
    body: Sha256Digest,
}

impl Content {
    fn spell_before_prev(&self, text: &mut String) {
        text.push('{');
        if let Some(approval) = self.subject.approval {
            member(text, "approval", &approval.to_string());
        }
        member(text, "body", &self.body.to_hex());
        if let Some(call) = self.subject.call {
            member(text, "call", &call.to_string());
        }
        member(text, "kind", self.kind.as_str());
        text.push_str("\"prev\":\"");
    }

    fn spell_before_seq(&self, text: &mut String) {
        text.push_str("\",");
        if let Some(run) = self.subject.run {
            member(text, "run", &run.to_string());
        }
        text.push_str("\"seq\":");
    }

    fn spell_rest(&self, text: &mut String) {
        text.push(',');
        if let Some(session) = self.subject.session {
            member(text, "session", &session.to_string());
        }
        text.push_str("\"time\":");
        text.push_str(&self.time.to_string());
        text.push_str(",\"v\":1}");
    }
}

/// Writes a member of an object, and the comma behind it.
fn member(text: &mut String, key: &str, value: &str) {
    for part in ["\"", key, "\":\"", value, "\","] {
        text.push_str(part);
    }
}

/// A record as it is kept: its header, its hash, and its salt and its body unless they were erased. With the salt, whoever holds the body can
/// check that it is the one that the header commits to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRecord {
    /// The header.
    pub record: Record,
    /// The hash of the header.
    pub hash: Sha256Digest,
    /// What the body was salted with: `SHA-256(salt ‖ body)` is what the header commits to. `None` once it was erased.
    pub salt: Option<[u8; SALT_LENGTH]>,
    /// The body, as canonical JSON. `None` once it was erased.
    pub body: Option<String>,
}

/// The hash that stands before the first record of a journal, so that a chain cannot be passed off as another's.
#[must_use]
pub fn genesis(origin: &str) -> Sha256Digest {
    Sha256Digest::of_fields([b"palyra journal".as_slice(), origin.as_bytes()])
}

/// Why a text is no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Not the JSON of a record.
    #[error("it is not a record")]
    Unreadable,
    /// A record of another version.
    #[error("it is a record of version {0}, and this program reads version {VERSION}")]
    Version(u8),
    /// The same record, spelt in another way.
    #[error("it is not in canonical form")]
    NotCanonical,
}

const VERSION: u8 = 1;

/// Longer than any record is spelt.
const RECORD_LENGTH: usize = 448;

#[cfg(test)]
mod tests {
    use palyra_types::entropy::SeededEntropy;

    use super::*;

    fn record(subject: Subject) -> Record {
        let body = Body::new("{\"a\":1}".to_owned(), &SeededEntropy::new(1)).unwrap();
        let new = NewRecord { kind: RecordKind::ToolStarted, subject, time: Timestamp::from_unix_millis(1_000), body };
        Record::parse(&Draft::of(&new).link(7, genesis("palyra.local/x"))).unwrap()
    }

    #[test]
    fn a_record_reads_back_and_is_canonical_json() {
        let id = |n| (Timestamp::from_unix_millis(n), u128::from(n.unsigned_abs()));
        let subject = Subject {
            session: Some(SessionId::from_parts(id(1).0, id(1).1)),
            run: Some(RunId::from_parts(id(2).0, id(2).1)),
            call: Some(CallId::from_parts(id(3).0, id(3).1)),
            approval: Some(ApprovalId::from_parts(id(4).0, id(4).1)),
        };
        for subject in [Subject::default(), subject] {
            let record = record(subject);
            let text = record.canonical();
            assert_eq!(Record::parse(&text).as_ref(), Ok(&record));
            let value: serde_json::Value = serde_json::from_str(&text).unwrap();
            // serde_json keeps object keys sorted, so writing it again is the canonical form for such plain values.
            assert_eq!(serde_json::to_string(&value).unwrap(), text);
        }
    }

    #[test]
    fn another_spelling_of_a_record_is_refused() {
        let text = record(Subject::default()).canonical();
        assert_eq!(Record::parse(&text.replace(",\"seq\"", ", \"seq\"")), Err(RecordError::NotCanonical));
        assert_eq!(Record::parse(&text.replace("\"v\":1", "\"v\":2")), Err(RecordError::Version(2)));
        assert_eq!(Record::parse(&text.replace("\"v\":1", "\"v\":1,\"x\":1")), Err(RecordError::Unreadable));
        assert_eq!(Record::parse(&text.replace("\"seq\":7", "\"seq\":7.0")), Err(RecordError::Unreadable));
    }
}
