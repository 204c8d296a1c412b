//! What an author may have overlooked, told when a skill is packed.
//!
//! Guarantees: a doubt is only told where something in the directory contradicts something else in it. Nothing fails because of one.

use std::{collections::BTreeSet, fs, path::Path};

use palyra_package::{Capabilities, Manifest, Need, Package, signature};
use palyra_types::{Sha256Digest, visible::visible};
use serde_json::Value;

use super::{inspect::own_key, sign::signature_file, words::quoted};

/// What is to be said about a package that was written to this file, in the place of what was there before.
pub(super) fn doubts(package: &Package, archive: &[u8], (file, before): (&Path, Option<&[u8]>)) -> Vec<String> {
    let unused = unused(&package.manifest.capabilities, package.required.imports.values().copied().collect());
    let stale = fs::read_to_string(signature_file(file)).ok();
    let stale = stale.filter(|text| !fits(text, archive, before)).map(|_| {
        let signature = visible(&signature_file(file).display().to_string());
        let file = quoted(&file.display().to_string());
        format!("{signature} does not fit this package; sign it again: `palyra skills sign {file}`")
    });
    let prose = package.skill_md.as_deref().map(|prose| strangers(prose, &package.manifest)).unwrap_or_default();
    unused.into_iter().chain(stale).chain(prose).collect()
}

/// What is asked for and not imported. People are asked to grant it all the same.
fn unused(asked: &Capabilities, imported: BTreeSet<Need>) -> Option<String> {
    let unused = Need::ALL.iter().filter(|need| **need != Need::Free);
    let unused = unused.filter(|need| need.is_asked_for_by(asked) && !imported.contains(need));
    let names: Vec<String> = unused
        .map(|need| match need {
            Need::InertFilesystem | Need::InertSockets | Need::InertHttp => format!("`{need}` among what is `inert`"),
            _ => format!("`{need}`"),
        })
        .collect();
    (!names.is_empty()).then(|| {
        format!(
            "skill.toml asks for {}, which the program does not import; take it out under [capabilities], or people are \
             asked to grant what nothing uses",
            names.join(", ")
        )
    })
}

/// Whether a signature can be one of this archive. Without the key of its signer nobody knows for certain, so it counts as one unless
/// something speaks against it: one's own key, what `palyra skills sign` wrote beside it, or that the archive was another one before.
fn fits(text: &str, archive: &[u8], before: Option<&[u8]>) -> bool {
    if let Some(key) = own_key().filter(|key| signature::signer_of(text).is_ok_and(|id| id == key.key_id())) {
        return signature::verify(archive, text, &key).is_ok();
    }
    let comment = text.lines().find_map(|line| line.strip_prefix("trusted comment: "));
    let signed = comment.and_then(|comment| comment.split_whitespace().find_map(|word| Sha256Digest::parse(word).ok()));
    match signed {
        Some(digest) => digest == Sha256Digest::of(archive),
        None => before.is_none_or(|before| before == archive),
    }
}

/// Tools that SKILL.md names and the manifest does not have.
///
/// A whole name, `skill.PUBLISHER.NAME.TOOL`, can mean nothing else. A heading that is one word in backticks is how a tool is described, and may be
/// something else: it counts only if it is no word of a schema, and some tool is not named anywhere in the text, as after a tool was renamed.
fn strangers(prose: &str, manifest: &Manifest) -> Vec<String> {
    let id = &manifest.id;
    let own = format!("skill.{}.{}.", id.publisher(), id.name());
    let whole = prose.match_indices(&own).filter_map(|(at, _)| {
        let is_whole = !prose.get(..at)?.ends_with(|c| is_of_a_name(c) || c == '.');
        let rest = prose.get(at + own.len()..)?;
        let end = rest.find(|c| !is_of_a_name(c)).unwrap_or(rest.len());
        rest.get(..end).map(|name| name.trim_end_matches(['-', '_'])).filter(|name| is_whole && is_name(name))
    });
    let whole: BTreeSet<&str> = whole.filter(|name| manifest.tool(name).is_none()).collect();
    let unnamed: Vec<&str> =
        manifest.tools.iter().map(|tool| tool.name.as_str()).filter(|name| !names(prose, name)).collect();
    let headings = prose.lines().filter_map(|line| {
        let heading = line.trim_start_matches('#');
        let name = heading.trim().strip_prefix('`')?.strip_suffix('`')?;
        let is_heading = heading.len() < line.len() && heading.starts_with(' ');
        (is_heading && is_name(name)).then_some(name)
    });
    let known: BTreeSet<&str> = manifest.tools.iter().flat_map(words_of).collect();
    let headings: BTreeSet<&str> = headings
        .filter(|name| !unnamed.is_empty() && manifest.tool(name).is_none() && !known.contains(name))
        .filter(|name| !whole.contains(name))
        .collect();
    let has = manifest.tools.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>().join(", ");
    let whole = whole.iter().map(|name| format!("SKILL.md names `{own}{name}`, and the tools of the skill are {has}"));
    let headings = headings.iter().map(|name| {
        let unnamed = unnamed.join(", ");
        format!("SKILL.md describes `{name}`, which is no tool of the skill, and says nothing about {unnamed}")
    });
    whole.chain(headings).collect()
}

