//! The tool `extract` as the host calls it: JSON in, JSON out.
//!
//! What the world outside does is a trait, so that everything else can be tried without it.

use serde::{Deserialize, Serialize};

use crate::{
    charset,
    page::{self, Page},
};

/// What the skill asks of the host.
pub trait Outside {
    /// Makes a request.
    ///
    /// # Errors
    /// When the host does not, or cannot.
    fn fetch(&mut self, request: &Request) -> Result<Fetched, Refusal>;

    /// What stands for a secret.
    ///
    /// # Errors
    /// When there is none.
    fn handle(&mut self, secret: &str) -> Result<String, Refusal>;

    /// Writes a line into the log of the call.
    fn log(&mut self, line: &str);
}

/// A request for a page.
#[derive(Debug, PartialEq, Eq)]
pub struct Request {
    /// What is fetched.
    pub url: String,
    /// What is sent along.
    pub headers: Vec<(String, String)>,
    /// The most bytes of it to read.
    pub max_bytes: u64,
    /// How long it may take.
    pub timeout_ms: u32,
}

/// What was fetched.
#[derive(Debug, Default)]
pub struct Fetched {
    /// The status.
    pub status: u16,
    /// Where it came from in the end.
    pub url: String,
    /// Its headers.
    pub headers: Vec<(String, String)>,
    /// Its bytes.
    pub body: Vec<u8>,
    /// Whether there was more.
    pub truncated: bool,
}

/// Why the host did not do what it was asked to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The word for it in the interface.
    pub kind: &'static str,
    /// What it says.
    pub message: String,
}

/// Runs a tool.
///
/// # Errors
/// When there is no such tool, its input has no meaning, or there is no page that can be read.
pub fn run(tool: &str, input: &str, outside: &mut impl Outside) -> Result<String, Refused> {
    if tool != "extract" {
        return Err(Refused::NoSuchTool);
    }
    let input = serde_json::from_str(input).map_err(|err| Refused::BadInput(err.to_string()))?;
    serde_json::to_string(&extract(&input, outside)?).map_err(|err| Refused::BadInput(err.to_string()))
}

/// Why a tool did not do what it was asked to.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// There is no such tool.
    #[error("there is no such tool; there is `extract`")]
    NoSuchTool,
    /// The input is not what the schema says.
    #[error("the input does not fit: {0}")]
    BadInput(String),
    /// The token cannot be sent in that.
    #[error("a header is called something such as `Authorization` or `X-Api-Key`")]
    BadHeader,
    /// The host refuses the request.
    #[error("the page was not fetched: {}", .0.message)]
    NotFetched(Refusal),
    /// The host has no token.
    #[error("the token is not to be had: {}", .0.message)]
    NoToken(Refusal),
    /// The site answered with something else than the page.
    #[error("the site answered with status {0}")]
    Status(u16),
    /// It is no page.
    #[error("it is `{0}`, which is no page that can be read")]
    NotAPage(String),
    /// It is encoded in a way that is not known.
    #[error("the page is encoded as `{0}`, which is not known here")]
    Charset(String),
}

impl Refused {
    /// The word that programs tell it apart by.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoSuchTool => "no-such-tool",
            Self::BadInput(_) => "bad-input",
            Self::BadHeader => "bad-header",
            Self::NotFetched(refusal) => refusal.kind,
            Self::NoToken(_) => "no-token",
            Self::Status(_) => "http-status",
            Self::NotAPage(_) => "not-a-page",
            Self::Charset(_) => "unknown-charset",
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    url: String,
    token_header: Option<String>,
}

#[derive(Serialize)]
struct Answer {
    url: String,
    status: u16,
    content_type: String,
    charset: &'static str,
    #[serde(flatten)]
    page: Page,
}

fn extract(input: &Input, outside: &mut impl Outside) -> Result<Answer, Refused> {
    let mut headers = vec![("accept".to_owned(), ACCEPT.to_owned())];
    if let Some(name) = &input.token_header {
        headers.push(token(name, outside)?);
    }
    let request = Request { url: input.url.clone(), headers, max_bytes: MOST_BYTES, timeout_ms: TIMEOUT_MS };
    let fetched = outside.fetch(&request).map_err(Refused::NotFetched)?;
    outside.log(&format!("{} bytes with status {} from {}", fetched.body.len(), fetched.status, fetched.url));
    if !(200..300).contains(&fetched.status) {
        return Err(Refused::Status(fetched.status));
    }
    let named = fetched.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-type"));
    let named = named.map(|(_, value)| value.as_str());
    let media = named.unwrap_or("text/html").split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let (text, charset) = charset::decode(&fetched.body, named).map_err(Refused::Charset)?;
    let mut page = match media.as_str() {
        "text/html" | "application/xhtml+xml" => page::read(&text, &fetched.url),
        "text/plain" | "text/markdown" => plain(text),
        _ => return Err(Refused::NotAPage(media.chars().take(60).flat_map(char::escape_debug).collect())),
    };
    page.truncated |= fetched.truncated;
    Ok(Answer { url: fetched.url, status: fetched.status, content_type: media, charset, page })
}

