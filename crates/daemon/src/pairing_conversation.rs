//! The conversation with a device that wants to be paired, from its hello until it is let in or not.
//!
//! Guarantees: a guess counts before it is answered; the daemon proves that it knows the code only to who has; a device is let in once it has
//! said that it kept its certificate, and is out again if it cannot be told so. Whatever comes of it is on record.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use palyra_access::{Actor, NewDevice, Refusal, Reported, change::DeviceActivated};
use palyra_identity::{
    DeviceCertificate,
    pairing::{
        Channel, DaemonSide, End, FrameError, Frames, Granted, Guess, Hello, Message, PairingError, PairingRefusal,
        ProvedDevice, RefusalCode, encode,
    },
};
use palyra_journal::RecordKind;
use palyra_types::DeviceId;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    sync::oneshot,
};
use tokio_rustls::server::TlsStream;

use crate::{
    app::App,
    attempts::Attempt,
    edge::Listener,
    governing::{self, Doer},
    pairings::{Confirmed, Outcome, PairingPlan, ending},
};

/// Talks with a device that wants to be paired.
pub async fn converse(app: Arc<App>, mut stream: TlsStream<TcpStream>, from: SocketAddr) {
    let outcome = tokio::time::timeout(LONGEST, attempt(&app, &mut stream, from)).await;
    let refused = match outcome {
        Ok(Ok(())) => None,
        Ok(Err(Trouble::Gone)) => None,
        Ok(Err(Trouble::Refused(code, why))) => Some((code, why)),
        Err(_) => Some((RefusalCode::TooLate, "the time for pairing is over".to_owned())),
    };
    if let Some((code, why)) = refused {
        let _ = say(&mut stream, &Message::refused(code, why)).await;
    }
    let _ = stream.shutdown().await;
}

/// Why an attempt came to nothing.
enum Trouble {
    /// The device hung up.
    Gone,
    /// It is told why.
    Refused(RefusalCode, String),
}

impl From<PairingRefusal> for Trouble {
    fn from(refusal: PairingRefusal) -> Self {
        Self::Refused(refusal.code(), refusal.to_string())
    }
}

async fn attempt(app: &Arc<App>, stream: &mut TlsStream<TcpStream>, from: SocketAddr) -> Result<(), Trouble> {
    let mut frames = Frames::new();
    let channel = Channel::of_daemon(stream.get_ref().1, &app.certifier.now().server)
        .map_err(|error| Trouble::Refused(RefusalCode::Internal, error.to_string()))?;
    let hello = match hear(stream, &mut frames).await? {
        Message::Hello(hello) => hello,
        _ => return Err(Trouble::Refused(RefusalCode::BadMessage, "a pairing begins with hello".to_owned())),
    };
    let (id, guess) = match app.pairings.begin_attempt(app) {
        Ok(begun) => begun,
        Err(refusal) => {
            // Nothing was guessed, and strangers fill no journal.
            let code = refusal.code().to_string();
            app.attempts.note(Attempt { listener: Listener::Control, from: Some(from.ip()), code });
            return Err(refusal.into());
        }
    };
    let proved = prove(stream, &mut frames, (&guess, hello), &channel).await;
    let (device, proof) = match proved {
        Ok(proved) => proved,
        Err(trouble) => {
            let left = app.pairings.failed(&id, guess);
            let why = match &trouble {
                Trouble::Gone => "the device hung up before it had shown that it knows the code",
                Trouble::Refused(_, why) => why,
            };
            told(app, from, Some(&id), why, left).await;
            return Err(trouble);
        }
    };
    let confirmed = app.pairings.proved(app, (&id, guess), device, from.to_string())?;
    let outcome = match say(stream, &proof).await {
        Ok(()) => wait_and_grant(app, stream, &mut frames, (&id, from), confirmed).await,
        Err(trouble) => Err(trouble),
    };
    match &outcome {
        Ok(device) => app.pairings.settle(&id, Outcome::Paired(device.clone())),
        Err(trouble) => {
            let why = match trouble {
                Trouble::Gone => "the device hung up",
                Trouble::Refused(_, why) => why,
            };
            told(app, from, Some(&id), why, 0).await;
            app.pairings.gone(&id);
            app.pairings.settle(&id, Outcome::Failed(why.to_owned()));
        }
    }
    outcome.map(|_| ())
}

