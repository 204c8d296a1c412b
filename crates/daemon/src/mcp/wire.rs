//! The two protocols, and what the headers of a request have to say in each.
//!
//! Guarantees: of 2026-07-28, each request names its version and what its client can do, in its body and, as far as the protocol has
//! headers for it, in its head, and the two agree: whoever routes by the head sees what is done. Of 2025-11-25 and 2025-06-18, a session says that once.

use std::sync::Arc;

use axum::http::{HeaderMap, StatusCode};
use base64::{Engine, prelude::BASE64_STANDARD};
use palyra_types::visible::visible;
use rmcp::model::{ErrorCode, ProtocolVersion, TASKS_EXTENSION_ID};
use serde_json::{Map, Value, json};

use super::{
    message::{Request, RpcError},
    sessions::Session,
};

/// How a client speaks.
#[derive(Clone)]
pub enum Wire {
    /// 2026-07-28: each request says everything.
    Stateless(Abilities),
    /// 2025-11-25 or 2025-06-18.
    Session(Arc<Session>),
}

/// What a client can do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Abilities {
    /// It can lead its user to a URL.
    pub urls: bool,
    /// It can come back for what a call came to.
    pub tasks: bool,
}

impl Abilities {
    /// What capabilities say.
    #[must_use]
    pub fn of(capabilities: &Value) -> Self {
        let has =
            |kind: &str, one: &str| capabilities.get(kind).and_then(|all| all.get(one)).is_some_and(Value::is_object);
        Self { urls: has("elicitation", "url"), tasks: has("extensions", TASKS_EXTENSION_ID) }
    }
}

impl Wire {
    /// What the client can do.
    #[must_use]
    pub fn abilities(&self) -> Abilities {
        match self {
            Self::Stateless(abilities) => *abilities,
            Self::Session(session) => session.abilities,
        }
    }

    /// The session, if there are any.
    #[must_use]
    pub const fn session(&self) -> Option<&Arc<Session>> {
        match self {
            Self::Stateless(_) => None,
            Self::Session(session) => Some(session),
        }
    }

    /// The status of an error: 2026-07-28 has some, before it was always 200.
    #[must_use]
    pub const fn status(&self, error: &RpcError) -> StatusCode {
        match self {
            Self::Stateless(_) => error.status,
            Self::Session(_) => StatusCode::OK,
        }
    }

    /// A result with what the protocol has in each.
    #[must_use]
    pub fn finished(&self, mut result: Map<String, Value>) -> Map<String, Value> {
        match self {
            Self::Session(_) => drop(result.remove("resultType")),
            Self::Stateless(_) => {
                result.entry("resultType").or_insert_with(|| json!("complete"));
                let meta = result.entry("_meta").or_insert_with(|| json!({}));
                if let Some(meta) = meta.as_object_mut() {
                    meta.entry("io.modelcontextprotocol/serverInfo").or_insert_with(server_info);
                }
            }
        }
        result
    }
}

/// Whether a request is of 2026-07-28: it says so in its body or its head, or asks for what only that has.
#[must_use]
pub fn is_stateless(request: &Request, headers: &HeaderMap) -> bool {
    let named = header(headers, VERSION).ok().flatten();
    request.method == "server/discover"
        || request.meta(META_VERSION).is_some()
        || named
            .is_some_and(|named| named == STATELESS.as_str() || (request.method != "initialize" && !is_known(named)))
}

