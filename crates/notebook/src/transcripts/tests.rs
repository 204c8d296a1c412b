//! What was said: in order, bounded, and continued by its owner alone.

use palyra_types::{ObjectId, clock::ManualClock};
use serde_json::{Value, json};

use super::*;

const DAY: u32 = 24 * 60 * 60 * 1000;

struct Lab {
    directory: tempfile::TempDir,
    clock: Arc<ManualClock>,
    store: TranscriptStore,
}

impl Lab {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(Timestamp::from_unix_millis(1_700_000_000_000)));
        let store = TranscriptStore::open(directory.path(), clock.clone()).unwrap();
        Self { directory, clock, store }
    }

    fn say(&self, session: u128, run: u128, text: &str) -> Message {
        self.clock.advance(1);
        self.store.append(&of(session, run), &said(json!(text))).unwrap()
    }

    fn respond(&self, id: &str, conversation: &Value) -> Result<Response, TranscriptError> {
        self.respond_to("agent:claude", id, conversation)
    }

    fn respond_to(&self, principal: &str, id: &str, conversation: &Value) -> Result<Response, TranscriptError> {
        let id = ObjectId::parse(id).unwrap();
        self.store.put_response(&NewResponse { id: &id, session: session_id(1), principal, conversation })
    }

    fn response(&self, id: &str) -> Option<Response> {
        self.store.response(&ObjectId::parse(id).unwrap()).unwrap()
    }
}

fn session_id(number: u128) -> SessionId {
    SessionId::from_parts(Timestamp::from_unix_millis(1), number)
}

fn run_id(number: u128) -> RunId {
    RunId::from_parts(Timestamp::from_unix_millis(2), number)
}

fn of(session: u128, run: u128) -> RunOf {
    let (principal, model) = ("agent:claude".to_owned(), "palyra/coder".to_owned());
    RunOf { session: session_id(session), run: run_id(run), principal, model }
}

fn said(content: Value) -> NewMessage {
    NewMessage { role: Role::User, name: None, call_id: None, content }
}

#[test]
fn messages_are_numbered_in_order_and_survive_a_restart() {
    let lab = Lab::new();
    let answer = NewMessage {
        role: Role::Tool,
        name: Some("fs.read".to_owned()),
        call_id: Some("call_1".to_owned()),
        content: json!([{ "type": "text", "text": "ok\u{0}" }]),
    };
    let first = lab.say(1, 1, "read it");
    let second = lab.store.append(&of(1, 1), &answer).unwrap();
    lab.say(1, 2, "another run");
    assert_eq!((first.seq, second.seq, second.cut), (0, 1, false));
    let Lab { directory, clock, store } = lab;
    drop(store);
    let store = TranscriptStore::open(directory.path(), clock).unwrap();
    assert_eq!(store.list(run_id(1), None, 10).unwrap(), Page { items: vec![first, second], next: None });
    assert_eq!(store.list(run_id(9), None, 10).unwrap(), Page { items: vec![], next: None });
}

#[test]
fn a_run_belongs_to_one_session() {
    let lab = Lab::new();
    lab.say(1, 1, "mine");
    let refused = lab.store.append(&of(2, 1), &said(json!("theirs"))).unwrap_err();
    assert!(matches!(refused, TranscriptError::OtherSession(run) if run == run_id(1)));
    assert_eq!(lab.store.run(run_id(1)).unwrap().unwrap().messages, 1);
}

#[test]
fn messages_are_appended_together_and_one_that_is_refused_holds_up_no_other() {
    let lab = Lab::new();
    lab.say(1, 1, "mine");
    let line = |session, run, text: &str| Line { of: of(session, run), new: said(json!(text)) };
    let foreign = Line { of: RunOf { principal: "agent:eve".to_owned(), ..of(1, 1) }, new: said(json!("not hers")) };
    let refused = lab.store.append_all(&[line(1, 1, "a"), line(2, 1, "b"), foreign, line(1, 2, "c")]).unwrap();
    let refused: Vec<(usize, String)> = refused.into_iter().map(|(index, why)| (index, why.to_string())).collect();
    let why = format!("run {} belongs to another session or principal", run_id(1));
    assert_eq!(refused, [(1, why.clone()), (2, why)]);
    let texts = |run| lab.store.list(run_id(run), None, 9).unwrap().items.into_iter().map(|one| one.content).collect();
    let (first, second): (Vec<Value>, Vec<Value>) = (texts(1), texts(2));
    assert_eq!((first, second), (vec![json!("mine"), json!("a")], vec![json!("c")]));
}