/// Whether a text names a tool: the word, with nothing before or after it that would make it another one.
fn names(prose: &str, tool: &str) -> bool {
    prose.match_indices(tool).any(|(at, _)| {
        let before = prose.get(..at).and_then(|before| before.chars().next_back());
        let after = prose.get(at + tool.len()..).and_then(|after| after.chars().next());
        !before.is_some_and(is_of_a_name) && !after.is_some_and(is_of_a_name)
    })
}

/// The names that the schemas of a tool have for what goes in and comes out.
fn words_of(tool: &palyra_package::SkillTool) -> Vec<&str> {
    let mut places: Vec<&Value> = std::iter::once(&tool.input).chain(&tool.output).collect();
    let mut words = Vec::new();
    while let Some(place) = places.pop() {
        match place {
            Value::Object(members) => {
                words.extend(members.keys().map(String::as_str));
                places.extend(members.values());
            }
            Value::Array(items) => places.extend(items),
            Value::String(word) => words.push(word),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    words
}

/// Whether a word can be the name of a tool. `TOOL`, which stands for one, cannot.
fn is_name(word: &str) -> bool {
    !word.is_empty() && word.chars().all(|c| is_of_a_name(c) && !c.is_ascii_uppercase())
}

const fn is_of_a_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(tools: &[&str]) -> Manifest {
        let head = "id = \"acme/hello\"\nversion = \"0.1.0\"\npublisher = \"acme\"\nlicense = \"MIT\"\nsummary = \"A skill.\"\n";
        let input = "{ type = \"object\", properties = { url = { type = \"string\" } } }";
        let tool = |name: &&str| format!("[[tool]]\nname = \"{name}\"\nsummary = \"A tool.\"\ninput = {input}\n");
        Manifest::parse(&format!("{head}{}", tools.iter().map(tool).collect::<String>()), |_| None).unwrap()
    }

    #[test]
    fn what_is_asked_for_and_not_imported_is_named_once() {
        let asked = Capabilities {
            clock: true,
            log: true,
            inert: ["wasi:http".to_owned(), "wasi:sockets".to_owned()].into(),
            ..Capabilities::default()
        };
        let doubt = unused(&asked, [Need::Free, Need::Log, Need::InertSockets].into()).unwrap();
        assert!(
            doubt.starts_with("skill.toml asks for `clock`, `wasi:http` among what is `inert`, which the program does"),
            "{doubt}"
        );
        assert_eq!(unused(&asked, [Need::Log, Need::Clock, Need::InertSockets, Need::InertHttp].into()), None);
        assert_eq!(unused(&Capabilities::default(), [Need::Free].into()), None);
    }

    #[test]
    fn a_tool_that_was_renamed_is_told_by_its_whole_name_and_by_its_heading() {
        let renamed = "# hello\n\n## `count`\n\nCall `skill.acme.hello.count`, or skill.acme.hello.gone.\n";
        assert_eq!(
            strangers(renamed, &manifest(&["tally"])),
            [
                "SKILL.md names `skill.acme.hello.count`, and the tools of the skill are tally",
                "SKILL.md names `skill.acme.hello.gone`, and the tools of the skill are tally"
            ]
        );
        assert_eq!(
            strangers("# hello\n\n## `count`\n", &manifest(&["tally", "time"])),
            ["SKILL.md describes `count`, which is no tool of the skill, and says nothing about tally, time"]
        );
    }

    #[test]
    fn a_text_that_names_something_else_raises_no_doubt() {
        for prose in [
            "",
            "# hello\n\n## `tally`\n\nCall `skill.acme.hello.tally`.\n",
            // Others' tools, what stands for a tool, and a pattern.
            "## `tally`\n`skill.acme.other.count` `skill.acme.hello.TOOL` `skill.acme.hello.*` x.skill.acme.hello.count",
            // Every tool is named, so another heading is about something else.
            "Use tally.\n\n## `count`\n",
            // A word of a schema, two words, a file, and none in backticks.
            "## `url`\n## `count` and more\n## `skill.toml`\n## count\n#`count`\n`count`\n",
        ] {
            assert_eq!(strangers(prose, &manifest(&["tally"])), Vec::<String>::new(), "{prose}");
        }
    }

    #[test]
    fn a_signature_counts_unless_something_speaks_against_it() {
        let comment = |bytes: &[u8]| {
            format!("untrusted comment: x\nAAAA\ntrusted comment: acme/a 0.1.0 {}\n", Sha256Digest::of(bytes))
        };
        assert!(fits(&comment(b"new"), b"new", Some(b"old")));
        assert!(!fits(&comment(b"old"), b"new", None));
        let foreign = "untrusted comment: x\nAAAA\ntrusted comment: timestamp:1\n";
        assert!(fits(foreign, b"new", None) && fits(foreign, b"new", Some(b"new")));
        assert!(!fits(foreign, b"new", Some(b"old")));
    }
}
