//! `palyra approvals watch`: follows questions as they come, and lets the person at the terminal answer them.
//!
//! Guarantees: nothing is missed, through a lost connection and a restart of the daemon; a new question never takes the place of the one
//! that is being answered.

use std::{
    collections::{BTreeSet, VecDeque},
    io::{self, IsTerminal, Write},
    mem::take,
};

use palyra_api::{
    Event,
    approval::{Approval, ApprovalState},
};
use palyra_client::{Client, EventStream};
use palyra_types::id::{ApprovalId, CallId};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::pages::Pages;
use crate::{
    Outcome,
    at::At,
    exit::Exit,
    failure::Failure,
    keyboard::Keyboard,
    lifeline::Lifeline,
    prompt::{Before, Decision, Manner, Prompt, answer},
    question, report,
    terminal::{DIM, Terminal},
};

pub(super) async fn run(client: &Client, at: &At, terminal: &Terminal) -> Outcome {
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|error| {
        Failure::new(Exit::Failure, "signals", "the program cannot start", error.to_string(), "try again")
    })?;
    let mut pages = Pages::new(client);
    let mut watch = Watch {
        daemon: Lifeline::new(client.clone(), at, terminal),
        terminal,
        keyboard: if terminal.json { None } else { Keyboard::open() },
        waiting: VecDeque::new(),
        focused: None,
        before: Before::Done,
        answered: BTreeSet::new(),
        last: None,
    };
    while let Some(page) = pages.next().await? {
        watch.arrived(page);
    }
    // Events behind the last record that was there when the questions were read.
    watch.last = pages.seq().checked_sub(1);
    if watch.waiting.is_empty() {
        terminal.talk("nothing waits for an answer yet; Ctrl-C ends this");
    }
    loop {
        match watch.follow(&mut interrupt).await {
            Ok(()) => return Ok(Exit::Ok),
            Err(failure) => {
                if watch.daemon.wait(failure, &mut interrupt).await? {
                    return Ok(Exit::Ok);
                }
            }
        }
    }
}

struct Watch<'a> {
    daemon: Lifeline<'a>,
    terminal: &'a Terminal,
    keyboard: Option<Keyboard>,
    /// Questions that wait, the one that is focused first.
    waiting: VecDeque<Approval>,
    /// The prompt under the first of them.
    focused: Option<Prompt>,
    /// What stood at the terminal before the next prompt.
    before: Before,
    /// Questions that were answered here, and whose events are still to come.
    answered: BTreeSet<ApprovalId>,
    /// The last record that was told of.
    last: Option<u64>,
}

enum Next {
    Event(Option<Event>),
    Decision(Option<Decision>),
    Interrupted,
}

