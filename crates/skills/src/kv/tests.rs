//! What skills keep: apart from each other, within their quotas, through kills.

#![allow(clippy::disallowed_methods, reason = "a process is killed in the middle of its work")]

use std::{process::Command, sync::Arc, thread};

use proptest::prelude::*;

use super::*;

const ROOM: KvQuota = KvQuota { bytes: 1_000_000, entries: 1000 };

struct Lab {
    directory: tempfile::TempDir,
    store: Arc<KvStore>,
}

impl Lab {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = Arc::new(KvStore::open(&directory.path().join("kv.sqlite")).unwrap());
        Self { directory, store }
    }

    fn again(self) -> Self {
        drop(self.store);
        let store = Arc::new(KvStore::open(&self.directory.path().join("kv.sqlite")).unwrap());
        Self { directory: self.directory, store }
    }

    /// What is used, counted from the entries themselves.
    fn counted(&self, scope: &KvScope) -> KvUsage {
        let keys = self.store.keys(scope, "").unwrap();
        let value = |key: &String| self.store.get(scope, key).unwrap().unwrap().len();
        let bytes = keys.iter().map(|key| key.len() + value(key)).sum::<usize>();
        KvUsage { bytes: bytes.try_into().unwrap(), entries: keys.len().try_into().unwrap() }
    }
}

fn scope(skill: &str, workspace: &str) -> KvScope {
    KvScope { skill: SkillId::parse(skill).unwrap(), workspace: WorkspaceName::parse(workspace).unwrap() }
}

fn usage(bytes: u64, entries: u64) -> KvUsage {
    KvUsage { bytes, entries }
}

#[test]
fn what_is_kept_is_there_until_it_is_deleted() {
    let lab = Lab::new();
    let scope = scope("acme/a", "shop");
    assert_eq!(lab.store.get(&scope, "key").unwrap(), None);
    lab.store.set(&scope, ROOM, "key", b"one").unwrap();
    lab.store.set(&scope, ROOM, "key", b"\0\xff").unwrap();
    lab.store.set(&scope, ROOM, "empty", b"").unwrap();
    let lab = lab.again();
    assert_eq!(lab.store.get(&scope, "key").unwrap(), Some(b"\0\xff".to_vec()));
    assert_eq!(lab.store.get(&scope, "empty").unwrap(), Some(Vec::new()));
    assert_eq!(lab.store.usage(&scope).unwrap(), usage(3 + 2 + 5, 2));
    assert!(lab.store.delete(&scope, "key").unwrap());
    assert!(!lab.store.delete(&scope, "key").unwrap());
    assert_eq!(lab.store.usage(&scope).unwrap(), usage(5, 1));
}

#[test]
fn the_keys_of_another_skill_and_another_workspace_are_out_of_reach() {
    let lab = Lab::new();
    let own = scope("acme/a", "shop");
    // Names that would be the same if they were put together with a separator.
    let others = [
        scope("acme/b", "shop"),
        scope("acme/a", "other"),
        scope("acme", "a/shop"),
        scope("acme/a:shop", "x"),
        scope("acme/a/shop", "key"),
    ];
    lab.store.set(&own, ROOM, "key", b"own").unwrap();
    for other in &others {
        for key in ["key", "shop/key", "a/shop/key", "../shop/key", "acme/a/shop/key", "%", "_ey", "key'--"] {
            assert_eq!(lab.store.get(other, key).unwrap(), None, "{other:?} {key}");
            assert!(!lab.store.delete(other, key).unwrap());
        }
        assert_eq!(lab.store.keys(other, "").unwrap(), Vec::<String>::new());
        lab.store.set(other, ROOM, "key", b"theirs").unwrap();
    }
    assert_eq!(lab.store.get(&own, "key").unwrap(), Some(b"own".to_vec()));
    assert_eq!(lab.store.usage(&own).unwrap(), usage(6, 1));
}

