//! The schedule: what is handed out, once, through crashes, pauses and clocks that are set.

use palyra_types::{ToolName, entropy::SeededEntropy, id::SessionId};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{
    cron::CronExpression,
    job::{MOST_JSON_BYTES, Owner},
    when::{Every, When},
    zone::Zone,
};

const HOUR: i64 = 3_600_000;
const START: i64 = 1_767_225_600_000; // 2026-01-01T00:00:00Z

struct Lab {
    directory: tempfile::TempDir,
    store: ScheduleStore,
}

impl Lab {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let opened = ScheduleStore::open(directory.path(), Arc::new(SeededEntropy::new(1))).unwrap();
        assert_eq!(opened.unfinished, []);
        Self { directory, store: opened.store }
    }

    /// Ends the program and starts it again.
    fn again(self) -> (Self, Vec<Firing>) {
        drop(self.store);
        let opened = ScheduleStore::open(self.directory.path(), Arc::new(SeededEntropy::new(1 << 32))).unwrap();
        (Self { directory: self.directory, store: opened.store }, opened.unfinished)
    }

    /// Says that a run was cut off.
    fn cut_off(&self, firing: FiringId, millis: i64) {
        assert!(self.store.finished(firing, &Outcome::Failed("interrupted".to_owned()), at(millis)).unwrap());
    }

    fn make(&self, name: &str, when: When, missed: Missed) -> Job {
        self.store.create(&NewJob { when, missed, ..new(name) }, at(0)).unwrap()
    }

    fn due(&self, millis: i64) -> Vec<Firing> {
        self.store.due(at(millis)).unwrap()
    }

    /// Hands out what is due and finishes it at once; again and again until nothing is. The times that it was due at.
    fn run_all(&self, millis: i64) -> Vec<i64> {
        let mut times = Vec::new();
        loop {
            let firings = self.due(millis);
            if firings.is_empty() {
                return times;
            }
            for firing in firings {
                times.push(firing.due.unix_millis() - START);
                self.finish(firing.id, millis);
            }
        }
    }

    fn finish(&self, firing: FiringId, millis: i64) {
        assert!(self.store.finished(firing, &Outcome::Succeeded("done".to_owned()), at(millis)).unwrap());
    }

    fn wake(&self, millis: i64) -> Option<i64> {
        self.store.next_wake(at(millis)).unwrap().map(|time| time.unix_millis() - START)
    }

    fn job(&self, id: JobId) -> Job {
        self.store.get(id).unwrap().unwrap()
    }
}

/// A time after the start.
fn at(millis: i64) -> Timestamp {
    Timestamp::from_unix_millis(START + millis)
}

fn hourly() -> When {
    When::Every(Every::seconds(3600).unwrap())
}

fn new(name: &str) -> NewJob {
    let credential =
        json!({ "token_id": "t1", "device_id": null, "channel": "api", "member_of": ["shop"], "on_behalf_of": null });
    NewJob {
        name: name.to_owned(),
        owner: Owner { principal: "agent:claude".to_owned(), credential },
        workspace: None,
        session: SessionId::from_parts(at(0), 7),
        tool: ToolName::parse("fs.read").unwrap(),
        args: [("path".to_owned(), json!("notes.md"))].into_iter().collect(),
        when: hourly(),
        missed: Missed::Skip,
        timeout_seconds: 60,
    }
}

#[test]
fn a_job_is_there_as_it_was_made_also_after_a_restart() {
    let lab = Lab::new();
    let when = When::Cron {
        expression: CronExpression::parse("0 9 * * MON").unwrap(),
        zone: Zone::parse("Europe/Prague").unwrap(),
    };
    let job = lab.make("report", when, Missed::All);
    let (lab, interrupted) = lab.again();
    assert_eq!((interrupted, lab.job(job.id)), (vec![], job.clone()));
    assert_eq!(lab.store.find("agent:claude", "report").unwrap(), Some(job.clone()));
    assert_eq!(lab.store.find("agent:other", "report").unwrap(), None);
    assert_eq!(lab.store.list(Some("agent:claude")).unwrap(), std::slice::from_ref(&job));
    assert_eq!(lab.store.list(None).unwrap(), [job]);
    assert_eq!(lab.store.list(Some("user:ada")).unwrap(), []);
}

