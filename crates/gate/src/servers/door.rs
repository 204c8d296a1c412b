//! Decides about the connections of one server while it runs.
//!
//! Guarantees: a connection is let through only to a host that the server's configuration names with this port, and only as long as policy does not
//! deny it; what changes meanwhile counts at once, for connections that stand, too. Each one is journalled, or counted where there are many.
//! Does not: ask anybody. Whoever configured the server has said what it may reach; a rule that asks is answered by that.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures_util::future::BoxFuture;
use palyra_policy::{PolicyRequest, PolicyRequestContext, Verdict};
use palyra_sandbox::{
    EgressHost,
    egress::{ConnectionRecord, Doorkeeper, EgressRefusal, EgressRefusalKind as Kind, Glance, HostRule, Ruling, Terms},
};
use palyra_types::{Action, HostName, Principal, Resource};
use tokio::sync::watch;

use super::notes::Notes;
use crate::{
    account::Account,
    door::{UNLISTED, denied, looser},
    gate::Inner,
    settings::InForce,
};

/// Decides about the connections of one server.
pub(super) struct ServerDoor {
    pub(super) inner: Arc<Inner>,
    /// Whose connections they are.
    pub(super) principal: Principal,
    /// What policy was told when the server was started.
    pub(super) context: PolicyRequestContext,
    /// The hosts that its configuration names.
    pub(super) declared: BTreeSet<EgressHost>,
    /// What was let through, and under which terms: the loosest, if there were several.
    pub(super) admitted: Mutex<HashMap<EgressHost, Terms>>,
    pub(super) account: Arc<Account>,
    pub(super) notes: Arc<Notes>,
}

impl ServerDoor {
    fn judge(&self, target: &EgressHost) -> Result<Terms, EgressRefusal> {
        let EgressHost { host, port } = target;
        if !self.declared.contains(target) {
            return Err(not_named(host));
        }
        let InForce { settings, policies, .. } = self.inner.in_force();
        let request = PolicyRequest {
            principal: self.principal.clone(),
            action: Action::NetConnect,
            resource: Resource::Host(host.clone()),
        };
        let context = PolicyRequestContext { port: Some(*port), now: self.inner.clock.now(), ..self.context.clone() };
        let decision = policies.decide(&request, &context, &settings.evaluation);
        if decision.verdict == Verdict::Deny {
            return Err(denied(&decision));
        }
        Ok(settings.config.egress.host.find(host, *port).map_or(UNLISTED, HostRule::terms))
    }

    fn admitted(&self) -> MutexGuard<'_, HashMap<EgressHost, Terms>> {
        self.admitted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Doorkeeper for ServerDoor {
    fn glance(&self, host: &HostName) -> Glance {
        let mut refused = None;
        // The port is not known yet. What any port may be allowed for is told apart when it is.
        for target in self.declared.iter().filter(|one| one.host == *host) {
            match self.judge(target) {
                Ok(_) => return Glance::MayPass,
                Err(refusal) => refused = refused.or(Some(refusal)),
            }
        }
        Glance::Refused(refused.unwrap_or_else(|| not_named(host)))
    }

    fn decide<'a>(&'a self, host: &'a HostName, port: u16) -> BoxFuture<'a, Ruling> {
        Box::pin(async move {
            let target = EgressHost { host: host.clone(), port };
            match self.judge(&target) {
                Ok(terms) => {
                    let mut admitted = self.admitted();
                    let earlier = admitted.get(&target).map_or(terms, |earlier| looser(*earlier, terms));
                    admitted.insert(target, earlier);
                    Ruling::Allow(terms)
                }
                Err(refusal) => Ruling::Deny(refusal),
            }
        })
    }

    fn still(&self, host: &HostName, port: u16) -> bool {
        let target = EgressHost { host: host.clone(), port };
        let Some(terms) = self.admitted().get(&target).copied() else { return false };
        self.judge(&target).is_ok_and(|now| looser(terms, now) == now)
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.inner.policies.subscribe()
    }

    fn note(&self, record: ConnectionRecord) {
        self.notes.note(&record, self.inner.clock.now(), &self.account);
    }
}

fn not_named(host: &HostName) -> EgressRefusal {
    EgressRefusal::new(Kind::NotListed, format!("the server's configuration does not name `{host}` with this port"))
}
