//! Masks what looks like a credential, before it is kept.
//!
//! Guarantees: text of a known shape (private keys, tokens of well-known services, passwords in addresses, bearer headers) is replaced by
//! what kind of thing it was; JSON stays JSON.
//! Does not: find secrets of no known shape. It narrows a leak; the vault is what prevents one.

use std::{borrow::Cow, sync::LazyLock};

use regex::Regex;

/// The text with every known token shape masked.
#[must_use]
pub fn masked(text: String) -> String {
    let Some(shapes) = SHAPES.as_ref() else { return withheld() };
    // Hardly any text holds a token, so one quick look at all shapes together comes first.
    if !shapes.any.is_match(&text) {
        return text;
    }
    let mut masked = text;
    for shape in &shapes.each {
        if let Cow::Owned(replaced) = shape.pattern.replace_all(&masked, shape.mask.as_str()) {
            masked = replaced;
        }
    }
    masked
}

/// INVARIANT: the patterns below are valid, which a test shows. If they were not, nothing would be kept rather than too much.
fn withheld() -> String {
    "{\"withheld\":\"the masking patterns could not be loaded\"}".to_owned()
}

struct Shapes {
    any: Regex,
    each: Vec<Shape>,
}

struct Shape {
    pattern: Regex,
    mask: String,
}

static SHAPES: LazyLock<Option<Shapes>> = LazyLock::new(|| {
    let unnamed = |(_, pattern): &(&str, &str)| {
        format!("(?:{})", ascii_boundaries(pattern).replace("(?P<a>", "(?:").replace("(?P<z>", "(?:"))
    };
    let any = Regex::new(&PATTERNS.iter().map(unnamed).collect::<Vec<_>>().join("|")).ok()?;
    let shape = |&(kind, pattern): &(&str, &str)| {
        // A pattern may capture what stands around the secret and stays: `${a}` before it, `${z}` behind it.
        Some(Shape {
            pattern: Regex::new(&ascii_boundaries(pattern)).ok()?,
            mask: format!("${{a}}[masked {kind}]${{z}}"),
        })
    };
    Some(Shapes { any, each: PATTERNS.iter().map(shape).collect::<Option<_>>()? })
});

/// Tokens are ASCII. A boundary that knows all alphabets makes the search many times slower as soon as a text holds any other letter.
fn ascii_boundaries(pattern: &str) -> String {
    pattern.replace(r"\b", r"(?-u:\b)")
}

/// What a thing is, and how it looks. In JSON a newline is the two characters `\n`.
const PATTERNS: &[(&str, &str)] = &[
    (
        "private key",
        r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY( BLOCK)?-----[^-]*(-----END [A-Z0-9 ]*PRIVATE KEY( BLOCK)?-----)?",
    ),
    ("age key", r"AGE-SECRET-KEY-1[0-9A-Z]{20,}"),
    ("aws access key", r"\b(AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}\b"),
    ("aws secret key", r#"(?i)(?P<a>aws_?secret_?access_?key[\\"' ]*[:=][\\"' ]*)[A-Za-z0-9/+=]{40}"#),
    ("github token", r"\bgh[opsur]_[A-Za-z0-9]{20,255}|\bgithub_pat_[A-Za-z0-9_]{20,255}"),
    ("gitlab token", r"\bgl(pat|dt|rt|oas|ptt|cbt|ft|soat)-[A-Za-z0-9_.-]{20,}"),
    ("slack token", r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}|\bxapp-[0-9]-[A-Za-z0-9-]{10,}"),
    ("slack webhook", r"(?P<a>hooks\.slack\.com/services/)[A-Za-z0-9/_-]{20,}"),
    ("anthropic key", r"\bsk-ant-[A-Za-z0-9_-]{20,}"),
    ("openai key", r"\bsk-(proj-|svcacct-|admin-)?[A-Za-z0-9_-]{20,}"),
    ("google key", r"\bAIza[0-9A-Za-z_-]{35}"),
    ("google token", r"\bya29\.[0-9A-Za-z_-]{20,}"),
    ("stripe key", r"\b(sk|rk|whsec)_(live_|test_)?[0-9A-Za-z]{16,}"),
    ("npm token", r"\bnpm_[A-Za-z0-9]{36}"),
    ("pypi token", r"\bpypi-[A-Za-z0-9_-]{16,}"),
    ("hugging face token", r"\bhf_[A-Za-z0-9]{30,}"),
    ("sendgrid key", r"\bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"),
    ("twilio key", r"\bSK[0-9a-f]{32}\b"),
    ("digitalocean token", r"\bdo[opr]_v1_[a-f0-9]{64}"),
    ("telegram token", r"\b[0-9]{8,10}:AA[0-9A-Za-z_-]{33}"),
    ("palyra token", r"\bplr_[A-Za-z0-9_-]{16,}"),
    ("json web token", r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"),
    (
        "credential",
        r"(?i)(?P<a>\bauthorization[\\]?[\x22']?\s*[:=]\s*[\\]?[\x22']?(bearer|basic|token)\s+)[A-Za-z0-9._~+/=-]{8,}",
    ),
    ("password", r"(?P<a>\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@\x22'\\]{0,100}:)[^\s/@\x22'\\]{3,200}(?P<z>@)"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_is_valid() {
        assert!(SHAPES.is_some());
    }

    #[test]
    fn known_shapes_are_masked_and_their_surroundings_stay() {
        let filler = "0aZ9".repeat(16);
        let head = |n: usize| filler.chars().take(n).collect::<String>();
        for (text, expected) in [
            (format!("ghp_{}", head(36)), "[masked github token]".to_owned()),
            (format!("key=AKIA{} ok", "ABCD".repeat(4)), "key=[masked aws access key] ok".to_owned()),
            (format!("sk-ant-{}", head(40)), "[masked anthropic key]".to_owned()),
            (format!("sk-proj-{}", head(40)), "[masked openai key]".to_owned()),
            (format!("xoxb-{}", head(20)), "[masked slack token]".to_owned()),
            (format!("plr_{}", head(32)), "[masked palyra token]".to_owned()),
            (format!("a eyJ{0}.eyJ{0}.{0} z", head(12)), "a [masked json web token] z".to_owned()),
            ("postgres://ada:hunter2@db/x".to_owned(), "postgres://ada:[masked password]@db/x".to_owned()),
            (format!("Authorization: Bearer {}", head(20)), "Authorization: Bearer [masked credential]".to_owned()),
            (
                r"x -----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl\n-----END OPENSSH PRIVATE KEY----- y".to_owned(),
                "x [masked private key] y".to_owned(),
            ),
        ] {
            assert_eq!(masked(text), expected);
        }
    }

    #[test]
    fn masked_json_is_still_json() {
        let secret = "ghp_".to_owned() + &"a1".repeat(18);
        let pem = "-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----\n";
        let url = "https://u:p%22w@h/";
        let text =
            serde_json::json!({"args": ["--token", secret, pem, url], "Authorization": format!("Bearer {secret}")})
                .to_string();
        let value: serde_json::Value = serde_json::from_str(&masked(text)).unwrap();
        assert_eq!(value["args"][1], "[masked github token]");
        assert_eq!(value["args"][2], "[masked private key]\n");
        assert!(!value.to_string().contains(&secret));
    }

    #[test]
    fn ordinary_text_is_left_alone() {
        for text in
            ["cargo test --workspace", "sk-1", "https://example.org:8080/a@b", "task-list", "eyJ.x.y", "16:30:00"]
        {
            assert_eq!(masked(text.to_owned()), text);
        }
    }
}
