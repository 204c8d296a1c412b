//! Reads the arguments of a proposal into what would be done, and works out the ways to do it.
//!
//! Guarantees: this looks at files, and may digest large ones, without holding up other calls; it takes turns, so that a flood of proposals
//! does not take every thread; a failure in it is an error of this call alone. Changes nothing.

use std::sync::Arc;

use tokio::task::{JoinHandle, spawn_blocking};

use crate::{
    gate::{Inner, internal},
    plan::{Machine, Plan, Unfit, candidates},
    proposal::ToolProposal,
    refusal::Refusal,
    settings::Settings,
    tool::{Intent, Place},
    tools::CallError,
    workspace::Workspace,
};

/// What a proposal means: what would be done, how it could be, and how not.
pub(crate) type Understood = (Intent, Vec<Plan>, Vec<Unfit>);

/// A proposal that another thread is reading.
pub(crate) struct Reading(JoinHandle<Result<Understood, CallError>>);

impl Reading {
    /// What it means.
    pub(crate) async fn understood(self) -> Result<Understood, Refusal> {
        self.0.await.map_err(internal)?.map_err(Refusal::Call)
    }
}

impl Inner {
    /// Begins to read a proposal, once it is its turn.
    pub(crate) async fn read(
        self: &Arc<Self>,
        proposal: &ToolProposal,
        workspace: Option<Arc<Workspace>>,
        settings: Arc<Settings>,
    ) -> Reading {
        let turn = self.admission.reading(&proposal.principal).await;
        let (inner, tool, args) = (Arc::clone(self), proposal.tool.clone(), proposal.args.clone());
        Reading(spawn_blocking(move || {
            let _turn = turn;
            let place = Place { workspace: workspace.as_deref(), programs: &settings.programs };
            let intent = inner.registry.intend(&tool, &args, &place)?;
            let machine = Machine {
                config: &settings.config.sandbox,
                runner: &settings.runner,
                tiers: inner.tiers(),
                state_directory: &inner.ground.state_directory,
                environment: &settings.environment,
            };
            let (plans, unfit) = candidates(&intent.work, place.workspace.map(Workspace::root), &machine);
            Ok((intent, plans, unfit))
        }))
    }
}
