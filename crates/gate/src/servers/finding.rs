//! What a server would be: found, decided about, and planned, before anything of it is started.
//!
//! Guarantees: policy is asked about the server's start and everything that its configuration names, with the program as it was found; what it denies
//! is not planned. Does not: start or record anything. Looks at files, so it belongs on a thread that may wait.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use palyra_policy::{CallRequest, PolicyRequest, PolicyRequestContext, Touch, Verdict};
use palyra_sandbox::ProcessPlan;
use palyra_types::{
    Action, EgressEnforcementMode, ObjectId, ObjectKind, Posture, Principal, PrincipalId, PrincipalKind, Resource,
    SandboxTier, SecretRef, ToolCapability, ToolName, WorkspaceName, id::SessionId,
};

use super::{ServerPlan, directory::OwnDirectory};
use crate::{
    decide::ToolDecision,
    gate::{Inner, internal},
    plan,
    refusal::Refusal,
    secret::{SecretArgs, SecretUse},
    service::Asker,
    settings::{InForce, Settings},
    tool::{IntendError, Look, Place, ProcessWork},
    tools::{
        CallError,
        process_run::{Wanted, touches},
    },
    workspace::Workspace,
};

/// A server that was found, and that policy lets start.
pub(super) struct FoundServer {
    pub(super) asking: Asking,
    pub(super) work: ProcessWork,
    pub(super) plan: ProcessPlan,
    pub(super) workspace: Arc<Workspace>,
    /// The directory that only it has, if it works in no workspace.
    pub(super) own: Option<OwnDirectory>,
    pub(super) settings: Arc<Settings>,
}

/// What policy is asked about a server.
#[derive(Clone)]
pub(super) struct Asking {
    pub(super) principal: Principal,
    server: ObjectId,
    touches: Vec<Touch>,
    pub(super) context: PolicyRequestContext,
}

impl Asking {
    /// What policy says now, or why it denies. A rule that asks is answered by whoever configured the server.
    ///
    /// # Errors
    /// When it denies something of it.
    pub(super) fn ask(&self, inner: &Inner) -> Result<(), Box<ToolDecision>> {
        self.ask_about(inner, self.touches.clone())
    }

    /// The same for a server that runs: its hosts are decided about one by one, as it connects to them.
    pub(super) fn ask_again(&self, inner: &Inner) -> Result<(), Box<ToolDecision>> {
        let still = self.touches.iter().filter(|touch| !matches!(touch, Touch::Connect(..)));
        self.ask_about(inner, still.cloned().collect())
    }

    fn ask_about(&self, inner: &Inner, touches: Vec<Touch>) -> Result<(), Box<ToolDecision>> {
        let InForce { settings, policies, .. } = inner.in_force();
        let request = PolicyRequest {
            principal: self.principal.clone(),
            action: Action::McpStart,
            resource: Resource::Object(ObjectKind::McpServer, self.server.clone()),
        };
        let context = PolicyRequestContext { now: inner.clock.now(), ..self.context.clone() };
        let decision = policies.decide_call(&CallRequest { request, touches }, &context, &settings.evaluation);
        if decision.verdict != Verdict::Deny {
            return Ok(());
        }
        Err(Box::new(ToolDecision {
            verdict: decision.verdict,
            approval_required: false,
            plan: None,
            decision,
            unfit: Vec::new(),
            detail: None,
            posture: context.posture,
            posture_from: None,
            policy_set: policies.digest(),
        }))
    }
}

impl Inner {
    /// Finds a server, and asks policy about it.
    pub(super) fn find_server(&self, plan: ServerPlan) -> Result<FoundServer, Refusal> {
        let settings = self.in_force().settings;
        let named = format!("mcp.{}", plan.name);
        let principal = Principal::new(PrincipalKind::Service, PrincipalId::parse(&named).map_err(internal)?);
        let tool = ToolName::parse(&named).map_err(internal)?;
        let (workspace, own) = self.place_of(plan.workspace.as_ref(), &settings)?;
        let work = self.read_server(&plan, (&principal, &tool), &workspace, &settings)?;
        let asking = asking(principal, &plan, &work, &workspace);
        asking.ask(self).map_err(Refusal::Denied)?;
        let process = plan::of_server(&work, workspace.root(), plan.egress, &settings.machine());
        let plan = process.map_err(|unfit| Refusal::NoPlan(vec![unfit]))?;
        Ok(FoundServer { asking, work, plan, workspace, own, settings })
    }

