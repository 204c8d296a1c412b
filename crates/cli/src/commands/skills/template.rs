//! The templates that skills start from, embedded in this program.
//!
//! Guarantees: what is written has no placeholder left. The WIT world that components are built against is the one that the host has.

use palyra_package::PackageId;
use palyra_types::words;

words! {
    /// The language that a skill is written in.
    pub(crate) enum Language ("language") {
        /// A component, by cargo for `wasm32-wasip2`.
        Rust = "rust",
        /// A command, by clang for `wasm32-wasip1`.
        C = "c",
        /// A component, by componentize-js.
        Js = "js",
        /// A component, by componentize-py.
        Python = "python",
    }
}

impl Language {
    /// The command that installs what building needs, if cargo does not do so by itself. The README of each template has it, too.
    pub(super) const fn needs(self) -> Option<&'static str> {
        match self {
            Self::Rust => None,
            Self::C => Some("apt-get install clang lld wasi-libc libclang-rt-dev-wasm32"),
            Self::Js => Some("npm ci"),
            Self::Python => Some("python3 -m venv .venv && .venv/bin/pip install --requirement requirements.txt"),
        }
    }
}

/// A file of a new skill.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NewFile {
    /// Where, from the directory of the skill.
    pub(super) path: String,
    /// What is in it.
    pub(super) content: String,
}

/// The files of a new skill.
pub(super) fn files(language: Language, id: &PackageId) -> Vec<NewFile> {
    let own = TEMPLATES.iter().filter(|(of, ..)| *of == language.as_str());
    let own = own.map(|(_, path, content)| NewFile { path: filled(path, id), content: filled(content, id) });
    let world = NewFile { path: WORLD.to_owned(), content: SKILL_WIT.to_owned() };
    let mut files: Vec<NewFile> = own.filter(|file| file.path != WORLD).collect();
    files.push(world);
    files
}

/// A text with the names of the skill in their places.
fn filled(text: &str, id: &PackageId) -> String {
    text.replace("{{id}}", id.as_str())
        .replace("{{publisher}}", id.publisher().as_str())
        .replace("{{name}}", id.name())
        .replace("{{crate}}", &crate_name(id.name()))
}

/// A name that languages take for a module, and cargo for a library.
fn crate_name(name: &str) -> String {
    let plain = name.replace('-', "_");
    if plain.starts_with(|first: char| first.is_ascii_digit()) { format!("skill_{plain}") } else { plain }
}

/// Language, path and content of each file.
const TEMPLATES: &[(&str, &str, &str)] = include!(concat!(env!("OUT_DIR"), "/templates.rs"));
/// The world, where tools look for it.
const WORLD: &str = "wit/skill.wit";
const SKILL_WIT: &str = include_str!("../../../../skills/wit/v1/skill.wit");

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use palyra_package::{GoldenCase, Manifest, Sources};

    use super::*;

    #[test]
    fn every_template_is_a_skill_whose_manifest_holds_together_and_leaves_no_placeholder() {
        let id = PackageId::parse("acme/3d-word-count").unwrap();
        for &language in Language::ALL {
            let files = files(language, &id);
            for NewFile { path, content } in &files {
                let left = ["{{id}}", "{{publisher}}", "{{name}}", "{{crate}}"];
                assert!(!left.iter().any(|one| path.contains(one) || content.contains(one)), "{language}: {path}");
            }
            let files: BTreeMap<String, String> = files.into_iter().map(|file| (file.path, file.content)).collect();
            let text = &files["skill.toml"];
            let manifest = Manifest::parse(text, |name| files.get(name).map(|one| one.as_bytes())).unwrap();
            assert_eq!((&manifest.id, manifest.publisher.as_str()), (&id, "acme"), "{language}");
            let sources = Sources::of(text).unwrap();
            assert!(sources.recipe().is_some(), "{language} says how it is built");
            let cases: Vec<_> = files.iter().filter(|(path, _)| path.starts_with("tests/")).collect();
            assert!(!cases.is_empty(), "{language} comes with a case");
            for (path, case) in cases {
                let case =
                    GoldenCase::parse(case.as_bytes()).unwrap_or_else(|error| panic!("{language} {path}: {error}"));
                assert!(manifest.tool(&case.tool).is_some(), "{language} {path}: {}", case.tool);
            }
            assert_eq!(files[WORLD], SKILL_WIT);
        }
    }

    #[test]
    fn a_crate_has_a_name_that_languages_take() {
        assert_eq!((crate_name("text-diff"), crate_name("3d")), ("text_diff".to_owned(), "skill_3d".to_owned()));
    }
}
