//! Servers that somebody else runs: whether the daemon may connect to them and send them secrets.
//!
//! Guarantees: policy is asked as it is about servers that the daemon starts, in the name of `service:mcp.NAME`: about the server, about its host,
//! and about each secret. It lets what is configured, unless a rule forbids it; what it takes back is noticed at once. A refusal is on record.
//! Does not: connect, or take secrets out of the vault.

use std::collections::BTreeSet;

use palyra_journal::RecordKind;
use palyra_policy::{PolicyRequest, PolicyRequestContext, Verdict};
use palyra_types::{
    Action, ObjectId, ObjectKind, Posture, Principal, PrincipalId, PrincipalKind, Resource, SecretRef, ToolCapability,
    VaultScope,
};
use serde_json::json;

use crate::{
    gate::{Gate, Inner, internal},
    refusal::Refusal,
    settings::InForce,
    tool::HostPort,
};

/// A server that somebody else runs, as it is configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerAddress {
    /// Its name.
    pub name: ObjectId,
    /// Where it is.
    pub place: HostPort,
    /// The secrets that it is sent.
    pub secrets: BTreeSet<SecretRef>,
}

impl Gate {
    /// Asks whether a server may be connected to. A rule that asks is answered by whoever configured the server.
    ///
    /// # Errors
    /// When policy forbids something of it, or that cannot be recorded.
    pub async fn may_connect_to(&self, server: &ServerAddress) -> Result<(), Refusal> {
        let Err(refusal) = self.inner.ask_about(server) else { return Ok(()) };
        let told = json!({ "server": server.name, "refused": refusal.to_string() });
        self.inner.tell(RecordKind::ServerStarted, &told).await?;
        Err(refusal)
    }

    /// Waits until policy does not let it be connected to any more, and says why.
    pub async fn forbidden_to_connect_to(&self, server: &ServerAddress) -> Refusal {
        let mut changes = self.inner.policies.subscribe();
        loop {
            if let Err(refusal) = self.inner.ask_about(server) {
                return refusal;
            }
            if changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

impl Inner {
    fn ask_about(&self, server: &ServerAddress) -> Result<(), Refusal> {
        let ServerAddress { name, place, secrets } = server;
        let id = PrincipalId::parse(&format!("mcp.{name}")).map_err(internal)?;
        let principal = Principal::new(PrincipalKind::Service, id);
        let sends = (!secrets.is_empty()).then_some(ToolCapability::SecretsUse);
        let context = PolicyRequestContext {
            capabilities: sends.into_iter().chain([ToolCapability::Network]).collect(),
            configured: true,
            // What is configured says where they are sent, and in which header: that is their binding.
            bound_secrets: secrets.iter().cloned().collect(),
            posture: Posture::AskEachTime,
            ..PolicyRequestContext::at(self.clock.now())
        };
        let start = (Action::McpStart, Resource::Object(ObjectKind::McpServer, name.clone()), context.clone());
        let port = PolicyRequestContext { port: Some(place.port), ..context.clone() };
        let connect = (Action::NetConnect, Resource::Host(place.host.clone()), port);
        let using = |secret: &SecretRef| {
            // Such a server works in no workspace, so a secret of one is used where that belongs.
            let workspace = match secret.scope() {
                VaultScope::Workspace(name) => Some(name.clone()),
                _ => None,
            };
            let context = PolicyRequestContext { workspace, ..context.clone() };
            (Action::VaultUse, Resource::Secret(secret.clone()), context)
        };
        let InForce { settings, policies, .. } = self.in_force();
        for (action, resource, context) in [start, connect].into_iter().chain(secrets.iter().map(using)) {
            let request = PolicyRequest { principal: principal.clone(), action, resource };
            let decision = policies.decide(&request, &context, &settings.evaluation);
            if decision.verdict == Verdict::Deny {
                return Err(Refusal::NotPermitted(decision.reason()));
            }
        }
        Ok(())
    }
}
