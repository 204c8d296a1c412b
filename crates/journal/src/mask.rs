//! Masks what looks like a credential, before it is kept.
//!
//! Guarantees: text of a known shape (private keys, tokens of well-known services, passwords in addresses, bearer headers) is replaced by
//! what kind of thing it was; JSON stays JSON.
//! Does not: find secrets of no known shape. It narrows a leak; the vault is what prevents one.

use std::{borrow::Cow, sync::LazyLock};

use aho_corasick::AhoCorasick;
use regex::Regex;

/// The text with every known token shape masked.
#[must_use]
pub fn masked(text: String) -> String {
    let Some(shapes) = SHAPES.as_ref() else { return withheld() };
    // Hardly any text holds a token, so one look for the letters that tokens cannot do without comes first.
    let mut likely = vec![Likely::No; shapes.each.len()];
    for hints in &shapes.hints {
        for hint in hints.all.find_overlapping_iter(&text) {
            let Some(&(shape, begins_a_word)) = hints.of.get(hint.pattern().as_usize()) else { continue };
            if let Some(likely) = likely.get_mut(shape).filter(|likely| **likely != Likely::Yes) {
                let now = !begins_a_word || may_begin_a_word(&text, hint.start());
                *likely = if now { Likely::Yes } else { Likely::BehindAMask };
            }
        }
    }
    let (mut masked, mut has_mask) = (text, false);
    for (shape, likely) in shapes.each.iter().zip(likely) {
        // What stands behind a token is the beginning of a word once that is masked.
        if (likely == Likely::Yes || (likely == Likely::BehindAMask && has_mask))
            && let Cow::Owned(replaced) = shape.pattern.replace_all(&masked, shape.mask.as_str())
        {
            (masked, has_mask) = (replaced, true);
        }
    }
    masked
}

/// The bytes with every known token shape masked, where they are text.
#[must_use]
pub fn masked_bytes(bytes: &[u8]) -> Vec<u8> {
    let mut all = Vec::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        all.extend_from_slice(masked(chunk.valid().to_owned()).as_bytes());
        all.extend_from_slice(chunk.invalid());
    }
    all
}

/// Whether a text may hold something of a shape.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Likely {
    No,
    /// Only where something before it is masked.
    BehindAMask,
    Yes,
}

/// Whether a word may begin here: not behind a letter, unless that may be the end of an escape.
fn may_begin_a_word(text: &str, at: usize) -> bool {
    let before = text.as_bytes().get(..at).unwrap_or_default();
    if !before.last().is_some_and(|&last| last.is_ascii_alphanumeric() || last == b'_') {
        return true;
    }
    let of_an_escape = |&byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b';' | b'[');
    let run = before.iter().rev().take(LONGEST_ESCAPE).take_while(|byte| of_an_escape(byte)).count();
    // A run that is longer than anybody looks may be one.
    run == LONGEST_ESCAPE || before.iter().rev().nth(run).is_some_and(|byte| matches!(byte, b'\\' | 0x1b))
}

/// How far back an escape is looked for.
const LONGEST_ESCAPE: usize = 64;

/// INVARIANT: the patterns below are valid, which a test shows. If they were not, nothing would be kept rather than too much.
fn withheld() -> String {
    "{\"withheld\":\"the masking patterns could not be loaded\"}".to_owned()
}

struct Shapes {
    /// Those of shapes that are spelt in one case only, and those of the others.
    hints: [Hints; 2],
    each: Vec<Shape>,
}

/// Finds every hint of some shapes.
struct Hints {
    all: AhoCorasick,
    /// Which shape each hint is one of, and whether a word begins with it there.
    of: Vec<(usize, bool)>,
}

struct Shape {
    pattern: Regex,
    mask: String,
}

static SHAPES: LazyLock<Option<Shapes>> = LazyLock::new(|| {
    let shape = |&(kind, _, pattern): &(&str, &[&str], &str)| {
        // A pattern may capture what stands around the secret and stays: `${a}` before it, `${z}` behind it.
        Some(Shape {
            pattern: Regex::new(&boundaries(pattern)).ok()?,
            mask: format!("${{e}}${{a}}[masked {kind}]${{z}}"),
        })
    };
    let each = PATTERNS.iter().map(shape).collect::<Option<_>>()?;
    let hints = |in_either_case: bool| {
        let shapes = PATTERNS.iter().enumerate();
        let shapes = shapes.filter(|(_, (_, _, pattern))| pattern.contains("(?i)") == in_either_case);
        let (hints, of): (Vec<&str>, _) = shapes
            .flat_map(|(shape, &(_, hints, pattern))| {
                hints.iter().map(move |&hint| (hint, (shape, begins(hint, pattern))))
            })
            .unzip();
        let all = AhoCorasick::builder().ascii_case_insensitive(in_either_case).build(hints).ok()?;
        Some(Hints { all, of })
    };
    Some(Shapes { hints: [hints(false)?, hints(true)?], each })
});

