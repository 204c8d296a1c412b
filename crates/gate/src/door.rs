//! Decides about the connections of one call while it runs.
//!
//! Guarantees: a connection is let through only if policy allows it to a listed host, or a person was shown this host and port, with the call
//! or in a question of its own; policies, lists and standing approvals that change meanwhile count at once, for connections that stand, too, and for
//! those that waited for an answer. Each one is journalled.
//! Refuses: to ask about more than a person can look at. A question that no client waits for any more is withdrawn.
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
use palyra_types::{
    Action, HostName, JsonObject, Resource, ToolName,
    id::{ApprovalId, CallId},
    json::Limits,
};
use tokio::{sync::watch, task::JoinSet};

use crate::{
    account::Account,
    attest::Completed,
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
    /// What was asked about, and what was said.
    asked: Arc<Mutex<HashMap<EgressHost, Arc<Question>>>>,
    /// What was let through, and under which terms: the loosest, if there were several.
    admitted: Mutex<HashMap<EgressHost, Admittance>>,
    /// Questions that are open. They end with this.
    work: Mutex<JoinSet<()>>,
    /// What the journal is told.
    account: Arc<Account>,
}

/// What is said to a connection; nothing yet while somebody is asked. Whoever waits for it listens.
type Question = watch::Sender<Option<Said>>;

/// Yes, by the standing approval of this question, if it was one; or no.
type Said = Result<Option<ApprovalId>, EgressRefusal>;

