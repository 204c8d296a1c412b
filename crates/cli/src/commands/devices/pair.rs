//! `palyra devices pair`: opens a pairing, shows its PIN and its QR code, and asks before a device is let in.
//!
//! Guarantees: nothing is paired without a yes typed after the device was shown, and the yes names the key that was shown; whoever interrupts
//! this, or closes its terminal, ends the pairing. What has to be typed elsewhere stays on the screen, below the QR code. Without a person at a terminal nobody is asked, and nothing is paired here.

use std::{
    io::{self, Write},
    time::Duration,
};

use clap::Args;
use palyra_api::device::{Candidate, ConfirmPairing, NewPairing, OpenPairing, Pairing, PairingState};
use palyra_client::Client;
use palyra_types::{WorkspaceRole, visible::visible};
use serde::Serialize;
use tokio::time::sleep;

use super::{candidate, qr};
use crate::{
    Outcome,
    exit::Exit,
    failure::Failure,
    holder::Holder,
    keyboard::Keyboard,
    rows::{Room, columns, room, rows},
    stop::Stop,
    terminal::{BOLD, DIM, GOOD, Terminal},
};

#[derive(Args)]
pub(crate) struct PairArgs {
    /// The most that the device may do: owner, admin or operator. Else what whom it is for may do, as far as your own role reaches.
    #[arg(long)]
    role: Option<WorkspaceRole>,
    /// Whom the device is for: a member, somebody who is invited, or agent:NAME. Else you.
    #[arg(long = "for", value_name = "PRINCIPAL")]
    holder: Option<Holder>,
    /// What to call the device. Else what it calls itself.
    #[arg(long)]
    name: Option<String>,
    /// Do not draw the QR code.
    #[arg(long)]
    no_qr: bool,
    /// Print the text of the QR code, too. Without this, only where the code does not fit the terminal.
    #[arg(long)]
    qr_text: bool,
}

pub(super) async fn run(args: &PairArgs, daemon: &Client, terminal: &Terminal) -> Outcome {
    let holder = args.holder.as_ref().map(ToString::to_string);
    let stop = Stop::new()?;
    let new = NewPairing { principal: holder, role: args.role, name: args.name.clone() };
    let open = daemon.open_pairing(&new).await.map_err(|error| match new.principal.as_deref() {
        Some(holder) => {
            let name = visible(holder.strip_prefix("user:").unwrap_or(holder));
            let invite = format!("invite them first: `palyra access members invite {name} --role ROLE`");
            Failure::from(error).advised("unknown_member", &invite)
        }
        None => error.into(),
    })?;
    if terminal.json {
        terminal.document("pairing.open", &open);
        return Ok(Exit::Ok);
    }
    invitation(&open, args, room(io::stderr()), terminal).iter().for_each(|line| terminal.talk(line));
    let mut dialog = Dialog { daemon, open: &open, terminal, keyboard: Keyboard::open(), stop };
    let held = dialog.hold().await;
    held.inspect_err(|_| dialog.clear())
}

/// What whoever holds the other device needs: the QR code if all of it can be seen at once, and below it what is typed.
fn invitation(open: &OpenPairing, args: &PairArgs, room: Option<Room>, terminal: &Terminal) -> Vec<String> {
    let wide = |line: String| match room {
        Some(room) => rows(&line, room.columns),
        None => vec![line],
    };
    let role = open.role.map(|role| format!(", as {role} at most")).unwrap_or_default();
    let pin = if args.no_qr && !args.qr_text { "and there this PIN:" } else { "and there this PIN, or the QR code:" };
    // On one line, whatever the terminal makes of it, so that it can be copied.
    let text = visible(&open.qr);
    let below: Vec<String> = [
        format!("On the other device, which will be for {}{role}:", visible(&open.principal)),
        format!("  palyra pair {}", visible(&open.address)),
        pin.to_owned(),
        format!("  {}", terminal.paint_err(BOLD, &grouped(&open.pin))),
        terminal.paint_err(DIM, &format!("the authority is {}", visible(&open.authority))),
        terminal.paint_err(DIM, &format!("the pairing is {}", visible(&open.id))),
    ]
    .into_iter()
    .flat_map(wide)
    .collect();
    let taken = below.len() + COUNTDOWN + if args.qr_text { wide(text.clone()).len() } else { 0 };
    let drawn = room.filter(|_| !args.no_qr).and_then(|room| {
        let left = Room { lines: room.lines.checked_sub(taken)?, ..room };
        qr::drawn(&open.modules, left)
    });
    let with_text = args.qr_text || (drawn.is_none() && !args.no_qr);
    drawn.into_iter().flatten().chain(with_text.then_some(text)).chain(below).collect()
}

