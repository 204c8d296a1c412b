//! What is remembered: found again, apart from other scopes, within its limits, and gone when it is deleted.

use std::{
    collections::{BTreeSet, HashMap},
    fs,
};

use palyra_types::{Timestamp, clock::ManualClock, entropy::SeededEntropy};
use proptest::prelude::*;

use super::*;

struct Lab {
    directory: tempfile::TempDir,
    clock: Arc<ManualClock>,
    store: MemoryStore,
}

impl Lab {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(Timestamp::from_unix_millis(1_700_000_000_000)));
        let store = MemoryStore::open(directory.path(), clock.clone(), Arc::new(SeededEntropy::new(1))).unwrap();
        Self { directory, clock, store }
    }

    fn keep(&self, scope: &str, text: &str) -> Entry {
        self.clock.advance(1);
        self.store.put(&new(scope, text)).unwrap()
    }

    fn found(&self, scope: &str, words: &str) -> Vec<String> {
        let hits = self.store.search(&[at(scope)], &Query::new(words), 10).unwrap();
        hits.into_iter().map(|hit| hit.entry.text).collect()
    }

    /// Which of these markers stand in any file of the store. The index shares the beginnings of words, so their ends are looked for.
    fn left(&self, markers: &[String]) -> BTreeSet<String> {
        let ends: HashMap<&[u8], &String> = markers.iter().map(|marker| (&marker.as_bytes()[8..], marker)).collect();
        let files = fs::read_dir(self.directory.path()).unwrap().map(|file| fs::read(file.unwrap().path()).unwrap());
        files
            .flat_map(|bytes| bytes.windows(9).filter_map(|end| ends.get(end).copied().cloned()).collect::<Vec<_>>())
            .collect()
    }

    fn check_index(&self) {
        let check = "INSERT INTO found (found, rank) VALUES ('integrity-check', 1)";
        self.store.database.write(|t| Ok::<_, StoreError>(t.execute(check, [])?)).unwrap();
    }
}

fn at(scope: &str) -> MemoryScope {
    MemoryScope::parse(scope).unwrap()
}

fn new(scope: &str, text: &str) -> NewEntry {
    let by = "agent:claude".to_owned();
    NewEntry { scope: at(scope), place: Place::New, title: None, text: text.to_owned(), tags: [].into(), by }
}

#[test]
fn sqlite_is_built_with_full_text_search() {
    let lab = Lab::new();
    let option = "SELECT sqlite_compileoption_used('ENABLE_FTS5')";
    let used: i64 =
        lab.store.database.read(|t| Ok::<_, StoreError>(t.query_row(option, [], |row| row.get(0))?)).unwrap();
    assert_eq!(used, 1);
}

#[test]
fn an_entry_is_there_as_it_was_kept_also_after_a_restart() {
    let lab = Lab::new();
    let mut wanted = new("workspace:shop", "prices are in cents\0");
    wanted.title = Some("Prices ❤️".to_owned());
    wanted.tags = ["money".to_owned(), "shop".to_owned()].into();
    wanted.place = Place::Key("prices".to_owned());
    let kept = lab.store.put(&wanted).unwrap();
    let Lab { directory, clock, store } = lab;
    drop(store);
    let store = MemoryStore::open(directory.path(), clock, Arc::new(SeededEntropy::new(2))).unwrap();
    assert_eq!(store.get(kept.id).unwrap(), Some(kept.clone()));
    assert_eq!(store.get_by_key(&at("workspace:shop"), "prices").unwrap(), Some(kept.clone()));
    assert_eq!(store.get_by_key(&at("global"), "prices").unwrap(), None);
    assert_eq!((kept.key.as_deref(), kept.created), (Some("prices"), Timestamp::from_unix_millis(1_700_000_000_000)));
}