/// Checks a request of 2026-07-28, and says what its client can do.
///
/// # Errors
/// When something is missing, or head and body differ.
pub fn check(request: &Request, headers: &HeaderMap) -> Result<Abilities, RpcError> {
    let missing = |key: &str| {
        let message = format!("`_meta` of a request says `{key}`");
        RpcError::invalid_params(message).status(StatusCode::BAD_REQUEST)
    };
    let version = match (request.meta(META_VERSION).and_then(Value::as_str), header(headers, VERSION)?) {
        (Some(version), _) => version,
        // Whoever speaks another version may say so in another place.
        (None, Some(named)) if named != STATELESS.as_str() && !is_known(named) => return Err(unsupported(named)),
        (None, _) => return Err(missing(META_VERSION)),
    };
    let capabilities = request.meta(META_CAPABILITIES).filter(|one| one.is_object());
    let capabilities = capabilities.ok_or_else(|| missing(META_CAPABILITIES))?;
    same(VERSION, header(headers, VERSION)?, version)?;
    if version != STATELESS.as_str() {
        return Err(unsupported(version));
    }
    same(METHOD, header(headers, METHOD)?, &request.method)?;
    let name = match request.method.as_str() {
        "tools/call" => request.text("name"),
        "tasks/get" | "tasks/update" | "tasks/cancel" => request.text("taskId"),
        _ => None,
    };
    if let Some(name) = name {
        let told = header(headers, NAME)?.map(decoded).transpose()?;
        same(NAME, told.as_deref(), name)?;
    }
    Ok(Abilities::of(capabilities))
}

/// The version of a session, for whoever wants this one.
#[must_use]
pub fn negotiated(wanted: Option<&str>) -> ProtocolVersion {
    let known = OLDER.iter().find(|version| Some(version.as_str()) == wanted);
    known.cloned().unwrap_or(ProtocolVersion::V_2025_11_25)
}

/// Whether the head of a request names a version that has sessions, or none. Which one was agreed on counts all the same: some clients name
/// an older one.
///
/// # Errors
/// When it names another.
pub fn check_session(headers: &HeaderMap) -> Result<(), RpcError> {
    match header(headers, VERSION)? {
        None => Ok(()),
        Some(named) if is_known(named) => Ok(()),
        Some(named) => Err(unsupported(named)),
    }
}

/// The versions that are served.
#[must_use]
pub fn supported() -> Vec<&'static str> {
    vec!["2026-07-28", "2025-11-25", "2025-06-18"]
}

/// Who serves.
#[must_use]
pub fn server_info() -> Value {
    json!({ "name": "palyra", "title": "Palyra", "version": env!("CARGO_PKG_VERSION") })
}

/// The value of a header that stands once, or not at all.
///
/// # Errors
/// When it stands twice, or is no text.
pub fn header<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, RpcError> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value
            .to_str()
            .map(|text| Some(text.trim()))
            .map_err(|_| RpcError::new(ErrorCode::HEADER_MISMATCH, format!("the header {name} is no text"))),
        (Some(_), Some(_)) => Err(RpcError::new(ErrorCode::HEADER_MISMATCH, format!("the header {name} stands twice"))),
    }
}

fn same(name: &str, told: Option<&str>, said: &str) -> Result<(), RpcError> {
    let message = match told {
        Some(told) if told == said => return Ok(()),
        Some(told) => format!("the header {name} is `{}`, and the body says `{}`", visible(told), visible(said)),
        None => format!("the header {name} is missing"),
    };
    Err(RpcError::new(ErrorCode::HEADER_MISMATCH, message))
}

/// A value of a header that may be in base 64.
fn decoded(text: &str) -> Result<String, RpcError> {
    let Some(inner) = text.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) else {
        return Ok(text.to_owned());
    };
    let read = BASE64_STANDARD.decode(inner).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    read.ok_or_else(|| RpcError::new(ErrorCode::HEADER_MISMATCH, "a header is not in base 64"))
}

fn unsupported(version: &str) -> RpcError {
    RpcError::new(ErrorCode::UNSUPPORTED_PROTOCOL_VERSION, "this version of the protocol is not served")
        .with(json!({ "supported": supported(), "requested": version }))
}

fn is_known(version: &str) -> bool {
    OLDER.iter().any(|known| known.as_str() == version) || version == ProtocolVersion::V_2025_03_26.as_str()
}

