//! Pairing: one at a time, its codes, and what its operator sees of it and says to it. `pairing_conversation.rs` talks with the device.
//!
//! Guarantees: whoever does not know the PIN or the secret learns nothing and uses up a guess; a device gets its certificate only after
//! somebody confirmed the key that they were shown; a device that does not say that it kept its certificate is not paired; every attempt is
//! on record. Does not: outlive the daemon. A pairing that was open is over with it.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use palyra_access::{Actor, Ended};
use palyra_api::device as wire;
use palyra_identity::{
    grouped,
    pairing::{End, Guess, Pairing, PairingRefusal, PairingState, ProvedDevice, qr_modules},
};
use palyra_journal::RecordKind;
use palyra_types::{DeviceId, Principal, Sha256Digest, WorkspaceRole, id::ApprovalId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};

use crate::{app::App, failure::Failure, governing::Doer};

/// The pairing that is open, if one is.
pub struct Pairings {
    open: Mutex<Option<Open>>,
    /// How many conversations with devices there may be at once.
    places: Arc<Semaphore>,
}

impl Default for Pairings {
    fn default() -> Self {
        Self { open: Mutex::default(), places: Arc::new(Semaphore::new(MOST_CONVERSATIONS)) }
    }
}

/// What a device will be, once it is paired.
#[derive(Debug, Clone)]
pub struct PairingPlan {
    /// Whom it stands for.
    pub principal: Principal,
    /// The most that it may do.
    pub role: Option<WorkspaceRole>,
    /// What to call it, if not as it calls itself.
    pub name: Option<String>,
    /// The invitation that it is for.
    pub invitation: Option<palyra_types::ObjectId>,
    /// Who opened it.
    pub opener: Doer,
}

struct Open {
    id: String,
    pairing: Pairing,
    plan: PairingPlan,
    /// Hands a confirmed device to whoever talks with it.
    confirmed: Option<oneshot::Sender<Box<Confirmed>>>,
    outcome: watch::Sender<Outcome>,
}

/// A device that somebody confirmed.
pub(crate) struct Confirmed {
    pub(crate) device: ProvedDevice,
    pub(crate) actor: Actor,
    pub(crate) doer: Doer,
}

/// What came of a pairing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Open,
    Paired(DeviceId),
    Failed(String),
}

impl Pairings {
    /// Opens a pairing, if none is open.
    ///
    /// # Errors
    /// When one is, or there is no randomness or no address to connect to.
    pub fn open(&self, app: &Arc<App>, plan: PairingPlan) -> Result<wire::OpenPairing, Failure> {
        let internal = |error: &dyn std::fmt::Display| Failure::internal(error.to_string());
        let address = app.reachable.clone().ok_or_else(unreachable_from_elsewhere)?;
        let mut open = self.lock();
        if let Some(one) = open.as_ref().filter(|one| one.is_under_way(app)) {
            return Err(Failure::new(
                "pairing_open",
                format!("the pairing {} is open, by {}, and there is one at a time", one.id, one.plan.opener.principal),
                format!("wait until its time is over, or end it: `palyra devices pairing {} --end`", one.id),
            ));
        }
        let pairing = Pairing::open(app.clock.as_ref(), app.entropy.as_ref()).map_err(|error| internal(&error))?;
        let id = ApprovalId::generate(app.clock.now(), app.entropy.as_ref()).map_err(|error| internal(&error))?;
        let authority = app.certifier.now().authority.fingerprint();
        let qr = pairing.code().qr(address.clone(), authority).to_text();
        let told = wire::OpenPairing {
            id: id.to_string(),
            pin: pairing.code().pin().as_str().to_owned(),
            modules: qr_modules(&qr).map_err(|error| internal(&error))?,
            qr: qr.to_string(),
            address: address.to_string(),
            authority: grouped(&authority),
            guesses: guesses(&pairing.state(app.clock.as_ref())),
            until: pairing.until(),
            principal: plan.principal.to_string(),
            role: plan.role,
        };
        let outcome = watch::channel(Outcome::Open).0;
        *open = Some(Open { id: id.to_string(), pairing, plan, confirmed: None, outcome });
        drop(open);
        tokio::spawn(watch_over(Arc::clone(app), id.to_string()));
        Ok(told)
    }