#[test]
fn a_key_is_replaced_in_its_scope_and_an_id_only_in_its_own() {
    let lab = Lab::new();
    let keyed = |scope: &str, text: &str| NewEntry { place: Place::Key("k".to_owned()), ..new(scope, text) };
    let first = lab.store.put(&keyed("global", "apples")).unwrap();
    let other = lab.store.put(&keyed("agent:claude", "pears")).unwrap();
    lab.clock.advance(5);
    let second = lab.store.put(&keyed("global", "plums")).unwrap();
    assert_eq!((second.id, second.created, second.text.as_str()), (first.id, first.created, "plums"));
    assert!(second.updated > first.updated);
    let by_id = NewEntry { place: Place::Id(first.id), ..new("global", "cherries") };
    assert_eq!(lab.store.put(&by_id).unwrap().key.as_deref(), Some("k"));
    assert_eq!((lab.found("global", "cherries").len(), lab.found("global", "plums apples").len()), (1, 0));
    let elsewhere = NewEntry { place: Place::Id(other.id), ..new("global", "stolen") };
    assert!(matches!(lab.store.put(&elsewhere), Err(MemoryError::Unknown(id)) if id == other.id));
    assert_eq!(lab.store.get(other.id).unwrap(), Some(other));
    assert_eq!(lab.store.usage(&at("global")).unwrap(), Usage { entries: 1, bytes: 9 });
    lab.check_index();
}

#[test]
fn a_search_sees_its_scopes_and_ranks_what_fits_best() {
    let lab = Lab::new();
    lab.keep("global", "the deployment runs on fridays and nobody likes that at all, says everybody in the office");
    let mut titled = new("global", "every friday");
    titled.title = Some("Deployment".to_owned());
    lab.store.put(&titled).unwrap();
    lab.keep("agent:other", "deployment secrets of another agent");
    assert_eq!(lab.found("global", "deployments").first().map(String::as_str), Some("every friday"));
    assert_eq!(lab.found("global", "deployments").len(), 2);
    assert_eq!(lab.found("agent:claude", "deployment"), [""; 0]);
    assert_eq!(lab.store.search(&[], &Query::new("deployment"), 10).unwrap(), []);
    let both = [at("global"), at("agent:other")];
    assert_eq!(lab.store.search(&both, &Query::new("deployment"), 10).unwrap().len(), 3);
    assert_eq!(lab.store.search(&both, &Query::new("deployment"), 1).unwrap().len(), 1);
}

#[test]
fn all_words_are_better_than_some_and_no_words_find_the_latest() {
    let lab = Lab::new();
    for text in ["red apples", "green apples", "green pears"] {
        lab.keep("global", text);
    }
    assert_eq!(lab.found("global", "apples green"), ["green apples"]);
    assert_eq!(lab.found("global", "red elephants -- !"), ["red apples"]);
    assert_eq!(lab.found("global", "elephants"), [""; 0]);
    assert_eq!(lab.found("global", "  "), ["green pears", "green apples", "red apples"]);
    assert_eq!(lab.found("global", "GRÉEN péars"), ["green pears"]);
}

#[test]
fn tags_narrow_a_search_with_and_without_words() {
    let lab = Lab::new();
    for (text, tags) in [("one fish", vec!["a", "b"]), ("two fish", vec!["a"]), ("no tags fish", vec![])] {
        let tags = tags.into_iter().map(ToOwned::to_owned).collect();
        lab.store.put(&NewEntry { tags, ..new("global", text) }).unwrap();
    }
    let count = |words: &str, tags: &[&str]| {
        let query = Query::new(words).with_tags(tags.iter().map(|&tag| tag.to_owned()));
        lab.store.search(&[at("global")], &query, 10).unwrap().len()
    };
    assert_eq!(
        [count("fish", &[]), count("fish", &["a"]), count("fish", &["a", "b"]), count("two", &["b"])],
        [3, 2, 1, 0]
    );
    assert_eq!([count("", &["a"]), count("", &["c"]), count("", &["' OR 1"])], [2, 0, 0]);
}

