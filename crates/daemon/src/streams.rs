//! Event streams: everything, one run, or one call while it is conducted.
//!
//! Guarantees: a stream ends with its reader, with the session it was opened in, and with the daemon; a comment every 15 seconds shows that it lives; live output is told as it
//! comes, and a gap in it shows in its offsets.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{
    body::{Body, Bytes},
    http::{HeaderMap, HeaderValue, header},
    response::{IntoResponse, Response},
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use futures_util::stream;
use palyra_api::{
    ErrorBody, Event,
    event::{CALL_OVER, OutputPiece, TOOL_OUTPUT},
};
use palyra_gate::LiveOutput;
use palyra_journal::RecordKind;
use palyra_types::{Clock, id::CallId};
use serde_json::Value;
use tokio::{
    sync::{broadcast, mpsc, watch},
    time::{Instant, interval_at},
};

use crate::{
    app::App,
    caller::Caller,
    failure::Failure,
    hub::{Follower, Frame, Wanted, message},
    oversight::may_read_journal,
    proposing::{self, Asking, Proposing},
    story,
};

/// Who follows how many streams.
#[derive(Default)]
pub struct Readers(Mutex<HashMap<String, usize>>);

impl Readers {
    /// A place for one more stream of a principal.
    ///
    /// # Errors
    /// When they follow as many as they may.
    fn enter(&self, caller: &Caller) -> Result<String, Failure> {
        let most = if caller.is_agent() { MOST_OF_AN_AGENT } else { MOST_OF_A_PERSON };
        let name = caller.principal.to_string();
        let mut readers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = readers.entry(name.clone()).or_default();
        if *count >= most {
            let message = format!("{most} streams are open, which is the limit");
            return Err(Failure::new("too_many_streams", message, "close some of them first"));
        }
        *count += 1;
        Ok(name)
    }

    fn leave(&self, name: &str) {
        if let Some(count) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get_mut(name) {
            *count = count.saturating_sub(1);
        }
    }
}

/// Which record a stream begins behind.
///
/// # Errors
/// When `Last-Event-ID` is no number.
pub fn resume(headers: &HeaderMap, after: Option<u64>) -> Result<Option<u64>, Failure> {
    match headers.get("last-event-id") {
        None => Ok(after),
        Some(id) => id
            .to_str()
            .ok()
            .and_then(|id| id.parse().ok())
            .map(Some)
            .ok_or_else(|| Failure::bad_request("Last-Event-ID is no number of a record")),
    }
}

/// A stream of what happens from behind a record on, or from now on; with the live output of what it is about, if that is not everything.
///
/// # Errors
/// When they follow as many as they may.
pub fn follow(app: &Arc<App>, caller: &Caller, wanted: Wanted, after: Option<u64>) -> Result<Response, Failure> {
    let follower = app.hub.follow(after.map_or_else(|| app.hub.size(), |after| after.saturating_add(1)), wanted);
    let live = (wanted != Wanted::All).then(|| app.gate.live_output());
    let telling =
        Telling { follower, live, wanted, nested: None, clock: Arc::clone(&app.clock), ready: VecDeque::new() };
    let reader = caller.clone();
    pump(app, caller, move |app, out| async move {
        tokio::select! {
            () = tell(Arc::clone(&app), telling, out) => {}
            () = over(&app, &reader, wanted) => {}
        }
    })
}

/// A stream of one call from its proposal to its end. Whoever hangs up withdraws it.
///
/// # Errors
/// When they follow as many streams as they may.
pub fn conduct(app: &Arc<App>, caller: &Caller, proposing: Proposing<'_>) -> Result<Response, Failure> {
    let (call, asked) = (proposing.proposal.call, Asking::of(&proposing.proposal));
    let proposal = proposing.proposal;
    let telling = Telling {
        // What the call wants while it runs is asked about in the same run.
        follower: app.hub.follow(app.hub.size(), Wanted::Run(proposal.run)),
        live: Some(app.gate.live_output()),
        wanted: Wanted::Call(call),
        nested: Some((call, BTreeSet::new())),
        clock: Arc::clone(&app.clock),
        ready: VecDeque::new(),
    };
    pump(app, caller, move |app, out| async move {
        let mut telling = telling;
        let run = app.gate.run(proposal);
        tokio::pin!(run);
        let outcome = loop {
            tokio::select! {
                biased;
                () = out.closed() => return,
                told = telling.next() => match told {
                    Some(message) => if out.send(message).await.is_err() { return },
                    None => return,
                },
                outcome = &mut run => break outcome,
            }
        };
        app.figures.ended(story::outcome_word(&outcome));
        telling.catch_up(&app, call, &out).await;
        let data = match proposing::over(&app, &asked, outcome).await {
            Ok(call) => serde_json::to_value(call),
            Err(failure) => serde_json::to_value(ErrorBody { error: failure.detail }),
        };
        let _ = out.send(last(&app, Some(call), data.unwrap_or_default())).await;
    })
}