    /// How a pairing stands.
    ///
    /// # Errors
    /// When there is no such pairing.
    pub fn show(&self, app: &App, id: &str) -> Result<wire::Pairing, Failure> {
        self.lock().as_ref().filter(|one| one.id == id).map(|one| one.told(app)).ok_or_else(|| unknown(id))
    }

    /// What a device of a pairing will be.
    ///
    /// # Errors
    /// When there is no such pairing.
    pub fn plan(&self, id: &str) -> Result<PairingPlan, Failure> {
        self.lock().as_ref().filter(|one| one.id == id).map(|one| one.plan.clone()).ok_or_else(|| unknown(id))
    }

    /// Says that the device with this key is the one that was meant, and waits until it is paired or not.
    ///
    /// # Errors
    /// When no such device waits, or it is not paired.
    pub async fn confirm(
        &self,
        app: &App,
        id: &str,
        key: Sha256Digest,
        (actor, doer): (Actor, Doer),
    ) -> Result<wire::Pairing, Failure> {
        let mut outcome = {
            let mut open = self.lock();
            let one = open.as_mut().filter(|one| one.id == id).ok_or_else(|| unknown(id))?;
            let device = one.pairing.confirm(&key, app.clock.as_ref());
            let device = device.map_err(|error| Failure::new("no_pairing", error.to_string(), error.advice()))?;
            let outcome = one.outcome.subscribe();
            let handed = one.confirmed.take().map(|to| to.send(Box::new(Confirmed { device, actor, doer })));
            if !matches!(handed, Some(Ok(()))) {
                one.outcome.send_replace(Outcome::Failed("the device hung up".to_owned()));
            }
            outcome
        };
        let _ = outcome.wait_for(|outcome| *outcome != Outcome::Open).await;
        self.show(app, id)
    }

    /// Ends a pairing, or says no to the device that waits.
    ///
    /// # Errors
    /// When there is no such pairing.
    pub fn end(&self, app: &App, id: &str) -> Result<wire::Pairing, Failure> {
        let mut open = self.lock();
        let one = open.as_mut().filter(|one| one.id == id).ok_or_else(|| unknown(id))?;
        one.pairing.deny();
        one.confirmed = None;
        Ok(one.told(app))
    }

    /// Ends the pairing that is open, if one of these opened it.
    pub fn end_those_of(&self, ended: &Ended) {
        if let Some(one) = self.lock().as_mut() {
            let opener = &one.plan.opener.shown;
            let theirs = opener.device().is_some_and(|id| ended.devices.contains(id))
                || opener.token().is_some_and(|id| ended.tokens.contains(id));
            if theirs {
                one.pairing.deny();
                one.confirmed = None;
            }
        }
    }