#[test]
fn what_is_due_is_handed_out_once_with_everything_it_acts_with() {
    let lab = Lab::new();
    let job = lab.make("a", hourly(), Missed::Skip);
    assert_eq!((lab.wake(0), lab.due(HOUR - 1)), (Some(HOUR), vec![]));
    let firing = lab.due(HOUR + 5).remove(0);
    assert_eq!((firing.due, firing.fired, &firing.job.what), (at(HOUR), at(HOUR + 5), &job.what));
    assert_eq!(firing.job, lab.job(job.id));
    assert_eq!((lab.due(HOUR + 5), lab.wake(HOUR + 5)), (vec![], None));
    lab.finish(firing.id, HOUR + 10);
    let after = lab.job(job.id);
    assert_eq!((after.last_outcome.as_deref(), after.failures, after.running), (Some("done"), 0, None));
    assert_eq!((after.last_fired, after.next_due, after.missed_times), (Some(at(HOUR + 5)), Some(at(2 * HOUR)), 0));
    assert!(!lab.store.finished(firing.id, &Outcome::Succeeded(String::new()), at(HOUR)).unwrap());
}

#[test]
fn a_firing_that_a_crash_cut_off_is_told_until_it_is_finished_and_never_repeated() {
    let lab = Lab::new();
    let job = lab.make("a", hourly(), Missed::All);
    let firing = lab.due(HOUR).remove(0);
    let (lab, unfinished) = lab.again();
    assert_eq!((unfinished, lab.job(job.id).running), (vec![firing.clone()], Some(firing.id)));
    assert_eq!((lab.due(2 * HOUR), lab.wake(2 * HOUR)), (vec![], None));
    let (lab, unfinished) = lab.again();
    assert_eq!(unfinished, std::slice::from_ref(&firing));
    lab.cut_off(firing.id, HOUR);
    let after = lab.job(job.id);
    assert_eq!((after.last_outcome.as_deref(), after.failures, after.running), (Some("interrupted"), 1, None));
    assert!(!lab.store.finished(firing.id, &Outcome::Succeeded(String::new()), at(HOUR)).unwrap());
    let (lab, unfinished) = lab.again();
    assert_eq!((unfinished, lab.run_all(2 * HOUR)), (vec![], vec![2 * HOUR]));
}

#[test]
fn a_paused_job_says_why_until_it_is_resumed() {
    let lab = Lab::new();
    let job = lab.make("a", hourly(), Missed::Skip);
    lab.store.pause(job.id, &"x".repeat(5_000)).unwrap();
    assert_eq!(lab.job(job.id).paused.map(|why| why.len()), Some(1024 + "…".len()));
    lab.store.pause(job.id, "its token was revoked").unwrap();
    let (lab, _) = lab.again();
    let paused = lab.job(job.id);
    assert_eq!((paused.enabled, paused.paused.as_deref()), (false, Some("its token was revoked")));
    lab.store.resume(job.id).unwrap();
    assert_eq!(lab.job(job.id), job);
}

#[test]
fn after_a_long_pause_skip_does_nothing_once_one_and_all_at_most_ten() {
    for (missed, hours, wanted) in [
        (Missed::Skip, 48, vec![]),
        (Missed::Once, 48, vec![48]),
        (Missed::All, 48, (39..=48).collect::<Vec<i64>>()),
        (Missed::All, 3, vec![1, 2, 3]),
        (Missed::Once, 1, vec![1]),
    ] {
        let (lab, _) = Lab::new().again();
        let job = lab.make("a", hourly(), missed);
        let now = hours * HOUR + HOUR / 2;
        let wanted: Vec<i64> = wanted.into_iter().map(|hour| hour * HOUR).collect();
        assert_eq!(lab.run_all(now), wanted, "{missed}");
        let after = lab.job(job.id);
        assert_eq!(after.missed_times, hours.unsigned_abs() - wanted.len() as u64, "{missed}");
        assert_eq!(after.next_due, Some(at((hours + 1) * HOUR)));
        assert_eq!(lab.run_all((hours + 1) * HOUR), [(hours + 1) * HOUR]);
    }
}