#[test]
fn a_hit_shows_the_text_around_the_words() {
    let lab = Lab::new();
    let text = format!("{} needle {}", "hay ".repeat(300), "straw ".repeat(300));
    lab.keep("global", &text);
    let hit = lab.store.search(&[at("global")], &Query::new("needle"), 1).unwrap().remove(0);
    assert!(hit.snippet.contains("needle") && hit.snippet.len() < 300, "{}", hit.snippet);
    let latest = lab.store.search(&[at("global")], &Query::new(""), 1).unwrap().remove(0);
    assert!(latest.snippet.starts_with("hay hay") && latest.snippet.ends_with('…'));
}

#[test]
fn a_list_goes_through_everything_once() {
    let lab = Lab::new();
    let ids: Vec<EntryId> = (0..7).map(|number| lab.keep("global", &format!("entry {number}")).id).collect();
    lab.keep("user:ada", "not in the list");
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = lab.store.list(&at("global"), after, 3).unwrap();
        seen.extend(page.items.iter().map(|entry| entry.id));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen, ids);
}

#[test]
fn what_breaks_a_limit_is_refused_with_advice() {
    let lab = Lab::new();
    let long = |length: usize| "x".repeat(length);
    let tags = |count: usize| (0..count).map(|number| number.to_string()).collect();
    let refused = [
        new("global", ""),
        new("global", &long(MOST_TEXT_BYTES + 1)),
        NewEntry { title: Some(long(257)), ..new("global", "x") },
        NewEntry { title: Some("a\nb".to_owned()), ..new("global", "x") },
        NewEntry { tags: tags(17), ..new("global", "x") },
        NewEntry { tags: [long(65)].into(), ..new("global", "x") },
        NewEntry { tags: [String::new()].into(), ..new("global", "x") },
        NewEntry { place: Place::Key(String::new()), ..new("global", "x") },
        NewEntry { place: Place::Key("\u{200b}".to_owned()), ..new("global", "x") },
        NewEntry { by: String::new(), ..new("global", "x") },
    ];
    for entry in refused {
        let error = lab.store.put(&entry).unwrap_err();
        assert!(!error.advice().is_empty() && !matches!(error, MemoryError::Store(_)), "{error}");
    }
    assert_eq!(lab.store.usage(&at("global")).unwrap(), Usage::default());
    let most = NewEntry { title: Some(long(256)), tags: tags(16), ..new("global", &long(MOST_TEXT_BYTES)) };
    lab.store.put(&most).unwrap();
}

#[test]
fn a_full_scope_takes_no_more_and_other_scopes_do() {
    let lab = Lab::new();
    lab.keep("global", "one");
    let fill = |entries: u64, bytes: u64| {
        let sql = "UPDATE scope SET entries = ?1, bytes = ?2 WHERE name = 'global'";
        lab.store.database.write(|t| Ok::<_, StoreError>(t.execute(sql, [number(entries), number(bytes)])?)).unwrap();
    };
    fill(MOST_ENTRIES, 3);
    assert!(matches!(lab.store.put(&new("global", "two")), Err(MemoryError::TooManyEntries)));
    fill(1, MOST_SCOPE_BYTES - 2);
    assert!(
        matches!(lab.store.put(&new("global", "two")), Err(MemoryError::TooManyBytes(bytes)) if bytes == MOST_SCOPE_BYTES + 1)
    );
    lab.store.put(&new("global", "ok")).unwrap();
    lab.keep("user:ada", "two");
    assert_eq!(lab.found("global", "two"), [""; 0]);
}

/// So many entries of an author in other scopes, with so many bytes each as they are counted.
fn fill(lab: &Lab, by: &str, entries: u64, bytes: u64) {
    let sql = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?2)
               INSERT INTO entry (id, scope, text, tags, created, updated, by, bytes)
               SELECT ?1 || i, 'session:' || i, 't', '[]', 0, 0, ?1, ?3 FROM n";
    let values = rusqlite::params![by, number(entries), number(bytes)];
    lab.store.database.write(|t| Ok::<_, StoreError>(t.execute(sql, values)?)).unwrap();
}

