//! Errors in the shape that clients of other products expect.
//!
//! Guarantees: every error under `/v1/` has the shape `{ "error": { "message", "type", "param", "code" } }`; what was refused for good says
//! `x-should-retry: false`, so that clients do not ask again for what nobody will allow; no status is 409, which they retry; what failed after
//! something had been done has neither a status nor a word that any of them retries.

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use palyra_api::ErrorDetail;
use serde_json::{Value, json};

/// Whether a path belongs to the facade.
#[must_use]
pub fn is_facade(path: &str) -> bool {
    path.starts_with("/v1/")
}

/// The status that clients of other products are told, and whether asking again would do once more what was done already.
#[must_use]
pub fn status(status: StatusCode, repeats: bool) -> StatusCode {
    match status {
        StatusCode::CONFLICT => StatusCode::BAD_REQUEST,
        // SECURITY: some clients look at the status alone, and would have everything done up to three times.
        other if repeats && is_retried(other) => StatusCode::FAILED_DEPENDENCY,
        other => other,
    }
}

fn is_retried(status: StatusCode) -> bool {
    matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT)
        || (status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED)
}

/// What is told of an error. The help stands behind the message, because that is all they show.
#[must_use]
pub fn message(detail: &ErrorDetail) -> String {
    match &detail.help {
        Some(help) => format!("{} ({help})", detail.message),
        None => detail.message.clone(),
    }
}

/// An error in their shape.
#[must_use]
pub fn shape(status: StatusCode, detail: &ErrorDetail) -> Value {
    let mut error = json!({
        "message": message(detail),
        "type": kind(status),
        "param": detail.param,
        "code": detail.code,
    });
    if let (Some(error), Some(call)) = (error.as_object_mut(), detail.call) {
        error.insert("call".to_owned(), json!(call));
    }
    json!({ "error": error })
}

/// Says whether it is worth asking again.
pub fn advise(headers: &mut HeaderMap, status: StatusCode) {
    let again = is_retried(status);
    headers.insert("x-should-retry", HeaderValue::from_static(if again { "true" } else { "false" }));
    if status == StatusCode::FAILED_DEPENDENCY {
        headers.remove(header::RETRY_AFTER);
    }
}

/// Tells limits by the names that these clients know, beside ours.
pub fn tell_limits(headers: &mut HeaderMap) {
    for (ours, theirs) in
        [("ratelimit-limit", "x-ratelimit-limit-requests"), ("ratelimit-remaining", "x-ratelimit-remaining-requests")]
    {
        if let Some(value) = headers.get(ours).cloned() {
            headers.insert(theirs, value);
        }
    }
    let reset = headers.get("ratelimit-reset").or_else(|| headers.get(header::RETRY_AFTER));
    let limited = headers.contains_key("ratelimit-limit");
    if let Some(seconds) = reset.filter(|_| limited).and_then(|value| value.to_str().ok()?.parse().ok()) {
        headers.insert("x-ratelimit-reset-requests", duration(seconds));
    }
}

/// Seconds as these clients read them, such as `6m0s`.
fn duration(seconds: u64) -> HeaderValue {
    let text = match (seconds / 3_600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds}s"),
        (0, minutes, seconds) => format!("{minutes}m{seconds}s"),
        (hours, minutes, seconds) => format!("{hours}h{minutes}m{seconds}s"),
    };
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("0s"))
}

const fn kind(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 => "authentication_error",
        403 => "permission_error",
        429 => "rate_limit_error",
        424 | 500.. => "server_error",
        _ => "invalid_request_error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_told_by_the_names_that_clients_know() {
        let mut headers = HeaderMap::new();
        tell_limits(&mut headers);
        assert!(headers.is_empty());
        for (name, value) in [("ratelimit-limit", 60), ("ratelimit-remaining", 7), ("ratelimit-reset", 4_205)] {
            headers.insert(name, HeaderValue::from(value));
        }
        tell_limits(&mut headers);
        let told = ["limit", "remaining", "reset"].map(|one| headers[format!("x-ratelimit-{one}-requests")].clone());
        assert_eq!(told, ["60", "7", "1h10m5s"]);
        assert_eq!([duration(0), duration(59), duration(360)], ["0s", "59s", "6m0s"]);
    }

    #[test]
    fn a_refusal_says_what_to_do_and_is_not_asked_again() {
        let detail = ErrorDetail {
            code: "denied_by_policy".to_owned(),
            message: "the tool is switched off".to_owned(),
            help: Some("an owner or admin sets another posture".to_owned()),
            request_id: None,
            call: None,
            param: None,
        };
        let told = shape(StatusCode::FORBIDDEN, &detail);
        let expected = json!({ "error": {
            "message": "the tool is switched off (an owner or admin sets another posture)",
            "type": "permission_error", "param": null, "code": "denied_by_policy",
        } });
        assert_eq!(told, expected);
        let about = ErrorDetail { param: Some("messages".to_owned()), ..detail };
        assert_eq!(shape(StatusCode::FORBIDDEN, &about)["error"]["param"], "messages");
        let mut headers = HeaderMap::new();
        advise(&mut headers, StatusCode::FORBIDDEN);
        assert_eq!(headers["x-should-retry"], "false");
        advise(&mut headers, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(headers["x-should-retry"], "true");
        assert_eq!(status(StatusCode::CONFLICT, false), StatusCode::BAD_REQUEST);
    }

    #[test]
    fn no_client_asks_again_for_what_was_done_already() {
        for failed in [408, 429, 500, 502, 503, 504].map(|code| StatusCode::from_u16(code).unwrap()) {
            let told = status(failed, true);
            assert_eq!(
                (status(failed, false), told, kind(told)),
                (failed, StatusCode::FAILED_DEPENDENCY, "server_error")
            );
            let mut headers = HeaderMap::from_iter([(header::RETRY_AFTER, HeaderValue::from(1))]);
            advise(&mut headers, told);
            assert_eq!(
                headers,
                HeaderMap::from_iter([("x-should-retry".parse().unwrap(), HeaderValue::from_static("false"))])
            );
        }
        assert_eq!(status(StatusCode::FORBIDDEN, true), StatusCode::FORBIDDEN);
    }
}