#[test]
fn skip_does_what_is_a_little_late() {
    let lab = Lab::new();
    lab.make("a", hourly(), Missed::Skip);
    assert_eq!(lab.run_all(5 * HOUR + ON_TIME_MILLIS), [5 * HOUR]);
    assert_eq!(lab.run_all(6 * HOUR + ON_TIME_MILLIS + 1), [0; 0]);
}

#[test]
fn a_job_whose_run_is_not_over_is_not_fired_again() {
    for (missed, wanted) in
        [(Missed::Skip, vec![]), (Missed::Once, vec![3 * HOUR]), (Missed::All, vec![2 * HOUR, 3 * HOUR])]
    {
        for looks_meanwhile in [false, true] {
            let lab = Lab::new();
            let job = lab.make("a", hourly(), missed);
            let firing = lab.due(HOUR).remove(0);
            if looks_meanwhile {
                assert_eq!((lab.due(2 * HOUR), lab.due(3 * HOUR)), (vec![], vec![]));
            }
            lab.finish(firing.id, 3 * HOUR + 5);
            assert_eq!(lab.run_all(3 * HOUR + 10), wanted, "{missed}");
            let after = lab.job(job.id);
            assert_eq!((after.missed_times, after.next_due), (2 - wanted.len() as u64, Some(at(4 * HOUR))), "{missed}");
        }
    }
}

#[test]
fn a_clock_that_is_set_back_fires_nothing_twice() {
    for missed in [Missed::Skip, Missed::Once, Missed::All] {
        let lab = Lab::new();
        lab.make("a", hourly(), missed);
        assert_eq!(lab.run_all(HOUR), [HOUR]);
        assert_eq!((lab.run_all(HOUR / 2), lab.run_all(HOUR), lab.run_all(-5 * HOUR)), (vec![], vec![], vec![]));
        let (lab, _) = lab.again();
        assert_eq!((lab.run_all(HOUR), lab.run_all(2 * HOUR)), (vec![], vec![2 * HOUR]));
    }
}

#[test]
fn what_is_done_once_is_done_once() {
    let lab = Lab::new();
    let once = |name: &str, missed| lab.make(name, When::At(at(HOUR)), missed);
    let (skip, made_up) = (once("a", Missed::Skip), once("b", Missed::Once));
    assert_eq!(lab.run_all(5 * HOUR), [HOUR]);
    assert_eq!((lab.job(skip.id).next_due, lab.job(skip.id).missed_times), (None, 1));
    assert_eq!((lab.job(made_up.id).next_due, lab.job(made_up.id).missed_times), (None, 0));
    assert_eq!((lab.wake(5 * HOUR), lab.run_all(50 * HOUR)), (None, vec![]));
    let past = lab.store.create(&NewJob { when: When::At(at(0)), ..new("c") }, at(0));
    assert!(matches!(past, Err(ScheduleError::NeverDue)));
}

#[test]
fn a_paused_job_waits_and_what_passed_was_missed() {
    let lab = Lab::new();
    let job = lab.make("a", hourly(), Missed::Once);
    lab.store.pause(job.id, "a break").unwrap();
    assert_eq!((lab.run_all(5 * HOUR), lab.wake(5 * HOUR), lab.job(job.id).enabled), (vec![], None, false));
    lab.store.resume(job.id).unwrap();
    assert_eq!((lab.wake(5 * HOUR), lab.run_all(5 * HOUR)), (Some(5 * HOUR), vec![5 * HOUR]));
    let unknown = JobId::generate(at(0), &SeededEntropy::new(99)).unwrap();
    assert!(matches!(lab.store.pause(unknown, "a break"), Err(ScheduleError::Unknown(id)) if id == unknown));
}