/// The head of a request says its version there.
pub const VERSION: &str = "mcp-protocol-version";

/// And its session there.
pub const SESSION: &str = "mcp-session-id";

const METHOD: &str = "mcp-method";

const NAME: &str = "mcp-name";

const META_VERSION: &str = "io.modelcontextprotocol/protocolVersion";

const META_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

const STATELESS: ProtocolVersion = ProtocolVersion::V_2026_07_28;

const OLDER: [ProtocolVersion; 2] = [ProtocolVersion::V_2025_11_25, ProtocolVersion::V_2025_06_18];

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    fn request(method: &str, params: Value) -> Request {
        let Value::Object(mut params) = params else { panic!("{params}") };
        let meta = json!({ META_VERSION: "2026-07-28", META_CAPABILITIES: { "elicitation": { "url": {} } } });
        params.entry("_meta").or_insert(meta);
        Request { id: json!(1), method: method.to_owned(), params }
    }

    fn head(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pairs =
            pairs.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap()));
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(name, value);
        }
        headers
    }

    #[test]
    fn head_and_body_agree() {
        let call = request("tools/call", json!({ "name": "fs_read" }));
        let good = [(VERSION, "2026-07-28"), (METHOD, "tools/call"), (NAME, "fs_read")];
        assert_eq!(check(&call, &head(&good)), Ok(Abilities { urls: true, tasks: false }));
        let coded = [(VERSION, "2026-07-28"), (METHOD, "tools/call"), (NAME, "=?base64?ZnNfcmVhZA==?=")];
        assert!(check(&call, &head(&coded)).is_ok());
        for wrong in [
            vec![],
            vec![(VERSION, "2025-11-25"), (METHOD, "tools/call"), (NAME, "fs_read")],
            vec![(VERSION, "2026-07-28"), (METHOD, "TOOLS/CALL"), (NAME, "fs_read")],
            vec![(VERSION, "2026-07-28"), (METHOD, "tools/call")],
            vec![(VERSION, "2026-07-28"), (METHOD, "tools/call"), (NAME, "fs_write")],
            vec![(VERSION, "2026-07-28"), (METHOD, "tools/call"), (NAME, "=?base64?ZnNfcmVhZ?=")],
            vec![(VERSION, "2026-07-28"), (METHOD, "tools/call"), (METHOD, "tools/call"), (NAME, "fs_read")],
        ] {
            let error = check(&call, &head(&wrong)).unwrap_err();
            assert_eq!((error.code, error.status), (ErrorCode::HEADER_MISMATCH, StatusCode::BAD_REQUEST), "{wrong:?}");
        }
    }

    #[test]
    fn a_version_that_is_not_served_is_told_with_those_that_are() {
        let meta = json!({ META_VERSION: "2099-01-01", META_CAPABILITIES: {} });
        let asked = request("tools/list", json!({ "_meta": meta }));
        let error = check(&asked, &head(&[(VERSION, "2099-01-01"), (METHOD, "tools/list")])).unwrap_err();
        let expected = json!({ "supported": supported(), "requested": "2099-01-01" });
        assert_eq!((error.code, error.data), (ErrorCode::UNSUPPORTED_PROTOCOL_VERSION, Some(expected)));
        assert_eq!(negotiated(Some("2025-06-18")).as_str(), "2025-06-18");
        assert_eq!(negotiated(Some("2024-11-05")).as_str(), "2025-11-25");
    }

    #[test]
    fn what_each_request_has_to_say_is_missed() {
        for meta in [json!({}), json!({ META_VERSION: "2026-07-28" }), json!({ META_CAPABILITIES: {} })] {
            let error = check(&request("server/discover", json!({ "_meta": meta })), &head(&[])).unwrap_err();
            assert_eq!((error.code, error.status), (ErrorCode::INVALID_PARAMS, StatusCode::BAD_REQUEST), "{meta}");
        }
    }
}