#[test]
fn sessions_are_listed_newest_first_by_whose_they_are() {
    let lab = Lab::new();
    for (session, run) in [(1, 1), (1, 2), (3, 3)] {
        lab.say(session, run, "hello");
    }
    let eve = RunOf { principal: "agent:eve".to_owned(), ..of(2, 4) };
    lab.store.append(&eve, &said(json!("hers"))).unwrap();
    let listed = |whose, before, limit| {
        let page = lab.store.sessions(whose, before, limit).unwrap();
        (page.items.iter().map(|one| (one.session, one.runs)).collect::<Vec<_>>(), page.next)
    };
    let (one, two, three) = ((session_id(1), 2), (session_id(2), 1), (session_id(3), 1));
    assert_eq!(listed(None, None, 9), (vec![three, two, one], None));
    assert_eq!(listed(Some("agent:claude"), None, 1), (vec![three], Some(session_id(3))));
    assert_eq!(listed(Some("agent:claude"), Some(session_id(3)), 1), (vec![one], None));
    assert_eq!(listed(Some("agent:nobody"), None, 9), (vec![], None));
    let found = lab.store.session(session_id(2)).unwrap().unwrap();
    assert_eq!((found.principal.as_str(), found.messages), ("agent:eve", 1));
    assert_eq!(lab.store.session(session_id(9)).unwrap(), None);
}

#[test]
fn beyond_what_is_kept_the_runs_go_in_which_nothing_was_said_for_longest() {
    let lab = Lab::new();
    for run in [1, 2, 3] {
        lab.say(1, run, "about as long as the others");
    }
    lab.say(1, 1, "goes on");
    let bytes = |run| lab.store.run(run_id(run)).unwrap().map(|run| run.bytes);
    let both = bytes(1).unwrap() + bytes(3).unwrap();
    assert_eq!(lab.store.forget_beyond(both).unwrap(), 1);
    assert!(bytes(1).is_some() && bytes(2).is_none() && bytes(3).is_some());
    assert_eq!(lab.store.forget_beyond(both).unwrap(), 0);
}

/// One whose agent says more and more must not have anybody else's transcripts forgotten by that.
#[test]
fn a_flood_by_one_principal_takes_from_nobody_but_them() {
    let lab = Lab::new();
    let say = |principal: &str, session, run| {
        lab.clock.advance(1);
        let of = RunOf { principal: principal.to_owned(), ..of(session, run) };
        lab.store.append(&of, &said(json!("about as long as the others"))).unwrap();
    };
    say("agent:quiet", 1, 1);
    say("agent:calm", 2, 2);
    say("agent:calm", 2, 3);
    for run in 10..30 {
        say("agent:loud", 3, run);
    }
    let bytes = lab.store.run(run_id(1)).unwrap().unwrap().bytes;
    let due = lab.store.due_beyond(8 * bytes).unwrap();
    assert_eq!(due, [DueRuns { session: session_id(3), principal: "agent:loud".to_owned(), runs: 15 }]);
    assert_eq!(lab.store.forget_beyond(8 * bytes).unwrap(), 15);
    let runs = |session| {
        let page = lab.store.runs(session_id(session), None, 99).unwrap();
        page.items.into_iter().map(|run| run.run).collect::<Vec<_>>()
    };
    let last = [25, 26, 27, 28, 29].map(run_id);
    assert_eq!((runs(1), runs(2), runs(3)), (vec![run_id(1)], [2, 3].map(run_id).into(), last.into()));
    assert_eq!((lab.store.due_beyond(8 * bytes).unwrap(), lab.store.forget_beyond(8 * bytes).unwrap()), (vec![], 0));
    // Where there is less than one share for each, each keeps theirs.
    assert_eq!(lab.store.forget_beyond(3 * bytes).unwrap(), 5);
    assert_eq!((runs(1).len(), runs(2), runs(3)), (1, vec![run_id(3)], vec![run_id(29)]));
}