#[test]
fn an_author_keeps_no_more_however_many_scopes_there_are() {
    let lab = Lab::new();
    let by = |by: &str| NewEntry { by: by.to_owned(), ..new("workspace:shop", "two") };
    fill(&lab, "agent:many", MOST_AUTHOR_ENTRIES, 1);
    let error = lab.store.put(&by("agent:many")).unwrap_err();
    assert!(
        matches!(&error, MemoryError::AuthorFull { author, usage } if author == "agent:many" && usage.entries == MOST_AUTHOR_ENTRIES + 1),
        "{error}"
    );
    assert!(error.to_string().contains("in all scopes together") && error.advice().contains("in any scope"));
    fill(&lab, "agent:long", 1, MOST_AUTHOR_BYTES - 2);
    assert!(matches!(lab.store.put(&by("agent:long")), Err(MemoryError::AuthorFull { .. })));
    lab.store.put(&NewEntry { text: "ok".to_owned(), ..by("agent:long") }).unwrap();
    lab.store.put(&by("agent:claude")).unwrap();
    assert_eq!(lab.store.usage(&at("workspace:shop")).unwrap(), Usage { entries: 2, bytes: 5 });
}

#[test]
fn all_authors_together_keep_no_more_than_there_is_room_for() {
    let lab = Lab::new();
    for number in 0..8 {
        fill(&lab, &format!("agent:{number}-"), 1, MOST_AUTHOR_BYTES);
    }
    let error = lab.store.put(&new("global", "two")).unwrap_err();
    assert!(
        matches!(error, MemoryError::Full(Usage { entries: 9, bytes }) if bytes == MOST_BYTES_IN_ALL + 3),
        "{error}"
    );
    let lab = Lab::new();
    fill(&lab, "agent:x", MOST_ENTRIES_IN_ALL, 0);
    assert!(matches!(lab.store.put(&new("global", "two")), Err(MemoryError::Full(_))));
}

#[test]
fn what_was_kept_before_authors_were_counted_counts() {
    let directory = tempfile::tempdir().unwrap();
    let first = Purpose { migrations: &PURPOSE.migrations[..1], ..PURPOSE };
    let database = Database::open(&directory.path().join("memory.sqlite"), &first).unwrap();
    let sql = "INSERT INTO entry (id, scope, key, title, text, tags, created, updated, by)
               VALUES ('01J9ZC1KQ8Z3V5T6W7X8Y9ZABC', 'global', 'ké', NULL, 'a' || char(0) || 'é', '[\"x\",\"yz\"]', 0, 0, 'agent:old')";
    database.write(|t| Ok::<_, StoreError>(t.execute(sql, [])?)).unwrap();
    drop(database);
    let clock = Arc::new(ManualClock::at(Timestamp::from_unix_millis(1)));
    let store = MemoryStore::open(directory.path(), clock, Arc::new(SeededEntropy::new(1))).unwrap();
    let sql = "SELECT bytes FROM entry WHERE by = 'agent:old'";
    let bytes: i64 = store.database.read(|t| Ok::<_, StoreError>(t.query_row(sql, [], |row| row.get(0))?)).unwrap();
    let kept = store.get_by_key(&at("global"), "ké").unwrap().unwrap();
    assert_eq!((number(kept.bytes()), bytes), (10, 10));
}

#[test]
fn nobody_replaces_what_somebody_else_kept() {
    let lab = Lab::new();
    let keyed = |by: &str, text: &str| NewEntry {
        place: Place::Key("plan".to_owned()),
        by: by.to_owned(),
        ..new("workspace:shop", text)
    };
    let kept = lab.store.put(&keyed("agent:claude", "ship on friday")).unwrap();
    let by_id = NewEntry { place: Place::Id(kept.id), ..keyed("agent:other", "ship never") };
    for theirs in [keyed("agent:other", "ship never"), by_id] {
        let error = lab.store.put(&theirs).unwrap_err();
        assert!(matches!(error, MemoryError::NotOwn(id) if id == kept.id), "{error}");
    }
    assert_eq!(lab.store.get(kept.id).unwrap(), Some(kept.clone()));
    lab.store.put(&keyed("agent:claude", "ship on monday")).unwrap();
    assert!(lab.store.delete(kept.id).unwrap());
    lab.store.put(&keyed("agent:other", "ship never")).unwrap();
}