/// How a connection was let through.
#[derive(Clone, Copy)]
struct Admittance {
    terms: Terms,
    /// The standing approval that did, if one did.
    by: Option<ApprovalId>,
}

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
        let account = Arc::new(Account::of_call(Arc::clone(&inner), proposal.subject()));
        Self {
            inner,
            proposal,
            context,
            declared,
            approved,
            summary,
            asked: Arc::default(),
            admitted: Mutex::default(),
            work: Mutex::default(),
            account,
        }
    }

    /// What the journal is told about the call while it runs.
    pub(crate) const fn account(&self) -> &Arc<Account> {
        &self.account
    }

    /// Waits until everything is on record. To be called when there are no more connections.
    pub(crate) async fn close(&self) {
        // Questions that are still open are nobody's any more.
        lock(&self.asked).clear();
        let mut work = std::mem::take(&mut *self.work());
        while work.join_next().await.is_some() {}
        self.account.close().await;
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
            (Verdict::Ask, terms) => {
                let terms = terms.unwrap_or(UNLISTED);
                // Nobody is asked about what would be refused all the same.
                match self.inner.ground.net.objection(host, port, terms) {
                    Some(refusal) => Judgement::Refused(refusal),
                    None => Judgement::Asks(terms),
                }
            }
        }
    }

    /// Has a person asked, once for each host and port. What a standing approval said is asked for anew when it has been ended.
    fn ask(&self, host: &HostName, port: u16) -> Result<watch::Receiver<Option<Said>>, EgressRefusal> {
        let target = EgressHost { host: host.clone(), port };
        let mut asked = lock(&self.asked);
        let has_ended =
            |known: &Question| matches!(*known.borrow(), Some(Ok(Some(grant))) if self.inner.has_ended(grant));
        if let Some(known) = asked.get(&target).filter(|known| !has_ended(known)) {
            return Ok(known.subscribe());
        }
        // SECURITY: a program could have a person asked without end, and take all questions that its principal may have open.
        if asked.values().filter(|one| one.borrow().is_none()).count() >= MOST_QUESTIONS {
            let detail = format!("{MOST_QUESTIONS} questions about other hosts of this call wait already");
            return Err(EgressRefusal::new(Kind::Unanswered, detail));
        }
        let question = Arc::new(Question::new(None));
        let answer = question.subscribe();
        asked.insert(target.clone(), Arc::clone(&question));
        let (gate, proposal) = (Gate { inner: Arc::clone(&self.inner) }, self.question(host, port));
        let all = Arc::clone(&self.asked);
        self.work().spawn(async move {
            let asking = async {
                match proposal {
                    Ok(proposal) => gate.run_own(proposal).await.map(standing).map_err(|refusal| said_no(&refusal)),
                    Err(refusal) => Err(said_no(&refusal)),
                }
            };
            tokio::pin!(asking);
            loop {
                tokio::select! {
                    said = &mut asking => {
                        question.send_replace(Some(said));
                        return;
                    }
                    () = question.closed() => {
                        // Nobody waits for it any more. The question is withdrawn with the future, unless somebody came meanwhile.
                        let mut asked = lock(&all);
                        if question.receiver_count() == 0 {
                            asked.remove(&target);
                            return;
                        }
                    }
                }
            }
        });
        Ok(answer)
    }

    /// Lets a connection through.
    fn admit(&self, host: &HostName, port: u16, terms: Terms, by: Option<ApprovalId>) -> Ruling {
        let target = EgressHost { host: host.clone(), port };
        let mut admitted = lock(&self.admitted);
        let earlier = admitted.get(&target).map_or(terms, |earlier| looser(earlier.terms, terms));
        admitted.insert(target, Admittance { terms: earlier, by });
        Ruling::Allow(terms)
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

    fn work(&self) -> MutexGuard<'_, JoinSet<()>> {
        lock(&self.work)
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
            match self.judge(host, port) {
                Judgement::Allowed(terms) => return self.admit(host, port, terms, None),
                Judgement::Refused(refusal) => return Ruling::Deny(refusal),
                Judgement::Asks(_) => {}
            }
            let mut answer = match self.ask(host, port) {
                Ok(answer) => answer,
                Err(refusal) => return Ruling::Deny(refusal),
            };
            let said = answer.wait_for(Option::is_some).await.map(|said| said.clone());
            match (said, self.judge(host, port)) {
                // What holds now counts, not what did when the question was asked.
                (Ok(Some(Ok(_))), Judgement::Refused(refusal)) => Ruling::Deny(refusal),
                (Ok(Some(Ok(by))), Judgement::Allowed(terms) | Judgement::Asks(terms)) => {
                    self.admit(host, port, terms, by)
                }
                (Ok(Some(Err(refusal))), _) => Ruling::Deny(refusal),
                (Ok(None) | Err(_), _) => {
                    Ruling::Deny(EgressRefusal::new(Kind::Unanswered, "the question was withdrawn"))
                }
            }
        })
    }

    fn still(&self, host: &HostName, port: u16) -> bool {
        let admitted = lock(&self.admitted).get(&EgressHost { host: host.clone(), port }).copied();
        let Some(Admittance { terms, by }) = admitted else { return false };
        let now = match self.judge(host, port) {
            Judgement::Refused(_) => return false,
            Judgement::Allowed(now) => now,
            Judgement::Asks(now) => {
                let is_standing = by.is_some_and(|grant| !self.inner.has_ended(grant));
                let asked = lock(&self.asked);
                let known = asked.get(&EgressHost { host: host.clone(), port });
                if !is_standing && !known.is_some_and(|one| matches!(*one.borrow(), Some(Ok(None)))) {
                    return false;
                }
                now
            }
        };
        looser(terms, now) == now
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.inner.policies.subscribe()
    }

    fn note(&self, record: ConnectionRecord) {
        self.account.tell(RecordKind::EgressConnection, &record);
    }
}

/// The standing approval that a question was answered by, if it was one.
fn standing(done: Completed) -> Option<ApprovalId> {
    done.receipt.attestation.approver.filter(|approver| approver.covers.is_some()).map(|approver| approver.approval)
}

/// What lets through whatever either does.
pub(crate) fn looser(one: Terms, other: Terms) -> Terms {
    let private = match (one.private, other.private) {
        (PrivateAddresses::Refuse, PrivateAddresses::Refuse) => PrivateAddresses::Refuse,
        _ => PrivateAddresses::Allow,
    };
    Terms { tls: if one.tls == other.tls { one.tls } else { TlsDemand::Any }, private }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What policy says no by.
pub(crate) fn denied(decision: &Decision) -> EgressRefusal {
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
pub(crate) const UNLISTED: Terms = Terms { tls: TlsDemand::ByPort, private: PrivateAddresses::Refuse };

/// The port that most connections are for.
const USUAL: u16 = 443;

/// How many questions of one call wait at the same time.
const MOST_QUESTIONS: usize = 16;

/// How many ports of a host are looked at for its name.
const MOST_GLANCES: usize = 16;
