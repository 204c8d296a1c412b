//! What is kept of files: once, whole, within limits, and gone with the last who has it.

use std::{fs, path::PathBuf};

use palyra_types::{clock::ManualClock, entropy::SeededEntropy};
use proptest::prelude::*;

use super::*;

struct Lab {
    directory: tempfile::TempDir,
    clock: Arc<ManualClock>,
    store: ArtifactStore,
}

impl Lab {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(Timestamp::from_unix_millis(1_700_000_000_000)));
        let store = ArtifactStore::open(directory.path(), clock.clone(), Arc::new(SeededEntropy::new(1))).unwrap();
        Self { directory, clock, store }
    }

    fn again(self) -> Self {
        drop(self.store);
        let entropy = Arc::new(SeededEntropy::new(1000));
        let store = ArtifactStore::open(self.directory.path(), self.clock.clone(), entropy).unwrap();
        Self { directory: self.directory, clock: self.clock, store }
    }

    fn keep(&self, scope: &str, bytes: &[u8]) -> Artifact {
        self.clock.advance(1);
        self.try_keep(scope, "report.md", bytes).unwrap()
    }

    fn try_keep(&self, scope: &str, name: &str, bytes: &[u8]) -> Result<Artifact, ArtifactError> {
        let media_type = MediaType::parse("text/markdown").unwrap();
        self.store.put(&NewArtifact { scope: &at(scope), name, media_type: &media_type, bytes, by: "agent:claude" })
    }

    fn read(&self, id: ArtifactId) -> Option<Vec<u8>> {
        self.store.get(id, None).unwrap().map(|content| content.bytes)
    }

    /// Every file below the directory of contents.
    fn contents(&self) -> Vec<PathBuf> {
        let directories = fs::read_dir(self.directory.path().join("artifacts")).unwrap();
        let files = directories.flat_map(|directory| fs::read_dir(directory.unwrap().path()).unwrap());
        files.map(|file| file.unwrap().path()).collect()
    }
}

fn at(scope: &str) -> MemoryScope {
    MemoryScope::parse(scope).unwrap()
}

#[test]
fn an_artifact_is_there_as_it_was_kept_also_after_a_restart() {
    let lab = Lab::new();
    let kept = lab.keep("session:01ARZ3NDEKTSV4RRFFQ69G5FAV", b"# hello\0\xff");
    let empty = lab.keep("global", b"");
    let lab = lab.again();
    let content = lab.store.get(kept.id, None).unwrap().unwrap();
    assert_eq!((content.artifact, content.bytes), (kept.clone(), b"# hello\0\xff".to_vec()));
    assert_eq!((kept.size, kept.sha256), (9, Sha256Digest::of(b"# hello\0\xff")));
    assert_eq!(lab.read(empty.id), Some(Vec::new()));
    assert_eq!(lab.store.about(kept.id).unwrap(), Some(kept));
}

#[test]
fn equal_content_is_stored_once_and_goes_with_the_last_who_has_it() {
    let lab = Lab::new();
    let (one, other) = (lab.keep("global", b"same"), lab.keep("user:ada", b"same"));
    assert_eq!((lab.contents().len(), one.sha256 == other.sha256, one.id == other.id), (1, true, false));
    assert!(lab.store.delete(one.id).unwrap());
    assert!(!lab.store.delete(one.id).unwrap());
    assert_eq!((lab.read(one.id), lab.read(other.id)), (None, Some(b"same".to_vec())));
    assert_eq!(lab.store.purge(&at("user:ada")).unwrap(), 1);
    assert_eq!((lab.contents().len(), lab.store.purge(&at("user:ada")).unwrap()), (0, 0));
}

#[test]
fn a_changed_or_missing_content_is_refused() {
    let lab = Lab::new();
    let kept = lab.keep("global", b"pay 10");
    let file = lab.contents().remove(0);
    fs::write(&file, b"pay 99").unwrap();
    assert!(matches!(lab.store.get(kept.id, Some(0..1)), Err(ArtifactError::Changed(id)) if id == kept.id));
    fs::remove_file(&file).unwrap();
    let missing = lab.store.get(kept.id, None).unwrap_err();
    assert!(matches!(missing, ArtifactError::Missing(_)) && !missing.advice().is_empty());
    lab.keep("global", b"pay 10");
    assert_eq!(lab.read(kept.id), Some(b"pay 10".to_vec()));
}

#[test]
fn a_part_is_what_lies_in_the_range() {
    let lab = Lab::new();
    let id = lab.keep("global", b"0123456789").id;
    let part = |range| lab.store.get(id, Some(range)).map(|content| content.unwrap().bytes);
    assert_eq!(part(2..5).unwrap(), b"234");
    assert_eq!(part(8..u64::MAX).unwrap(), b"89");
    assert_eq!(part(10..12).unwrap(), b"");
    let (start, end) = (5, 2);
    for range in [11..12, start..end] {
        assert!(matches!(part(range), Err(ArtifactError::Range { size: 10, .. })));
    }
}

#[test]
fn what_a_crash_left_half_done_is_removed_at_the_next_opening() {
    let lab = Lab::new();
    let kept = lab.keep("global", b"kept");
    let file = lab.contents().remove(0);
    // Killed while a content was written, and between a content and the row that refers to it.
    fs::write(file.with_file_name("draft"), b"ha").unwrap();
    lab.store.blobs.keep(Sha256Digest::of(b"orphan"), b"orphan").unwrap();
    let lab = lab.again();
    assert_eq!((lab.contents(), lab.read(kept.id)), (vec![file], Some(b"kept".to_vec())));
}