/// Lets a device show that it knows the code, and shows the same.
async fn prove(
    stream: &mut TlsStream<TcpStream>,
    frames: &mut Frames,
    (guess, hello): (&Guess, Hello),
    channel: &Channel,
) -> Result<(ProvedDevice, Message), Trouble> {
    let code = guess.code(hello.method);
    let refused = |error: PairingError| Trouble::Refused(error.code(), error.to_string());
    let (side, challenge) = DaemonSide::begin(&code, hello, channel).map_err(refused)?;
    say(stream, &challenge).await?;
    let proof = hear(stream, frames).await?;
    side.on_proof(proof).map_err(refused)
}

/// Waits for somebody to confirm the device, and gives it its certificate.
async fn wait_and_grant(
    app: &Arc<App>,
    stream: &mut TlsStream<TcpStream>,
    frames: &mut Frames,
    (id, from): (&str, SocketAddr),
    confirmed: oneshot::Receiver<Box<Confirmed>>,
) -> Result<DeviceId, Trouble> {
    let mut nothing = [0; 1];
    let Confirmed { device, actor, doer } = *tokio::select! {
        confirmed = confirmed => confirmed.map_err(|_| Trouble::Refused(RefusalCode::Denied, "it was refused".to_owned()))?,
        // A device says nothing while it waits; whoever does, or hangs up, is gone.
        _ = stream.read(&mut nothing) => return Err(Trouble::Gone),
        why = over(app, id) => return Err(Trouble::Refused(RefusalCode::NotConfirmed, ending(why).to_owned())),
    };
    let plan = app.pairings.plan(id).map_err(|failure| internal(&failure.detail.message))?;
    let granted = Grant { app, pairing: id, actor: &actor, doer: &doer, plan: &plan, device: &device, from };
    let (id, certificate) = granted.prepare().await?;
    let kept = async {
        say(stream, &granted.message(&id, certificate)).await?;
        match hear(stream, frames).await? {
            Message::Kept {} => Ok(()),
            Message::Refused(refused) => Err(Trouble::Refused(RefusalCode::NotKept, refused.message)),
            _ => Err(Trouble::Refused(RefusalCode::BadMessage, "the device did not say that it kept it".to_owned())),
        }
    };
    if let Err(trouble) = kept.await {
        granted.forget(&id).await;
        return Err(trouble);
    }
    if let Err(trouble) = granted.activate(&id).await {
        granted.forget(&id).await;
        return Err(trouble);
    }
    if let Err(trouble) = say(stream, &Message::Done {}).await {
        // Whoever does not hear that they are let in keeps nothing.
        granted.take_back(&id).await;
        return Err(trouble);
    }
    Ok(id)
}

/// A device that is being let in.
struct Grant<'a> {
    app: &'a Arc<App>,
    pairing: &'a str,
    actor: &'a Actor,
    doer: &'a Doer,
    plan: &'a PairingPlan,
    device: &'a ProvedDevice,
    from: SocketAddr,
}

