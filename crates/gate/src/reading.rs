//! Reads the arguments of a proposal into what would be done, and works out the ways to do it.
//!
//! Guarantees: this looks at files, and may digest large ones, without holding up other calls; it takes turns, so that a flood of proposals
//! does not take every thread; a failure in it is an error of this call alone. Changes nothing.
//!
//! Most calls name a program of the system, and a glance at that is enough for policy to deny them. A glance looks at nothing that anybody
//! but root could make slow, so it is taken on the thread that conducts the call, and costs no other thread's time.

use std::sync::Arc;

use palyra_types::{SecretRef, ToolName};
use tokio::task::{JoinHandle, spawn_blocking};

use crate::{
    gate::{Inner, internal},
    plan::{Unfit, Way, candidates},
    proposal::ToolProposal,
    refusal::Refusal,
    settings::Settings,
    tool::{IntendError, Intent, Look, Place},
    tools::{CallError, Registry},
    workspace::Workspace,
};

/// What a proposal means: what would be done, how it could be, and how not.
pub(crate) type Understood = (Intent, Vec<Way>, Vec<Unfit>);

/// A proposal that another thread is reading.
pub(crate) struct Reading(JoinHandle<Result<Understood, CallError>>);

impl Reading {
    /// What it means.
    pub(crate) async fn understood(self) -> Result<Understood, Refusal> {
        self.0.await.map_err(internal)?.map_err(Refusal::Call)
    }
}

/// Where a proposal is read.
#[derive(Clone)]
pub(crate) struct Surroundings {
    pub(crate) workspace: Option<Arc<Workspace>>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) registry: Arc<Registry>,
}

impl Inner {
    /// What a proposal means as far as a glance tells: enough to deny it, not to run it. Nothing if a glance is not enough.
    pub(crate) fn glance(
        &self,
        proposal: &ToolProposal,
        surroundings: &Surroundings,
    ) -> Result<Option<Understood>, Refusal> {
        if proposal.is_too_long_to_refuse() {
            return Ok(None);
        }
        match self.understand(proposal, surroundings, Look::Glance) {
            Ok(understood) => Ok(Some(understood)),
            Err(CallError::Intend(IntendError::TakesLonger)) => Ok(None),
            Err(error) => Err(Refusal::Call(error)),
        }
    }

    /// Begins to read a proposal, once it is its turn.
    pub(crate) async fn read(self: &Arc<Self>, proposal: &Arc<ToolProposal>, surroundings: &Surroundings) -> Reading {
        let turn = self.admission.reading(&proposal.principal).await;
        let (inner, proposal, surroundings) = (Arc::clone(self), Arc::clone(proposal), surroundings.clone());
        Reading(spawn_blocking(move || {
            let _turn = turn;
            inner.understand(&proposal, &surroundings, Look::Whole)
        }))
    }

    fn understand(
        &self,
        proposal: &ToolProposal,
        surroundings: &Surroundings,
        look: Look,
    ) -> Result<Understood, CallError> {
        let Surroundings { workspace, settings, registry } = surroundings;
        let bindings = |secret: &SecretRef, tool: &ToolName| self.bindings_for(secret, tool);
        let place = Place {
            workspace: workspace.as_deref(),
            asker: proposal.asker(),
            programs: &settings.programs,
            look,
            bindings: &bindings,
        };
        let intent = match &proposal.elsewhere {
            None => registry.intend(&proposal.tool, &proposal.args, &place)?,
            // Where its links lead takes a look at all of them.
            Some(_) if look == Look::Glance => return Err(IntendError::TakesLonger.into()),
            Some(elsewhere) => elsewhere.intend(settings)?,
        };
        // Told as it is: without a vault no secret is bound anywhere, which would be the reason otherwise.
        if let ([_, ..], Err(closed)) = (intent.work.secrets(), self.opened_vault()) {
            return Err(CallError::NoVault { is_locked: closed.is_locked() });
        }
        let machine = settings.machine();
        let (ways, unfit) = candidates(&intent.work, place.workspace.map(Workspace::root), &machine, look);
        Ok((intent, ways, unfit))
    }
}
