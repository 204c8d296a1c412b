//! Decides about the connections of one call while it runs.
//!
//! Guarantees: a connection is let through only if policy allows it to a listed host, or a person was shown this host and port, with the call
//! or in a question of its own; policies that change meanwhile count at once, for connections that stand, too. Each one is journalled.
//! Does not: connect. Names that are refused are never asked of anybody.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures_util::future::BoxFuture;
use palyra_journal::RecordKind;
use palyra_policy::{Decision, PolicyRequest, PolicyRequestContext, Verdict};
use palyra_sandbox::{
    EgressHost,
    egress::{
        ConnectionRecord, Doorkeeper, EgressRefusal, EgressRefusalKind as Kind, Glance, HostRule, PrivateAddresses,
        Ruling, Terms, TlsDemand,
    },
};
use palyra_types::{Action, HostName, JsonObject, Resource, ToolName, id::CallId, json::Limits};
use tokio::{sync::watch, task::JoinSet};

use crate::{
    gate::{Gate, Inner, internal},
    proposal::{ToolProposal, Within},
    refusal::Refusal,
    settings::InForce,
    tools::net_connect::NET_CONNECT,
};

/// Decides about the connections of one call.
pub(crate) struct CallDoor {
    inner: Arc<Inner>,
    proposal: Arc<ToolProposal>,
    /// What policy was told about the call.
    context: PolicyRequestContext,
    /// The hosts that the call declared, which were decided about with it.
    declared: BTreeSet<EgressHost>,
    /// Whether a person approved it.
    approved: bool,
    /// What the call does, in one line.
    summary: String,
    /// What was asked about, and what a person said.
    asked: Mutex<HashMap<EgressHost, Asked>>,
    /// Questions that are open and records that are being written. They end with this.
    work: Mutex<JoinSet<()>>,
}

/// What a person says to a connection; nothing yet while they are asked.
type Asked = watch::Receiver<Option<Result<(), EgressRefusal>>>;

/// What a door is made of.
pub(crate) struct CallDoorParts {
    pub(crate) inner: Arc<Inner>,
    pub(crate) proposal: Arc<ToolProposal>,
    pub(crate) context: PolicyRequestContext,
    pub(crate) declared: BTreeSet<EgressHost>,
    pub(crate) approved: bool,
    pub(crate) summary: String,
}

impl CallDoor {
    pub(crate) fn new(parts: CallDoorParts) -> Self {
        let CallDoorParts { inner, proposal, context, declared, approved, summary } = parts;
        Self { inner, proposal, context, declared, approved, summary, asked: Mutex::default(), work: Mutex::default() }
    }

    /// Waits until everything is on record. To be called when there are no more connections.
    pub(crate) async fn close(&self) {
        // Questions that are still open are nobody's any more.
        self.asked().clear();
        let mut work = std::mem::take(&mut *self.work());
        while work.join_next().await.is_some() {}
    }

    /// What policy and the rules say to a connection, before anybody is asked.
    fn judge(&self, host: &HostName, port: u16) -> Judgement {
        let InForce { settings, policies, .. } = self.inner.in_force();
        let resource = Resource::Host(host.clone());
        let request =
            PolicyRequest { principal: self.proposal.principal.clone(), action: Action::NetConnect, resource };
        let context = PolicyRequestContext { port: Some(port), now: self.inner.clock.now(), ..self.context.clone() };
        let decision = policies.decide(&request, &context, &settings.evaluation);
        let rules = &settings.config.egress.host;
        let terms = rules.find(host, port).map(HostRule::terms);
        let declared = self.declared.contains(&EgressHost { host: host.clone(), port });
        match (decision.verdict, terms) {
            (Verdict::Deny, _) => Judgement::Refused(denied(&decision)),
            (Verdict::Allow, Some(terms)) => Judgement::Allowed(terms),
            // The list bounds what policy can allow; a person can go beyond it.
            (Verdict::Allow, None) if declared && self.approved => Judgement::Allowed(UNLISTED),
            (Verdict::Allow, None) => match rules.rule(host, port) {
                Ruling::Deny(refusal) => Judgement::Refused(refusal),
                Ruling::Allow(terms) => Judgement::Allowed(terms),
            },
            (Verdict::Ask, terms) if declared && self.approved => Judgement::Allowed(terms.unwrap_or(UNLISTED)),
            (Verdict::Ask, terms) => Judgement::Asks(terms.unwrap_or(UNLISTED)),
        }
    }

    /// Has a person asked, once for each host and port.
    fn ask(&self, host: &HostName, port: u16) -> Asked {
        let target = EgressHost { host: host.clone(), port };
        let mut asked = self.asked();
        if let Some(known) = asked.get(&target) {
            return known.clone();
        }
        let (answer, answered) = watch::channel(None);
        asked.insert(target, answered.clone());
        let (gate, proposal) = (Gate { inner: Arc::clone(&self.inner) }, self.question(host, port));
        self.work().spawn(async move {
            let asking = async {
                match proposal {
                    Ok(proposal) => gate.run_own(proposal).await.map(drop).map_err(|refusal| said_no(&refusal)),
                    Err(refusal) => Err(said_no(&refusal)),
                }
            };
            tokio::select! {
                said = asking => {
                    let _ = answer.send(Some(said));
                }
                // Nobody waits for it any more. The question is withdrawn with the future.
                () = answer.closed() => {}
            }
        });
        answered
    }

