//! Resolves what a page links to against where the page is, as RFC 3986 says.
//!
//! Guarantees: the answer begins with `http:` or `https:`, or there is none. Nothing is decoded or judged; whoever follows a link reads it
//! again.

/// Where a link leads, if that is another page.
#[must_use]
pub fn resolve(base: &str, reference: &str) -> Option<String> {
    // Browsers take out what cannot be seen before they read an address.
    let reference: String =
        reference.trim_matches(|c: char| c <= ' ').chars().filter(|c| !matches!(c, '\t' | '\n' | '\r')).collect();
    let resolved = joined(&Parts::read(base), &Parts::read(&reference));
    (is_web(&resolved) && resolved.len() <= MOST_BYTES).then_some(resolved)
}

/// The longest address that is told.
const MOST_BYTES: usize = 2048;

fn is_web(address: &str) -> bool {
    let begins = |start: &str| address.get(..start.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(start));
    begins("http://") || begins("https://")
}

/// The parts of a reference, RFC 3986 appendix B.
#[derive(Debug, Clone, Copy)]
struct Parts<'a> {
    scheme: Option<&'a str>,
    authority: Option<&'a str>,
    path: &'a str,
    query: Option<&'a str>,
    fragment: Option<&'a str>,
}

impl<'a> Parts<'a> {
    fn read(text: &'a str) -> Self {
        let (text, fragment) = cut(text, '#');
        let (text, query) = cut(text, '?');
        let (scheme, text) = match text.split_once(':') {
            Some((scheme, rest)) if is_scheme(scheme) => (Some(scheme), rest),
            _ => (None, text),
        };
        let (authority, path) = match text.strip_prefix("//") {
            Some(rest) => {
                let end = rest.find('/').unwrap_or(rest.len());
                let (authority, path) = rest.split_at_checked(end).unwrap_or((rest, ""));
                (Some(authority), path)
            }
            None => (None, text),
        };
        Self { scheme, authority, path, query, fragment }
    }
}

fn cut(text: &str, at: char) -> (&str, Option<&str>) {
    text.split_once(at).map_or((text, None), |(before, after)| (before, Some(after)))
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'))
}

/// RFC 3986 §5.2.2.
fn joined(base: &Parts<'_>, to: &Parts<'_>) -> String {
    let path = if to.scheme.is_some() || to.authority.is_some() || to.path.starts_with('/') {
        without_dots(to.path)
    } else if to.path.is_empty() {
        base.path.to_owned()
    } else {
        without_dots(&merged(base, to.path))
    };
    let scheme = to.scheme.or(base.scheme);
    let authority = if to.scheme.is_some() { to.authority } else { to.authority.or(base.authority) };
    let stays = to.scheme.is_none() && to.authority.is_none() && to.path.is_empty();
    let query = if stays { to.query.or(base.query) } else { to.query };
    let mut text = String::new();
    for (before, part, after) in [
        ("", scheme, ":"),
        ("//", authority, ""),
        ("", Some(path.as_str()), ""),
        ("?", query, ""),
        ("#", to.fragment, ""),
    ] {
        if let Some(part) = part {
            text.extend([before, part, after]);
        }
    }
    text
}

/// RFC 3986 §5.2.3.
fn merged(base: &Parts<'_>, path: &str) -> String {
    if base.authority.is_some() && base.path.is_empty() {
        return format!("/{path}");
    }
    let directory = base.path.rfind('/').and_then(|end| base.path.get(..=end)).unwrap_or_default();
    format!("{directory}{path}")
}

/// RFC 3986 §5.2.4.
fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let absolute = path.starts_with('/');
    let segments: Vec<&str> = path.strip_prefix('/').unwrap_or(path).split('/').collect();
    for (at, segment) in segments.iter().enumerate() {
        let last = at + 1 == segments.len();
        match *segment {
            "." if last => kept.push(""),
            "." => {}
            ".." => {
                kept.pop();
                if last {
                    kept.push("");
                }
            }
            segment => kept.push(segment),
        }
    }
    format!("{}{}", if absolute { "/" } else { "" }, kept.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_resolved_as_rfc_3986_says() {
        // RFC 3986 §5.4, as far as the answer is on the web.
        let cases = [
            ("g", "http://a/b/c/g"),
            ("./g", "http://a/b/c/g"),
            ("g/", "http://a/b/c/g/"),
            ("/g", "http://a/g"),
            ("//g", "http://g"),
            ("?y", "http://a/b/c/d;p?y"),
            ("g?y", "http://a/b/c/g?y"),
            ("#s", "http://a/b/c/d;p?q#s"),
            ("g#s", "http://a/b/c/g#s"),
            ("g?y#s", "http://a/b/c/g?y#s"),
            (";x", "http://a/b/c/;x"),
            ("g;x?y#s", "http://a/b/c/g;x?y#s"),
            ("", "http://a/b/c/d;p?q"),
            (".", "http://a/b/c/"),
            ("./", "http://a/b/c/"),
            ("..", "http://a/b/"),
            ("../", "http://a/b/"),
            ("../g", "http://a/b/g"),
            ("../..", "http://a/"),
            ("../../g", "http://a/g"),
            ("../../../g", "http://a/g"),
            ("../../../../g", "http://a/g"),
            ("/./g", "http://a/g"),
            ("/../g", "http://a/g"),
            ("g.", "http://a/b/c/g."),
            ("..g", "http://a/b/c/..g"),
            ("./../g", "http://a/b/g"),
            ("./g/.", "http://a/b/c/g/"),
            ("g/./h", "http://a/b/c/g/h"),
            ("g/../h", "http://a/b/c/h"),
            ("g;x=1/../y", "http://a/b/c/y"),
            ("g?y/../x", "http://a/b/c/g?y/../x"),
            ("g#s/../x", "http://a/b/c/g#s/../x"),
        ];
        for (reference, resolved) in cases {
            assert_eq!(resolve("http://a/b/c/d;p?q", reference).as_deref(), Some(resolved), "{reference}");
        }
    }

    #[test]
    fn what_is_no_page_is_no_link() {
        let long = "x".repeat(MOST_BYTES);
        for reference in
            ["javascript:alert(1)", "mailto:a@example.org", "data:text/html,x", "java\nscript:x", "http:", &long]
        {
            assert_eq!(resolve("https://example.org/", reference), None, "{reference:.40}");
        }
    }

    #[test]
    fn what_cannot_be_seen_is_taken_out() {
        assert_eq!(resolve("https://example.org/a", " \u{1}b\n/c\t").as_deref(), Some("https://example.org/b/c"));
        assert_eq!(resolve("https://example.org", "b").as_deref(), Some("https://example.org/b"));
    }
}
