//! Reads the first request of a plain connection: whether it is HTTP/1, and for which host.
//!
//! Guarantees: no line that ends in something else than CR LF, no continuation line, no space before a colon, no NUL,
//! exactly one Host header: what two programs could read differently is refused. Never panics.
//! Does not: look at later requests of the same connection. The proxy does, for those who use it, and `conversation` for
//! runs whose connections somebody looks into.

use palyra_types::host::HostName;

use super::{
    authority,
    refusal::{EgressRefusal, EgressRefusalKind as Kind, shown_bytes},
};

/// Judges what has come so far; `None` while the head is not complete.
pub(crate) fn judge(bytes: &[u8], host: &HostName, port: u16) -> Option<Result<(), EgressRefusal>> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
    let head = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or(bytes);
    if let Err(refusal) = check_characters(head, end.is_some()) {
        return Some(Err(refusal));
    }
    end.map(|_| judge_head(head, host, port))
}

/// Tells early what cannot become a request any more.
fn check_characters(head: &[u8], is_whole: bool) -> Result<(), EgressRefusal> {
    if head.first().is_some_and(|first| !first.is_ascii_uppercase()) {
        return Err(bad("it does not begin as HTTP"));
    }
    let mut before = None;
    for &byte in head {
        let is_torn = (byte == b'\n') != (before == Some(b'\r'));
        if is_torn || byte == 0 || (byte < b' ' && !matches!(byte, b'\t' | b'\r' | b'\n')) || byte == 0x7f {
            return Err(bad("its head has a stray control character"));
        }
        before = Some(byte);
    }
    if is_whole && before == Some(b'\r') {
        return Err(bad("its head has a stray control character"));
    }
    Ok(())
}

fn judge_head(head: &[u8], host: &HostName, port: u16) -> Result<(), EgressRefusal> {
    let mut lines = head.split(|&byte| byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let target = request_line(lines.next().unwrap_or_default())?;
    if let Some(authority) = target {
        same_host(authority, host, port)?;
    }
    let mut hosts = Vec::new();
    for line in lines {
        let (name, value) = header(line)?;
        if name.eq_ignore_ascii_case(b"host") {
            hosts.push(value);
        }
    }
    match *hosts {
        [one] => same_host(one, host, port),
        [] => Err(EgressRefusal::new(Kind::WrongHostHeader, "the request has no Host header")),
        _ => Err(EgressRefusal::new(Kind::WrongHostHeader, "the request has more than one Host header")),
    }
}

/// The authority in the target of a request, if the target has one.
fn request_line(line: &[u8]) -> Result<Option<&[u8]>, EgressRefusal> {
    let mut words = line.split(|&byte| byte == b' ');
    let (Some(method), Some(target), Some(version), None) = (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(bad("its first line is no request"));
    };
    if method.is_empty() || !method.iter().all(|&byte| is_token(byte)) || !matches!(version, b"HTTP/1.1" | b"HTTP/1.0")
    {
        return Err(bad("its first line is no HTTP/1 request"));
    }
    if method == b"CONNECT" {
        return Err(EgressRefusal::new(Kind::NotSupported, "a plain connection is no proxy"));
    }
    if !target.iter().all(u8::is_ascii_graphic) {
        return Err(bad("its target has characters that no target has"));
    }
    if target.starts_with(b"/") || target == b"*" {
        return Ok(None);
    }
    let scheme = target.get(..7).filter(|scheme| scheme.eq_ignore_ascii_case(b"http://"));
    let Some(rest) = scheme.and_then(|_| target.get(7..)) else { return Err(bad("its target is no path")) };
    Ok(rest.split(|byte| matches!(byte, b'/' | b'?' | b'#')).next())
}

fn header(line: &[u8]) -> Result<(&[u8], &[u8]), EgressRefusal> {
    let colon = line.iter().position(|&byte| byte == b':');
    let Some((name, value)) = colon.and_then(|at| line.split_at_checked(at)) else {
        return Err(bad("a line of its head is no header"));
    };
    if name.is_empty() || !name.iter().all(|&byte| is_token(byte)) {
        return Err(bad("a line of its head is no header"));
    }
    Ok((name, value.get(1..).unwrap_or_default().trim_ascii()))
}

fn same_host(named: &[u8], host: &HostName, port: u16) -> Result<(), EgressRefusal> {
    let read = std::str::from_utf8(named).ok().and_then(|text| authority::parse(text, Some(80)).ok());
    if read.is_some_and(|(name, at)| name == *host && at == port) {
        return Ok(());
    }
    let detail = format!("the request is for `{}` on a connection to `{host}`", shown_bytes(named));
    Err(EgressRefusal::new(Kind::WrongHostHeader, detail))
}

/// The characters of methods and header names.
const fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~')
}