/// Waits until somebody may not read any more: their credential was revoked or cut off, its time is over, its session was left, or it does not
/// reach as far any more.
async fn over(app: &App, reader: &Caller, wanted: Wanted) {
    until_refused(app, || match reader.now(app) {
        Some(now) if may_follow(app, reader, &now, wanted) => Ok(()),
        _ => Err(()),
    })
    .await;
}

/// Looks over and over whether somebody may still go on, and says why once they may not.
pub(crate) async fn until_refused<E>(app: &App, may_go_on: impl Fn() -> Result<(), E>) -> E {
    let (mut registry, mut sign_outs) = (app.access.changes(), app.console.sign_outs());
    let mut authorities = app.certifier.changes();
    loop {
        if let Err(refusal) = may_go_on() {
            return refusal;
        }
        // What somebody does is heard at once; time is looked at every now and then.
        tokio::select! {
            _ = registry.changed() => {}
            _ = sign_outs.changed() => {}
            _ = authorities.changed() => {}
            () = tokio::time::sleep(LOOK_AGAIN) => {}
        }
    }
}

/// Whether what somebody holds now is enough for a stream that they were let in to. What is one's own needs no more than the credential.
fn may_follow(app: &App, reader: &Caller, now: &Caller, wanted: Wanted) -> bool {
    let lost_scope = match (&reader.scopes, &now.scopes) {
        (Some(before), Some(after)) => !before.is_subset(after),
        _ => false,
    };
    let may_read = match wanted {
        Wanted::All => now.principal == reader.principal || may_read_journal(app, now).is_ok(),
        Wanted::Run(_) | Wanted::Call(_) => true,
    };
    !lost_scope && may_read
}

fn last(app: &App, call: Option<CallId>, data: Value) -> Bytes {
    let kind = CALL_OVER.to_owned();
    message(&Event { v: 1, seq: None, time: app.clock.now(), kind, run_id: None, call_id: call, data })
}

async fn tell(app: Arc<App>, mut telling: Telling, out: mpsc::Sender<Bytes>) {
    let mut stopping = app.stopping.subscribe();
    loop {
        tokio::select! {
            () = out.closed() => return,
            () = told_to_stop(&mut stopping) => return,
            told = telling.next() => match told {
                Some(message) => if out.send(message).await.is_err() { return },
                None => return,
            },
        }
    }
}

/// Waits until the daemon is about to stop.
async fn told_to_stop(stopping: &mut watch::Receiver<bool>) {
    let _ = stopping.wait_for(|stopping| *stopping).await;
}

/// Whether live output belongs to a stream.
fn prints(wanted: Wanted, output: &LiveOutput) -> bool {
    match wanted {
        Wanted::All => false,
        Wanted::Run(run) => output.run == run,
        Wanted::Call(call) => output.call == call,
    }
}

/// What a stream tells.
struct Telling {
    follower: Follower,
    live: Option<broadcast::Receiver<LiveOutput>>,
    wanted: Wanted,
    /// For the stream of one call: that call, and those that it wanted while it ran.
    nested: Option<(CallId, BTreeSet<CallId>)>,
    clock: Arc<dyn Clock>,
    /// What is to be told next.
    ready: VecDeque<Bytes>,
}