impl Watch<'_> {
    /// Follows the events until the person has enough.
    async fn follow(&mut self, interrupt: &mut Signal) -> Result<(), Failure> {
        let mut stream = self.daemon.events(self.last).await?;
        self.focus();
        loop {
            match self.next(&mut stream, interrupt).await? {
                Next::Interrupted => return Ok(()),
                Next::Decision(decision) => self.decided(decision).await?,
                Next::Event(None) => return Err(Lifeline::lost()),
                Next::Event(Some(event)) => {
                    self.happened(&event).await?;
                    // Only now: an event whose handling was cut off is told again.
                    self.last = stream.last_id().or(self.last);
                }
            }
        }
    }

    async fn next(&mut self, stream: &mut EventStream, interrupt: &mut Signal) -> Result<Next, Failure> {
        let decision = async {
            match (&mut self.focused, &mut self.keyboard) {
                (Some(prompt), Some(keyboard)) => prompt.decision(keyboard).await,
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = interrupt.recv() => Ok(Next::Interrupted),
            event = stream.next() => Ok(Next::Event(event?)),
            decision = decision => Ok(Next::Decision(decision)),
        }
    }

    async fn happened(&mut self, event: &Event) -> Result<(), Failure> {
        let Some(call) = event.call_id else { return Ok(()) };
        match event.kind.as_str() {
            "approval.requested" => {
                if let Some(approval) = self.question(call).await?
                    && approval.state == ApprovalState::Pending
                    && !self.waiting.iter().any(|known| known.id == approval.id)
                {
                    self.arrived(vec![approval]);
                }
            }
            "approval.resolved" => {
                if let Some(approval) = self.question(call).await?
                    && approval.state != ApprovalState::Pending
                {
                    self.resolved(&approval);
                }
            }
            _ => {}
        }
        Ok(())
    }

    async fn question(&self, call: CallId) -> Result<Option<Approval>, Failure> {
        match self.daemon.client().call(call).await?.approval {
            Some(id) => Ok(Some(self.daemon.client().approval(id).await?)),
            None => Ok(None),
        }
    }

    fn arrived(&mut self, approvals: Vec<Approval>) {
        if approvals.is_empty() {
            return;
        }
        ring();
        for approval in &approvals {
            if self.terminal.json {
                self.terminal.line("approval", approval);
            } else if self.keyboard.is_none() {
                question::out(approval, self.terminal);
                self.terminal.out("");
            }
        }
        self.waiting.extend(approvals);
        // All but the one that is shown, now or already.
        let more = self.waiting.len() - 1;
        if let (Some(keyboard), 1..) = (&mut self.keyboard, more) {
            keyboard.show("");
            keyboard.show(&self.terminal.paint_err(DIM, &format!("  {more} more waiting")));
            if let Some(prompt) = &self.focused {
                prompt.again(keyboard);
            }
        }
        self.focus();
    }

    /// Shows the question that waits the longest, unless one is shown already.
    fn focus(&mut self) {
        if let (None, Some(approval), Some(keyboard)) = (&self.focused, self.waiting.front(), &mut self.keyboard) {
            self.focused = Some(Prompt::ask(approval, take(&mut self.before), keyboard, self.terminal));
        }
    }

    fn resolved(&mut self, approval: &Approval) {
        let focused = self.waiting.front().is_some_and(|first| first.id == approval.id);
        self.forget(approval.id);
        if self.terminal.json {
            self.terminal.line("approval", approval);
        } else if let Some(answer) = approval.answer.as_ref().filter(|_| !self.answered.remove(&approval.id)) {
            match &mut self.keyboard {
                Some(keyboard) => {
                    let line = question::answered(answer, &|style, text| self.terminal.paint_err(style, text));
                    keyboard.show("");
                    keyboard.show(&format!("  {line}"));
                    if let Some(prompt) = self.focused.as_ref().filter(|_| !focused) {
                        prompt.again(keyboard);
                    }
                }
                None => {
                    self.terminal.out_rows(question::answered(answer, &|style, text| self.terminal.paint(style, text)));
                }
            }
        }
        if focused {
            (self.focused, self.before) = (None, Before::Another);
        }
        self.focus();
    }

    fn forget(&mut self, id: ApprovalId) {
        self.waiting.retain(|known| known.id != id);
    }

    async fn decided(&mut self, decision: Option<Decision>) -> Result<(), Failure> {
        self.focused = None;
        let Some(decision) = decision else {
            // The terminal is closed; from here on this only tells.
            self.keyboard = None;
            return Ok(());
        };
        let (Some(approval), Some(keyboard)) = (self.waiting.front().cloned(), &mut self.keyboard) else {
            return Ok(());
        };
        let manner = Manner { at_terminal: true, ..Manner::default() };
        match answer(self.daemon.client(), &approval, &decision, manner, Some(keyboard)).await {
            Ok(answers) => {
                for answer in &answers.answered {
                    let line = question::answered(answer, &|style, text| self.terminal.paint_err(style, text));
                    keyboard.show(&format!("  {line}"));
                    // Its event says no more than that.
                    self.answered.insert(answer.id);
                    self.waiting.retain(|known| known.id != answer.id);
                }
            }
            Err(failure) if failure.exit == Exit::Unreachable => return Err(failure),
            Err(failure) => {
                report::failure_to(&failure, &mut |line| keyboard.show(&format!("  {line}")), self.terminal);
                if matches!(failure.code.as_ref(), "too_late" | "approval_expired" | "unknown_approval") {
                    self.forget(approval.id);
                    self.before = Before::Another;
                }
            }
        }
        self.focus();
        Ok(())
    }
}

/// Rings the bell, if somebody can hear it.
fn ring() {
    let mut stderr = io::stderr();
    if stderr.is_terminal() {
        let _ = stderr.write_all(b"\x07");
    }
}