/// The header that holds the token. Where a scheme belongs before it, as in `Authorization`, it is `Bearer`.
fn token(header: &str, outside: &mut impl Outside) -> Result<(String, String), Refused> {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if header.is_empty() || header.len() > 64 || !header.bytes().all(is_name) {
        return Err(Refused::BadHeader);
    }
    let handle = outside.handle("API_TOKEN").map_err(Refused::NoToken)?;
    let has_scheme = ["authorization", "proxy-authorization"].contains(&header.to_ascii_lowercase().as_str());
    Ok((header.to_owned(), if has_scheme { format!("Bearer {handle}") } else { handle }))
}

fn plain(mut text: String) -> Page {
    let truncated = text.len() > page::MOST_TEXT;
    if truncated {
        text.truncate(text.floor_char_boundary(page::MOST_TEXT));
    }
    Page { text, truncated, ..Page::default() }
}

const ACCEPT: &str = "text/html, application/xhtml+xml, text/plain;q=0.8";
/// The most bytes of a page that are read.
const MOST_BYTES: u64 = 1 << 20;
const TIMEOUT_MS: u32 = 15_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Site {
        answer: Option<Fetched>,
        token: Option<Refusal>,
        requests: Vec<Request>,
        lines: Vec<String>,
    }

    impl Outside for Site {
        fn fetch(&mut self, request: &Request) -> Result<Fetched, Refusal> {
            self.requests.push(Request { headers: request.headers.clone(), url: request.url.clone(), ..*request });
            self.answer.take().ok_or(Refusal { kind: "denied", message: "the host is not granted".to_owned() })
        }

        fn handle(&mut self, secret: &str) -> Result<String, Refusal> {
            self.token.take().map_or_else(|| Ok(format!("handle-of-{secret}")), Err)
        }

        fn log(&mut self, line: &str) {
            self.lines.push(line.to_owned());
        }
    }

    fn answers(content_type: &str, body: &[u8]) -> Site {
        let headers = vec![("Content-Type".to_owned(), content_type.to_owned())];
        let url = "https://example.org/".to_owned();
        Site {
            answer: Some(Fetched { status: 200, url, headers, body: body.to_vec(), truncated: false }),
            ..Site::default()
        }
    }

    const ASKED: &str = r#"{"url": "https://example.org/"}"#;

    #[test]
    fn a_page_is_fetched_once_and_told() {
        let mut site = answers("text/html; charset=latin1", b"<title>T\xe4</title><p>hello");
        let answer: serde_json::Value = serde_json::from_str(&run("extract", ASKED, &mut site).unwrap()).unwrap();
        assert_eq!(
            answer,
            serde_json::json!({
                "url": "https://example.org/", "status": 200, "content_type": "text/html", "charset": "windows-1252",
                "title": "Tä", "text": "hello", "headings": [], "links": [], "metadata": {}, "truncated": false,
            })
        );
        let headers = vec![("accept".to_owned(), ACCEPT.to_owned())];
        let url = "https://example.org/".to_owned();
        assert_eq!(site.requests, [Request { url, headers, max_bytes: MOST_BYTES, timeout_ms: TIMEOUT_MS }]);
        assert_eq!(site.lines, ["25 bytes with status 200 from https://example.org/"]);
    }

    #[test]
    fn a_token_is_sent_as_its_handle_where_it_is_wanted() {
        for (name, value) in [("Authorization", "Bearer handle-of-API_TOKEN"), ("X-Api-Key", "handle-of-API_TOKEN")] {
            let mut site = answers("text/plain", b"x");
            let input = format!(r#"{{"url": "https://example.org/", "token_header": "{name}"}}"#);
            assert!(run("extract", &input, &mut site).is_ok());
            assert_eq!(site.requests[0].headers[1], (name.to_owned(), value.to_owned()));
        }
    }

    #[test]
    fn what_was_cut_off_on_the_way_is_said() {
        let mut site = answers("text/html", b"<p>x");
        if let Some(answer) = &mut site.answer {
            answer.truncated = true;
        }
        assert!(run("extract", ASKED, &mut site).unwrap().contains(r#""truncated":true"#));
    }

    #[test]
    fn each_refusal_has_its_code() {
        let code = |input: &str, mut site: Site| run("extract", input, &mut site).map_err(|refused| refused.code());
        let with = |header: &str| format!(r#"{{"url": "https://example.org/", "token_header": "{header}"}}"#);
        assert_eq!(run("other", "{}", &mut Site::default()), Err(Refused::NoSuchTool));
        assert_eq!(code("{}", Site::default()), Err("bad-input"));
        assert_eq!(code(&with("A: b\\r\\nC"), Site::default()), Err("bad-header"));
        assert_eq!(code(ASKED, Site::default()), Err("denied"));
        let refusal = Refusal { kind: "absent", message: "there is no such secret".to_owned() };
        assert_eq!(code(&with("Authorization"), Site { token: Some(refusal), ..Site::default() }), Err("no-token"));
        assert_eq!(code(ASKED, answers("image/png", b"")), Err("not-a-page"));
        assert_eq!(code(ASKED, answers("text/html; charset=big5", b"")), Err("unknown-charset"));
        let mut gone = answers("text/html", b"");
        if let Some(answer) = &mut gone.answer {
            answer.status = 404;
        }
        assert_eq!(code(ASKED, gone), Err("http-status"));
    }
}
