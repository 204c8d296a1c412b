//! `/api/v1/journal`: the signed head, records, proofs, verification, bundles.

use std::{
    io::{self, Write},
    sync::Arc,
};

use axum::{
    body::{Body, Bytes},
    extract::State,
    http::header,
    response::{IntoResponse, Response},
};
use futures_util::stream;
use palyra_api::{
    ErrorBody,
    journal::{ExportQuery, Head, Proof, Record, RecordQuery, Records, Verification},
};
use palyra_journal::{Checkpoint, Extent, StoredRecord, Trust, verify as check};
use tokio::sync::mpsc;

use crate::{
    app::App,
    caller::Caller,
    extract::{Asked, Named},
    failure::Failure,
    oversight,
    reply::Reply,
};

/// The signed head of the journal.
#[utoipa::path(get, path = "/api/v1/journal/head", tag = "journal", security(("bearer" = []), ("certificate" = [])),
    responses((status = 200, body = Head), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn head(State(app): State<Arc<App>>, _: Caller) -> Result<Reply<Head>, Failure> {
    let (checkpoint, size) = signed(&app).await?;
    Ok(Reply(Head { size, checkpoint, key: app.store.key().public().text().to_owned() }))
}

/// Records: from one on, or the last ones.
#[utoipa::path(get, path = "/api/v1/journal/records", tag = "journal", security(("bearer" = []), ("certificate" = [])), params(RecordQuery),
    responses((status = 200, body = Records), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn records(
    State(app): State<Arc<App>>,
    _: Caller,
    Asked(query): Asked<RecordQuery>,
) -> Result<Reply<Records>, Failure> {
    let (most, size) = (oversight::page(query.limit)?, app.hub.size());
    let from = query.from.unwrap_or_else(|| size.saturating_sub(u64::try_from(most).unwrap_or(u64::MAX)));
    let records = app.store.records_within(from, most, PAGE_BYTES).await?;
    Ok(Reply(Records { size, records: records.iter().map(told).collect() }))
}

/// One record.
#[utoipa::path(get, path = "/api/v1/journal/records/{seq}", tag = "journal", security(("bearer" = []), ("certificate" = [])),
    params(("seq" = u64, Path)),
    responses((status = 200, body = Record), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn record(
    State(app): State<Arc<App>>,
    _: Caller,
    Named(seq): Named<u64>,
) -> Result<Reply<Record>, Failure> {
    Ok(Reply(told(&stored(&app, seq).await?)))
}

/// The proof that a record is in the journal whose head is signed.
#[utoipa::path(get, path = "/api/v1/journal/proofs/{seq}", tag = "journal", security(("bearer" = []), ("certificate" = [])),
    params(("seq" = u64, Path)),
    responses((status = 200, body = Proof), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn proof(
    State(app): State<Arc<App>>,
    _: Caller,
    Named(seq): Named<u64>,
) -> Result<Reply<Proof>, Failure> {
    let record = stored(&app, seq).await?;
    let (checkpoint, size) = signed(&app).await?;
    let hashes = app.store.inclusion(seq, size).await?.path;
    let salt = record.salt.as_ref().map(|salt| hexadecimal(salt));
    let key = app.store.key().public().text().to_owned();
    Ok(Reply(Proof { record: told(&record), salt, checkpoint, key, hashes }))
}

/// Verifies the whole journal.
#[utoipa::path(post, path = "/api/v1/journal/verify", tag = "journal", security(("bearer" = []), ("certificate" = [])),
    responses((status = 200, body = Verification), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn verify(State(app): State<Arc<App>>, _: Caller) -> Result<Reply<Verification>, Failure> {
    let directory = app.journal.clone();
    let verified = tokio::task::spawn_blocking(move || check(&directory, &Trust::default(), &mut |_, _| {}));
    Ok(Reply(match verified.await.map_err(|error| Failure::internal(error.to_string()))? {
        Ok(report) => Verification {
            ok: true,
            origin: Some(report.origin),
            first: report.first,
            records: report.records,
            erased: report.erased,
            bad_record: None,
            fault: None,
        },
        Err(failure) => Verification {
            ok: false,
            origin: None,
            first: 0,
            records: 0,
            erased: 0,
            bad_record: Some(failure.seq),
            fault: Some(failure.fault.to_string()),
        },
    }))
}

/// A bundle of records that anybody can verify, as JSON Lines.
#[utoipa::path(get, path = "/api/v1/journal/export", tag = "journal", security(("bearer" = []), ("certificate" = [])), params(ExportQuery),
    responses((status = 200, body = String, content_type = "application/jsonl"), (status = "4XX", body = ErrorBody),
        (status = 503, body = ErrorBody)))]
pub(super) async fn export(
    State(app): State<Arc<App>>,
    _: Caller,
    Asked(query): Asked<ExportQuery>,
) -> Result<Response, Failure> {
    let (pipe, mut lines) = mpsc::channel(PIPE);
    let extent = Extent { first: query.first, last: query.last };
    let store = Arc::clone(&app.store);
    let exporting = tokio::spawn(async move { store.export(extent, Box::new(Pipe(pipe))).await });
    // An export that fails before its first byte is told as an error; later ones break off, and the bundle shows that it is not whole.
    let Some(first) = lines.recv().await else {
        let exported = exporting.await.map_err(|error| Failure::internal(error.to_string()))?;
        return Err(exported.err().map_or_else(|| Failure::internal("nothing was exported"), Failure::from));
    };
    let body = stream::unfold((Some(first), lines), |(first, mut lines)| async move {
        let chunk = match first {
            Some(chunk) => chunk,
            None => lines.recv().await?,
        };
        Some((Ok::<_, io::Error>(chunk), (None, lines)))
    });
    Ok(([(header::CONTENT_TYPE, "application/jsonl")], Body::from_stream(body)).into_response())
}

/// Hands what is written on to a response, and waits for it.
struct Pipe(mpsc::Sender<Bytes>);

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.0.blocking_send(Bytes::copy_from_slice(bytes));
        sent.map(|()| bytes.len()).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

async fn stored(app: &App, seq: u64) -> Result<StoredRecord, Failure> {
    let found = app.store.records(seq, 1).await?.into_iter().next().filter(|record| record.record.seq == seq);
    found.ok_or_else(|| Failure::not_found(format!("there is no record {seq}, or it was dropped")))
}

/// The signed checkpoint and the size that it is of.
async fn signed(app: &App) -> Result<(String, u64), Failure> {
    let note = app.store.checkpoint().await?;
    let head = Checkpoint::open(&note, app.store.key().public())
        .map_err(|error| Failure::new("journal_unreadable", error.to_string(), "run `palyra journal verify`"))?;
    Ok((note, head.size))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn told(stored: &StoredRecord) -> Record {
    Record {
        seq: stored.record.seq,
        time: stored.record.time(),
        kind: stored.record.kind.to_string(),
        record: stored.record.canonical(),
        hash: stored.hash,
        body: stored.body.as_deref().and_then(|body| serde_json::from_str(body).ok()),
    }
}

/// How many bytes of what records say are told at once, more or less.
const PAGE_BYTES: usize = 4 << 20;

/// How many lines an export is ahead of its reader.
const PIPE: usize = 64;
