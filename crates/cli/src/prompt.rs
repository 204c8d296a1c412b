//! The prompt under a question: which answers there are, and how one is given.
//!
//! Guarantees: an answer carries the digest of what was shown; nothing but a whole, known answer is taken for one; what was meant for one
//! question does not answer the next.

use std::time::Duration;

use palyra_api::approval::{Answers, Approval, Approve, Deny, Scope, Unlock};
use palyra_client::{Client, ClientError};
use palyra_types::{Sha256Digest, visible::visible};
use tokio::time::{Instant, sleep_until};

use crate::{
    failure::Failure,
    keyboard::Keyboard,
    question,
    terminal::{Terminal, WAIT},
};

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Yes, and how much it covers.
    Approve { scope: Scope, minutes: Option<u32> },
    /// No, and what the agent is told.
    Deny { message: Option<String> },
}

/// How an answer is given.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Manner {
    /// How many arguments are fixed, for answers that cover more than this call.
    pub(crate) fixed: Option<u32>,
    /// Whether equal questions are answered as well.
    pub(crate) together: bool,
    /// Whether a person at a terminal answers.
    pub(crate) at_terminal: bool,
}

/// What stood at the terminal before a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Before {
    /// Nothing, or something that the person is done with.
    #[default]
    Done,
    /// Another question, which went away while the person looked at it.
    Another,
}

/// A question on the terminal, and how far its answer is.
pub(crate) struct Prompt {
    step: Step,
    /// Whether a yes counts for this call alone.
    only_once: bool,
    /// Until when nothing that is typed counts.
    deaf_until: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Key,
    Minutes,
    Message,
}

impl Prompt {
    /// Shows a whole question and asks for an answer.
    // SECURITY: an agent that asks twice and withdraws the first question would have the second one answered by what a person types for
    // the first. So a question that takes another's place is announced, and for a while nothing that is typed counts.
    pub(crate) fn ask(approval: &Approval, before: Before, keyboard: &mut Keyboard, terminal: &Terminal) -> Self {
        keyboard.show("");
        if before == Before::Another {
            keyboard.show(&terminal.paint_err(WAIT, "! the question before this one is gone; this is another one"));
        }
        for line in question::lines(approval, &|style, text| terminal.paint_err(style, text)) {
            keyboard.show(&line);
        }
        let deaf_until = match before {
            Before::Done => None,
            Before::Another => {
                keyboard.show(&format!("  {CHANGED}"));
                Some(Instant::now() + TIME_TO_LOOK)
            }
        };
        let prompt = Self { step: Step::Key, only_once: approval.plan.only_once, deaf_until };
        prompt.again(keyboard);
        prompt
    }

    /// Waits for the answer; nothing if the person closed the terminal. Nothing is lost if this is given up while it waits.
    pub(crate) async fn decision(&mut self, keyboard: &mut Keyboard) -> Option<Decision> {
        if let Some(until) = self.deaf_until {
            sleep_until(until).await;
            if keyboard.forget() {
                keyboard.show(&format!("  {CHANGED}; what was typed is thrown away"));
            }
            self.deaf_until = None;
            self.again(keyboard);
        }
        loop {
            let line = keyboard.line().await?;
            match self.read(&line) {
                Some(decision) => return Some(decision),
                None => {
                    if self.step == Step::Key && !line.trim().is_empty() {
                        keyboard.show("  that is no answer: `a` and Enter approve it once, `d` and Enter deny it");
                    }
                    self.again(keyboard);
                }
            }
        }
    }

    /// Asks again, for what is missing still; not before anything that is typed counts.
    pub(crate) fn again(&self, keyboard: &mut Keyboard) {
        if self.deaf_until.is_some() {
            return;
        }
        keyboard.prompt(match self.step {
            Step::Key if self.only_once => KEYS_ONCE,
            Step::Key => KEYS,
            Step::Minutes => "  for how many minutes? ",
            Step::Message => "  what to tell the agent: ",
        });
    }