/// A clock on which a minute goes by whenever somebody looks.
struct Racing(std::sync::atomic::AtomicU64);

impl Clock for Racing {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix_millis(0)
    }

    fn boot(&self) -> palyra_types::clock::BootTime {
        let millis = self.0.fetch_add(60_000, std::sync::atomic::Ordering::SeqCst);
        palyra_types::clock::BootTime { boot: 1, millis }
    }
}

#[test]
fn a_search_that_takes_too_long_is_given_up_and_nothing_else_is() {
    let lab = Lab::new();
    for number in 0..500 {
        lab.keep("global", &format!("apples and pears {number}"));
    }
    let Lab { directory, store, .. } = lab;
    drop(store);
    let clock = Arc::new(Racing(0.into()));
    let store = MemoryStore::open(directory.path(), clock, Arc::new(SeededEntropy::new(2))).unwrap();
    for query in ["apples", ""] {
        let error = store.search(&[at("global")], &Query::new(query), 10).unwrap_err();
        assert!(matches!(error, MemoryError::TooSlow) && !error.advice().is_empty(), "{error}");
    }
    assert_eq!(store.list(&at("global"), None, 500).unwrap().items.len(), 500);
}

#[test]
fn a_purge_forgets_one_scope_and_says_how_much() {
    let lab = Lab::new();
    for text in ["red", "green"] {
        lab.keep("global", text);
    }
    lab.keep("user:ada", "red too");
    assert_eq!(lab.store.purge(&at("global")).unwrap(), 2);
    assert_eq!(lab.store.purge(&at("global")).unwrap(), 0);
    assert_eq!((lab.found("global", "red").len(), lab.found("user:ada", "red").len()), (0, 1));
    assert_eq!(lab.store.usage(&at("global")).unwrap(), Usage::default());
    lab.check_index();
}