#[test]
fn keys_are_listed_in_order_by_their_beginning() {
    let lab = Lab::new();
    let scope = scope("acme/a", "shop");
    for key in ["b/2", "a", "b/1", "b", "b%", "c", "B", "b/é", "b0"] {
        lab.store.set(&scope, ROOM, key, b"").unwrap();
    }
    assert_eq!(lab.store.keys(&scope, "b/").unwrap(), ["b/1", "b/2", "b/é"]);
    assert_eq!(lab.store.keys(&scope, "b%").unwrap(), ["b%"], "a beginning is no pattern");
    assert_eq!(lab.store.keys(&scope, "").unwrap(), ["B", "a", "b", "b%", "b/1", "b/2", "b/é", "b0", "c"]);
    assert_eq!(lab.store.keys(&scope, "z").unwrap(), Vec::<String>::new());
}

#[test]
fn a_key_is_visible_text() {
    let lab = Lab::new();
    let scope = scope("acme/a", "shop");
    for key in ["", "a\nb", "a\0", "a\u{202e}b", &"x".repeat(513)] {
        assert!(matches!(lab.store.set(&scope, ROOM, key, b""), Err(KvError::Key(_))), "{key}");
        assert!(matches!(lab.store.get(&scope, key), Err(KvError::Key(_))), "{key}");
        assert!(matches!(lab.store.delete(&scope, key), Err(KvError::Key(_))), "{key}");
    }
    lab.store.set(&scope, ROOM, &"x".repeat(512), b"").unwrap();
}

#[test]
fn more_than_the_quota_is_refused_and_changes_nothing() {
    let lab = Lab::new();
    let scope = scope("acme/a", "shop");
    let quota = KvQuota { bytes: 10, entries: 2 };
    lab.store.set(&scope, quota, "a", b"1234").unwrap();
    let refused = lab.store.set(&scope, quota, "b", b"12345").unwrap_err();
    assert!(matches!(refused, KvError::TooManyBytes { wanted: 11, quota: 10 }), "{refused}");
    lab.store.set(&scope, quota, "b", b"1234").unwrap();
    let refused = lab.store.set(&scope, quota, "c", b"").unwrap_err();
    assert!(matches!(refused, KvError::TooManyBytes { wanted: 11, quota: 10 }), "{refused}");
    lab.store.set(&scope, quota, "b", b"").unwrap();
    let refused = lab.store.set(&scope, quota, "c", b"").unwrap_err();
    assert!(matches!(refused, KvError::TooManyEntries { quota: 2 }), "{refused}");
    assert_eq!(lab.store.usage(&scope).unwrap(), usage(6, 2));
    assert_eq!(lab.store.keys(&scope, "").unwrap(), ["a", "b"]);
    // A value in the place of another counts once.
    lab.store.set(&scope, quota, "a", b"12345678").unwrap();
    assert_eq!(lab.store.usage(&scope).unwrap(), usage(10, 2));
}

#[test]
fn after_a_quota_was_lowered_things_may_shrink_and_not_grow() {
    let lab = Lab::new();
    let scope = scope("acme/a", "shop");
    lab.store.set(&scope, ROOM, "a", &[1; 100]).unwrap();
    let lowered = KvQuota { bytes: 10, entries: 1 };
    assert!(matches!(lab.store.set(&scope, lowered, "a", &[1; 101]), Err(KvError::TooManyBytes { .. })));
    assert!(matches!(lab.store.set(&scope, lowered, "b", b""), Err(KvError::TooManyBytes { .. })));
    lab.store.set(&scope, lowered, "a", &[1; 50]).unwrap();
    assert_eq!(lab.store.usage(&scope).unwrap(), usage(51, 1));
}

