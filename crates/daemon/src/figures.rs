//! Figures for Prometheus: counted while the daemon works, read when somebody asks.

use std::sync::atomic::AtomicU64;

use axum::http::StatusCode;
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

/// What is counted.
pub struct Figures {
    registry: Registry,
    answers: [Counter; 5],
    calls: Family<Outcome, Counter>,
    /// How many read event streams.
    pub readers: Gauge,
    /// How many messages of transcripts could not be kept.
    pub unkept: Counter,
    pending: Gauge<u64, AtomicU64>,
    records: Gauge<u64, AtomicU64>,
    troubled: Gauge,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Class {
    status: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: String,
}

impl Figures {
    /// Everything at nothing.
    #[must_use]
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("palyra");
        let classes = Family::<Class, Counter>::default();
        let answers =
            ["1xx", "2xx", "3xx", "4xx", "5xx"].map(|status| classes.get_or_create(&Class { status }).clone());
        let calls = Family::default();
        let (readers, pending, records, troubled) =
            (Gauge::default(), Gauge::default(), Gauge::default(), Gauge::default());
        registry.register("http_answers", "Answers by class of status", classes);
        registry.register("calls", "Calls that came to an end, by what came of them", Family::clone(&calls));
        registry.register("event_readers", "Open event streams", Gauge::clone(&readers));
        registry.register("approvals_pending", "Questions that nobody has answered yet", Gauge::clone(&pending));
        registry.register("journal_records", "Records in the journal", Gauge::clone(&records));
        let unkept = Counter::default();
        registry.register("transcript_messages_lost", "Messages of transcripts that could not be kept", unkept.clone());
        registry.register("journal_troubled", "1 while the journal cannot be written", Gauge::clone(&troubled));
        Self { registry, answers, calls, readers, unkept, pending, records, troubled }
    }

    /// Counts an answer.
    pub fn answered(&self, status: StatusCode) {
        let class = usize::from(status.as_u16() / 100).saturating_sub(1);
        if let Some(counter) = self.answers.get(class) {
            counter.inc();
        }
    }

    /// Counts a call that came to an end.
    pub fn ended(&self, outcome: &str) {
        self.calls.get_or_create(&Outcome { outcome: outcome.to_owned() }).inc();
    }

    /// Everything, in the text form that Prometheus reads.
    #[must_use]
    pub fn text(&self, pending: u64, records: u64, troubled: bool) -> String {
        self.pending.set(pending);
        self.records.set(records);
        self.troubled.set(i64::from(troubled));
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

impl Default for Figures {
    fn default() -> Self {
        Self::new()
    }
}
