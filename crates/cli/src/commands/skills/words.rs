//! What is known of packages and skills, in words.

use palyra_package::{Metering, SkillLimits};
use palyra_types::visible::visible;

use crate::terminal::{DIM, Terminal};

/// A number of bytes as people say it.
pub(super) fn bytes(count: u64) -> String {
    match count {
        0..1_024 => format!("{count} bytes"),
        1_024..1_048_576 => format!("{} KiB", tenths(count, 1_024)),
        _ => format!("{} MiB", tenths(count, 1_048_576)),
    }
}

fn tenths(count: u64, unit: u64) -> String {
    let tenths = count.saturating_mul(10) / unit;
    if tenths.is_multiple_of(10) { (tenths / 10).to_string() } else { format!("{}.{}", tenths / 10, tenths % 10) }
}

/// A field of something that is shown. What others said has to be visible already.
pub(super) fn field(title: &str, text: &str, terminal: &Terminal) {
    terminal.out_rows(format!("  {} {text}", terminal.paint(DIM, &format!("{title:<10}"))));
}

/// The lines of a field, the title before the first.
pub(super) fn fields(title: &str, lines: &[String], terminal: &Terminal) {
    for (number, line) in lines.iter().enumerate() {
        field(if number == 0 { title } else { "" }, line, terminal);
    }
}

/// What a skill asks to do, as lines of a field.
pub(super) fn asks(sentences: &[String], terminal: &Terminal) {
    let (title, lines) = wished(sentences);
    fields(title, &lines, terminal);
}

/// What a skill may do, as lines of a field.
pub(super) fn may(sentences: &[String], terminal: &Terminal) {
    match sentences {
        [] => field("may use", "nothing", terminal),
        some => fields("may", &some.iter().map(|one| infinitive(one)).collect::<Vec<_>>(), terminal),
    }
}

/// What a skill asks to do: a title, and what goes on from it.
pub(super) fn wished(sentences: &[String]) -> (&'static str, Vec<String>) {
    match sentences {
        [] => ("asks for", vec!["nothing".to_owned()]),
        some => ("asks to", some.iter().map(|one| infinitive(one)).collect()),
    }
}

/// A sentence about what a skill does, so that it can stand after "asks to" and "may": `know the time` for `knows the time`.
pub(super) fn infinitive(sentence: &str) -> String {
    let verb = VERBS.iter().find_map(|(does, to_do)| Some((to_do, sentence.strip_prefix(does)?)));
    verb.map_or_else(|| sentence.to_owned(), |(to_do, rest)| format!("{to_do}{rest}"))
}

/// What sentences about skills begin with. The longest come first.
const VERBS: &[(&str, &str)] = &[
    ("reads and writes ", "read and write "),
    ("reads ", "read "),
    ("writes ", "write "),
    ("knows ", "know "),
    ("has ", "have "),
    ("keeps ", "keep "),
    ("fetches ", "fetch "),
    ("uses ", "use "),
    ("imports ", "import "),
];

/// How much a call may use.
pub(super) fn limits(limits: &SkillLimits) -> Vec<String> {
    let work = match limits.metering {
        Metering::Epoch => format!("computes for {} ms", limits.cpu_ms),
        Metering::Fuel => format!("{} units of fuel", limits.fuel),
    };
    vec![
        format!("{work}, takes {} ms, waiting counted", limits.wall_ms),
        format!(
            "{} of memory, tables of {} entries, an answer of {}",
            bytes(limits.memory_bytes),
            limits.table_entries,
            bytes(limits.output_bytes)
        ),
        format!(
            "{} calls of the host, {} in one, {} of log",
            limits.host_calls,
            bytes(limits.host_bytes),
            bytes(limits.log_bytes)
        ),
    ]
}

/// A word of a command line, in quotes where a shell would read it otherwise.
pub(super) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", visible(word).replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use palyra_package::{Capabilities, Destination, FileAccess, FileGrant, Grants, KvQuota};
    use palyra_types::SecretRef;

    use super::*;

    #[test]
    fn what_a_skill_does_becomes_what_it_asks_to_do_and_may_do() {
        let http = [Destination::parse("a.example:443").unwrap()];
        let kv = Some(KvQuota { bytes: 10, entries: 2 });
        let asked = Capabilities {
            log: true,
            clock: true,
            random: true,
            kv,
            http: http.clone().into(),
            secrets: [("token".to_owned(), "to sign in".to_owned())].into(),
            files: [("a".to_owned(), FileAccess::Read), ("b".to_owned(), FileAccess::Write)].into(),
            inert: ["wasi:http".to_owned()].into(),
        };
        let (title, lines) = wished(&asked.words());
        let expected = [
            "write into the log of its calls",
            "know the time",
            "have randomness",
            "keep up to 10 bytes in 2 entries for later, in each workspace",
            "fetch from a.example:443",
            "use a secret as `token`: to sign in",
            "read files in a directory of the workspace as `a`",
            "read and write files in a directory of the workspace as `b`",
            "import wasi:http, which leads nowhere",
        ];
        assert_eq!((title, lines), ("asks to", expected.map(str::to_owned).to_vec()));
        let directory = |access| FileGrant { path: ".".to_owned(), access };
        let granted = Grants {
            log: true,
            clock: true,
            random: true,
            kv,
            http: http.into(),
            secrets: [("token".to_owned(), SecretRef::parse("global/github").unwrap())].into(),
            files: [("a".to_owned(), directory(FileAccess::Read)), ("b".to_owned(), directory(FileAccess::Write))]
                .into(),
        };
        for sentence in granted.words() {
            assert_ne!(infinitive(&sentence), sentence, "the verb is not known");
        }
        assert_eq!(wished(&[]), ("asks for", vec!["nothing".to_owned()]));
    }

    #[test]
    fn bytes_are_told_as_people_say_them() {
        let told = [0, 1_023, 1_024, 1_536, 1_048_576, 67_108_864].map(bytes);
        assert_eq!(told, ["0 bytes", "1023 bytes", "1 KiB", "1.5 KiB", "1 MiB", "64 MiB"]);
    }

    #[test]
    fn words_of_a_command_line_are_quoted_where_a_shell_would_read_them() {
        assert_eq!(quoted("http=api.example.org:443"), "http=api.example.org:443");
        assert_eq!(quoted("files:notes=two words"), "'files:notes=two words'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
    }
}
