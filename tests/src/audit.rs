//! What must hold of a journal after any number of kills: nothing began twice, nothing that began is unattested, no approval was used twice.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "an audit that finds something ends the test")]

use std::collections::{HashMap, HashSet};

use palyra_journal::{RecordKind, StoredRecord};
use palyra_types::id::{ApprovalId, CallId};

/// What began, and by which approvals.
pub struct Audit {
    /// The calls that began.
    pub started: HashSet<CallId>,
    /// The approvals that were used.
    pub used: HashSet<ApprovalId>,
}

impl Audit {
    /// Looks at all records, in order.
    #[must_use]
    pub fn of(records: &[StoredRecord]) -> Self {
        let (mut started, mut attested, mut used) = (HashMap::new(), HashMap::new(), HashSet::new());
        for record in records {
            let subject = record.record.subject();
            match record.record.kind {
                RecordKind::ToolStarted => {
                    *started.entry(subject.call.unwrap()).or_insert(0) += 1;
                    if let Some(approval) = subject.approval {
                        assert!(used.insert(approval), "the approval {approval} was used twice");
                    }
                }
                RecordKind::ToolAttested => *attested.entry(subject.call.unwrap()).or_insert(0) += 1,
                _ => {}
            }
        }
        assert!(started.values().chain(attested.values()).all(|&count| count == 1));
        assert!(started.keys().all(|call| attested.contains_key(call)), "a call that began was not attested");
        Self { started: started.into_keys().collect(), used }
    }
}
