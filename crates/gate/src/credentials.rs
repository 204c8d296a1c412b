//! Whether those who proposed a call, and those who gave a standing approval, still count.
//!
//! Guarantees: a call is judged by the roles and workspaces that its proposer has when it is judged, not by those that they had once; one
//! whose credential was taken away does not start, however long ago it was proposed and whoever said yes; a standing approval covers nothing
//! once whoever gave it, or what they gave it by, does not count. Does not: know who is let in. The daemon does.

use std::sync::Arc;

use palyra_journal::{
    CommitError, RecordKind, Subject,
    state::{Change, GrantRow},
};
use palyra_types::PrincipalKind;
use serde_json::json;

use crate::{
    approval::grant::GrantDocument,
    gate::{Gate, Inner},
    petitioner::Petitioner,
    proposal::ToolProposal,
    refusal::{CancelCause, Refusal},
};

/// Knows who is let in.
pub trait Credentials: Send + Sync {
    /// Somebody as they stand now, with the roles and the workspaces that count; none if their credential was taken away from them. One that
    /// ran out by itself was not.
    fn as_they_stand(&self, who: &Petitioner) -> Option<Petitioner>;
}

impl Gate {
    /// Takes that somebody may count for less than before: whatever waits is judged anew, and standing approvals end with those who gave them.
    ///
    /// # Errors
    /// When the end of an approval cannot be recorded. It covers nothing all the same.
    pub async fn look_again(&self) -> Result<(), Refusal> {
        self.inner.policies.send_modify(|count| *count += 1);
        self.inner.end_grants_of_nobody().await
    }
}

impl Inner {
    /// A proposal of somebody as they stand now.
    pub(crate) fn by_whoever_counts(&self, proposal: Arc<ToolProposal>) -> Result<Arc<ToolProposal>, Refusal> {
        let who = proposal.petitioner();
        match self.credentials.as_they_stand(&who) {
            None => Err(Refusal::Cancelled(CancelCause::CredentialGone)),
            Some(now) if now == who => Ok(proposal),
            Some(Petitioner { principal, member_of, .. }) => {
                Ok(Arc::new(ToolProposal { principal, member_of, ..(*proposal).clone() }))
            }
        }
    }

    /// Whether whoever gave a standing approval still could. One that cannot be read covers nothing.
    pub(crate) fn giver_counts(&self, row: &GrantRow) -> bool {
        let Ok(GrantDocument { by, device, token, workspace, .. }) = serde_json::from_str(&row.document) else {
            return false;
        };
        let who = Petitioner { device, token, ..by.into() };
        self.credentials.as_they_stand(&who).is_some_and(|now| {
            let governs = now.principal.kind() != PrincipalKind::User || !now.principal.roles().is_empty();
            let registry = self.registry.load();
            let mut places = workspace.iter().chain(registry.own_workspace(&row.tool));
            let reaches = now.member_of.is_none_or(|only| places.all(|name| only.contains(name)));
            governs && reaches
        })
    }

    /// Ends the standing approvals of those who do not count any more.
    async fn end_grants_of_nobody(&self) -> Result<(), Refusal> {
        for row in self.store.grants().await?.into_iter().filter(|row| !self.giver_counts(row)) {
            let subject = Subject { session: Some(row.session), approval: Some(row.id), ..Subject::default() };
            let told = json!({ "cause": "whoever gave it does not count any more" });
            let record = self.record(RecordKind::GrantEnded, subject, &told)?;
            match self.commit(vec![record], vec![Change::EndGrant(row.id)]).await {
                Ok(_) => self.note_ended(row.id),
                Err(CommitError::Conflict(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