#[test]
fn a_skill_is_forgotten_in_every_workspace_and_others_are_not() {
    let lab = Lab::new();
    for (skill, workspace) in [("acme/a", "one"), ("acme/a", "two"), ("acme/ab", "one")] {
        lab.store.set(&scope(skill, workspace), ROOM, "key", b"value").unwrap();
    }
    assert_eq!(lab.store.forget(&SkillId::parse("acme/a").unwrap()).unwrap(), 2);
    assert_eq!(lab.store.forget(&SkillId::parse("acme/a").unwrap()).unwrap(), 0);
    assert_eq!(lab.store.usage(&scope("acme/a", "one")).unwrap(), KvUsage::default());
    assert_eq!(lab.store.get(&scope("acme/a", "two"), "key").unwrap(), None);
    assert_eq!(lab.store.get(&scope("acme/ab", "one"), "key").unwrap(), Some(b"value".to_vec()));
    let late = lab.store.set(&scope("acme/a", "one"), ROOM, "key", b"late");
    assert!(matches!(late, Err(KvError::Gone)), "a call that is still ending keeps nothing");
    lab.store.welcome(&SkillId::parse("acme/a").unwrap());
    lab.store.set(&scope("acme/a", "one"), ROOM, "key", b"again").unwrap();
    assert_eq!(lab.store.usage(&scope("acme/a", "one")).unwrap(), usage(8, 1));
}

#[test]
fn callers_at_once_stay_within_their_quotas_and_the_count_stays_right() {
    let lab = Lab::new();
    let quota = KvQuota { bytes: 400, entries: 20 };
    let threads: Vec<_> = (0..8)
        .map(|number: usize| {
            let store = Arc::clone(&lab.store);
            let scope = scope(["acme/a", "acme/b"][number % 2], ["one", "two"][number / 2 % 2]);
            thread::spawn(move || {
                let mut refused = 0;
                for step in 0..60 {
                    let key = format!("k{}", (step * 7 + number) % 30);
                    match store.set(&scope, quota, &key, &vec![0; step % 40]) {
                        Ok(()) => {}
                        Err(KvError::TooManyBytes { .. } | KvError::TooManyEntries { .. }) => refused += 1,
                        Err(error) => panic!("{error}"),
                    }
                    if step % 5 == 0 {
                        store.delete(&scope, &key).unwrap();
                    }
                }
                refused
            })
        })
        .collect();
    let refused: u32 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    assert!(refused > 0, "the quotas were never reached");
    for skill in ["acme/a", "acme/b"] {
        for workspace in ["one", "two"] {
            let scope = scope(skill, workspace);
            let used = lab.store.usage(&scope).unwrap();
            assert_eq!(used, lab.counted(&scope));
            assert!(used.bytes <= quota.bytes && used.entries <= quota.entries, "{used:?}");
        }
    }
}

/// The program that is killed by the test below. Without that test it does nothing.
#[test]
fn a_writer_to_be_killed() {
    let Ok(path) = std::env::var("PALYRA_TEST_KV_VICTIM") else { return };
    let store = KvStore::open(Path::new(&path)).unwrap();
    let scope = scope("acme/a", "shop");
    for step in 0_usize.. {
        store.set(&scope, ROOM, &format!("k{}", step % 50), &vec![1; step % 5000]).unwrap();
        if step % 7 == 0 {
            store.delete(&scope, &format!("k{}", step % 11)).unwrap();
        }
    }
}

#[test]
fn what_is_used_is_counted_right_after_the_program_was_killed() {
    let lab = Lab::new();
    let scope = scope("acme/a", "shop");
    for round in 0..5 {
        let mut victim = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "kv::tests::a_writer_to_be_killed", "--nocapture"])
            .env("PALYRA_TEST_KV_VICTIM", lab.directory.path().join("kv.sqlite"))
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let before = lab.store.usage(&scope).unwrap();
        while lab.store.usage(&scope).unwrap() == before {
            thread::sleep(Duration::from_millis(2));
        }
        thread::sleep(Duration::from_millis(10 + round * 13));
        victim.kill().unwrap();
        victim.wait().unwrap();
        let used = lab.store.usage(&scope).unwrap();
        assert_eq!(used, lab.counted(&scope));
        assert!(used.entries > 0);
    }
    let lab = lab.again();
    assert_eq!(lab.store.usage(&scope).unwrap(), lab.counted(&scope));
    lab.store.set(&scope, ROOM, "after", b"wards").unwrap();
}

