//! What is granted of what was asked for, and what people are told.

use std::collections::{BTreeMap, BTreeSet};

use palyra_types::SecretRef;
use proptest::prelude::*;

use super::*;
use crate::capability::{CapabilityError, Destination};

fn asked() -> Capabilities {
    Capabilities {
        log: true,
        clock: true,
        random: false,
        kv: Some(KvQuota { bytes: 100, entries: 10 }),
        http: hosts(&["a.example.org:443", "b.example.org:443"]),
        secrets: BTreeMap::from([("token".to_owned(), "The key of the API".to_owned())]),
        files: BTreeMap::from([("notes".to_owned(), FileAccess::Write), ("docs".to_owned(), FileAccess::Read)]),
        inert: BTreeSet::from(["wasi:filesystem".to_owned()]),
    }
}

fn hosts(list: &[&str]) -> BTreeSet<Destination> {
    list.iter().map(|host| Destination::parse(host).unwrap()).collect()
}

fn granted() -> Grants {
    Grants {
        secrets: BTreeMap::from([("token".to_owned(), SecretRef::parse("global/api").unwrap())]),
        files: BTreeMap::from([
            ("notes".to_owned(), FileGrant { path: "my notes/2026".to_owned(), access: FileAccess::Write }),
            ("docs".to_owned(), FileGrant { path: ".".to_owned(), access: FileAccess::Read }),
        ]),
        ..Grants::all_of(&asked()).grants
    }
}

#[test]
fn everything_is_offered_but_what_has_to_be_chosen() {
    let Offer { grants, unchosen } = Grants::all_of(&asked());
    assert_eq!(
        grants,
        Grants {
            log: true,
            clock: true,
            random: false,
            kv: asked().kv,
            http: asked().http,
            secrets: BTreeMap::new(),
            files: BTreeMap::new()
        }
    );
    assert_eq!(
        unchosen,
        [
            Unchosen::Secret { name: "token".to_owned(), purpose: "The key of the API".to_owned() },
            Unchosen::Directory { name: "docs".to_owned(), access: FileAccess::Read },
            Unchosen::Directory { name: "notes".to_owned(), access: FileAccess::Write },
        ]
    );
    assert_eq!(Grants::all_of(&Capabilities::default()), Offer { grants: Grants::default(), unchosen: Vec::new() });
}

#[test]
fn what_was_not_asked_for_cannot_be_granted() {
    assert_eq!(granted().check_within(&asked()), Ok(()));
    assert_eq!(Grants::default().check_within(&Capabilities::default()), Ok(()));
    let refused = |change: &dyn Fn(&mut Grants)| {
        let mut grants = granted();
        change(&mut grants);
        grants.check_within(&asked()).unwrap_err()
    };
    let not_asked = |what: &str| GrantError::NotAsked(what.to_owned());
    assert_eq!(refused(&|grants| grants.random = true), not_asked("random"));
    let more = |bytes, entries| refused(&|grants| grants.kv = Some(KvQuota { bytes, entries }));
    assert_eq!(more(101, 10), GrantError::MoreRoom { bytes: 100, entries: 10 });
    assert_eq!(more(100, 11), GrantError::MoreRoom { bytes: 100, entries: 10 });
    assert_eq!(
        refused(&|grants| grants.http.extend(hosts(&["a.example.org:80"]))),
        not_asked("http to a.example.org:80")
    );
    let secret = || SecretRef::parse("global/other").unwrap();
    assert_eq!(refused(&|grants| drop(grants.secrets.insert("x".to_owned(), secret()))), not_asked("secret x"));
    let directory = |name: &str, path: &str, access| {
        refused(&|grants| drop(grants.files.insert(name.to_owned(), FileGrant { path: path.to_owned(), access })))
    };
    assert_eq!(directory("home", ".", FileAccess::Read), not_asked("directory home"));
    assert_eq!(directory("docs", ".", FileAccess::Write), GrantError::MoreAccess { name: "docs".to_owned() });
    for path in ["", "/etc", "..", "a/../..", "./a", "a/", "a//b", "a\\b", "a\0b", "a\u{202e}b", "a\nb"] {
        assert_eq!(directory("docs", path, FileAccess::Read), GrantError::Path(path.to_owned()));
    }
    let only_log = Capabilities { log: true, ..Capabilities::default() };
    assert_eq!(granted().check_within(&only_log), Err(not_asked("clock")));
}

