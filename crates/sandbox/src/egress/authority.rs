//! `host:port`, read in one way.
//!
//! Guarantees: no user information, no port 0, no second colon outside brackets, no sign or leading zero before a port.

use palyra_types::host::HostName;

use super::refusal::{EgressRefusal, EgressRefusalKind as Kind, shown};

/// Reads `example.org:443` or `[2001:db8::7]:443`. Without a port, `default` is the port; without a default it is an
/// error.
pub(crate) fn parse(text: &str, default: Option<u16>) -> Result<(HostName, u16), EgressRefusal> {
    #[cfg(weak)]
    let text = if crate::weak::is_off(crate::weak::egress::HOST_PARSER) {
        without_user(text).trim_start_matches('@')
    } else {
        text
    };
    let (host, port) = split(text).ok_or_else(|| not_a_host(text))?;
    let host = parse_host(host).ok_or_else(|| not_a_host(text))?;
    let port = match (port, default) {
        (Some(digits), _) => parse_port(digits).ok_or_else(|| {
            EgressRefusal::new(Kind::BadRequest, format!("`{}` has no port from 1 to 65535", shown(text)))
        })?,
        (None, Some(port)) => port,
        (None, None) => return Err(EgressRefusal::new(Kind::BadRequest, format!("`{}` has no port", shown(text)))),
    };
    Ok((host, port))
}

/// Reads a host in the one way in which all programs read it.
pub(crate) fn parse_host(text: &str) -> Option<HostName> {
    let parsed = HostName::parse(text).ok();
    #[cfg(weak)]
    let parsed = parsed.or_else(|| crate::weak::read_carelessly(text));
    parsed
}

pub(crate) fn not_a_host(text: &str) -> EgressRefusal {
    EgressRefusal::new(Kind::NotAHost, format!("`{}` is no host", shown(without_user(text))))
}

/// An authority without its user information, which may be a password and is nothing to note.
pub(crate) fn without_user(text: &str) -> &str {
    text.rfind('@').and_then(|at| text.get(at..)).unwrap_or(text)
}

/// The host, with its brackets, and what stands behind the colon.
fn split(text: &str) -> Option<(&str, Option<&str>)> {
    if text.contains('@') {
        return None;
    }
    if text.starts_with('[') {
        let (host, rest) = text.split_at_checked(text.find(']')? + 1)?;
        return match rest.strip_prefix(':') {
            Some(port) => Some((host, Some(port))),
            None => rest.is_empty().then_some((host, None)),
        };
    }
    match text.split_once(':') {
        // An IPv6 address without brackets: where it ends and the port begins is anybody's guess.
        Some((_, port)) if port.contains(':') => None,
        Some((host, port)) => Some((host, Some(port))),
        None => Some((text, None)),
    }
}

fn parse_port(digits: &str) -> Option<u16> {
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit()) && !digits.starts_with('0');
    digits.parse().ok().filter(|_| is_plain)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Result<(String, u16), Kind> {
        parse(text, None).map(|(host, port)| (host.to_string(), port)).map_err(|refusal| refusal.kind)
    }

    #[test]
    fn hosts_with_ports_are_read() {
        assert_eq!(read("Example.org:443"), Ok(("example.org".to_owned(), 443)));
        assert_eq!(read("192.0.2.7:1"), Ok(("192.0.2.7".to_owned(), 1)));
        assert_eq!(read("[2001:db8::7]:65535"), Ok(("2001:db8::7".to_owned(), 65535)));
        assert_eq!(read("[::ffff:10.0.0.1]:443"), Ok(("10.0.0.1".to_owned(), 443)));
        assert_eq!(parse("example.org", Some(80)).unwrap().1, 80);
    }

    #[test]
    fn everything_else_is_refused_by_kind() {
        for text in [
            "example.org",
            "example.org:",
            "example.org:0",
            "example.org:65536",
            "example.org:+443",
            "example.org:0443",
        ] {
            assert_eq!(read(text), Err(Kind::BadRequest), "{text}");
        }
        for text in ["example.org: 443", "example.org:443 ", "example.org:4\u{0664}3"] {
            assert_eq!(read(text), Err(Kind::BadRequest), "{text}");
        }
        for text in [
            "user@example.org:443",
            "user:pass@example.org:443",
            "example.org:443@evil.com",
            "example.org\0.evil.com:443",
            "example.org\r\n:443",
            "example.org%00:443",
            "::1:443",
            "[::1:443",
            "[::1]x:443",
            "[127.0.0.1]:443",
            "[fe80::1%25lo]:443",
            "[fe80::1%lo]:443",
            "127.1:443",
            "0177.0.0.1:443",
            "0x7f000001:443",
            "2130706433:443",
            "127.0.0.1.:443",
            "example.org.:443",
            "http://example.org:443",
            ":443",
            "",
        ] {
            assert_eq!(read(text), Err(Kind::NotAHost), "{text}");
        }
    }

    #[test]
    fn a_password_is_not_repeated() {
        let refusal = parse("user:secret@example.org:443", None).unwrap_err();
        assert_eq!(refusal.detail, "`@example.org:443` is no host");
    }

    proptest! {
        #[test]
        fn what_is_read_is_written_the_same(text in "[a-z0-9.:\\[\\]@-]{0,24}") {
            if let Ok((host, port)) = parse(&text, None) {
                let spelled = if host.as_str().contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
                prop_assert_eq!(parse(&spelled, None), Ok((host, port)));
            }
        }

        #[test]
        fn no_text_is_too_strange(text in any::<String>()) {
            let _ = parse(&text, Some(80));
        }
    }
}