#[test]
fn a_file_of_another_purpose_or_time_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("other.sqlite");
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE other (x)").unwrap();
    assert!(matches!(KvStore::open(&path), Err(KvError::Foreign)));
    let text = directory.path().join("text");
    std::fs::write(&text, "x".repeat(5000)).unwrap();
    assert!(matches!(KvStore::open(&text), Err(KvError::Database(_))));
    let later = directory.path().join("later.sqlite");
    drop(KvStore::open(&later).unwrap());
    Connection::open(&later).unwrap().pragma_update(None, "user_version", 2).unwrap();
    assert!(matches!(KvStore::open(&later), Err(KvError::Version(2))));
    let link = directory.path().join("link.sqlite");
    std::os::unix::fs::symlink(&later, &link).unwrap();
    assert!(matches!(KvStore::open(&link), Err(KvError::File { .. })));
}

#[test]
fn the_file_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let lab = Lab::new();
    lab.store.set(&scope("acme/a", "shop"), ROOM, "key", b"value").unwrap();
    for entry in std::fs::read_dir(lab.directory.path()).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", entry.file_name());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn the_count_is_what_is_there(steps in prop::collection::vec(("[abc]", prop::option::of(0_usize..30)), 1..40)) {
        let lab = Lab::new();
        let scope = scope("acme/a", "shop");
        let quota = KvQuota { bytes: 40, entries: 2 };
        for (key, length) in steps {
            match length {
                Some(length) => drop(lab.store.set(&scope, quota, &key, &vec![7; length])),
                None => drop(lab.store.delete(&scope, &key)),
            }
            let used = lab.store.usage(&scope).unwrap();
            prop_assert_eq!(used, lab.counted(&scope));
            prop_assert!(used.bytes <= quota.bytes && used.entries <= quota.entries);
        }
    }
}

#[test]
fn what_skills_keep_that_are_not_there_any_more_is_forgotten() {
    let lab = Lab::new();
    let (kept, gone) = (scope("acme/a", "shop"), scope("acme/b", "shop"));
    for scope in [&kept, &gone] {
        lab.store.set(scope, ROOM, "key", b"value").unwrap();
    }
    lab.store.keep_only(&[SkillId::parse("acme/a").unwrap()].into()).unwrap();
    assert_eq!(lab.store.get(&kept, "key").unwrap(), Some(b"value".to_vec()));
    assert_eq!(lab.store.get(&gone, "key").unwrap(), None);
}

#[test]
fn what_is_forgotten_is_not_in_the_file_any_more() {
    const KEPT: &[u8] = b"what nobody is to find again";
    let lab = Lab::new();
    for number in 0..200 {
        lab.store.set(&scope("acme/a", "shop"), ROOM, &format!("key {number}"), &KEPT.repeat(50)).unwrap();
    }
    lab.store.set(&scope("acme/b", "shop"), ROOM, "key", b"stays").unwrap();
    assert_eq!(lab.store.forget(&SkillId::parse("acme/a").unwrap()).unwrap(), 200);
    for entry in std::fs::read_dir(lab.directory.path()).unwrap() {
        let content = std::fs::read(entry.unwrap().path()).unwrap();
        assert!(content.len() < 100_000, "{}", content.len());
        assert!(!content.windows(KEPT.len()).any(|window| window == KEPT));
    }
    assert_eq!(lab.store.get(&scope("acme/b", "shop"), "key").unwrap(), Some(b"stays".to_vec()));
}
