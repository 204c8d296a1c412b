//! `palyra pair`: this device becomes known to a daemon.
//!
//! Guarantees: the key is made here and never leaves; nothing is kept under a name before the daemon lets the device in, so that whatever
//! interrupts this leaves no file, or a whole one that the daemon knows; what is kept replaces nothing but what is of no use any more.
//! Does not: open the pairing. That is `palyra devices pair`, on a device that is let in.

mod about;
mod code;
mod granted;
mod kept;
mod line;
mod refused;

use std::{cell::Cell, path::PathBuf, time::Duration};

use clap::Args;
use palyra_daemon::{Contact, environment};
use palyra_identity::{
    Address, DeviceIdentity,
    address::AddressError,
    grouped, new_device_key,
    pairing::{DeviceHello, DeviceSide, Granted, Message, PairingError, Proved, RefusalCode, Refused},
};
use palyra_types::{Clock, HostName, StateHome, Timestamp, clock::SystemClock, visible::visible};
use serde::Serialize;

use self::{
    code::Known,
    line::{Line, PATIENCE},
};
use crate::{
    Outcome,
    at::At,
    connection::{block_on, home},
    exit::Exit,
    failure::Failure,
    paired::{DaemonName, Paired, PairedDaemon, Place},
    stop::Stop,
    terminal::{BOLD, GOOD, Terminal},
};

#[derive(Args)]
pub(crate) struct PairArgs {
    /// Where the daemon is, such as palyra.lan or palyra.lan:7718. The text of a QR code says it by itself.
    #[arg(value_parser = address)]
    address: Option<Address>,
    /// What to call the daemon here. Else the host of its address.
    #[arg(long)]
    name: Option<DaemonName>,
    /// Read the PIN, or the text of the QR code, from this file; `-` for standard input. Else it is asked for.
    #[arg(long, value_name = "FILE")]
    code_file: Option<PathBuf>,
    /// List the daemons that this device is paired with.
    #[arg(long, conflicts_with_all = ["address", "name", "code_file", "forget"])]
    list: bool,
    /// Remove what this device keeps of the daemon of this name. The daemon is not told.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["address", "name", "code_file"])]
    forget: Option<DaemonName>,
}

pub(crate) fn run(args: &PairArgs, at: &At, terminal: &Terminal) -> Outcome {
    if args.list {
        return kept::list(&Paired::of(&home()?), terminal);
    }
    if let Some(name) = &args.forget {
        return kept::forget(name, &Paired::of(&home()?), terminal);
    }
    if let At::Named(name) = at {
        let help = "leave --at out, and PALYRA_AT unset; --name says what to call the new one";
        let cause = format!("--at names `{name}`, and a daemon that is paired with is a new one");
        return Err(Failure::new(Exit::Usage, "usage", "nothing was paired", cause, help));
    }
    let home = home()?;
    let paired = Paired::make(&home)?;
    let address = args.address.as_ref();
    let given = args.code_file.as_deref().map(code::from_file).transpose()?;
    let daemon = block_on(async {
        // From here on nothing ends this without tidying up.
        let mut stop = Stop::new()?;
        let begun = Cell::new(Begun::Nothing);
        let whole = async {
            if let (Some(name), Some(address)) = (&args.name, address) {
                name_is_free(name, address, &paired).await?;
            }
            let text = match given {
                Some(text) => text,
                None => code::ask(address).await?,
            };
            let known = Known::read(&text, address)?;
            if let (Some(name), None) = (&args.name, address) {
                name_is_free(name, &known.address, &paired).await?;
            }
            begun.set(Begun::Pairing);
            pair(args, known, &paired, terminal).await
        };
        tokio::select! {
            daemon = whole => daemon,
            () = stop.come() => Err(interrupted(begun.get())),
        }
    })?;
    tell(&daemon, &paired, &home, terminal)
}

/// How far it is.
#[derive(Clone, Copy)]
enum Begun {
    /// Nobody was asked for anything yet.
    Nothing,
    /// The daemon was spoken to.
    Pairing,
}

fn interrupted(begun: Begun) -> Failure {
    let (cause, help) = match begun {
        Begun::Nothing => (
            "it was interrupted before anything was sent",
            "the code still works while its time lasts; `palyra pair` asks for it again",
        ),
        Begun::Pairing => ("it was interrupted, and this device has kept nothing", LEFT_THERE),
    };
    Failure::new(Exit::Interrupted, "interrupted", "nothing was paired", cause, help)
}

/// Refuses a name that another daemon has, or one that lets this device in still.
async fn name_is_free(name: &DaemonName, address: &Address, paired: &Paired) -> Result<(), Failure> {
    if !paired.has(name) {
        return Ok(());
    }
    let kept = paired.read(name);
    if let Ok(kept) = &kept
        && refused::may_be_replaced(kept, address).await
    {
        return Ok(());
    }
    let place = kept.map(|kept| format!(", at {}", kept.identity.address)).unwrap_or_default();
    let cause = format!("this device is paired with a daemon named `{name}` already{place}");
    let help = format!("choose another name, or forget that one first: `palyra pair --forget {name}`");
    Err(Failure::new(Exit::Usage, "name_taken", "nothing was paired", cause, help))
}