    /// Where it works: in a workspace, or else in a directory that only it has.
    fn place_of(
        &self,
        workspace: Option<&WorkspaceName>,
        settings: &Settings,
    ) -> Result<(Arc<Workspace>, Option<OwnDirectory>), Refusal> {
        if let Some(name) = workspace {
            let found = settings.workspace(name).ok_or_else(|| Refusal::UnknownWorkspace(name.clone()))?;
            return Ok((found, None));
        }
        let ground = &self.ground;
        let own = OwnDirectory::make(&ground.temporary(), &ground.servers_directory(), self.entropy.as_ref());
        let own = own.map_err(internal)?;
        let name = WorkspaceName::parse(OWN_WORKSPACE).map_err(internal)?;
        let opened = Workspace::open(name, own.path(), &ground.state_directory).map_err(internal)?;
        Ok((Arc::new(opened), Some(own)))
    }

    /// What it would run.
    fn read_server(
        &self,
        plan: &ServerPlan,
        (principal, tool): (&Principal, &ToolName),
        workspace: &Workspace,
        settings: &Settings,
    ) -> Result<ProcessWork, Refusal> {
        let session = SessionId::generate(self.clock.now(), self.entropy.as_ref()).map_err(internal)?;
        let bindings = |secret: &SecretRef, tool: &ToolName| self.bindings_for(secret, tool);
        let place = Place {
            workspace: Some(workspace),
            asker: Asker {
                principal,
                device: None,
                token: None,
                member_of: None,
                channel: None,
                session,
                workspace: plan.workspace.as_ref(),
            },
            programs: &settings.programs,
            look: Look::Whole,
            bindings: &bindings,
        };
        let meaningless = |error: IntendError| Refusal::Call(CallError::Intend(error));
        let named = plan.secrets.iter().map(|(variable, secret)| (variable.clone(), secret.to_string()));
        let secrets = SecretArgs { secrets: named.collect::<BTreeMap<_, _>>(), ..SecretArgs::default() };
        let secrets = secrets.for_process(tool, &plan.env, &place).map_err(meaningless)?;
        // Told as it is: without a vault no secret is bound anywhere, which would be the reason otherwise.
        if let ([_, ..], Err(closed)) = (secrets.as_slice(), self.opened_vault()) {
            return Err(Refusal::Call(CallError::NoVault { is_locked: closed.is_locked() }));
        }
        let wanted = Wanted {
            command: plan.command.clone(),
            cwd: None,
            env: plan.env.clone(),
            hosts: plan.hosts.iter().cloned().collect(),
            secrets,
        };
        wanted.work(&place).map_err(meaningless)
    }
}

fn asking(principal: Principal, plan: &ServerPlan, work: &ProcessWork, workspace: &Workspace) -> Asking {
    let mut touched = touches(work);
    if plan.workspace.is_some() {
        touched.extend([Touch::Read(workspace.root().clone()), Touch::Write(workspace.root().clone())]);
    }
    let has_network = !plan.hosts.is_empty() || plan.egress != EgressEnforcementMode::Strict;
    let capabilities = [
        (ToolCapability::ProcessExec, true),
        (ToolCapability::Network, has_network),
        (ToolCapability::SecretsUse, !work.secrets.is_empty()),
        (ToolCapability::FilesystemRead, plan.workspace.is_some()),
        (ToolCapability::FilesystemWrite, plan.workspace.is_some()),
    ];
    let bound = work.secrets.iter().filter(|one: &&SecretUse| !one.bindings.is_empty());
    let context = PolicyRequestContext {
        capabilities: capabilities.into_iter().filter(|(_, has)| *has).map(|(one, _)| one).collect::<BTreeSet<_>>(),
        workspace: plan.workspace.clone(),
        process: Some(work.process()),
        configured: true,
        bound_secrets: bound.map(|one| one.secret.clone()).collect(),
        posture: Posture::AskEachTime,
        tier: Some(SandboxTier::C),
        egress: Some(plan.egress),
        ..PolicyRequestContext::at(palyra_types::Timestamp::from_unix_millis(0))
    };
    Asking { principal, server: plan.name.clone(), touches: touched, context }
}

/// What a directory is called as a workspace that is none.
const OWN_WORKSPACE: &str = "own";