#[test]
fn an_update_keeps_what_it_still_asks_for_and_gets_nothing_new() {
    let update = Capabilities {
        clock: false,
        random: true,
        kv: Some(KvQuota { bytes: 1000, entries: 5 }),
        http: hosts(&["b.example.org:443", "c.example.org:443"]),
        secrets: BTreeMap::from([("other".to_owned(), "Another".to_owned())]),
        files: BTreeMap::from([("notes".to_owned(), FileAccess::Read), ("docs".to_owned(), FileAccess::Write)]),
        ..asked()
    };
    assert_eq!(
        granted().kept_for(&update),
        Grants {
            log: true,
            clock: false,
            random: false,
            kv: Some(KvQuota { bytes: 100, entries: 5 }),
            http: hosts(&["b.example.org:443"]),
            secrets: BTreeMap::new(),
            files: BTreeMap::from([
                ("notes".to_owned(), FileGrant { path: "my notes/2026".to_owned(), access: FileAccess::Read }),
                ("docs".to_owned(), FileGrant { path: ".".to_owned(), access: FileAccess::Read }),
            ]),
        }
    );
    assert_eq!(granted().kept_for(&asked()), granted());
    assert_eq!(granted().kept_for(&Capabilities::default()), Grants::default());
}

#[test]
fn people_are_told_in_sentences() {
    assert_eq!(
        asked().words(),
        [
            "writes into the log of its calls",
            "knows the time",
            "keeps up to 100 bytes in 10 entries for later, in each workspace",
            "fetches from a.example.org:443",
            "fetches from b.example.org:443",
            "uses a secret as `token`: The key of the API",
            "reads files in a directory of the workspace as `docs`",
            "reads and writes files in a directory of the workspace as `notes`",
            "imports wasi:filesystem, which leads nowhere",
        ]
    );
    assert_eq!(
        granted().words(),
        [
            "writes into the log of its calls",
            "knows the time",
            "keeps up to 100 bytes in 10 entries for later, in each workspace",
            "fetches from a.example.org:443",
            "fetches from b.example.org:443",
            "uses the secret global/api as `token`",
            "reads files in the workspace as `docs`",
            "reads and writes files in `my notes/2026` as `notes`",
        ]
    );
}

#[test]
fn a_difference_names_what_is_new_and_what_is_gone() {
    let old = asked();
    let new = Capabilities {
        log: false,
        random: true,
        kv: Some(KvQuota { bytes: 50, entries: 20 }),
        http: hosts(&["a.example.org:443", "evil.example.net:443"]),
        secrets: BTreeMap::from([("token".to_owned(), "To sign for you".to_owned())]),
        files: BTreeMap::from([("notes".to_owned(), FileAccess::Read), ("docs".to_owned(), FileAccess::Write)]),
        ..asked()
    };
    let CapabilityDiff { added, removed } = CapabilityDiff::between(&old, &new);
    assert_eq!(
        added,
        [
            "has randomness",
            "keeps up to 50 bytes in 20 entries for later, in each workspace",
            "fetches from evil.example.net:443",
            "uses a secret as `token`: To sign for you",
            "reads and writes files in a directory of the workspace as `docs`",
        ]
    );
    assert_eq!(
        removed,
        [
            "writes into the log of its calls",
            "keeps up to 100 bytes in 10 entries for later, in each workspace",
            "fetches from b.example.org:443",
            "uses a secret as `token`: The key of the API",
            "reads and writes files in a directory of the workspace as `notes`",
        ]
    );
    assert!(CapabilityDiff::between(&old, &old).is_empty());
    let less = Capabilities { kv: Some(KvQuota { bytes: 1, entries: 1 }), ..asked() };
    assert_eq!(CapabilityDiff::between(&old, &less).added, Vec::<String>::new(), "less room is nothing new");
}

