//! Proposes a call and follows it to its end: what it prints as it comes, and the questions about it, wherever they are answered.
//!
//! Guarantees: who interrupts this hangs up, which withdraws the call; a standing approval that is used in place of a
//! question is told. Whoever may not see the question, such as an agent on a device of its own, waits for those who may.

use std::io;

use clap::Args;
use palyra_api::{ErrorDetail, Event, approval::Approval, call::Call, call::NewCall};
use palyra_client::{Client, ClientError, IdempotencyKey, Proposed, Told, Which};
use palyra_types::{
    Principal, ToolName,
    id::{ApprovalId, CallId},
    visible::visible,
};
use serde::Deserialize;
use serde_json::Value;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::{
    exit::Exit,
    failure::Failure,
    keyboard::Keyboard,
    prompt::{Before, Decision, Manner, Prompt, answer},
    question, report,
    terminal::Terminal,
};

/// Who answers when a call asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answering {
    /// The command line said yes already.
    Yes,
    /// The person at the terminal, if there is one; otherwise whoever else answers.
    Person,
}

/// The flag that says yes beforehand, for every command that follows a call.
#[derive(Args, Clone)]
pub(crate) struct YesFlag {
    /// Say yes to this call if it asks, and to the hosts that it declares; not to others that the program wants later.
    #[arg(long)]
    yes: bool,
}

impl YesFlag {
    /// Who answers then.
    pub(crate) const fn answering(&self) -> Answering {
        if self.yes { Answering::Yes } else { Answering::Person }
    }
}

/// What a call came to.
pub(crate) enum Followed {
    /// It ran.
    Over(Box<Call>),
    /// It was refused.
    Refused(Box<ErrorDetail>),
    /// The person at the terminal withdrew it.
    Interrupted,
    /// Nobody reads what it prints any more.
    Unread,
}

/// Where what a call prints goes.
pub(crate) type Printed<'a> = &'a mut dyn FnMut(Which, u64, &[u8]) -> io::Result<()>;

/// A call that is followed.
pub(crate) struct Follow<'a> {
    person: &'a Client,
    /// The tool that is called.
    tool: ToolName,
    answering: Answering,
    terminal: &'a Terminal,
    stream: Proposed,
    interrupt: Signal,
    keyboard: Option<Keyboard>,
    asking: Option<(Approval, Prompt)>,
    /// Whether somebody was asked about this call.
    was_asked: bool,
    /// What stood at the terminal before the next question.
    before: Before,
}

enum Next {
    Event(Option<Event>),
    Decision(Option<Decision>),
    Interrupted,
}

impl<'a> Follow<'a> {
    /// Proposes a call as one client; questions about it are looked at and answered as the person.
    pub(crate) async fn propose(
        proposer: &Client,
        person: &'a Client,
        (call, key): (&NewCall, Option<&IdempotencyKey>),
        answering: Answering,
        terminal: &'a Terminal,
    ) -> Result<Self, Failure> {
        let interrupt = signal(SignalKind::interrupt()).map_err(|error| {
            Failure::new(Exit::Failure, "signals", "the program cannot start", error.to_string(), "try again")
        })?;
        let stream = proposer.propose_stream(call, key).await?;
        let (keyboard, asking, was_asked, before) = (None, None, false, Before::Done);
        Ok(Self {
            person,
            tool: call.tool.clone(),
            answering,
            terminal,
            stream,
            interrupt,
            keyboard,
            asking,
            was_asked,
            before,
        })
    }

    /// Follows the call to its end.
    pub(crate) async fn finish(mut self, printed: Printed<'_>) -> Result<Followed, Failure> {
        if let Proposed::Known(call) = self.stream {
            return Ok(Followed::Over(call));
        }
        loop {
            match self.next().await? {
                Next::Interrupted => return Ok(Followed::Interrupted),
                Next::Decision(decision) => self.decided(decision).await?,
                Next::Event(None) => {
                    let cause = "the daemon ended the connection before the call was over";
                    let help = "`palyra why` and `palyra journal tail` tell what became of it";
                    return Err(Failure::new(Exit::Unreachable, "lost", "the daemon went away", cause, help));
                }
                Next::Event(Some(event)) => match Told::read(event)? {
                    Told::Over(call) => return Ok(Followed::Over(call)),
                    Told::Refused(error) => return Ok(Followed::Refused(error)),
                    Told::Output { which, offset, bytes } => match printed(which, offset, &bytes) {
                        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(Followed::Unread),
                        Err(error) => return Err(unwritable(&error)),
                        Ok(()) => {}
                    },
                    Told::Happened(event) => self.happened(&event).await?,
                },
            }
        }
    }

    async fn next(&mut self) -> Result<Next, Failure> {
        let decision = async {
            match (&mut self.asking, &mut self.keyboard) {
                (Some((_, prompt)), Some(keyboard)) => prompt.decision(keyboard).await,
                _ => std::future::pending().await,
            }
        };
        let Proposed::New(stream) = &mut self.stream else { return Ok(Next::Event(None)) };
        tokio::select! {
            _ = self.interrupt.recv() => Ok(Next::Interrupted),
            event = stream.next() => Ok(Next::Event(event?)),
            decision = decision => Ok(Next::Decision(decision)),
        }
    }

