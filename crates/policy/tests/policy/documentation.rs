//! What the documentation shows works: every rule loads, is formatted, and the test file in the guide passes.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::Path;

use palyra_policy::{Preset, Snapshot, SourceFile, format::format_policies, suite::Suite};

const PAGES: &[(&str, &str)] = &[
    ("README.md", include_str!("../../../../README.md")),
    ("docs/policy.md", include_str!("../../../../docs/policy.md")),
];

/// The blocks of one language in a page.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let fence = format!("```{language}\n");
    page.split(&*fence).skip(1).filter_map(|rest| rest.split_once("```")).map(|(block, _)| block).collect()
}

#[test]
fn every_rule_in_the_documentation_loads_beside_the_default_preset() {
    let mut seen = 0;
    for (page, text) in PAGES {
        for rule in blocks(text, "cedar") {
            let file = SourceFile::operator(*page, rule);
            let set = Snapshot::load(&[Preset::DEFAULT.source(), file.clone()]);
            assert_eq!(set.map(|set| set.warnings().to_vec()), Ok(Vec::new()), "{page}:\n{rule}");
            assert_eq!(format_policies(&file).as_deref(), Ok(rule), "{page}");
            seen += 1;
        }
    }
    assert!(seen >= 7, "only {seen} rules were found");
}

#[test]
fn the_test_file_in_the_guide_passes() {
    let (_, guide) = PAGES.last().unwrap();
    let examples: Vec<_> = blocks(guide, "toml").into_iter().filter(|block| block.contains("[[test]]")).collect();
    assert_eq!(examples.len(), 1);
    for example in examples {
        let reports = Suite::parse("docs/policy.md", example, Path::new(".")).unwrap().run();
        assert!(reports.iter().all(|report| report.passed), "{reports:#?}");
    }
}