#[test]
fn what_would_be_forgotten_is_known_before() {
    let lab = Lab::new();
    for (session, run) in [(1, 1), (1, 2), (2, 3)] {
        lab.say(session, run, "old");
    }
    let since = Timestamp::from_unix_millis(lab.clock.now().unix_millis() + 1);
    lab.say(2, 3, "goes on");
    let due = lab.store.due_before(since).unwrap();
    assert_eq!(due, [DueRuns { session: session_id(1), principal: "agent:claude".to_owned(), runs: 2 }]);
    assert_eq!(lab.store.forget_before(since).unwrap(), 2);
}

#[test]
fn whoever_keeps_responses_without_end_loses_their_own() {
    let lab = Lab::new();
    lab.respond_to("agent:quiet", "quiet", &json!("0123456789")).unwrap();
    for number in 0..5 {
        lab.respond_to("agent:loud", &format!("loud_{number}"), &json!("0123456789")).unwrap();
    }
    lab.respond_to("agent:last", "last", &json!("0".repeat(100))).unwrap();
    let drop = |most, bytes| lab.store.database.write(|t| responses::drop_oldest(t, most, bytes)).unwrap();
    let there = || {
        let all = ["quiet", "loud_0", "loud_1", "loud_2", "loud_3", "loud_4", "last"];
        all.into_iter().filter(|id| lab.response(id).is_some()).collect::<Vec<_>>()
    };
    drop(5, 10_000);
    assert_eq!(there(), ["quiet", "loud_2", "loud_3", "loud_4", "last"]);
    drop(5, 126);
    assert_eq!(there(), ["quiet", "loud_4", "last"]);
    drop(1, 10_000);
    assert_eq!(there(), ["last"]);
}

#[test]
fn pages_go_through_a_run_once_and_end_early_where_messages_are_long() {
    let lab = Lab::new();
    for number in 0..5 {
        lab.say(1, 1, &number.to_string());
    }
    let first = lab.store.list(run_id(1), None, 3).unwrap();
    let second = lab.store.list(run_id(1), first.next, 3).unwrap();
    let seqs: Vec<u64> = first.items.iter().chain(&second.items).map(|message| message.seq).collect();
    assert_eq!((seqs, second.next), (vec![0, 1, 2, 3, 4], None));
    let long = "x".repeat(MOST_MESSAGE_BYTES - 2);
    for _ in 0..9 {
        lab.say(1, 2, &long);
    }
    let page = lab.store.list(run_id(2), None, 100).unwrap();
    assert_eq!((page.items.len(), page.next), (8, Some(7)));
    assert_eq!(lab.store.list(run_id(2), page.next, 100).unwrap().items.len(), 1);
}

#[test]
fn a_long_message_is_cut_and_marked_and_a_full_run_takes_no_more() {
    let lab = Lab::new();
    let long = lab.say(1, 1, &"y".repeat(2 * MOST_MESSAGE_BYTES));
    assert!(long.cut && long.content.as_str().unwrap().ends_with("bytes left out]"));
    assert_eq!(lab.store.list(run_id(1), None, 1).unwrap().items, [long]);
    let sql = "UPDATE run SET bytes = ?1";
    let fill =
        |bytes: u64| lab.store.database.write(|t| Ok::<_, StoreError>(t.execute(sql, [number(bytes)])?)).unwrap();
    fill(MOST_RUN_BYTES - 5000);
    let last = lab.say(1, 1, &"z".repeat(10_000));
    assert!(last.cut && last.content.as_str().unwrap().starts_with("zzzz"));
    assert!(lab.store.run(run_id(1)).unwrap().unwrap().bytes <= MOST_RUN_BYTES);
    fill(MOST_RUN_BYTES - 500);
    let full = lab.store.append(&of(1, 1), &said(json!("more"))).unwrap_err();
    assert!(matches!(full, TranscriptError::Full(_)) && full.advice() == "start a new run");
    lab.say(1, 2, "another run has room");
}

#[test]
fn names_and_ids_of_calls_are_short_and_visible() {
    let lab = Lab::new();
    for bad in ["", "a\nb", &"x".repeat(257)] {
        for message in [
            NewMessage { name: Some(bad.to_owned()), ..said(json!(1)) },
            NewMessage { call_id: Some(bad.to_owned()), ..said(json!(1)) },
        ] {
            let refused = lab.store.append(&of(1, 1), &message);
            assert!(matches!(refused, Err(TranscriptError::Label(_))), "{bad}");
        }
    }
}

