//! Who sees what: an agent sees its own calls and runs, people who oversee see everything.

use std::{collections::BTreeSet, ops::Range};

use palyra_access::Scope;
use palyra_api::{
    authorize::{AuthorizationSelection, Authorizations, Decision},
    call::{Call, Calls},
};
use palyra_gate::Refusal;
use palyra_journal::{RecordKind, state::CallState};
use palyra_types::{Action, ObjectId, ObjectKind, Resource, SecretRef, SkillId, WorkspaceName, id::CallId};
use serde::Serialize;

use crate::{app::App, caller::Caller, failure::Failure, hooks::recorded::Recorded, proposing::known};

/// Whether they may read what is journalled.
///
/// # Errors
/// When policy does not let them.
pub fn may_read_journal(app: &App, caller: &Caller) -> Result<(), Failure> {
    caller.may(app, Action::JournalRead, object(ObjectKind::Journal)?)
}

/// Whether they see what is somebody else's: they may read the journal.
// SECURITY: a token of somebody who may read the journal reads what others did and said only if it is for that.
pub fn oversees(app: &App, caller: &Caller) -> bool {
    let is_for_it = caller.scopes.as_ref().is_none_or(|scopes| scopes.contains(&Scope::JournalRead));
    is_for_it && may_read_journal(app, caller).is_ok()
}

/// Whether they may see a call: their own, or any if they oversee.
///
/// # Errors
/// When they may not. They are not told whether there is such a call.
pub fn may_see(app: &App, caller: &Caller, call: &Call) -> Result<(), Failure> {
    let is_own = call.proposed.as_ref().is_some_and(|proposed| caller.is(&proposed.principal));
    match is_own || oversees(app, caller) {
        true => Ok(()),
        false => Err(Failure::not_found(format!("there is no call {}", call.id))),
    }
}

/// A resource of which there is one.
///
/// # Errors
/// Never, but for a broken build.
pub fn object(kind: ObjectKind) -> Result<Resource, Failure> {
    let id = ObjectId::parse(ONLY).map_err(|error| Failure::internal(error.to_string()))?;
    Ok(Resource::Object(kind, id))
}

/// A resource by its name.
///
/// # Errors
/// When it is no name.
pub fn thing(kind: ObjectKind, name: &str) -> Result<Resource, Failure> {
    let id = ObjectId::parse(name).map_err(|error| Failure::bad_request(error.to_string()))?;
    Ok(Resource::Object(kind, id))
}

/// A secret that stands for any, where what is asked about names none.
///
/// # Errors
/// Never, but for a broken build.
pub fn any_secret() -> Result<SecretRef, Failure> {
    SecretRef::parse("global/any").map_err(|error| Failure::internal(error.to_string()))
}

/// A skill that stands for any, where what is asked about names none.
///
/// # Errors
/// Never, but for a broken build.
pub fn any_skill() -> Result<SkillId, Failure> {
    SkillId::parse(&format!("{ANY_SKILL}/{ANY_SKILL}")).map_err(|error| Failure::internal(error.to_string()))
}

/// What holds everywhere is not for those who are bound to some workspaces.
///
/// # Errors
/// When they are.
pub fn holds_everywhere(caller: &Caller) -> Result<(), Failure> {
    match caller.member_of {
        None => Ok(()),
        Some(_) => Err(Refusal::NotPermitted("it holds beyond the workspaces that they belong to".to_owned()).into()),
    }
}

/// Workspaces that there are.
///
/// # Errors
/// When one of them is not configured.
pub fn workspaces(app: &App, names: Vec<WorkspaceName>) -> Result<BTreeSet<WorkspaceName>, Failure> {
    let config = app.gate.config();
    match names.iter().find(|name| config.workspace.iter().all(|one| one.name != **name)) {
        Some(unknown) => Err(Refusal::UnknownWorkspace(unknown.clone()).into()),
        None => Ok(names.into_iter().collect()),
    }
}

/// A number as it is told.
#[must_use]
pub fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// How many are told at once.
///
/// # Errors
/// When it is none or too many.
pub fn page(limit: Option<u32>) -> Result<usize, Failure> {
    match limit {
        None => Ok(DEFAULT_PAGE),
        Some(limit @ 1..=1_000) => Ok(usize::try_from(limit).unwrap_or(DEFAULT_PAGE)),
        Some(_) => Err(Failure::bad_request("`limit` is 1 to 1000")),
    }
}

/// Calls in a state, oldest first: so many, and not much more than a page of bytes; and whether there are more.
///
/// # Errors
/// When the journal cannot be read.
pub async fn calls_in(app: &App, state: CallState, most: usize) -> Result<Calls, Failure> {
    let mut page = Page::new(most);
    for row in app.store.calls_in(state).await? {
        if page.is_full() {
            return Ok(Calls { calls: page.told, more: true });
        }
        page.add(known(app, row.call).await?);
    }
    Ok(Calls { calls: page.told, more: false })
}