#[test]
fn what_cannot_be_asked_for_is_refused() {
    assert_eq!(asked().check(), Ok(()));
    let refused = |change: &dyn Fn(&mut Capabilities)| {
        let mut asked = asked();
        change(&mut asked);
        asked.check().unwrap_err()
    };
    for quota in [KvQuota { bytes: 0, entries: 1 }, KvQuota { bytes: 1, entries: 0 }] {
        assert_eq!(refused(&|asked| asked.kv = Some(quota)), CapabilityError::EmptyQuota);
    }
    for name in ["", "1st", "-x", "a b", "a/b", "a.b", "ä", &"a".repeat(65)] {
        let slot = CapabilityError::Slot(name.to_owned());
        assert_eq!(refused(&|asked| asked.files.extend([(name.to_owned(), FileAccess::Read)])), slot);
        assert_eq!(refused(&|asked| drop(asked.secrets.insert(name.to_owned(), "why".to_owned()))), slot);
    }
    for purpose in ["", "  ", "a\u{202e}b", "two\nlines"] {
        let refused = refused(&|asked| drop(asked.secrets.insert("token".to_owned(), purpose.to_owned())));
        assert_eq!(refused, CapabilityError::Purpose("token".to_owned()));
    }
    for package in ["wasi:cli", "wasi:filesystem/types", ""] {
        let refused = refused(&|asked| asked.inert.extend([package.to_owned()]));
        assert_eq!(refused, CapabilityError::Inert(package.to_owned()));
    }
}

fn any_asked() -> impl Strategy<Value = Capabilities> {
    let quota = prop::option::of((1_u64..5, 1_u64..5).prop_map(|(bytes, entries)| KvQuota { bytes, entries }));
    let http = prop::sample::subsequence(vec!["a.example.org:443", "b.example.org:443", "c.example.org:80"], 0..=3);
    let access = prop::sample::select(FileAccess::ALL);
    let files = prop::collection::btree_map(prop::sample::select(vec!["x".to_owned(), "y".to_owned()]), access, 0..=2);
    let secrets = prop::collection::btree_map(
        prop::sample::select(vec!["s".to_owned(), "t".to_owned()]),
        prop::sample::select(vec!["one".to_owned(), "two".to_owned()]),
        0..=2,
    );
    (any::<[bool; 3]>(), quota, http, files, secrets).prop_map(|([log, clock, random], kv, http, files, secrets)| {
        Capabilities { log, clock, random, kv, http: hosts(&http), secrets, files, inert: BTreeSet::new() }
    })
}

proptest! {
    #[test]
    fn what_is_kept_was_granted_and_is_asked_for(old in any_asked(), new in any_asked()) {
        let choose = |asked: &Capabilities| Grants {
            secrets: asked.secrets.keys().map(|name| (name.clone(), SecretRef::parse("global/s").unwrap())).collect(),
            files: asked
                .files
                .iter()
                .map(|(name, &access)| (name.clone(), FileGrant { path: "d".to_owned(), access }))
                .collect(),
            ..Grants::all_of(asked).grants
        };
        let kept = choose(&old).kept_for(&new);
        prop_assert_eq!(kept.check_within(&new), Ok(()));
        prop_assert_eq!(kept.check_within(&old), Ok(()));
        prop_assert_eq!(choose(&old).kept_for(&old), choose(&old));
    }

    #[test]
    fn nothing_is_added_exactly_when_all_of_the_new_was_asked_for_before(old in any_asked(), new in any_asked()) {
        let diff = CapabilityDiff::between(&old, &new);
        prop_assert_eq!(diff.is_empty(), old == new);
        let same_purposes = new.secrets.iter().all(|(name, purpose)| old.secrets.get(name) == Some(purpose));
        let fits = Grants {
            files: new.files.iter().map(|(name, &access)| (name.clone(), FileGrant { path: "d".to_owned(), access })).collect(),
            ..Grants::all_of(&new).grants
        }
        .check_within(&old)
        .is_ok();
        prop_assert_eq!(diff.added.is_empty(), fits && same_purposes);
    }
}