impl Grant<'_> {
    /// Registers the device, which is not let in yet.
    async fn prepare(&self) -> Result<(DeviceId, DeviceCertificate), Trouble> {
        let Self { app, actor, plan, device, from, .. } = *self;
        let id = app.access.fresh_device_id().map_err(|error| internal(&error))?;
        let certificate = app.certifier.certify(device.request(), &id).map_err(|error| internal(&error))?;
        let new = NewDevice {
            id: id.clone(),
            name: plan.name.clone().unwrap_or_else(|| device.name().to_string()),
            principal: plan.principal.clone(),
            role: plan.role,
            key: device.key(),
            observed: Some(from.to_string()),
            reported: Some(Reported { name: device.name().to_string(), os: device.os().to_string() }),
            authority: certificate.authority,
            certificate_until: certificate.validity.until,
            invitation: plan.invitation.clone(),
        };
        let by = actor.clone();
        let pending = app.access.prepare(move |state, at| state.add_device(&by, new, at)).await;
        let pending = pending.map_err(|refusal| Trouble::Refused(RefusalCode::Denied, refusal.to_string()))?;
        pending.commit().await.map_err(|error| internal(&error))?;
        Ok((id, certificate))
    }

    /// What the device is told.
    fn message(&self, id: &DeviceId, certificate: DeviceCertificate) -> Message {
        Message::Granted(Granted {
            device_id: id.clone(),
            certificate: certificate.pem,
            authorities: self.app.certifier.now().authority.bundle_pem(),
            principal: self.plan.principal.to_string(),
            role: self.plan.role.map(|role| role.to_string()),
        })
    }

    /// Lets it in.
    async fn activate(&self, id: &DeviceId) -> Result<(), Trouble> {
        let (id, bundle) = (id.clone(), self.app.certifier.now().authority.bundle_fingerprint());
        let (app, pairing) = (Arc::clone(self.app), self.pairing.to_owned());
        let granted = governing::grant(self.app, RecordKind::DevicePaired, self.doer, move |state, at| {
            // Somebody may have ended it since it was confirmed.
            if app.pairings.is_over(&app, &pairing).is_some() {
                return Err(Refusal::NotAwaiting(id));
            }
            let activated = state.activate_device(&id, at)?;
            state.follow(&id, bundle)?;
            Ok(activated)
        });
        let _: DeviceActivated = granted.await.map_err(|failure| match failure.detail.code.as_str() {
            // The disk's trouble is nobody's no.
            "unkept" | "internal" | "journal_unwritable" | "journal_unreadable" => internal(&failure.detail.message),
            _ => Trouble::Refused(RefusalCode::Denied, failure.detail.message),
        })?;
        Ok(())
    }

    /// Has it out again, whoever confirmed it and whatever became of them.
    async fn take_back(&self, id: &DeviceId) {
        let (gone, why) = (id.clone(), "it did not hear that it was paired");
        let undone = async {
            let pending = self.app.access.prepare(move |state, at| state.disown_device(&gone, why, at)).await;
            let pending = pending.map_err(|refusal| refusal.to_string())?;
            let told = serde_json::json!({ "by": self.doer.principal.to_string(), "id": id, "why": why });
            pending.commit().await.map_err(|error| error.to_string())?;
            let recorded = self.app.gate.record_access(RecordKind::DeviceRevoked, &told).await;
            recorded.map_err(|error| error.to_string())
        };
        if let Err(cause) = undone.await {
            tracing::error!(cause, "a device that did not hear that it was paired may still be let in");
        }
    }

    /// Forgets it again.
    async fn forget(&self, id: &DeviceId) {
        let id = id.clone();
        if let Ok(pending) = self.app.access.prepare(move |state, _| state.forget_device(&id)).await
            && let Err(error) = pending.commit().await
        {
            tracing::error!(%error, "a device that was not paired could not be forgotten; it is not let in, and the next start forgets it");
        }
    }
}

/// Waits until a pairing is over.
async fn over(app: &App, id: &str) -> End {
    loop {
        if let Some(why) = app.pairings.is_over(app, id) {
            return why;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Puts a failed attempt on record.
async fn told(app: &App, from: SocketAddr, pairing: Option<&str>, why: &str, guesses_left: u32) {
    tracing::warn!(%from, why, "a device was not paired");
    let told =
        serde_json::json!({ "from": from.to_string(), "pairing": pairing, "why": why, "guesses_left": guesses_left });
    if let Err(error) = app.gate.record_access(RecordKind::PairingFailed, &told).await {
        tracing::warn!(%error, "an attempt to pair could not be recorded");
    }
}

async fn say(stream: &mut (impl AsyncWrite + Unpin), message: &Message) -> Result<(), Trouble> {
    let bytes = encode(message).map_err(|error| internal(&error))?;
    let writing = async {
        stream.write_all(&bytes).await?;
        stream.flush().await
    };
    match tokio::time::timeout(MESSAGE_WITHIN, writing).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) | Err(_) => Err(Trouble::Gone),
    }
}

async fn hear(stream: &mut (impl AsyncRead + Unpin), frames: &mut Frames) -> Result<Message, Trouble> {
    let bad = |error: FrameError| Trouble::Refused(RefusalCode::BadMessage, error.to_string());
    let reading = async {
        let mut space = [0; 2_048];
        loop {
            if let Some(message) = frames.pop().map_err(bad)? {
                return Ok(message);
            }
            match stream.read(&mut space).await {
                Ok(0) | Err(_) => return Err(Trouble::Gone),
                Ok(count) => frames.push(space.get(..count).unwrap_or_default()).map_err(bad)?,
            }
        }
    };
    let late = |_| Trouble::Refused(RefusalCode::TooLate, "the device was silent for too long".to_owned());
    tokio::time::timeout(MESSAGE_WITHIN, reading).await.map_err(late)?
}

fn internal(error: &dyn std::fmt::Display) -> Trouble {
    Trouble::Refused(RefusalCode::Internal, error.to_string())
}

/// How long one message may take.
const MESSAGE_WITHIN: Duration = Duration::from_secs(15);

/// Longer than a pairing and its confirmation take.
const LONGEST: Duration = Duration::from_secs(360);

const LOOK_AGAIN: Duration = Duration::from_millis(250);
