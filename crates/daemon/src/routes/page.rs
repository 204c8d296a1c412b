//! The inbox page and what belongs to it. The same for everybody: whatever it shows, it fetches with the session of whoever looks at it.

use std::sync::Arc;

use axum::{
    Router,
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
    routing::get,
};

use crate::app::App;

/// The files of the page.
pub(super) fn router() -> Router<Arc<App>> {
    FILES
        .iter()
        .fold(Router::new(), |router, file| router.route(file.path, get(move || std::future::ready(served(file)))))
}

struct File {
    path: &'static str,
    kind: &'static str,
    content: &'static str,
}

const SCRIPT: &str = "text/javascript; charset=utf-8";

macro_rules! files {
    ($($path:literal = $kind:expr, $file:literal;)+) => {
        &[$(File { path: $path, kind: $kind, content: include_str!(concat!("../../../../web/inbox/", $file)) }),+]
    };
}

const FILES: &[File] = files! {
    "/" = "text/html; charset=utf-8", "index.html";
    "/inbox.css" = "text/css; charset=utf-8", "inbox.css";
    "/inbox.js" = SCRIPT, "inbox.js";
    "/card.js" = SCRIPT, "card.js";
    "/daemon.js" = SCRIPT, "daemon.js";
    "/visible.js" = SCRIPT, "visible.js";
};

fn served(file: &'static File) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(file.kind)),
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
        (header::HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
    ];
    (headers, file.content).into_response()
}

/// Nothing but the page's own files, no inline script, nothing that turns text into code, in nobody's frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
                      trusted-types 'none'";