    /// A place for one more conversation with a device, if there is one.
    pub(crate) fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.places).try_acquire_owned().ok()
    }

    pub(crate) fn begin_attempt(&self, app: &App) -> Result<(String, Guess), PairingRefusal> {
        let mut open = self.lock();
        let one = open.as_mut().ok_or(PairingRefusal::Over(End::TooLate))?;
        Ok((one.id.clone(), one.pairing.begin_attempt(app.clock.as_ref())?))
    }

    pub(crate) fn failed(&self, id: &str, guess: Guess) -> u32 {
        let mut open = self.lock();
        let Some(one) = open.as_mut().filter(|one| one.id == id) else { return 0 };
        one.pairing.failed(guess);
        one.pairing.guesses_left()
    }

    /// Puts a device that knew the code in front of the operator.
    pub(crate) fn proved(
        &self,
        app: &App,
        (id, guess): (&str, Guess),
        device: ProvedDevice,
        observed: String,
    ) -> Result<oneshot::Receiver<Box<Confirmed>>, PairingRefusal> {
        let mut open = self.lock();
        let one = open.as_mut().filter(|one| one.id == id).ok_or(PairingRefusal::Over(End::TooLate))?;
        one.pairing.proved(guess, device, observed, app.clock.as_ref())?;
        let (confirmed, waits) = oneshot::channel();
        one.confirmed = Some(confirmed);
        Ok(waits)
    }

    pub(crate) fn is_over(&self, app: &App, id: &str) -> Option<End> {
        let open = self.lock();
        let one = open.as_ref().filter(|one| one.id == id)?;
        match one.pairing.state(app.clock.as_ref()) {
            PairingState::Over { why } => Some(why),
            _ => None,
        }
    }

    pub(crate) fn gone(&self, id: &str) {
        if let Some(one) = self.lock().as_mut().filter(|one| one.id == id) {
            one.pairing.gone();
            one.confirmed = None;
        }
    }

    pub(crate) fn settle(&self, id: &str, outcome: Outcome) {
        if let Some(one) = self.lock().as_ref().filter(|one| one.id == id) {
            one.outcome.send_replace(outcome);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    fn is_under_way(&self, app: &App) -> bool {
        *self.outcome.borrow() == Outcome::Open
            && !matches!(self.pairing.state(app.clock.as_ref()), PairingState::Over { .. })
    }

    fn told(&self, app: &App) -> wire::Pairing {
        let state = self.pairing.state(app.clock.as_ref());
        let until = self.pairing.until();
        let left = until.unix_millis().saturating_sub(app.clock.now().unix_millis());
        let mut told = wire::Pairing {
            id: self.id.clone(),
            state: wire::PairingState::Waiting,
            guesses: self.pairing.guesses_left(),
            until,
            seconds_left: u32::try_from(left.div_euclid(1_000)).unwrap_or_default(),
            device: None,
            why: None,
            paired: None,
        };
        match (&*self.outcome.borrow(), state) {
            (Outcome::Paired(device), _) => {
                told.state = wire::PairingState::Paired;
                told.paired = Some(device.clone());
            }
            (Outcome::Failed(why), _) => {
                told.state = wire::PairingState::Over;
                told.why = Some(why.clone());
            }
            (Outcome::Open, PairingState::Waiting { .. }) => {}
            (Outcome::Open, PairingState::Proved { observed, name, os, key }) => {
                told.state = wire::PairingState::Proved;
                told.device = Some(wire::Candidate {
                    observed: wire::Observed { address: observed, fingerprint: grouped(&key), key },
                    reported: wire::Reported { name: name.to_string(), os: os.to_string() },
                });
            }
            (Outcome::Open, PairingState::Confirmed) => told.state = wire::PairingState::Confirmed,
            (Outcome::Open, PairingState::Over { why }) => {
                told.state = wire::PairingState::Over;
                told.why = Some(ending(why).to_owned());
            }
        }
        told
    }
}

/// Puts on record that a pairing came to nothing, if it does.
async fn watch_over(app: Arc<App>, id: String) {
    loop {
        tokio::time::sleep(LOOK_AGAIN).await;
        let Ok(pairing) = app.pairings.show(&app, &id) else { return };
        match (pairing.state, app.pairings.is_over(&app, &id)) {
            (wire::PairingState::Paired, _) => return,
            (wire::PairingState::Over, Some(why @ (End::TooLate | End::Denied | End::UsedUp))) => {
                let told = serde_json::json!({ "pairing": id, "why": ending(why) });
                if let Err(error) = app.gate.record_access(RecordKind::PairingFailed, &told).await {
                    tracing::warn!(%error, "the end of a pairing could not be recorded");
                }
                return;
            }
            (wire::PairingState::Over, _) => return,
            _ => {}
        }
    }
}

const fn guesses(state: &PairingState) -> u32 {
    match state {
        PairingState::Waiting { guesses_left } => *guesses_left,
        _ => 0,
    }
}

/// The end of a pairing, in words.
pub(crate) const fn ending(why: End) -> &'static str {
    match why {
        End::UsedUp => "all guesses were wrong",
        End::TooLate => "its time was over",
        End::NotConfirmed => "nobody confirmed the device in time",
        End::Denied => "it was refused",
        End::Gone => "the device hung up",
    }
}

fn unknown(id: &str) -> Failure {
    let id = palyra_types::visible::visible(id);
    Failure::new("no_pairing", format!("there is no pairing `{id}`"), "open one: `palyra devices pair`")
}

fn unreachable_from_elsewhere() -> Failure {
    Failure::new(
        "no_address",
        "the control listener is on all addresses, and nothing says by which one devices reach it",
        "set `names` under [listen] in config.toml to the name or address of this machine, and start the daemon anew",
    )
}

const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// Strangers can have that many, and a device that is meant waits for one of them to go.
const MOST_CONVERSATIONS: usize = 64;