/// The whole of it, to a daemon that is kept.
async fn pair(args: &PairArgs, known: Known, paired: &Paired, terminal: &Terminal) -> Result<PairedDaemon, Failure> {
    let address = known.address.clone();
    let mut line = Line::connect(&address).await?;
    let (key, request) = new_device_key().map_err(|error| {
        Failure::new(Exit::Failure, "no_key", "there is no key for this device", error.to_string(), error.advice())
    })?;
    let (Some(name), Some(os)) = (about::name(), about::system()) else { return Err(failed(&PairingError::Internal)) };
    let proved = prove(known, DeviceHello { request, name, os }, &mut line).await?;
    terminal.talk(format!("this device's key: {}", terminal.paint_err(BOLD, &grouped(&proved.key()))));
    terminal.talk("compare it with what the other screen shows, and say yes there");

    // While somebody makes up their mind there.
    let replaced = refused::find(paired, args.name.as_ref(), &address, proved.authority()).await;
    let Granted { device_id, certificate, authorities, principal, role } = grant(&proved, &mut line).await?;
    let (name, place) = match replaced {
        Some(name) => (name, Place::Taken),
        None => (paired.unused(&args.name.clone().unwrap_or_else(|| DaemonName::of(&address))), Place::New),
    };
    let identity = DeviceIdentity {
        name: name.to_string(),
        address,
        authorities,
        certificate,
        key,
        device: device_id,
        principal,
        role,
    };
    let daemon = keep(identity, place, paired, &mut line).await?;
    if place == Place::Taken {
        terminal.talk(format!("what was kept as {name} before is replaced: it was of no use there any more"));
    }
    Ok(daemon)
}

/// Both sides prove to each other that they know the code.
async fn prove(known: Known, hello: DeviceHello, line: &mut Line) -> Result<Proved, Failure> {
    let channel = line.channel()?;
    // SECURITY: a QR code names the authority. Whoever has another one is not tried with, so that no guess is lost on them.
    if known.authority.is_some_and(|authority| authority != channel.ca) {
        let what = format!("whoever listens at {} is not the daemon of the QR code", known.address);
        let cause = "it has another authority than the code says";
        let help = "check that the code is of the pairing that is open now; if it is, somebody is in the middle: use another network";
        return Err(Failure::new(Exit::Unreachable, "stranger", what, cause, help));
    }
    let (side, message) = DeviceSide::begin(known.code, hello, channel);
    line.send(&message).await?;
    let (side, message) = match side.on_challenge(line.receive(PATIENCE).await?) {
        Ok(next) => next,
        Err(error) => return Err(give_up(&error, line).await),
    };
    line.send(&message).await?;
    match side.on_proof(line.receive(PATIENCE).await?) {
        Ok(proved) => Ok(proved),
        Err(error) => Err(give_up(&error, line).await),
    }
}

/// Waits for somebody to say yes, and takes what the daemon grants then.
async fn grant(proved: &Proved, line: &mut Line) -> Result<Granted, Failure> {
    match proved.on_granted(line.receive(FOR_A_PERSON).await?) {
        Ok(granted) if granted::is_signed_by(&granted, proved.authority(), SystemClock::new().now()) => Ok(granted),
        Ok(_) => Err(give_up(&PairingError::ForeignCertificate, line).await),
        Err(error) => Err(give_up(&error, line).await),
    }
}

/// Writes down what was granted, tells the daemon so, and puts it in use once the daemon lets this device in.
async fn keep(
    identity: DeviceIdentity,
    place: Place,
    paired: &Paired,
    line: &mut Line,
) -> Result<PairedDaemon, Failure> {
    let pending = match paired.keep(identity, place) {
        Ok(pending) => pending,
        Err(error) => {
            let _ = line.send(&Message::refused(RefusalCode::NotKept, "the device could not keep it")).await;
            let what = "nothing was paired";
            return Err(Failure::new(Exit::Failure, "not_kept", what, error.to_string(), error.advice()));
        }
    };
    line.send(&Message::Kept {}).await?;
    match line.receive(PATIENCE).await {
        Ok(Message::Done {}) => {}
        Ok(Message::Refused(refused)) => return Err(failed(&PairingError::Refused(refused))),
        Ok(other) => return Err(failed(&PairingError::Unexpected { expected: "done", got: other.kind() })),
        Err(failure) => return Err(Failure { help: LEFT_THERE.to_owned(), ..failure }),
    }
    pending.settle().map_err(|cause| {
        let what = "the daemon has paired this device, and it cannot be kept here";
        Failure::new(Exit::Failure, "not_kept", what, cause, LEFT_THERE)
    })
}

