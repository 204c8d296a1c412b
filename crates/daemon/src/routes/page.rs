//! The console's page and what belongs to it. The same for everybody: whatever it shows, it fetches with the session of whoever looks at it.

use std::sync::Arc;

use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderValue, header},
    response::{IntoResponse, Redirect, Response},
    routing::get,
};

use crate::{app::App, edge::Listener, failure::Failure};

/// The files of the page.
pub(super) fn router() -> Router<Arc<App>> {
    FILES.iter().fold(Router::new(), |router, file| {
        router.route(file.path, get(move |state, request| std::future::ready(served(file, state, request))))
    })
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
    "/console.js" = SCRIPT, "console.js";
    "/page.js" = SCRIPT, "page.js";
    "/inbox.js" = SCRIPT, "inbox.js";
    "/card.js" = SCRIPT, "card.js";
    "/devices.js" = SCRIPT, "devices.js";
    "/device.js" = SCRIPT, "device.js";
    "/pairing.js" = SCRIPT, "pairing.js";
    "/form.js" = SCRIPT, "form.js";
    "/qr.js" = SCRIPT, "qr.js";
    "/element.js" = SCRIPT, "element.js";
    "/daemon.js" = SCRIPT, "daemon.js";
    "/visible.js" = SCRIPT, "visible.js";
};

/// A file, on the local listener and under its own address: what a page keeps under `localhost` would be shared with whoever listens on
/// another address of that name.
fn served(file: &'static File, State(app): State<Arc<App>>, request: Request) -> Response {
    if request.extensions().get::<Listener>() != Some(&Listener::Local) {
        return Failure::not_found("the console is on the local listener").into_response();
    }
    let address = app.local.to_string();
    if request.headers().get(header::HOST).is_none_or(|host| host.as_bytes() != address.as_bytes()) {
        return Redirect::temporary(&format!("http://{address}{}", file.path)).into_response();
    }
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