#[test]
fn the_runs_of_a_session_are_listed_with_what_they_hold() {
    let lab = Lab::new();
    for run in [1, 2, 3] {
        lab.say(1, run, "one");
    }
    lab.say(1, 2, "two");
    lab.say(2, 4, "of another session");
    let first = lab.store.runs(session_id(1), None, 2).unwrap();
    let second = lab.store.runs(session_id(1), first.next, 2).unwrap();
    let runs: Vec<(RunId, u64)> = first.items.iter().chain(&second.items).map(|run| (run.run, run.messages)).collect();
    assert_eq!(runs, [(run_id(1), 1), (run_id(2), 2), (run_id(3), 1)]);
    assert_eq!(second.next, None);
}

#[test]
fn a_session_is_forgotten_whole_and_leaves_the_files() {
    let lab = Lab::new();
    lab.say(1, 1, "purple-elephant-marker");
    lab.say(2, 2, "stays");
    lab.respond("resp_1", &json!(["purple-elephant-marker"])).unwrap();
    assert_eq!(lab.store.forget_session(session_id(1)).unwrap(), 1);
    assert_eq!(lab.store.forget_session(session_id(1)).unwrap(), 0);
    assert_eq!((lab.store.list(run_id(1), None, 9).unwrap().items.len(), lab.response("resp_1")), (0, None));
    assert_eq!(lab.store.list(run_id(2), None, 9).unwrap().items.len(), 1);
    for file in std::fs::read_dir(lab.directory.path()).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        assert!(!bytes.windows(22).any(|window| window == b"purple-elephant-marker"));
    }
}

#[test]
fn old_runs_are_forgotten_and_those_that_go_on_are_not() {
    let lab = Lab::new();
    lab.say(1, 1, "old");
    lab.say(1, 2, "old, but goes on");
    lab.respond("resp_old", &json!(["old"])).unwrap();
    lab.clock.advance(DAY);
    let since = lab.clock.now();
    lab.respond("resp_new", &json!(["new"])).unwrap();
    lab.say(1, 2, "new");
    assert_eq!(lab.store.forget_before(since).unwrap(), 1);
    assert!(lab.response("resp_old").is_none() && lab.response("resp_new").is_some());
    assert_eq!(lab.store.list(run_id(2), None, 9).unwrap().items.len(), 2);
}

#[test]
fn a_response_is_there_for_thirty_days() {
    let lab = Lab::new();
    let kept = lab.respond("resp_1", &json!([{ "role": "user", "content": "hi" }])).unwrap();
    assert_eq!((kept.principal.as_str(), kept.session), ("agent:claude", session_id(1)));
    for _ in 0..29 {
        lab.clock.advance(DAY);
    }
    assert_eq!(lab.response("resp_1"), Some(kept));
    lab.clock.advance(DAY);
    assert_eq!((lab.response("resp_1"), lab.response("resp_2")), (None, None));
    lab.respond("resp_1", &json!([])).unwrap();
}

#[test]
fn a_response_is_not_replaced_by_another_of_its_id() {
    let lab = Lab::new();
    let kept = lab.respond("resp_1", &json!(["mine"])).unwrap();
    let taken = lab.respond("resp_1", &json!(["theirs"])).unwrap_err();
    assert_eq!(taken.to_string(), "there is a response resp_1 already");
    assert_eq!(lab.response("resp_1"), Some(kept.clone()));
    assert!(lab.store.delete_response(&kept.id).unwrap());
    assert!(!lab.store.delete_response(&kept.id).unwrap());
}

#[test]
fn the_oldest_responses_make_room_and_one_that_is_too_long_is_refused() {
    let lab = Lab::new();
    for number in 0..5 {
        lab.respond(&format!("resp_{number}"), &json!("0123456789")).unwrap();
    }
    let drop = |most, bytes| lab.store.database.write(|t| responses::drop_oldest(t, most, bytes)).unwrap();
    let there = || (0..5).filter(|number| lab.response(&format!("resp_{number}")).is_some()).collect::<Vec<_>>();
    drop(4, 1000);
    assert_eq!(there(), [1, 2, 3, 4]);
    drop(4, 24);
    assert_eq!(there(), [3, 4]);
    drop(0, 0);
    assert_eq!(there(), [4]);
    let long = json!("x".repeat(MOST_RESPONSE_BYTES));
    assert!(matches!(lab.respond("long", &long), Err(TranscriptError::TooLong(_))));
}