    async fn happened(&mut self, event: &Event) -> Result<(), Failure> {
        match (event.kind.as_str(), event.call_id) {
            ("approval.requested", Some(call)) => {
                self.was_asked = true;
                self.asked(call).await
            }
            ("tool.started", _) if !self.was_asked => {
                self.covered(&event.data);
                Ok(())
            }
            ("approval.resolved", _) => {
                if let (Some((approval, _)), Some(keyboard)) = (self.asking.take(), &mut self.keyboard) {
                    self.before = Before::Another;
                    keyboard.show("");
                    keyboard.show(&format!("  question {} is answered or over", approval.id));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Says by whose answer a call runs that nobody was asked about, and how that ends.
    fn covered(&self, started: &Value) {
        let Some(approver) = started.get("approver") else { return };
        let by = approver.get("by").and_then(|by| Principal::deserialize(by).ok());
        let id = approver.get("approval").and_then(|id| ApprovalId::deserialize(id).ok());
        if let (Some(by), Some(id)) = (by, id) {
            self.terminal
                .talk(format!("a standing approval of {by} covers this call; `palyra grants end {id}` ends it"));
        }
    }

    async fn asked(&mut self, call: CallId) -> Result<(), Failure> {
        let (id, approval) = match self.question(call).await {
            Ok(Some(question)) => question,
            Ok(None) => return Ok(()),
            // SECURITY: the daemon decides who sees a question. That it does not show it is no refusal of the call, which waits.
            Err(ClientError::Refused { .. }) => {
                self.asked_elsewhere();
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        let manner = Manner { at_terminal: true, ..Manner::default() };
        // A yes to the command is none to whatever it connects to later, which nobody has seen yet.
        let is_connection = approval.tool.as_str() == CONNECTION;
        if self.answering == Answering::Yes && !is_connection {
            answer(self.person, &approval, &ONCE, manner, None).await?;
            self.terminal.talk(format!("approved once, by this command itself: {}", approval.id));
            return Ok(());
        }
        if self.keyboard.is_none() {
            self.keyboard = Keyboard::open();
        }
        if self.answering == Answering::Yes && self.keyboard.is_none() {
            let no = Decision::Deny { message: None };
            answer(self.person, &approval, &no, manner, None).await?;
            self.terminal.talk(format!("refused, as nobody is here to ask: {}", visible(&approval.summary)));
            self.terminal.talk(match self.tool.as_str() {
                PROGRAM => "`--host HOST:PORT` declares what the command may reach, and `--yes` covers that",
                _ => "`--yes` covers the call, not what it connects to; `palyra explain CALL` shows the rule that asks",
            });
            return Ok(());
        }
        match &mut self.keyboard {
            Some(keyboard) => {
                let before = if self.asking.is_some() { Before::Another } else { self.before };
                let prompt = Prompt::ask(&approval, before, keyboard, self.terminal);
                (self.asking, self.before) = (Some((approval, prompt)), Before::Done);
            }
            None => {
                question::talk(&approval, self.terminal);
                self.terminal.talk(format!("waiting for an answer: `palyra approvals approve {id}`"));
            }
        }
        Ok(())
    }

    /// The question about a call.
    async fn question(&self, call: CallId) -> Result<Option<(ApprovalId, Approval)>, ClientError> {
        match self.person.call(call).await?.approval {
            Some(id) => Ok(Some((id, self.person.approval(id).await?))),
            None => Ok(None),
        }
    }

    /// Says that the call waits for somebody who is not here.
    fn asked_elsewhere(&self) {
        if self.answering == Answering::Yes {
            self.terminal.talk("`--yes` does not count: this device may not answer");
        }
        self.terminal.talk("a person is asked, and the call waits for the answer; Ctrl-C withdraws it");
        self.terminal.talk("on a device that may answer: `palyra approvals watch`");
    }

    async fn decided(&mut self, decision: Option<Decision>) -> Result<(), Failure> {
        let (Some((approval, _)), Some(keyboard)) = (self.asking.take(), &mut self.keyboard) else { return Ok(()) };
        let Some(decision) = decision else {
            keyboard.show("  not answered here; somebody else may still answer");
            return Ok(());
        };
        let manner = Manner { at_terminal: true, ..Manner::default() };
        match answer(self.person, &approval, &decision, manner, Some(keyboard)).await {
            Ok(answers) => {
                for answered in &answers.answered {
                    keyboard.show(&format!(
                        "  {}",
                        question::answered(answered, &|style, text| self.terminal.paint_err(style, text))
                    ));
                }
            }
            // The truth about a late or void answer; the stream tells what became of the call.
            Err(failure) => {
                report::failure_to(&failure, &mut |line| keyboard.show(&format!("  {line}")), self.terminal);
                if !matches!(failure.code.as_ref(), "too_late" | "approval_expired" | "unknown_approval") {
                    let prompt = Prompt::ask(&approval, Before::Done, keyboard, self.terminal);
                    self.asking = Some((approval, prompt));
                }
            }
        }
        Ok(())
    }
}

/// The tool whose command line declares hosts.
const PROGRAM: &str = "process.run";

/// What a question about a connection is for.
const CONNECTION: &str = "net.connect";

/// Yes, to this call.
pub(crate) const ONCE: Decision = Decision::Approve { scope: palyra_api::approval::Scope::Once, minutes: None };

fn unwritable(error: &io::Error) -> Failure {
    let help = "check the disk, or write elsewhere";
    Failure::new(Exit::Failure, "unwritable", "the output cannot be written", error.to_string(), help)
}