#[test]
fn a_deleted_job_is_gone_with_what_it_acts_with() {
    let lab = Lab::new();
    let owner = Owner { credential: json!({ "token_id": "marker-of-a-token" }), ..new("a").owner };
    let job = lab.store.create(&NewJob { owner, ..new("a") }, at(0)).unwrap();
    let firing = lab.due(HOUR).remove(0);
    assert!(lab.store.delete(job.id).unwrap());
    assert!(!lab.store.delete(job.id).unwrap());
    assert!(!lab.store.finished(firing.id, &Outcome::Failed(String::new()), at(HOUR)).unwrap());
    assert_eq!((lab.store.get(job.id).unwrap(), lab.run_all(9 * HOUR)), (None, vec![]));
    for file in std::fs::read_dir(lab.directory.path()).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        assert!(!bytes.windows(17).any(|window| window == b"marker-of-a-token"));
    }
}

#[test]
fn failures_are_counted_until_one_succeeds_and_outcomes_are_short() {
    let lab = Lab::new();
    let job = lab.make("a", hourly(), Missed::Skip);
    for hour in 1..=3 {
        let firing = lab.due(hour * HOUR).remove(0);
        lab.store.finished(firing.id, &Outcome::Failed("é".repeat(2000)), at(hour * HOUR)).unwrap();
        assert_eq!(lab.job(job.id).failures, hour.unsigned_abs());
    }
    assert_eq!(lab.job(job.id).last_outcome, Some(format!("{}…", "é".repeat(512))));
    assert_eq!(lab.run_all(4 * HOUR), [4 * HOUR]);
    assert_eq!(lab.job(job.id).failures, 0);
}

#[test]
fn what_breaks_a_limit_is_refused_with_advice() {
    let lab = Lab::new();
    let long: Value = json!("x".repeat(MOST_JSON_BYTES));
    let owner =
        |principal: &str, credential: &Value| Owner { principal: principal.to_owned(), credential: credential.clone() };
    for job in [
        new(""),
        new("a\u{200b}"),
        new(&"x".repeat(129)),
        NewJob { owner: owner("", &json!({})), ..new("a") },
        NewJob { owner: owner("agent:claude", &long), ..new("a") },
        NewJob { args: [("a".to_owned(), long.clone())].into_iter().collect(), ..new("a") },
        NewJob { timeout_seconds: 0, ..new("a") },
        NewJob { timeout_seconds: 86_401, ..new("a") },
    ] {
        let error = lab.store.create(&job, at(0)).unwrap_err();
        assert!(!error.advice().is_empty() && !matches!(error, ScheduleError::Database(_)), "{error}");
    }
    lab.make("a", hourly(), Missed::Skip);
    assert!(matches!(lab.store.create(&new("a"), at(0)), Err(ScheduleError::Taken(name)) if name == "a"));
    let other = NewJob { owner: owner("user:ada", &json!({})), ..new("a") };
    lab.store.create(&other, at(0)).unwrap();
}

#[test]
fn there_are_a_hundred_jobs_of_one_and_a_thousand_of_all() {
    let lab = Lab::new();
    let fill = |principal: &str, count: usize| {
        let sql = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?2)
                   INSERT INTO job (id, principal, name, what, enabled, created) SELECT ?1 || i, ?1, i, '', 0, 0 FROM n";
        lab.store.write(|t| Ok(t.execute(sql, params![principal, i64::try_from(count).unwrap()])?)).unwrap();
    };
    fill("agent:claude", MOST_JOBS_OF_ONE);
    assert!(matches!(lab.store.create(&new("a"), at(0)), Err(ScheduleError::TooManyOfOne)));
    fill("agent:other", MOST_JOBS - MOST_JOBS_OF_ONE);
    let ada = NewJob { owner: Owner { principal: "user:ada".to_owned(), credential: json!({}) }, ..new("a") };
    assert!(matches!(lab.store.create(&ada, at(0)), Err(ScheduleError::TooMany)));
}