/// The calls that were refused last, newest first, as many as fit a page. Looks back only so far.
///
/// # Errors
/// When the journal cannot be read.
pub async fn refused_last(app: &App, most: usize) -> Result<Calls, Failure> {
    let mut page = Page::new(most);
    let mut before = app.hub.size();
    let oldest = before.saturating_sub(LOOK_BACK);
    while before > oldest {
        let from = before.saturating_sub(LOOKED_AT).max(oldest);
        // What records say may be long; what they are about is not.
        let headings = app.store.subjects(from, usize::try_from(before - from).unwrap_or_default()).await?;
        for (_, kind, subject) in headings.iter().rev().filter(|(seq, ..)| *seq < before) {
            let over = matches!(kind, RecordKind::ToolDecided | RecordKind::ApprovalResolved);
            let is_told = |id: CallId| page.told.iter().any(|call: &Call| call.id == id);
            let Some(id) = subject.call.filter(|id| over && !is_told(*id)) else { continue };
            let call = known(app, id).await?;
            // Whoever withdrew a call was not refused anything.
            if call.refusal.as_ref().is_none_or(|refusal| refusal.code == "cancelled") {
                continue;
            }
            if page.is_full() {
                return Ok(Calls { calls: page.told, more: true });
            }
            page.add(call);
        }
        before = from;
    }
    Ok(Calls { calls: page.told, more: false })
}

/// The last decisions about what other programs wanted to do themselves, newest first, as many as fit a page. Looks back only so far.
///
/// # Errors
/// When the journal cannot be read.
pub async fn authorizations_last(
    app: &App,
    which: Option<AuthorizationSelection>,
    most: usize,
) -> Result<Authorizations, Failure> {
    let mut page = Page::new(most);
    let mut before = app.hub.size();
    let oldest = before.saturating_sub(LOOK_BACK);
    while before > oldest {
        let from = before.saturating_sub(LOOKED_AT).max(oldest);
        for Recorded { decided, .. } in decisions(app, from, before).await? {
            let is_wanted = match which {
                Some(AuthorizationSelection::Refused) => decided.told.decision == Decision::Deny,
                None => true,
            };
            if !is_wanted {
                continue;
            }
            if page.is_full() {
                return Ok(Authorizations { authorizations: page.told, more: true });
            }
            page.add(decided);
        }
        before = from;
    }
    Ok(Authorizations { authorizations: page.told, more: false })
}

/// The decisions of hooks among these records, newest first. What else was recorded between them may be long, and is not read.
async fn decisions(app: &App, from: u64, before: u64) -> Result<Vec<Recorded>, Failure> {
    let headings = app.store.subjects(from, usize::try_from(before.saturating_sub(from)).unwrap_or_default()).await?;
    let decided = headings.iter().filter(|(seq, kind, _)| *seq < before && *kind == RecordKind::HookDecided);
    let mut found = Vec::new();
    for Range { start: mut next, end } in runs(decided.map(|(seq, ..)| *seq)) {
        while next < end {
            let count = usize::try_from(end.saturating_sub(next)).unwrap_or_default();
            let records = app.store.records_within(next, count, PORTION_BYTES).await?;
            let Some(last) = records.last() else { break };
            next = last.record.seq.saturating_add(1);
            // Where records were dropped, later ones are read in their place.
            found.extend(records.iter().filter(|one| one.record.seq < end).filter_map(Recorded::of));
        }
    }
    found.reverse();
    Ok(found)
}

/// Numbers in their order, those together that follow one another.
fn runs(numbers: impl Iterator<Item = u64>) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for number in numbers {
        let end = number.saturating_add(1);
        match runs.last_mut().filter(|run| run.end == number) {
            Some(run) => run.end = end,
            None => runs.push(number..end),
        }
    }
    runs
}

/// What is told together.
struct Page<T> {
    told: Vec<T>,
    most: usize,
    bytes: usize,
}

impl<T: Serialize> Page<T> {
    const fn new(most: usize) -> Self {
        Self { told: Vec::new(), most, bytes: 0 }
    }

    const fn is_full(&self) -> bool {
        self.told.len() >= self.most || self.bytes > PAGE_BYTES
    }

    fn add(&mut self, one: T) {
        self.bytes += serde_json::to_vec(&one).map_or(0, |text| text.len());
        self.told.push(one);
    }
}

/// The name of what stands for any skill, of any publisher or of one.
pub(crate) const ANY_SKILL: &str = "any";

const ONLY: &str = "daemon";

const DEFAULT_PAGE: usize = 100;

/// How many records are looked at for what was refused.
const LOOK_BACK: u64 = 20_000;

/// How many of them at once.
const LOOKED_AT: u64 = 256;

/// How many bytes of records are read at once, more or less.
const PORTION_BYTES: usize = 1 << 20;

/// How many bytes of calls or decisions are told at once, more or less.
const PAGE_BYTES: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_follow_one_another_are_read_together_and_what_lies_between_is_not() {
        assert_eq!(runs([3, 4, 5, 9, 11, 12].into_iter()), [3..6, 9..10, 11..13]);
        assert_eq!(runs(std::iter::empty()), []);
    }
}