#[test]
fn limits_hold_for_each_artifact_and_each_scope() {
    let lab = Lab::new();
    let long = vec![0; MOST_ARTIFACT_BYTES + 1];
    assert!(matches!(lab.try_keep("global", "a", &long), Err(ArtifactError::TooLong(length)) if length == long.len()));
    lab.try_keep("global", "a", &long[1..]).unwrap();
    for name in ["", "../a", "a\\b", "a\u{202e}b", &"x".repeat(256)] {
        assert!(matches!(lab.try_keep("global", name, b"x"), Err(ArtifactError::Label(_))), "{name}");
    }
    let sql = "UPDATE artifact SET size = ?1";
    let almost = number(MOST_SCOPE_BYTES - 2);
    lab.store.database.write(|t| Ok::<_, StoreError>(t.execute(sql, [almost])?)).unwrap();
    assert!(
        matches!(lab.try_keep("global", "a", b"abc"), Err(ArtifactError::TooManyBytes(bytes)) if bytes == MOST_SCOPE_BYTES + 1)
    );
    lab.try_keep("global", "a", b"ab").unwrap();
    lab.try_keep("user:ada", "a", b"abc").unwrap();
    assert_eq!(lab.contents().len(), 3);
    let many = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000)
                INSERT INTO artifact SELECT 'x' || i, 'service:ci', 'n', 'a/b', 'd', 0, 0, 'b' FROM n";
    lab.store.database.write(|t| Ok::<_, StoreError>(t.execute(many, [])?)).unwrap();
    assert!(matches!(lab.try_keep("service:ci", "a", b""), Err(ArtifactError::TooMany)));
}

#[test]
fn an_author_and_all_of_them_keep_no_more_however_many_scopes_there_are() {
    let lab = Lab::new();
    let fill = |by: &str, artifacts: u64, bytes: u64| {
        let sql = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?2)
                   INSERT INTO artifact SELECT ?1 || i, 'session:' || i, 'n', 'a/b', 'd', ?3, 0, ?1 FROM n";
        let values = params![by, number(artifacts), number(bytes)];
        lab.store.database.write(|t| Ok::<_, StoreError>(t.execute(sql, values)?)).unwrap();
    };
    fill("agent:claude", 1, MOST_AUTHOR_BYTES - 2);
    let error = lab.try_keep("global", "a", b"abc").unwrap_err();
    assert!(
        matches!(&error, ArtifactError::AuthorFull { author, artifacts: 2, bytes } if author == "agent:claude" && *bytes == MOST_AUTHOR_BYTES + 1),
        "{error}"
    );
    assert!(error.to_string().contains("in all scopes together") && error.advice().contains("in any scope"));
    lab.try_keep("global", "a", b"ab").unwrap();
    assert!(matches!(lab.try_keep("user:ada", "a", b"a"), Err(ArtifactError::AuthorFull { .. })));
    let media_type = MediaType::parse("text/markdown").unwrap();
    let other =
        NewArtifact { scope: &at("global"), name: "a", media_type: &media_type, bytes: b"a", by: "agent:other" };
    lab.store.put(&other).unwrap();
    fill("agent:many", MOST_AUTHOR_ARTIFACTS, 0);
    let many = NewArtifact { by: "agent:many", ..other };
    assert!(matches!(lab.store.put(&many), Err(ArtifactError::AuthorFull { .. })));
    fill("agent:all", 1, MOST_BYTES_IN_ALL);
    let full = lab.store.put(&other).unwrap_err();
    assert!(matches!(full, ArtifactError::Full { .. }) && !full.advice().is_empty(), "{full}");
    assert_eq!(lab.contents().len(), 2, "nothing is left of what was refused");
}

#[test]
fn a_list_goes_through_a_scope_once() {
    let lab = Lab::new();
    let kept: Vec<Artifact> = (0..5_u8).map(|number| lab.keep("global", &[number])).collect();
    lab.keep("user:ada", b"other");
    let first = lab.store.list(&at("global"), None, 3).unwrap();
    let second = lab.store.list(&at("global"), first.next, 3).unwrap();
    assert_eq!([first.items, second.items].concat(), kept);
    assert_eq!(second.next, None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn there_is_a_file_for_each_content_that_somebody_has_and_no_other(
        steps in prop::collection::vec((0..4_u8, any::<bool>()), 1..14),
    ) {
        let mut lab = Lab::new();
        let mut kept: Vec<(ArtifactId, u8)> = Vec::new();
        for (content, keep) in steps {
            if keep {
                kept.push((lab.keep("global", &[content]).id, content));
            } else if let Some(place) = kept.iter().position(|&(_, other)| other == content) {
                prop_assert!(lab.store.delete(kept.remove(place).0).unwrap());
            } else {
                lab = lab.again();
            }
        }
        let contents: std::collections::BTreeSet<u8> = kept.iter().map(|&(_, content)| content).collect();
        prop_assert_eq!(lab.contents().len(), contents.len());
        for (id, content) in kept {
            prop_assert_eq!(lab.read(id), Some(vec![content]));
        }
    }
}

#[test]
fn the_scopes_that_hold_something_are_told_with_how_much() {
    let lab = Lab::new();
    let first = lab.keep("workspace:shop", b"12345");
    lab.keep("agent:claude", b"123");
    lab.keep("agent:claude", b"123");
    assert_eq!(lab.store.scopes().unwrap(), [(at("agent:claude"), 2, 6), (at("workspace:shop"), 1, 5)]);
    lab.store.delete(first.id).unwrap();
    lab.store.purge(&at("agent:claude")).unwrap();
    assert_eq!(lab.store.scopes().unwrap(), []);
}