/// How long there is still, in as many words as fit.
fn countdown(seconds: u32, guesses: u32, columns: usize) -> String {
    let time = format!("{}:{:02}", seconds / 60, seconds % 60);
    let guesses = if guesses == 1 { "one guess".to_owned() } else { format!("{guesses} guesses") };
    let shortest = format!("{time}, {guesses}");
    let by_length = [
        format!("waiting for a device: {time} and {guesses} left; Ctrl-C ends it"),
        format!("waiting: {time}, {guesses} left; Ctrl-C ends it"),
        format!("{time}, {guesses}; Ctrl-C ends it"),
    ];
    // A terminal may wrap when its last column is written to.
    by_length.into_iter().find(|text| text.len() < columns).unwrap_or(shortest)
}

/// A PIN in two groups, which is how people say it.
fn grouped(pin: &str) -> String {
    match (pin.get(..3), pin.get(3..)) {
        (Some(first), Some(second)) if pin.len() == 6 => visible(&format!("{first} {second}")),
        _ => visible(pin),
    }
}

/// A pairing while somebody looks at it.
struct Dialog<'a> {
    daemon: &'a Client,
    open: &'a OpenPairing,
    terminal: &'a Terminal,
    keyboard: Option<Keyboard>,
    stop: Stop,
}

/// What a person typed, or that they have enough.
enum Said {
    Yes,
    No,
    Nothing,
    Interrupted,
}

impl Dialog<'_> {
    /// Follows the pairing to its end.
    async fn hold(&mut self) -> Outcome {
        let mut shown: Option<Candidate> = None;
        loop {
            let pairing = self.daemon.pairing(&self.open.id).await?;
            match (pairing.state, &pairing.device) {
                (PairingState::Waiting, _) => self.count_down(&pairing),
                (PairingState::Proved, Some(device)) if shown.is_none() => {
                    self.clear();
                    self.ask(device)?;
                    shown = Some(device.clone());
                }
                (PairingState::Proved, _) => {}
                (PairingState::Confirmed, _) => shown = None,
                (PairingState::Paired, _) => return Ok(self.paired(&pairing)),
                (PairingState::Over, _) => return Err(over(&pairing)),
            }
            match (self.listen(shown.is_some()).await, &shown) {
                (Said::Nothing, _) | (Said::Yes, None) => {}
                (Said::Yes, Some(device)) => {
                    // SECURITY: the key that was shown. If another device stands there by now, the daemon refuses.
                    let confirm = ConfirmPairing { key: device.observed.key };
                    self.daemon.confirm_pairing(&self.open.id, &confirm).await?;
                    shown = None;
                }
                (Said::No, _) => return self.end(Exit::Rejected).await,
                (Said::Interrupted, _) => return self.end(Exit::Interrupted).await,
            }
        }
    }

    /// Shows a device and asks whether it is the one. Without anybody to ask, tells how to say yes.
    fn ask(&mut self, device: &Candidate) -> Result<(), Failure> {
        let Some(keyboard) = &mut self.keyboard else {
            return Err(unasked(self.open, device, self.terminal));
        };
        keyboard.show("");
        keyboard.show("A device knows the code:");
        for line in candidate(device) {
            keyboard.show(&format!("  {line}"));
        }
        keyboard.show("Compare the key with what the device itself shows.");
        keyboard.prompt(QUESTION);
        Ok(())
    }

    /// Waits a moment for what the person does.
    async fn listen(&mut self, asked: bool) -> Said {
        let line = async {
            match &mut self.keyboard {
                Some(keyboard) if asked => keyboard.line().await,
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.stop.come() => Said::Interrupted,
            () = sleep(LOOK_AGAIN) => Said::Nothing,
            line = line => match line.as_deref().map(str::trim) {
                Some("y" | "Y" | "yes") => Said::Yes,
                _ => Said::No,
            },
        }
    }

    /// Ends the pairing, because somebody said so.
    async fn end(&mut self, exit: Exit) -> Outcome {
        self.clear();
        self.daemon.end_pairing(&self.open.id).await?;
        self.terminal.talk("the pairing is over; nothing was paired");
        Ok(exit)
    }

    fn paired(&mut self, pairing: &Pairing) -> Exit {
        self.clear();
        let id = pairing.paired.as_ref().map(ToString::to_string).unwrap_or_default();
        self.terminal.out(format!("{} {id}", self.terminal.paint(GOOD, "✔ paired")));
        self.terminal.talk(format!("`palyra devices revoke {id}` takes that back"));
        Exit::Ok
    }

    /// How long there is still, on one line that is written over.
    fn count_down(&self, pairing: &Pairing) {
        if let Some(columns) = columns(io::stderr()) {
            self.write_over(&countdown(pairing.seconds_left, pairing.guesses, columns));
        }
    }

    fn clear(&self) {
        self.write_over("");
    }

    fn write_over(&self, text: &str) {
        let mut stderr = io::stderr();
        if let Some(columns) = columns(&stderr) {
            // What reached the next row could not be written over.
            let text: String = text.chars().take(columns.saturating_sub(1)).collect();
            let _ = write!(stderr, "\r\u{1b}[K{text}").and_then(|()| stderr.flush());
        }
    }
}