/// Whether what a hint is for begins with it, and is a word. Hints that begin with anything but a letter stand further behind.
fn begins(hint: &str, pattern: &str) -> bool {
    pattern.starts_with(r"\b") && hint.starts_with(|first: char| first.is_ascii_alphanumeric())
}

/// Tokens are ASCII. A boundary that knows all alphabets makes the search many times slower as soon as a text holds any other letter, and
/// hides a token that such a letter stands before. So does the letter that an escape ends in, which is why a token may begin behind one.
fn boundaries(pattern: &str) -> String {
    let ascii = |pattern: &str| pattern.replace(r"\b", r"(?-u:\b)");
    match pattern.strip_prefix(r"\b") {
        Some(rest) => format!("(?:(?P<e>{ESCAPE})|{}){}", ascii(r"\b"), ascii(rest)),
        None => ascii(pattern),
    }
}

/// What ends in a letter and is no part of a word: an escape of JSON, and a colour of a terminal.
const ESCAPE: &str = r"(?:\\u001[bB]|\x1b)\[[0-9;]*[A-Za-z]|\\[bfnrt]|\\u[0-9A-Fa-f]{4}";

/// What a thing is, the hints one of which is in everything that looks like it, and how it looks. In JSON a newline is the two characters
/// `\n`. A word begins at a `\b` at the beginning of a pattern.
const PATTERNS: &[(&str, &[&str], &str)] = &[
    (
        "private key",
        &["PRIVATE KEY"],
        // To its end or, if that is missing, to the end of the string in which it stands.
        r#"-----BEGIN [A-Z0-9 ]*PRIVATE KEY( BLOCK)?-----((?:[^"\\]|\\(?s:.))*?-----END [A-Z0-9 ]*PRIVATE KEY( BLOCK)?-----|(?:[^"\\]|\\(?s:.))*)"#,
    ),
    ("age key", &["AGE-SECRET-KEY-1"], r"AGE-SECRET-KEY-1[0-9A-Z]{20,}"),
    ("aws access key", &["AKIA", "ASIA", "ABIA", "ACCA"], r"\b(AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}\b"),
    (
        "aws secret key",
        &["aws_secret", "awssecret"],
        r#"(?i)(?P<a>aws_?secret_?access_?key[\\"' ]*[:=][\\"' ]*)[A-Za-z0-9/+=]{40}"#,
    ),
    (
        "github token",
        &["gho_", "ghp_", "ghs_", "ghu_", "ghr_", "github_pat_"],
        r"\b(gh[opsur]_[A-Za-z0-9]{20,255}|github_pat_[A-Za-z0-9_]{20,255})",
    ),
    (
        "gitlab token",
        &["glpat-", "gldt-", "glrt-", "gloas-", "glptt-", "glcbt-", "glft-", "glsoat-"],
        r"\bgl(pat|dt|rt|oas|ptt|cbt|ft|soat)-[A-Za-z0-9_.-]{20,}",
    ),
    ("slack token", &["xox", "xapp-"], r"\b(xox[abeoprs]-[A-Za-z0-9-]{10,}|xapp-[0-9]-[A-Za-z0-9-]{10,})"),
    ("slack webhook", &["hooks.slack.com/services/"], r"(?P<a>hooks\.slack\.com/services/)[A-Za-z0-9/_-]{20,}"),
    ("anthropic key", &["sk-ant-"], r"\bsk-ant-[A-Za-z0-9_-]{20,}"),
    ("openai key", &["sk-"], r"\bsk-(proj-|svcacct-|admin-)?[A-Za-z0-9_-]{20,}"),
    ("google key", &["AIza"], r"\bAIza[0-9A-Za-z_-]{35}"),
    ("google token", &["ya29."], r"\bya29\.[0-9A-Za-z_-]{20,}"),
    ("stripe key", &["sk_", "rk_", "whsec_"], r"\b(sk|rk|whsec)_(live_|test_)?[0-9A-Za-z]{16,}"),
    ("npm token", &["npm_"], r"\bnpm_[A-Za-z0-9]{36}"),
    ("pypi token", &["pypi-"], r"\bpypi-[A-Za-z0-9_-]{16,}"),
    ("hugging face token", &["hf_"], r"\bhf_[A-Za-z0-9]{30,}"),
    ("sendgrid key", &["SG."], r"\bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"),
    ("twilio key", &["SK"], r"\bSK[0-9a-f]{32}\b"),
    ("digitalocean token", &["doo_v1_", "dop_v1_", "dor_v1_"], r"\bdo[opr]_v1_[a-f0-9]{64}"),
    ("telegram token", &[":AA"], r"\b[0-9]{8,10}:AA[0-9A-Za-z_-]{33}"),
    ("palyra token", &["plr_"], r"\bplr_[A-Za-z0-9_-]{16,}"),
    ("json web token", &["eyJ"], r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"),
    (
        "credential",
        &["authorization"],
        r"\b(?i)(?P<a>authorization[\\]?[\x22']?\s*[:=]\s*[\\]?[\x22']?(bearer|basic|token)\s+)[A-Za-z0-9._~+/=-]{8,}",
    ),
    ("password", &["@"], r"\b(?P<a>[a-z][a-z0-9+.-]{1,20}://[^\s/:@\x22'\\]{0,100}:)[^\s/@\x22'\\]{3,200}(?P<z>@)"),
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_pattern_is_valid() {
        assert!(SHAPES.is_some());
    }

    /// One text of every known shape, where the secret in it begins, and what becomes of it.
    fn samples() -> Vec<(String, String)> {
        let filler = "0aZ9".repeat(16);
        let some = |n: usize| filler.chars().take(n).collect::<String>();
        let whole = |token: String, kind: &str| (token, format!("[masked {kind}]"));
        let key = "-----BEGIN OPENSSH PRIVATE KEY-----\\nb3Bl\\n-----END OPENSSH PRIVATE KEY-----";
        let encrypted =
            "-----BEGIN RSA PRIVATE KEY-----\\nProc-Type: 4,ENCRYPTED\\n\\nb3Bl\\n-----END RSA PRIVATE KEY-----";
        vec![
            whole(key.to_owned(), "private key"),
            whole(encrypted.to_owned(), "private key"),
            whole(format!("AGE-SECRET-KEY-1{}", "QZ9".repeat(16)), "age key"),
            whole(format!("AKIA{}", "ABCD".repeat(4)), "aws access key"),
            (format!("AWS_SECRET_ACCESS_KEY={}", some(40)), "AWS_SECRET_ACCESS_KEY=[masked aws secret key]".to_owned()),
            whole(format!("ghp_{}", some(36)), "github token"),
            whole(format!("github_pat_{}", some(36)), "github token"),
            whole(format!("glpat-{}", some(20)), "gitlab token"),
            whole(format!("xoxb-{}", some(20)), "slack token"),
            whole(format!("xapp-1-{}", some(20)), "slack token"),
            (
                format!("hooks.slack.com/services/{}", some(24)),
                "hooks.slack.com/services/[masked slack webhook]".to_owned(),
            ),
            whole(format!("sk-ant-{}", some(40)), "anthropic key"),
            whole(format!("sk-proj-{}", some(40)), "openai key"),
            whole(format!("AIza{}", some(35)), "google key"),
            whole(format!("ya29.{}", some(30)), "google token"),
            whole(format!("sk_live_{}", some(24)), "stripe key"),
            whole(format!("whsec_{}", some(24)), "stripe key"),
            whole(format!("npm_{}", some(36)), "npm token"),
            whole(format!("pypi-{}", some(20)), "pypi token"),
            whole(format!("hf_{}", some(34)), "hugging face token"),
            whole(format!("SG.{}.{}", some(20), some(40)), "sendgrid key"),
            whole(format!("SK{}", "0af9".repeat(8)), "twilio key"),
            whole(format!("dop_v1_{}", "0af9".repeat(16)), "digitalocean token"),
            whole(format!("12345678:AA{}", some(33)), "telegram token"),
            whole(format!("plr_{}", some(32)), "palyra token"),
            whole(format!("eyJ{0}.eyJ{0}.{0}", some(12)), "json web token"),
            (format!("Authorization: Bearer {}", some(20)), "Authorization: Bearer [masked credential]".to_owned()),
            ("postgres://ada:hunter2@db/x".to_owned(), "postgres://ada:[masked password]@db/x".to_owned()),
        ]
    }

    #[test]
    fn every_known_shape_is_masked_wherever_it_stands_and_its_surroundings_stay() {
        for (kind, _, _) in PATTERNS {
            let mask = format!("[masked {kind}]");
            assert!(samples().iter().any(|(_, expected)| expected.contains(&mask)), "no sample of a {kind}");
        }
        for (token, expected) in samples() {
            // Letters of other alphabets are no part of a token, so they do not hide one.
            for (before, after) in [("", ""), ("key=", " ok"), ("\u{e9}", "\u{e9}"), ("\u{1f511}", " \u{65e5}\u{672c}")]
            {
                assert_eq!(masked(format!("{before}{token}{after}")), format!("{before}{expected}{after}"));
            }
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
    fn a_token_at_the_beginning_of_a_line_of_a_json_string_is_masked() {
        for before in ["a\n", "a\r\n", "\t", "\u{b}", "\u{1b}[32m", "\u{1b}[1;31m", "a\\n", "C:\\"] {
            for (token, expected) in samples() {
                // What holds escapes already is JSON itself.
                let token = token.replace("\\n", "\n");
                let text = serde_json::to_string(&format!("{before}{token}\nb")).unwrap();
                let read: String = serde_json::from_str(&masked(text)).unwrap();
                assert_eq!(read, format!("{before}{expected}\nb"));
            }
        }
    }

    #[test]
    fn ordinary_text_is_left_alone() {
        for text in
            ["cargo test --workspace", "sk-1", "https://example.org:8080/a@b", "task-list", "eyJ.x.y", "16:30:00"]
        {
            assert_eq!(masked(text.to_owned()), text);
        }
    }

    #[test]
    fn a_token_among_bytes_that_are_no_text_is_masked_and_they_stay() {
        let bytes = [b"\xff\xfe=".as_slice(), b"ghp_", &b"a1".repeat(18), b"\xc3"].concat();
        assert_eq!(masked_bytes(&bytes), b"\xff\xfe=[masked github token]\xc3");
    }

    #[test]
    fn a_private_key_that_was_cut_off_takes_nothing_of_the_json_around_it_along() {
        let text = r#"{"out":"a -----BEGIN PRIVATE KEY-----\nMI\"IE-b","exit":0}"#;
        assert_eq!(masked(text.to_owned()), r#"{"out":"a [masked private key]","exit":0}"#);
    }

    /// The slow way: every shape is looked for, whatever hints there are.
    fn masked_slowly(text: &str) -> String {
        let each = &SHAPES.as_ref().unwrap().each;
        let mask = |text: String, shape: &Shape| shape.pattern.replace_all(&text, shape.mask.as_str()).into_owned();
        each.iter().fold(text.to_owned(), mask)
    }

    proptest! {
        #[test]
        fn no_hint_is_missed(parts in prop::collection::vec((0..12_usize, 0..40_usize), 1..5)) {
            let before = [
                "", "a", "ask", "task_", "9", " ", "\u{e9}", "\\n", "\\u001b[0;31m", "\u{1b}[38;2;255;255;255m", "x\\t",
            ];
            let long = format!("\u{1b}[{}m", "0;".repeat(80));
            let samples = samples();
            let text: String = parts
                .iter()
                .map(|(b, n)| {
                    let before = before.get(*b).copied().unwrap_or(&long);
                    format!("{before}{}", samples.get(*n).map_or("sk_sk-SKeyJ", |(token, _)| token))
                })
                .collect();
            prop_assert_eq!(masked(text.clone()), masked_slowly(&text));
        }

        #[test]
        fn json_stays_json_whatever_it_holds(
            parts in prop::collection::vec((0..40_usize, "[ -~\n\u{e9}]{0,6}"), 0..6),
        ) {
            let samples = samples();
            let cut = ["-----BEGIN PRIVATE KEY-----", "AWS_SECRET_ACCESS_KEY: ", "https://u:pw@", "Authorization: Basic "];
            let strings: Vec<String> = parts
                .iter()
                .map(|(n, other)| {
                    let known = samples.get(*n).map_or_else(|| cut[n % cut.len()], |(token, _)| token.as_str());
                    format!("{other}{known}{other}")
                })
                .collect();
            let text = serde_json::to_string(&strings).unwrap();
            let read: Vec<String> = serde_json::from_str(&masked(text)).unwrap();
            prop_assert_eq!(read.len(), strings.len());
        }
    }
}
