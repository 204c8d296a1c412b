//! `palyra devices pairing` and `palyra devices confirm`: how a pairing stands, its end, and a yes to the device that knew its code.
//!
//! Guarantees: the yes is for the key whose fingerprint was given, whatever the daemon would confirm besides.

use clap::Args;
use palyra_api::device::{ConfirmPairing, Observed, Pairing, PairingState};
use palyra_client::Client;
use palyra_types::visible::visible;

use super::candidate;
use crate::{
    Outcome,
    exit::Exit,
    failure::Failure,
    terminal::{BAD, GOOD, Terminal, WAIT},
};

#[derive(Args)]
pub(crate) struct PairingArgs {
    /// The pairing.
    id: String,
    /// End it: no device is paired by it, and one that waits for a yes hears a no.
    #[arg(long)]
    end: bool,
}

#[derive(Args)]
pub(crate) struct ConfirmArgs {
    /// The pairing.
    pairing: String,
    /// The fingerprint of the device's key, as the device itself shows it.
    fingerprint: String,
}

/// Tells how a pairing stands, once it is ended if that is asked for.
pub(super) async fn show(args: &PairingArgs, daemon: &Client, terminal: &Terminal) -> Outcome {
    let pairing = if args.end { daemon.end_pairing(&args.id).await? } else { daemon.pairing(&args.id).await? };
    tell(&pairing, terminal);
    Ok(Exit::Ok)
}

/// Says yes.
pub(super) async fn run(args: &ConfirmArgs, daemon: &Client, terminal: &Terminal) -> Outcome {
    let pairing = daemon.pairing(&args.pairing).await?;
    let Some(device) = pairing.device.as_ref().filter(|_| pairing.state == PairingState::Proved) else {
        let cause = format!("the pairing is {}", word(pairing.state));
        let help = match pairing.state {
            PairingState::Waiting | PairingState::Proved => "wait until `palyra devices pairing ID` tells of a device",
            PairingState::Confirmed | PairingState::Paired => "`palyra devices list` shows what was paired",
            PairingState::Over => "open another one: `palyra devices pair`",
        };
        return Err(Failure::new(Exit::Failure, "no_candidate", "there is no device to confirm", cause, help));
    };
    if !is_shown(&device.observed, &args.fingerprint) {
        let cause = format!("the device that knew the PIN has the key {}", visible(&device.observed.fingerprint));
        let help = "compare it with what your device shows; if they differ, somebody else knew the PIN: `palyra devices pairing ID --end`";
        return Err(Failure::new(Exit::Failure, "other_device", "another device was meant", cause, help));
    }
    tell(&daemon.confirm_pairing(&args.pairing, &ConfirmPairing { key: device.observed.key }).await?, terminal);
    Ok(Exit::Ok)
}

/// Whether a fingerprint that somebody typed is the device's: in groups as it is shown, or all 64 digits.
fn is_shown(observed: &Observed, typed: &str) -> bool {
    let typed = typed.trim().to_ascii_lowercase();
    typed == observed.fingerprint || typed == observed.key.to_hex()
}

fn tell(pairing: &Pairing, terminal: &Terminal) {
    if terminal.json {
        terminal.document("pairing", pairing);
        return;
    }
    let (glyph, style) = match pairing.state {
        PairingState::Paired => ("✔", GOOD),
        PairingState::Over => ("✖", BAD),
        _ => ("?", WAIT),
    };
    let state = terminal.paint(style, &format!("{glyph} {}", word(pairing.state)));
    let more = match (&pairing.paired, &pairing.why) {
        (Some(id), _) => format!(": device {id}"),
        (None, Some(why)) => format!(": {}", visible(why)),
        (None, None) => format!(", {} s and {} guesses left", pairing.seconds_left, pairing.guesses),
    };
    terminal.out_rows(format!("{state}{more}"));
    for line in pairing.device.iter().flat_map(candidate) {
        terminal.out_rows(format!("  {line}"));
    }
    if let (PairingState::Proved, Some(device)) = (pairing.state, &pairing.device) {
        let (id, key) = (visible(&pairing.id), visible(&device.observed.fingerprint));
        terminal.talk(format!("compare its key with what the device shows, then `palyra devices confirm {id} {key}`"));
    }
}

/// How a pairing stands, in a word.
pub(super) const fn word(state: PairingState) -> &'static str {
    match state {
        PairingState::Waiting => "waiting for a device",
        PairingState::Proved => "waiting for a yes",
        PairingState::Confirmed => "confirmed",
        PairingState::Paired => "paired",
        PairingState::Over => "over",
    }
}

#[cfg(test)]
mod tests {
    use palyra_types::Sha256Digest;

    use super::*;

    #[test]
    fn a_fingerprint_counts_whole_or_not_at_all() {
        let key = Sha256Digest::of(b"key");
        let observed = Observed { address: "192.0.2.7:50000".into(), fingerprint: palyra_identity::grouped(&key), key };
        assert!(is_shown(&observed, &observed.fingerprint));
        assert!(is_shown(&observed, &format!(" {} ", observed.fingerprint.to_uppercase())));
        assert!(is_shown(&observed, &key.to_hex()));
        let part = observed.fingerprint.split_once('-').unwrap().0;
        for typed in ["", "-", part, &observed.fingerprint.replace('-', "")] {
            assert!(!is_shown(&observed, typed), "{typed}");
        }
    }
}