fn bad(why: &str) -> EgressRefusal {
    EgressRefusal::new(Kind::BadRequest, format!("the request cannot be read: {why}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ask(request: &str) -> Option<Result<(), Kind>> {
        let host = HostName::parse("example.org").unwrap();
        judge(request.as_bytes(), &host, 80).map(|judged| judged.map_err(|refusal| refusal.kind))
    }

    #[test]
    fn a_request_for_the_host_passes() {
        for request in [
            "GET / HTTP/1.1\r\nHost: example.org\r\n\r\n",
            "GET /a?b HTTP/1.1\r\nAccept: */*\r\nhOST:\tExample.ORG:80 \r\n\r\nbody\0\n",
            "POST http://example.org/x HTTP/1.0\r\nHost: example.org\r\n\r\n",
            "OPTIONS * HTTP/1.1\r\nHost: example.org\r\nX-Other: a: b\r\n\r\n",
        ] {
            assert_eq!(ask(request), Some(Ok(())), "{request:?}");
        }
    }

    #[test]
    fn every_beginning_waits_for_more() {
        let request = "GET / HTTP/1.1\r\nHost: example.org\r\n\r\n";
        for (length, _) in request.char_indices() {
            let (beginning, _) = request.split_at(length);
            assert_eq!(ask(beginning), None, "{beginning:?}");
        }
    }

    #[test]
    fn a_request_for_another_host_is_refused() {
        for headers in [
            "Host: evil.com",
            "Host: example.org.evil.com",
            "Host: example.org:8080",
            "Host: example.org.",
            "Host: user@example.org",
            "Host: example.org, evil.com",
            "Host:",
            "Accept: */*",
            "Host: example.org\r\nHost: example.org",
            "Host: example.org\r\nhost: evil.com",
        ] {
            let request = format!("GET / HTTP/1.1\r\n{headers}\r\n\r\n");
            assert_eq!(ask(&request), Some(Err(Kind::WrongHostHeader)), "{headers:?}");
        }
        let absolute = "GET http://evil.com/ HTTP/1.1\r\nHost: example.org\r\n\r\n";
        assert_eq!(ask(absolute), Some(Err(Kind::WrongHostHeader)));
    }

    #[test]
    fn what_two_programs_read_differently_is_refused() {
        for request in [
            "GET / HTTP/1.1\nHost: example.org\n\n",
            "GET / HTTP/1.1\r\nHost: example.org\n\r\n",
            "GET / HTTP/1.1\rHost: evil.com\r\nHost: example.org\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: example.org\r\n folded\r\n\r\n",
            "GET / HTTP/1.1\r\nHost : evil.com\r\nHost: example.org\r\n\r\n",
            "GET / HTTP/1.1\r\n\tHost: evil.com\r\nHost: example.org\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: example.org\0\r\n\r\n",
            "GET  / HTTP/1.1\r\nHost: example.org\r\n\r\n",
            "GET /a b HTTP/1.1\r\nHost: example.org\r\n\r\n",
            "GET / HTTP/2.0\r\nHost: example.org\r\n\r\n",
            "GET /\r\nHost: example.org\r\n\r\n",
            "GET ftp://example.org/ HTTP/1.1\r\nHost: example.org\r\n\r\n",
            "\r\nGET / HTTP/1.1\r\nHost: example.org\r\n\r\n",
            "GET / HTTP/1.1\r\nno header\r\nHost: example.org\r\n\r\n",
            "\u{16}\u{3}\u{1}",
            "SSH-2.0-x\n",
        ] {
            assert_eq!(ask(request), Some(Err(Kind::BadRequest)), "{request:?}");
        }
        assert_eq!(ask("CONNECT example.org:443 HTTP/1.1\r\nHost: example.org\r\n\r\n"), Some(Err(Kind::NotSupported)));
    }

    proptest! {
        #[test]
        fn noise_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = judge(&bytes, &HostName::parse("example.org").unwrap(), 80);
        }

        #[test]
        fn only_a_request_with_one_host_passes(headers in "([A-Za-z:]{1,6}[ :\\t]{0,2}[a-z.]{0,12}\r?\n){0,5}") {
            let request = format!("GET / HTTP/1.1\r\n{headers}\r\n");
            if ask(&request) == Some(Ok(())) {
                prop_assert_eq!(request.to_ascii_lowercase().matches("host").count(), 1);
            }
        }
    }
}