    /// The question as a call of its own, by the same principal in the same run.
    fn question(&self, host: &HostName, port: u16) -> Result<ToolProposal, Refusal> {
        let inner = &self.inner;
        let call = CallId::generate(inner.clock.now(), inner.entropy.as_ref()).map_err(internal)?;
        let args = serde_json::json!({ "host": host.as_str(), "port": port });
        Ok(ToolProposal {
            call,
            tool: ToolName::parse(NET_CONNECT).map_err(internal)?,
            args: JsonObject::try_from_value(args, Limits::default()).map_err(internal)?,
            key: None,
            within: Some(Within { call: self.proposal.call, summary: self.summary.clone() }),
            ..ToolProposal::clone(&self.proposal)
        })
    }

    fn asked(&self) -> MutexGuard<'_, HashMap<EgressHost, Asked>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is said to a connection before anybody is asked.
enum Judgement {
    Allowed(Terms),
    /// A person is to be asked; if they say yes, under these terms.
    Asks(Terms),
    Refused(EgressRefusal),
}

impl Doorkeeper for CallDoor {
    fn glance(&self, host: &HostName) -> Glance {
        let rules = self.inner.settings.load().config.egress.host.clone();
        // The port is not known yet. What any port may be allowed for is told apart when it is.
        let ports = rules.iter().filter(|rule| rule.host.matches(host)).flat_map(|rule| rule.ports.iter().copied());
        let declared = self.declared.iter().filter(|one| one.host == *host).map(|one| one.port);
        let mut refused = None;
        for port in ports.chain(declared).chain([USUAL]).take(MOST_GLANCES) {
            match self.judge(host, port) {
                Judgement::Allowed(_) | Judgement::Asks(_) => return Glance::MayPass,
                Judgement::Refused(refusal) => refused = refused.or(Some(refusal)),
            }
        }
        refused.map_or(Glance::MayPass, Glance::Refused)
    }

    fn decide<'a>(&'a self, host: &'a HostName, port: u16) -> BoxFuture<'a, Ruling> {
        Box::pin(async move {
            let terms = match self.judge(host, port) {
                Judgement::Allowed(terms) => return Ruling::Allow(terms),
                Judgement::Refused(refusal) => return Ruling::Deny(refusal),
                Judgement::Asks(terms) => terms,
            };
            let mut asked = self.ask(host, port);
            match asked.wait_for(Option::is_some).await.map(|said| said.clone()) {
                Ok(Some(Ok(()))) => Ruling::Allow(terms),
                Ok(Some(Err(refusal))) => Ruling::Deny(refusal),
                Ok(None) | Err(_) => Ruling::Deny(EgressRefusal::new(Kind::Unanswered, "the question was withdrawn")),
            }
        })
    }

    fn still(&self, host: &HostName, port: u16) -> bool {
        match self.judge(host, port) {
            Judgement::Allowed(_) => true,
            Judgement::Refused(_) => false,
            Judgement::Asks(_) => {
                let asked = self.asked();
                let known = asked.get(&EgressHost { host: host.clone(), port });
                known.is_some_and(|asked| matches!(*asked.borrow(), Some(Ok(()))))
            }
        }
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.inner.policies.subscribe()
    }

    fn note(&self, record: ConnectionRecord) {
        let Ok(record) = self.inner.record(RecordKind::EgressConnection, self.proposal.subject(), &record) else {
            return;
        };
        let inner = Arc::clone(&self.inner);
        self.work().spawn(async move {
            // A journal in trouble has the call's own attestation to worry about.
            let _ = inner.commit(vec![record], Vec::new()).await;
        });
    }
}

fn denied(decision: &Decision) -> EgressRefusal {
    EgressRefusal::new(Kind::DeniedByPolicy, decision.reason())
}

/// Why a connection that was asked about is not made.
fn said_no(refusal: &Refusal) -> EgressRefusal {
    let kind = match refusal {
        Refusal::Denied(_) => Kind::DeniedByPolicy,
        Refusal::Rejected { .. } => Kind::DeniedByPerson,
        _ => Kind::Unanswered,
    };
    EgressRefusal::new(kind, refusal.to_string())
}

/// What holds for a host that only a person let through.
const UNLISTED: Terms = Terms { tls: TlsDemand::ByPort, private: PrivateAddresses::Refuse };

/// The port that most connections are for.
const USUAL: u16 = 443;

/// How many ports of a host are looked at for its name.
const MOST_GLANCES: usize = 16;
