//! How answers of the host are written into a recording, and read from it again. Bytes are base64.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use crate::host::{FileEntry, HttpRequest, HttpResponse};

/// What can stand in a recording.
pub(crate) trait Written: Sized {
    /// As JSON.
    fn to_value(&self) -> Value;
    /// How many bytes of that are sure, without writing it.
    fn bytes_at_least(&self) -> usize {
        0
    }
    /// From JSON, if that is what it is.
    fn from_value(value: Value) -> Option<Self>;
}

/// What is written as serde writes it.
macro_rules! plain {
    ($($kind:ty),+) => { $(
        impl Written for $kind {
            fn to_value(&self) -> Value {
                json!(self)
            }

            fn from_value(value: Value) -> Option<Self> {
                serde_json::from_value(value).ok()
            }
        }
    )+ };
}

plain!(u64, bool, String, Vec<String>, Vec<u32>, FileEntry, Vec<FileEntry>);

impl Written for () {
    fn to_value(&self) -> Value {
        Value::Null
    }

    fn from_value(value: Value) -> Option<Self> {
        value.is_null().then_some(())
    }
}

impl Written for Vec<u8> {
    fn to_value(&self) -> Value {
        Value::String(STANDARD.encode(self))
    }

    fn bytes_at_least(&self) -> usize {
        spelt_bytes(self.len())
    }

    fn from_value(value: Value) -> Option<Self> {
        STANDARD.decode(value.as_str()?).ok()
    }
}

impl Written for Option<Vec<u8>> {
    fn to_value(&self) -> Value {
        self.as_ref().map_or(Value::Null, Written::to_value)
    }

    fn bytes_at_least(&self) -> usize {
        self.as_ref().map_or(0, Written::bytes_at_least)
    }

    fn from_value(value: Value) -> Option<Self> {
        if value.is_null() { Some(None) } else { Vec::from_value(value).map(Some) }
    }
}

impl Written for HttpResponse {
    fn to_value(&self) -> Value {
        let Self { status, url, headers, body, truncated } = self;
        json!({ "status": status, "url": url, "headers": headers, "body": body.to_value(), "truncated": truncated })
    }

    fn bytes_at_least(&self) -> usize {
        self.body.bytes_at_least()
    }

    fn from_value(mut value: Value) -> Option<Self> {
        let mut take = |field: &str| value.get_mut(field).map(Value::take);
        Some(Self {
            status: serde_json::from_value(take("status")?).ok()?,
            url: serde_json::from_value(take("url")?).ok()?,
            headers: serde_json::from_value(take("headers")?).ok()?,
            body: Vec::from_value(take("body")?)?,
            truncated: serde_json::from_value(take("truncated")?).ok()?,
        })
    }
}

/// A request as it stands in a recording.
pub(crate) fn request(request: &HttpRequest) -> Value {
    let HttpRequest { method, url, headers, body, max_bytes, timeout_ms, follow_redirects } = request;
    json!({
        "method": method, "url": url, "headers": headers, "body": body.to_value(), "max_bytes": max_bytes,
        "timeout_ms": timeout_ms, "follow_redirects": follow_redirects,
    })
}

/// Bytes as they stand in a recording.
pub(crate) fn bytes(bytes: &[u8]) -> Value {
    Value::String(STANDARD.encode(bytes))
}

/// How many bytes so many bytes are in a recording.
pub(crate) const fn spelt_bytes(bytes: usize) -> usize {
    bytes.div_ceil(3).saturating_mul(4)
}