    fn read(&mut self, line: &str) -> Option<Decision> {
        let text = line.trim();
        match (self.step, text) {
            (Step::Key, "a") => Some(Decision::Approve { scope: Scope::Once, minutes: None }),
            (Step::Key, "r" | "u") if self.only_once => None,
            (Step::Key, "r") => Some(Decision::Approve { scope: Scope::Session, minutes: None }),
            (Step::Key, "u") => {
                self.step = Step::Minutes;
                None
            }
            (Step::Key, "d") => Some(Decision::Deny { message: None }),
            (Step::Key, "D") => {
                self.step = Step::Message;
                None
            }
            (Step::Key, _) => None,
            // An empty line goes back to the keys.
            (Step::Minutes | Step::Message, "") => {
                self.step = Step::Key;
                None
            }
            (Step::Minutes, number) => {
                let minutes = number.parse().ok().filter(|&minutes: &u32| minutes > 0)?;
                Some(Decision::Approve { scope: Scope::Timeboxed, minutes: Some(minutes) })
            }
            (Step::Message, message) => Some(Decision::Deny { message: Some(message.to_owned()) }),
        }
    }
}

/// How long a person has to see that a question has taken another's place.
const TIME_TO_LOOK: Duration = Duration::from_millis(1500);

const CHANGED: &str = "the question changed; look again";

const KEYS_ONCE: &str = "  a once, for this call alone · d deny · D deny and say why > ";

const KEYS: &str = "  a once · r this session · u until… · d deny · D deny and say why > ";

/// Gives an answer. Where a PIN is wanted and a person is there, they are asked for it.
pub(crate) async fn answer(
    client: &Client,
    approval: &Approval,
    decision: &Decision,
    manner: Manner,
    mut keyboard: Option<&mut Keyboard>,
) -> Result<Answers, Failure> {
    loop {
        let error = match give(client, approval, decision, manner).await {
            Ok(answers) => return Ok(answers),
            Err(error) => error,
        };
        let wants_pin = matches!(&error, ClientError::Refused { error, .. } if error.code == "pin_needed");
        let Some(keyboard) = keyboard.as_deref_mut().filter(|_| wants_pin) else { return Err(error.into()) };
        let Some(pin) = keyboard.secret("  PIN: ").await.filter(|pin| !pin.is_empty()) else {
            return Err(error.into());
        };
        match client.unlock(&Unlock { pin }).await {
            Ok(()) => {}
            Err(ClientError::Refused { error, .. }) if error.code == "wrong_pin" => {
                keyboard.show(&format!("  {}", visible(&error.message)));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

async fn give(
    client: &Client,
    approval: &Approval,
    decision: &Decision,
    manner: Manner,
) -> Result<Answers, ClientError> {
    let Manner { fixed, together, at_terminal } = manner;
    // SECURITY: the digest of what this program showed; if the daemon would run anything else, the answer is void.
    let digest: Sha256Digest = approval.digest;
    match decision {
        Decision::Approve { scope, minutes } => {
            let answer =
                Approve { digest, scope: *scope, minutes: *minutes, fixed_arguments: fixed, together, at_terminal };
            client.approve(approval.id, &answer).await
        }
        Decision::Deny { message } => {
            client.deny(approval.id, &Deny { digest, message: message.clone(), together, at_terminal }).await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(lines: &[&str]) -> Option<Decision> {
        let mut prompt = Prompt { step: Step::Key, only_once: false, deaf_until: None };
        lines.iter().find_map(|line| prompt.read(line))
    }

    #[test]
    fn only_a_whole_known_answer_is_one() {
        let yes = |scope, minutes| Some(Decision::Approve { scope, minutes });
        assert_eq!(answer(&["a"]), yes(Scope::Once, None));
        assert_eq!(answer(&[" r "]), yes(Scope::Session, None));
        assert_eq!(answer(&["u", "many", "0", "15"]), yes(Scope::Timeboxed, Some(15)));
        assert_eq!(answer(&["d"]), Some(Decision::Deny { message: None }));
        assert_eq!(answer(&["D", "use make"]), Some(Decision::Deny { message: Some("use make".into()) }));
        for lines in [&[""][..], &["A"], &["y"], &["yes"], &["aa"], &["u"], &["u", "", ""], &["D", ""]] {
            assert_eq!(answer(lines), None, "{lines:?}");
        }
        assert_eq!(answer(&["D", "", "a"]), yes(Scope::Once, None), "an empty line goes back to the keys");
    }
}
