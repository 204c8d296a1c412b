//! `http.fetch`: a request over HTTP, made by the daemon itself under the rules of strict egress.
//!
//! Guarantees: everything that would be sent is read once, into one spelling, and is part of what is approved. Needs no
//! workspace and touches no file.
//! Refuses: headers that frame the message or name its host, user names in URLs, bodies where servers expect none.

use std::collections::BTreeMap;

use base64::{Engine, engine::general_purpose::STANDARD};
use palyra_policy::Touch;
use palyra_sandbox::egress::fetch::{
    FetchError, FetchHeaders, FetchLimits, FetchMethod, FetchRequest, FetchResponse, FetchUrl, Redirects,
};
use palyra_types::{JsonError, JsonObject, Sha256Digest, ToolMetadata, visible::visible};
use palyra_vault::Placeholder;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{fs_read::end_before_a_cut_character, read};
use crate::{
    secret::{SecretArgs, SecretUse},
    tool::{FetchWork, IntendError, Intent, Place, Tool, ToolDefinition, Work},
};

pub(super) struct HttpFetch(ToolDefinition);

impl HttpFetch {
    pub(super) fn new(metadata: ToolMetadata) -> Result<Self, JsonError> {
        let methods: Vec<&str> = FetchMethod::ALL.iter().map(|method| method.as_str()).collect();
        let schema = json!({
            "type": "object",
            "properties": {
                "url": {
                    "type": "string", "minLength": 1, "maxLength": 8192,
                    "description": "What to fetch, such as https://example.org/path?query. Only http and https."
                },
                "method": { "enum": methods, "description": "How; GET if left out." },
                "headers": {
                    "type": "object", "additionalProperties": { "type": "string" }, "maxProperties": 64,
                    "description": "Headers to send along. What concerns the host, the length, the encoding and the \
                        connection cannot be set."
                },
                "body": { "type": "string", "description": "What to send, as text. Not with GET and HEAD." },
                "body_base64": { "type": "string", "description": "What to send, as base64, in place of `body`." },
                "max_bytes": {
                    "type": "integer", "minimum": 1, "maximum": MOST_BYTES,
                    "description": "How many bytes of the answer to read; 1048576 if left out. The rest is cut off."
                },
                "timeout_seconds": {
                    "type": "integer", "minimum": 1, "maximum": LONGEST_SECONDS,
                    "description": "How long it may take, redirects included; 30 if left out."
                },
                "follow_redirects": {
                    "type": "boolean",
                    "description": "Whether to go on where it is redirected to, five times at most; true if left out. \
                        Each host is decided about."
                },
                "secrets": {
                    "type": "object", "additionalProperties": { "type": "string" }, "maxProperties": 16,
                    "propertyNames": { "pattern": "^[A-Za-z_][A-Za-z0-9_]{0,63}$" },
                    "description": "Secrets to be sent without being seen, by name, such as {\"TOKEN\": \"global/github\"}. Where {{TOKEN}} \
                        stands in a header, in the query or in the body, the value takes its place, if the secret is bound to that \
                        place of requests to that host."
                }
            },
            "required": ["url"],
            "additionalProperties": false
        });
        let description = "Fetches something over HTTP or HTTPS. The answer has the status, the final url, the headers as \
            pairs, and the body as `text` or, if it is not UTF-8, as `base64`; `truncated` tells that there was more. \
            Hosts that nobody listed, and addresses that are not public, are refused or asked about.";
        ToolDefinition::new(metadata, description, schema).map(Self)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Args {
    url: String,
    method: Option<FetchMethod>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    body: Option<String>,
    body_base64: Option<String>,
    max_bytes: Option<u64>,
    timeout_seconds: Option<u32>,
    follow_redirects: Option<bool>,
    #[serde(default)]
    secrets: BTreeMap<String, String>,
}

impl Tool for HttpFetch {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    /// It looks at nothing but its arguments.
    fn glances(&self) -> bool {
        true
    }

    fn intend(&self, args: &JsonObject, place: &Place<'_>) -> Result<Intent, IntendError> {
        let Args { url, method, headers, body, body_base64, max_bytes, timeout_seconds, follow_redirects, secrets } =
            read(args)?;
        let secrets = SecretArgs { secrets, ..SecretArgs::default() }.read(self.0.name(), place)?;
        let url = FetchUrl::parse(&url)?;
        let method = method.unwrap_or(FetchMethod::Get);
        let body = match (body, body_base64) {
            (Some(_), Some(_)) => return Err(IntendError::TwoBodies),
            (Some(text), None) => Some(text.into_bytes()),
            (None, Some(text)) => Some(STANDARD.decode(text).map_err(|_| IntendError::NotBase64)?),
            (None, None) => None,
        };
        if body.is_some() && !method.takes_body() {
            return Err(IntendError::NoBody(method));
        }
        let (host, port) = (url.host().clone(), url.port());
        let spelt = url.to_string();
        for SecretUse { name, .. } in &secrets {
            let named = format!("{{{{{name}}}}}");
            let in_body =
                body.as_ref().is_some_and(|body| body.windows(named.len()).any(|part| part == named.as_bytes()));
            let in_headers = headers.iter().any(|(_, value)| value.contains(&named));
            if !in_body && !in_headers && !spelt.contains(&named) && !spelt.contains(&format!("%7B%7B{name}%7D%7D")) {
                return Err(IntendError::SecretNowhere(name.clone()));
            }
        }
        Ok(Intent {
            touches: std::iter::once(Touch::Connect(host.clone(), port))
                .chain(secrets.iter().map(SecretUse::touch))
                .collect(),
            work: Work::Fetch(FetchWork {
                method,
                url,
                host,
                port,
                headers: FetchHeaders::parse(headers)?,
                body_sha256: body.as_deref().map(Sha256Digest::of),
                body,
                max_bytes: max_bytes.unwrap_or(USUAL_BYTES),
                timeout_seconds: timeout_seconds.unwrap_or(USUAL_SECONDS),
                follow_redirects: follow_redirects.unwrap_or(true),
                secrets,
            }),
        })
    }
}

/// The request that the work is.
pub(crate) fn request(work: FetchWork, limits: FetchLimits) -> FetchRequest {
    // SECURITY: a key in a header of any name was approved for one host. What is not known to be harmless stays there.
    let bound = work.headers.iter().map(|(name, _)| name).filter(|name| !HARMLESS.contains(name));
    FetchRequest {
        method: work.method,
        url: work.url,
        bound: bound.map(str::to_owned).collect(),
        headers: work.headers,
        body: work.body.unwrap_or_default(),
        redirects: if work.follow_redirects { Redirects::Follow } else { Redirects::Return },
        limits,
    }
}

/// The work with placeholders where the names of secrets stand between braces, if they can stand there.
pub(crate) fn with_placeholders(work: &FetchWork, placeholders: &[(String, Placeholder)]) -> Option<FetchWork> {
    let mut filled = work.clone();
    let mut url = work.url.to_string();
    let mut headers: Vec<(String, String)> =
        work.headers.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    for (name, placeholder) in placeholders {
        let named = format!("{{{{{name}}}}}");
        // As a URL is spelt.
        url = url.replace(&format!("%7B%7B{name}%7D%7D"), placeholder.as_str()).replace(&named, placeholder.as_str());
        headers.iter_mut().for_each(|(_, value)| *value = value.replace(&named, placeholder.as_str()));
        filled.body = filled.body.map(|body| replaced(&body, named.as_bytes(), placeholder.as_str().as_bytes()));
    }
    filled.url = FetchUrl::parse(&url).ok()?;
    filled.headers = FetchHeaders::parse(headers).ok()?;
    Some(filled)
}

fn replaced(text: &[u8], what: &[u8], by: &[u8]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::with_capacity(text.len()), text);
    while let Some(at) = rest.windows(what.len()).position(|window| window == what) {
        out.extend_from_slice(rest.get(..at).unwrap_or_default());
        out.extend_from_slice(by);
        rest = rest.get(at + what.len()..).unwrap_or_default();
    }
    out.extend_from_slice(rest);
    out
}

/// What is told about a response.
pub(crate) fn tell(response: FetchResponse) -> Value {
    let encoding = response.encoding();
    let FetchResponse { status, url, redirects, headers, mut body, truncated } = response;
    if truncated {
        end_before_a_cut_character(&mut body);
    }
    let header = |(name, value): (String, Vec<u8>)| json!([name, visible(&String::from_utf8_lossy(&value))]);
    let mut told = json!({
        "status": status, "url": url, "redirects": redirects, "bytes": body.len(), "truncated": truncated,
        "sha256": Sha256Digest::of(&body), "headers": headers.into_iter().map(header).collect::<Vec<_>>(),
    });
    let (key, content) = match String::from_utf8(body) {
        Ok(text) => ("text", text),
        Err(error) => ("base64", STANDARD.encode(error.as_bytes())),
    };
    if let Value::Object(told) = &mut told {
        told.insert(key.to_owned(), content.into());
        told.extend(encoding.map(|encoding| ("content_encoding".to_owned(), visible(&encoding).into())));
    }
    told
}

/// What is told about a request that came to nothing.
pub(crate) fn tell_error(error: &FetchError) -> Value {
    json!({ "error": { "kind": error.kind(), "message": error.to_string(), "help": error.advice() } })
}

/// Headers that hold no secrets, and that another host may see.
const HARMLESS: [&str; 13] = [
    "accept",
    "accept-language",
    "cache-control",
    "content-encoding",
    "content-language",
    "content-type",
    "if-modified-since",
    "if-none-match",
    "if-unmodified-since",
    "pragma",
    "range",
    "user-agent",
    "x-requested-with",
];

const USUAL_BYTES: u64 = 1 << 20;

/// How many bytes of an answer are read at most.
const MOST_BYTES: u64 = 8 << 20;

const USUAL_SECONDS: u32 = 30;

/// How long a request may take at most.
const LONGEST_SECONDS: u32 = 120;
