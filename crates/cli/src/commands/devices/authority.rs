//! `palyra devices authority …`: the authority that certifies devices, and how it is replaced without cutting anybody off.
//!
//! Guarantees: whoever takes a step does not cut themselves off by it, whatever they say about others.

use clap::{Args, ValueEnum};
use palyra_api::device::{Authority, AuthorityPhase, Device, DeviceState, RotateAuthority, RotationStep};
use palyra_client::Client;
use palyra_types::{DeviceId, visible::visible};

use crate::{
    Outcome,
    at::At,
    connection::Connection,
    exit::Exit,
    failure::Failure,
    terminal::{BOLD, GOOD, Terminal, WAIT},
};

#[derive(Args, Clone, Copy)]
pub(crate) struct AuthorityArgs {
    /// The step to take. Without one, how far it is.
    #[arg(value_enum, default_value = "status", hide_default_value = true)]
    step: Step,
    /// With switch and finish: go on though other devices would be cut off.
    #[arg(long)]
    even_if_behind: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Step {
    /// Tell how far it is, and what comes next.
    Status,
    /// Make the next authority, and have it trusted.
    Announce,
    /// Let the next one certify.
    Switch,
    /// Trust the old one no more.
    Finish,
    /// Forget the next one again, before it certifies.
    Abandon,
}

/// Has this device follow the authority before a step that cuts off whoever is behind, or refuses if it cannot.
pub(super) fn follow(args: AuthorityArgs, at: &At, terminal: &Terminal) -> Result<(), Failure> {
    let is_behind = || -> Result<bool, Failure> {
        let connection = Connection::find(at, terminal)?;
        let authority = connection.run(async |daemon| Ok(daemon.authority().await?))?;
        Ok(authority.behind.contains(&connection.identity().device))
    };
    match args.step {
        Step::Status | Step::Announce | Step::Abandon => Ok(()),
        // Whoever is behind follows once a command is done, and looking is one.
        Step::Switch | Step::Finish if is_behind()? && is_behind()? => {
            let cause = "its certificate could not be renewed, so this step would cut off the device that takes it";
            let help = "`palyra whoami` tries again, and warns why not; or take the step on a device that has followed";
            Err(Failure::new(Exit::Failure, "behind", "this device has not followed yet", cause, help))
        }
        Step::Switch | Step::Finish => Ok(()),
    }
}

pub(super) async fn run(args: AuthorityArgs, daemon: &Client, terminal: &Terminal) -> Outcome {
    let step = match args.step {
        Step::Status => None,
        Step::Announce => Some(RotationStep::Announce),
        Step::Switch => Some(RotationStep::Switch),
        Step::Finish => Some(RotationStep::Finish),
        Step::Abandon => Some(RotationStep::Abandon),
    };
    let authority = match step {
        None => daemon.authority().await?,
        Some(step) => {
            let rotation = RotateAuthority { step, even_if_behind: args.even_if_behind };
            daemon.rotate_authority(&rotation).await?
        }
    };
    if terminal.json {
        terminal.document("authority", &authority);
    } else {
        // Only for their names, and for those that are cut off; whoever may not see them sees the rest.
        let devices = daemon.devices().await.map(|all| all.devices).unwrap_or_default();
        show(&authority, &devices, terminal);
    }
    Ok(Exit::Ok)
}

fn show(authority: &Authority, devices: &[Device], terminal: &Terminal) {
    let (glyph, style, phase, about) = match authority.phase {
        AuthorityPhase::Steady => ("✔", GOOD, "steady", "there is one authority"),
        AuthorityPhase::Announced => ("!", WAIT, "announced", "the next one is trusted, and certifies nothing yet"),
        AuthorityPhase::Switched => ("!", WAIT, "switched", "the new one certifies, and the old one is still trusted"),
    };
    terminal.out(format!("{}: {about}", terminal.paint(style, &format!("{glyph} {phase}"))));
    terminal.out(format!("  certifies  {}", terminal.paint(BOLD, &visible(&authority.fingerprint))));
    terminal.out(format!("  devices    {} let in", authority.devices));
    for id in &authority.behind {
        terminal.out_rows(format!("  behind     {}", named(id, devices)));
    }
    let cut_off: Vec<&Device> = devices.iter().filter(|device| device.state == DeviceState::CutOff).collect();
    for device in &cut_off {
        terminal.out_rows(format!("  cut off    {}", named(&device.id, devices)));
    }
    if !cut_off.is_empty() {
        terminal.talk("What is cut off is let in no more: `palyra devices revoke ID`, and pair it again.");
    }
    terminal.talk(next(authority));
}

/// A device as people know it.
fn named(id: &DeviceId, devices: &[Device]) -> String {
    match devices.iter().find(|device| device.id == *id) {
        Some(device) => format!("{id}  {}, for {}", visible(&device.name), visible(&device.principal)),
        None => id.to_string(),
    }
}

/// What comes next, in a sentence.
fn next(authority: &Authority) -> String {
    let wait = match authority.behind.len() {
        0 => String::new(),
        1 => " 1 device has not followed; it does with its next command. `--even-if-behind` cuts it off.".to_owned(),
        count => format!(
            " {count} devices have not followed; each does with its next command. `--even-if-behind` cuts them off."
        ),
    };
    match authority.phase {
        AuthorityPhase::Steady => "To replace it: `palyra devices authority announce`.".to_owned(),
        AuthorityPhase::Announced => {
            format!("Next: `palyra devices authority switch`, or `abandon` to forget the next one.{wait}")
        }
        AuthorityPhase::Switched => format!("Next: `palyra devices authority finish`.{wait}"),
    }
}

#[cfg(test)]
mod tests {
    use palyra_types::Sha256Digest;

    use super::*;

    #[test]
    fn each_phase_says_what_comes_next_and_who_would_be_cut_off() {
        let authority = |phase, behind: &[&str]| Authority {
            phase,
            fingerprint: String::new(),
            bundle: Sha256Digest::of(b""),
            authorities: String::new(),
            devices: 2,
            behind: behind.iter().map(|id| DeviceId::parse(id).unwrap()).collect(),
        };
        assert_eq!(
            next(&authority(AuthorityPhase::Steady, &[])),
            "To replace it: `palyra devices authority announce`."
        );
        assert_eq!(next(&authority(AuthorityPhase::Switched, &[])), "Next: `palyra devices authority finish`.");
        assert_eq!(
            next(&authority(AuthorityPhase::Announced, &["dev-1"])),
            "Next: `palyra devices authority switch`, or `abandon` to forget the next one. 1 device has not followed; \
             it does with its next command. `--even-if-behind` cuts it off."
        );
        assert_eq!(
            next(&authority(AuthorityPhase::Switched, &["dev-1", "dev-2"])),
            "Next: `palyra devices authority finish`. 2 devices have not followed; each does with its next command. \
             `--even-if-behind` cuts them off."
        );
    }
}