impl Telling {
    /// The next message. Nothing when there will be none any more. Nothing is lost if this is given up while it waits.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(message) = self.ready.pop_front() {
                return Some(message);
            }
            // What is recorded comes first: output is told behind the start of its call.
            match self.follower.at_hand().await {
                Ok(Some(frame)) => self.take(&frame),
                Ok(None) => tokio::select! {
                    more = self.follower.more() => if !more { return None },
                    output = heard(self.live.as_mut()) => match output {
                        Some(output) if prints(self.wanted, &output) => self.ready.push_back(self.piece(&output)),
                        Some(_) => {}
                        None => self.live = None,
                    },
                },
                Err(error) => {
                    tracing::warn!(%error, "an event stream ends");
                    return None;
                }
            }
        }
    }

    /// A record that is to be told; before the end of a call comes what it printed.
    fn take(&mut self, frame: &Frame) {
        if let Some((call, nested)) = &mut self.nested {
            let Some(of) = frame.subject.call else { return };
            if frame.within == Some(*call) {
                nested.insert(of);
            }
            if of != *call && !nested.contains(&of) {
                return;
            }
        }
        if frame.kind == RecordKind::ToolAttested {
            self.take_output();
        }
        self.ready.push_back(frame.message.clone());
    }

    /// The output that has come by now.
    fn take_output(&mut self) {
        loop {
            let output = match self.live.as_mut().map(broadcast::Receiver::try_recv) {
                Some(Ok(output)) => output,
                // Who fell behind goes on with what is there; offsets show the gap.
                Some(Err(broadcast::error::TryRecvError::Lagged(_))) => continue,
                Some(Err(_)) | None => return,
            };
            if prints(self.wanted, &output) {
                self.ready.push_back(self.piece(&output));
            }
        }
    }

    fn piece(&self, output: &LiveOutput) -> Bytes {
        let data = OutputPiece {
            stream: output.stream_name().to_owned(),
            offset: output.offset,
            base64: BASE64_STANDARD.encode(&output.bytes),
        };
        message(&Event {
            v: 1,
            seq: None,
            time: self.clock.now(),
            kind: TOOL_OUTPUT.to_owned(),
            run_id: Some(output.run),
            call_id: Some(output.call),
            data: serde_json::to_value(data).unwrap_or_default(),
        })
    }

    /// Tells what is recorded and printed of a call that is over, and was not told yet.
    async fn catch_up(&mut self, app: &App, call: CallId, out: &mpsc::Sender<Bytes>) {
        let last = match app.store.call(call).await {
            Ok(Some(row)) => row.last_seq,
            _ => 0,
        };
        while !self.ready.is_empty() || !self.follower.is_past(last) {
            let Some(message) = self.next().await else { return };
            if out.send(message).await.is_err() {
                return;
            }
        }
    }
}

/// The next piece of output. Who fell behind goes on with the next there is; offsets show the gap.
async fn heard(live: Option<&mut broadcast::Receiver<LiveOutput>>) -> Option<LiveOutput> {
    let Some(live) = live else { return std::future::pending().await };
    loop {
        match live.recv().await {
            Ok(output) => return Some(output),
            Err(broadcast::error::RecvError::Lagged(_)) => {}
            Err(broadcast::error::RecvError::Closed) => return None,
        }
    }
}

/// A response that a task of its own writes, with a comment every now and then.
fn pump<F>(
    app: &Arc<App>,
    caller: &Caller,
    write: impl FnOnce(Arc<App>, mpsc::Sender<Bytes>) -> F,
) -> Result<Response, Failure>
where
    F: Future<Output = ()> + Send + 'static,
{
    let name = app.readers.enter(caller)?;
    let (out, written) = mpsc::channel(AHEAD);
    let writing = write(Arc::clone(app), out.clone());
    let counted = Arc::clone(app);
    tokio::spawn(async move {
        counted.figures.readers.inc();
        tokio::select! {
            () = writing => {}
            () = breathe(out) => {}
        }
        counted.figures.readers.dec();
        counted.readers.leave(&name);
    });
    let messages = stream::unfold(written, |mut written| async move {
        let message = written.recv().await?;
        Some((Ok::<_, std::convert::Infallible>(message), written))
    });
    let kind = HeaderValue::from_static("text/event-stream");
    Ok(([(header::CONTENT_TYPE, kind)], Body::from_stream(messages)).into_response())
}

/// Says every now and then that the stream lives. Ends with its reader.
async fn breathe(out: mpsc::Sender<Bytes>) {
    // At once, so that a reader knows that it is connected.
    if out.send(Bytes::from_static(b": welcome\n\n")).await.is_err() {
        return;
    }
    let mut breaths = interval_at(Instant::now() + BREATH, BREATH);
    loop {
        tokio::select! {
            () = out.closed() => return,
            _ = breaths.tick() => {}
        }
        // A reader that has not taken the last messages needs no comment.
        if let Err(mpsc::error::TrySendError::Closed(_)) = out.try_send(Bytes::from_static(b": still here\n\n")) {
            return;
        }
    }
}

/// How many messages a stream is ahead of its reader.
const AHEAD: usize = 4;

/// How many streams one agent may follow, and how many a person.
const MOST_OF_AN_AGENT: usize = 64;

const MOST_OF_A_PERSON: usize = 1_000;

/// How often it is looked whether the time of a credential is over.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

const BREATH: Duration = Duration::from_secs(15);