#[test]
fn a_job_that_cannot_be_read_is_paused_and_the_others_go_on() {
    let lab = Lab::new();
    let (bad, good) = (lab.make("bad", hourly(), Missed::Skip), lab.make("good", hourly(), Missed::Skip));
    let sql = "UPDATE job SET what = json_set(what, '$.when', json('{\"cron\":{\"expression\":\"@daily\",\"zone\":\"Mars/Base\"}}')) WHERE id = ?1";
    lab.store.write(|t| Ok(t.execute(sql, [bad.id.to_string()])?)).unwrap();
    let firings = lab.due(HOUR);
    assert_eq!(firings.iter().map(|firing| firing.job.id).collect::<Vec<_>>(), [good.id]);
    let told = lab.store.get(bad.id).unwrap_err().to_string();
    assert!(told.contains(&bad.id.to_string()) && told.contains("Mars/Base"), "{told}");
    assert!(lab.store.delete(bad.id).unwrap());
}

#[test]
fn many_look_at_once_and_each_firing_goes_to_one() {
    let lab = Lab::new();
    for number in 0..10 {
        lab.make(&number.to_string(), hourly(), Missed::Skip);
    }
    let taken = Mutex::new(Vec::new());
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| taken.lock().unwrap().extend(lab.due(HOUR).into_iter().map(|firing| firing.job.id)));
        }
    });
    let mut taken = taken.into_inner().unwrap();
    taken.sort();
    assert_eq!(taken, lab.store.list(None).unwrap().into_iter().map(|job| job.id).collect::<Vec<_>>());
    const fn shared<T: Send + Sync>() {}
    shared::<ScheduleStore>();
}

#[derive(Debug, Clone)]
enum Step {
    Move(i64),
    Look,
    Finish,
    Restart,
    Pause,
    Resume,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn whatever_happens_no_time_is_handed_out_twice_or_before_it_is_due(
        missed in prop::sample::select(Missed::ALL.to_vec()),
        steps in prop::collection::vec(prop_oneof![
            4 => (-3 * HOUR..12 * HOUR).prop_map(Step::Move),
            4 => Just(Step::Look),
            3 => Just(Step::Finish),
            1 => Just(Step::Restart),
            1 => Just(Step::Pause),
            1 => Just(Step::Resume),
        ], 1..40),
    ) {
        let mut lab = Lab::new();
        let job = lab.make("a", hourly(), missed);
        let (mut now, mut last, mut running) = (0, 0, None);
        for step in steps {
            match step {
                Step::Move(by) => now += by,
                Step::Look => {
                    for firing in lab.due(now) {
                        let due = firing.due.unix_millis() - START;
                        prop_assert!(running.is_none(), "one run at a time");
                        prop_assert!(due > last && due <= now && due % HOUR == 0, "{} after {} at {}", due, last, now);
                        (last, running) = (due, Some(firing.id));
                    }
                }
                Step::Finish => {
                    if let Some(firing) = running.take() {
                        lab.finish(firing, now);
                    }
                }
                Step::Restart => {
                    let (again, unfinished) = lab.again();
                    lab = again;
                    prop_assert_eq!(unfinished.first().map(|firing| firing.id), running);
                    if let Some(firing) = running.take() {
                        lab.cut_off(firing, now);
                    }
                }
                Step::Pause => lab.store.pause(job.id, "a break").unwrap(),
                Step::Resume => lab.store.resume(job.id).unwrap(),
            }
            if let Some(wake) = lab.wake(now) {
                prop_assert!(wake >= now && running.is_none());
            }
        }
    }
}