/// Tells of a device that nobody is there to look at, and how to say yes all the same.
fn unasked(open: &OpenPairing, device: &Candidate, terminal: &Terminal) -> Failure {
    #[derive(Serialize)]
    struct Unasked<'a> {
        pairing: &'a str,
        device: &'a Candidate,
    }
    terminal.line("pairing.candidate", Unasked { pairing: &open.id, device });
    let help = format!(
        "compare its key with what the device shows, then `palyra devices confirm {} {}`",
        open.id, device.observed.fingerprint
    );
    let cause = "a device knows the code, and there is no terminal to ask at";
    Failure::new(Exit::Failure, "not_confirmed", "nobody is here to say yes", cause, help)
}

fn over(pairing: &Pairing) -> Failure {
    let why = pairing.why.clone().unwrap_or_else(|| "the daemon does not say why".to_owned());
    let help = "open another one: `palyra devices pair`";
    Failure::new(Exit::Failure, "not_paired", "nothing was paired", why, help)
}

/// The line below everything.
const COUNTDOWN: usize = 1;

const QUESTION: &str = "pair it? [y/N] ";

/// How often the daemon is asked how the pairing stands.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use palyra_types::Timestamp;

    use super::*;

    const TERMINAL: fn() -> Terminal = || Terminal::detect(false);

    fn open() -> OpenPairing {
        OpenPairing {
            id: "01".into(),
            pin: "482913".into(),
            qr: "palyra://pair".into(),
            modules: vec!["0".repeat(21); 21],
            address: "192.0.2.7:7718".into(),
            authority: "aaaa-bbbb".into(),
            guesses: 3,
            until: Timestamp::from_unix_millis(1_800_000_000_000),
            principal: "user:owner".into(),
            role: Some(WorkspaceRole::Owner),
        }
    }

    fn args(no_qr: bool, qr_text: bool) -> PairArgs {
        PairArgs { role: None, holder: None, name: None, no_qr, qr_text }
    }

    /// How many lines of a QR code, of its text, and others an invitation has.
    fn parts(args: &PairArgs, room: Option<Room>) -> (usize, usize, usize) {
        let lines = invitation(&open(), args, room, &TERMINAL());
        let count = |part: &str| lines.iter().filter(|line| line.contains(part)).count();
        let (code, text) = (count("\u{1b}[30;107m"), count("palyra://"));
        (code, text, lines.len() - code - text)
    }

    #[test]
    fn what_is_typed_stays_below_a_code_that_is_drawn_only_where_all_of_it_is_seen() {
        let room = |columns, lines| Some(Room { columns, lines });
        assert_eq!(parts(&args(false, false), room(100, 20)), (13, 0, 6));
        assert_eq!(parts(&args(false, false), room(100, 19)), (0, 1, 6), "too low");
        assert_eq!(parts(&args(false, false), room(24, 90)).0, 0, "too narrow");
        assert_eq!(parts(&args(false, false), None), (0, 1, 6), "no terminal");
        assert_eq!(parts(&args(false, true), room(100, 21)), (13, 1, 6));
        assert_eq!(parts(&args(false, true), room(100, 20)), (0, 1, 6));
        assert_eq!(parts(&args(true, false), room(100, 90)), (0, 0, 6));
        assert_eq!(parts(&args(true, true), room(100, 90)), (0, 1, 6));
        let lines = invitation(&open(), &args(false, false), room(100, 20), &TERMINAL());
        assert!(lines[14].ends_with("palyra pair 192.0.2.7:7718") && lines[16].contains("482 913"), "{lines:?}");
    }

    #[test]
    fn a_countdown_says_less_where_there_is_less_room() {
        assert_eq!(countdown(119, 3, 100), "waiting for a device: 1:59 and 3 guesses left; Ctrl-C ends it");
        assert_eq!(countdown(119, 3, 60), "waiting: 1:59, 3 guesses left; Ctrl-C ends it");
        assert_eq!(countdown(5, 1, 40), "0:05, one guess; Ctrl-C ends it");
        assert_eq!(countdown(5, 1, 20), "0:05, one guess");
    }

    #[test]
    fn a_pin_is_shown_in_two_groups() {
        assert_eq!(grouped("482913"), "482 913");
        assert_eq!(grouped("48291"), "48291");
        assert_eq!(grouped("48\u{202e}"), "48<U+202E>");
    }
}