/// A word of 17 characters that is like no other, and that no language shortens.
fn marker(number: usize) -> String {
    format!("{:016x}q", number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

#[test]
fn what_is_purged_is_in_none_of_the_files() {
    let lab = Lab::new();
    let words: Vec<String> = (0..3000).map(marker).collect();
    for (number, some) in words.chunks(10).enumerate() {
        lab.keep(if number % 2 == 0 { "global" } else { "user:ada" }, &some.join(" "));
    }
    let gone: Vec<String> = words.chunks(10).step_by(2).flatten().cloned().collect();
    let kept: Vec<String> = words.chunks(10).skip(1).step_by(2).flatten().cloned().collect();
    assert_eq!(lab.left(&gone).len(), gone.len());
    assert_eq!(lab.store.purge(&at("global")).unwrap(), 150);
    assert_eq!(lab.left(&gone), BTreeSet::new());
    assert_eq!(lab.left(&kept).len(), kept.len());
    assert_eq!(lab.found("user:ada", &kept[0]).len(), 1);
    lab.check_index();
}

#[test]
fn what_is_deleted_or_replaced_is_in_none_of_the_files() {
    let lab = Lab::new();
    let words: Vec<String> = (0..2000).map(marker).collect();
    let entries: Vec<Entry> = words.chunks(20).map(|some| lab.keep("global", &some.join(" "))).collect();
    lab.store.database.give_back().unwrap();
    for entry in entries.iter().step_by(2) {
        assert!(lab.store.delete(entry.id).unwrap());
        assert!(!lab.store.delete(entry.id).unwrap());
    }
    let gone: Vec<String> = words.chunks(20).step_by(2).flatten().cloned().collect();
    assert_eq!(lab.left(&gone), BTreeSet::new());
    let replaced = &entries[1];
    lab.store.put(&NewEntry { place: Place::Id(replaced.id), ..new("global", "nothing much") }).unwrap();
    lab.store.database.give_back().unwrap();
    let old: Vec<String> = replaced.text.split(' ').map(ToOwned::to_owned).collect();
    assert_eq!(lab.left(&old), BTreeSet::new());
    lab.check_index();
}

#[test]
fn no_page_of_the_index_is_told_from_others_by_a_word_that_was_deleted() {
    let lab = Lab::new();
    let words: Vec<String> = (0..3000).map(|number| format!("žluťoučký{}", marker(number))).collect();
    let entries: Vec<Entry> = words.chunks(100).map(|some| lab.keep("global", &some.join(" "))).collect();
    let left_over = |kept: &[String]| {
        // The index folds what it holds.
        let kept: Vec<String> = kept.iter().map(|word| word.replace("žluťoučký", "zlutoucky")).collect();
        let is_kept = |end: &Vec<u8>| kept.iter().any(|word| word.as_bytes().starts_with(end));
        let ends = lab.store.database.write(scrub::page_ends).unwrap();
        (ends.len(), ends.into_iter().filter(|end| !is_kept(end)).collect::<Vec<_>>())
    };
    assert!(left_over(&words).0 > 5 && left_over(&words[2000..]).1.len() > 5, "the index has pages of what is to go");
    for entry in entries.iter().take(20) {
        assert!(lab.store.delete(entry.id).unwrap());
    }
    assert_eq!(left_over(&words[2000..]).1, [b""; 0]);
    lab.check_index();
}

#[test]
fn many_write_and_read_at_once() {
    let lab = Lab::new();
    std::thread::scope(|threads| {
        for thread in 0..4 {
            let store = &lab.store;
            threads.spawn(move || {
                for number in 0..10 {
                    store.put(&new("global", &format!("note {thread} {number}"))).unwrap();
                    store.search(&[at("global")], &Query::new("note"), 5).unwrap();
                }
            });
        }
    });
    assert_eq!(lab.store.usage(&at("global")).unwrap().entries, 40);
    const fn shared<T: Send + Sync>() {}
    shared::<MemoryStore>();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_text_can_be_kept_and_any_text_is_a_query(
        text in ".{1,60}",
        words in prop::collection::vec(prop_oneof![
            any::<String>(),
            Just("\"".to_owned()), Just("NEAR(".to_owned()), Just("a OR".to_owned()), Just("text:".to_owned()),
            Just("^*".to_owned()), Just("-".to_owned()), Just("\0\"".to_owned()), Just("{".to_owned()),
        ], 0..6),
    ) {
        let lab = Lab::new();
        let kept = lab.keep("global", &text);
        let query = words.join(" ");
        let hits = lab.store.search(&[at("global")], &Query::new(&query).with_tags(words), 5);
        prop_assert!(hits.is_ok(), "{query:?}: {hits:?}");
        let own = lab.store.search(&[at("global")], &Query::new(&text), 5).unwrap();
        if text.chars().any(|c| c.is_ascii_alphanumeric()) {
            prop_assert_eq!(own.into_iter().map(|hit| hit.entry).collect::<Vec<_>>(), vec![kept.clone()]);
        }
        lab.check_index();
        prop_assert!(lab.store.delete(kept.id).unwrap());
        lab.check_index();
    }
}

#[test]
fn the_scopes_that_hold_something_are_told_with_how_much() {
    let lab = Lab::new();
    let first = lab.keep("workspace:shop", "12345");
    lab.keep("agent:claude", "123");
    lab.keep("agent:claude", "4567");
    let usage = |entries, bytes| Usage { entries, bytes };
    let told = vec![(at("agent:claude"), usage(2, 7)), (at("workspace:shop"), usage(1, 5))];
    assert_eq!(lab.store.scopes().unwrap(), told);
    lab.store.delete(first.id).unwrap();
    lab.store.purge(&at("agent:claude")).unwrap();
    assert_eq!(lab.store.scopes().unwrap(), []);
}