/// Tells the daemon why this ends, unless it said so itself.
async fn give_up(error: &PairingError, line: &mut Line) -> Failure {
    if !matches!(error, PairingError::Refused(_)) {
        let _ = line.send(&error.to_message()).await;
    }
    failed(error)
}

fn failed(error: &PairingError) -> Failure {
    let code = error.code().as_str();
    let exit = match error.code() {
        RefusalCode::Denied => Exit::Rejected,
        RefusalCode::NotConfirmed | RefusalCode::TooLate => Exit::Expired,
        _ => Exit::Failure,
    };
    let (cause, help) = match error {
        PairingError::Refused(refused) => said(refused),
        other => (other.to_string(), other.advice()),
    };
    Failure::new(exit, code, "nothing was paired", cause, help)
}

/// What the daemon said, for whoever holds this device, and what to do about it.
fn said(refused: &Refused) -> (String, &'static str) {
    match refused.code {
        RefusalCode::Denied => (
            "the person at the other screen said no".to_owned(),
            "ask them; `palyra devices pair` there opens another pairing",
        ),
        // How many guesses are left is the daemon's to tell.
        RefusalCode::WrongCode => (visible(&refused.message), WRONG_CODE),
        code => (visible(&refused.message), code.advice()),
    }
}

/// Reads where a daemon is. Without a port it is where daemons listen unless they are told otherwise.
fn address(text: &str) -> Result<Address, AddressError> {
    let without_port = |error| HostName::parse(text).map_err(|_| error);
    Address::parse(text).or_else(|error| Address::new(without_port(error)?, PORT))
}

/// Says who this device is now, and what to type.
fn tell(daemon: &PairedDaemon, paired: &Paired, home: &StateHome, terminal: &Terminal) -> Outcome {
    #[derive(Serialize)]
    struct Made<'a> {
        name: &'a str,
        address: &'a Address,
        device: &'a str,
        principal: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        role: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
        file: &'a PathBuf,
    }
    let PairedDaemon { name, identity, file } = daemon;
    let DeviceIdentity { address, device, principal, role, .. } = identity;
    if terminal.json {
        let (name, device, until) = (name.as_str(), device.as_str(), identity.until().ok());
        let role = role.as_deref();
        terminal.document("pair", Made { name, address, device, principal, role, until, file });
        return Ok(Exit::Ok);
    }
    let role = role.as_deref().map(|role| format!(", {} at most", visible(role))).unwrap_or_default();
    terminal.out(format!(
        "{} with {name} at {address}: device {device} for {}{role}",
        terminal.paint(GOOD, "✔ paired"),
        visible(principal)
    ));
    let is_the_only_one = Contact::find(home, environment()).is_err() && paired.names()?.len() == 1;
    let at = if is_the_only_one { String::new() } else { format!(" --at {name}") };
    terminal.talk(format!("try it: `palyra{at} whoami`"));
    Ok(Exit::Ok)
}

/// How long a person may take to say yes on the other side. The daemon ends it before.
const FOR_A_PERSON: Duration = Duration::from_secs(10 * 60);

const WRONG_CODE: &str = "compare it with the other screen, which shows the guesses that are left, and try again; if it was right, somebody \
                          may be in the middle: use another network";

/// Where daemons listen for devices, unless their configuration says otherwise.
const PORT: u16 = 7718;

const LEFT_THERE: &str =
    "open another pairing there; if `palyra devices list` shows a device that is not used, `palyra devices revoke` it";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_a_port_has_the_one_that_daemons_have() {
        let read = |text: &str| address(text).map(|address| address.to_string()).map_err(|error| error.to_string());
        for (text, meant) in [
            ("palyra.lan", "palyra.lan:7718"),
            ("palyra.lan:7443", "palyra.lan:7443"),
            ("192.0.2.7", "192.0.2.7:7718"),
            ("2001:db8::7", "[2001:db8::7]:7718"),
            ("[2001:db8::7]:7443", "[2001:db8::7]:7443"),
        ] {
            assert_eq!(read(text), Ok(meant.to_owned()), "{text}");
        }
        for text in ["", "palyra.lan:", "palyra.lan:0", "palyra.lan:x", "http://palyra.lan"] {
            assert_eq!(read(text), Err(format!("`{text}` is not a host and a port")), "{text}");
        }
    }

    #[test]
    fn a_refusal_is_told_in_the_words_of_people() {
        let told = |code, message: &str| {
            let Failure { exit, cause, .. } =
                failed(&PairingError::Refused(Refused { code, message: message.to_owned() }));
            (exit, cause)
        };
        let no = "the person at the other screen said no".to_owned();
        assert_eq!(told(RefusalCode::Denied, "denied"), (Exit::Rejected, no));
        let guesses = "the code is wrong; 2 guesses left".to_owned();
        assert_eq!(told(RefusalCode::WrongCode, &guesses), (Exit::Failure, guesses));
    }
}
