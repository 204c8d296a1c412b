//! Cron expressions: what is read, what is refused, and when they match, compared with a walk through every minute.

use std::collections::HashSet;

use jiff::{Timestamp as Instant, civil::DateTime};
use palyra_types::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::zone::Zone;

fn cron(text: &str) -> CronExpression {
    CronExpression::parse(text).unwrap()
}

fn at(text: &str) -> Timestamp {
    Timestamp::parse(text).unwrap()
}

fn zone(name: &str) -> Zone {
    Zone::parse(name).unwrap()
}

/// The next times in a zone, as that zone's clocks show them in UTC.
fn next(expression: &str, after: &str, in_zone: &str, count: usize) -> Vec<String> {
    let (expression, in_zone) = (cron(expression), zone(in_zone));
    let mut time = at(after);
    let mut times = Vec::new();
    for _ in 0..count {
        time = expression.next_after(time, &in_zone).unwrap();
        times.push(time.to_string().replace(":00.000Z", "Z"));
    }
    times
}

#[test]
fn an_expression_keeps_its_spelling() {
    assert_eq!(cron("  0  9 * *\tmon-FRI ").as_str(), "0 9 * * mon-FRI");
    assert_eq!(serde_json::to_value(cron("@daily")).unwrap(), "@daily");
    assert_eq!(serde_json::from_value::<CronExpression>("@daily".into()).unwrap(), cron("@daily"));
}

#[test]
fn what_is_wrong_is_told_with_the_field() {
    for (text, told) in [
        ("* * * *", "the expression has 4 fields; expected 5"),
        ("", "the expression has 0 fields; expected 5"),
        ("* * * * * *", "the expression has 6 fields; expected 5"),
        ("60 * * * *", "the minute `60`: is not between 0 and 59"),
        ("999 * * * *", "the minute `999`: is not between 0 and 59"),
        ("* 24 * * *", "the hour `24`: is not between 0 and 23"),
        ("* * 0 * *", "the day of the month `0`: is not between 1 and 31"),
        ("* * * 13 *", "the month `13`: is not between 1 and 12"),
        ("* * * * 8", "the day of the week `8`: is not between 0 and 7"),
        ("* * * MON *", "the month `MON`: is neither a number nor a name that is known here"),
        ("x * * * *", "the minute `x`: is neither a number nor a name that is known here"),
        ("-1 * * * *", "the minute `-1`: something is missing"),
        ("1,,2 * * * *", "the minute ``: something is missing"),
        ("5-1 * * * *", "the minute `5-1`: the range goes backwards"),
        ("5/10 * * * *", "the minute `5/10`: a step needs a range or `*` in front of it"),
        ("*/0 * * * *", "the minute `*/0`: a step here is between 1 and 59"),
        ("*/90 * * * *", "the minute `*/90`: a step here is between 1 and 59"),
        ("* 1-3/ * * *", "the hour `1-3/`: something is missing"),
        ("1,\u{202e} * * * *", "the minute `<U+202E>`: is neither a number nor a name that is known here"),
        ("@reboot", "there is no `@reboot`; expected `@hourly`, `@daily`, `@weekly`, `@monthly` or `@yearly`"),
        ("30 2 31 2 *", "there is no such day in any of these months, so it would never be done"),
        ("0 0 31 4,6,9,11 *", "there is no such day in any of these months, so it would never be done"),
    ] {
        let error = CronExpression::parse(text).unwrap_err();
        assert_eq!(error.to_string(), told, "{text}");
        assert!(!error.advice().is_empty());
    }
    assert_eq!(CronExpression::parse(&"*".repeat(300)), Err(CronError::TooLong(300)));
}

#[test]
fn short_names_stand_for_the_obvious() {
    for (short, long) in [
        ("@hourly", "0 * * * *"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@weekly", "0 0 * * SUN"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 JAN *"),
        ("@annually", "0 0 1 1 *"),
    ] {
        assert_eq!(
            CronExpression { text: String::new(), ..cron(short) },
            CronExpression { text: String::new(), ..cron(long) }
        );
    }
}

#[test]
fn lists_ranges_and_steps_are_read_as_people_mean_them() {
    let sets = |text: &str| cron(text).minutes.iter().collect::<Vec<_>>();
    assert_eq!(sets("*/20 * * * *"), [0, 20, 40]);
    assert_eq!(sets("10-30/10,59,5 * * * *"), [5, 10, 20, 30, 59]);
    let days = |text: &str| cron(text).weekdays.iter().collect::<Vec<_>>();
    assert_eq!((days("* * * * 7"), days("* * * * SUN"), days("* * * * 6-7")), (vec![0], vec![0], vec![0, 6]));
    assert_eq!((days("* * * * FRI-SUN"), days("* * * * 0-7").len(), days("* * * * *").len()), (vec![0, 5, 6], 7, 7));
}

#[test]
fn a_day_fits_either_field_if_both_are_restricted_and_both_if_one_is_not() {
    // The 13th, or a Friday.
    let either = next("0 0 13 * FRI", "2026-02-01T00:00:00Z", "UTC", 4);
    assert_eq!(either, ["2026-02-06T00:00Z", "2026-02-13T00:00Z", "2026-02-20T00:00Z", "2026-02-27T00:00Z"]);
    let day = next("0 0 13 * *", "2026-02-01T00:00:00Z", "UTC", 2);
    assert_eq!(day, ["2026-02-13T00:00Z", "2026-03-13T00:00Z"]);
    // Mondays with an odd date.
    let both = next("0 0 */2 * MON", "2026-02-01T00:00:00Z", "UTC", 2);
    assert_eq!(both, ["2026-02-09T00:00Z", "2026-02-23T00:00Z"]);
}

#[test]
fn a_leap_day_comes_however_far_it_is() {
    assert_eq!(next("0 0 29 2 *", "2096-03-01T00:00:00Z", "UTC", 1), ["2104-02-29T00:00Z"]);
    // A leap day that is a Sunday or a Saturday.
    assert_eq!(next("0 0 29 FEB */6", "2026-01-01T00:00:00Z", "UTC", 2), ["2032-02-29T00:00Z", "2048-02-29T00:00Z"]);
    assert_eq!(cron("* * * * *").next_after(at("9999-12-30T22:00:00Z"), &Zone::utc()), None);
}

#[test]
fn a_time_that_has_begun_is_over() {
    assert_eq!(next("* * * * *", "2026-01-01T00:00:00Z", "UTC", 1), ["2026-01-01T00:01Z"]);
    assert_eq!(next("* * * * *", "2026-01-01T00:00:59.999Z", "UTC", 1), ["2026-01-01T00:01Z"]);
    assert_eq!(next("* * * * *", "2025-12-31T23:59:59.999Z", "UTC", 1), ["2026-01-01T00:00Z"]);
}

#[test]
fn what_the_clocks_skip_is_done_once_right_after_the_gap() {
    // Prague skips 02:00 to 03:00 on 29 March 2026; 03:00 there is 01:00 UTC.
    let daily = next("30 2 * * *", "2026-03-28T00:00:00Z", "Europe/Prague", 3);
    assert_eq!(daily, ["2026-03-28T01:30Z", "2026-03-29T01:00Z", "2026-03-30T00:30Z"]);
    let often = next("*/20 2,3 * * *", "2026-03-29T00:00:00Z", "Europe/Prague", 4);
    assert_eq!(often, ["2026-03-29T01:00Z", "2026-03-29T01:20Z", "2026-03-29T01:40Z", "2026-03-30T00:00Z"]);
    // Samoa skipped a whole day.
    let skipped = next("0 9 30 12 *", "2011-12-01T00:00:00Z", "Pacific/Apia", 1);
    assert_eq!(skipped, ["2011-12-30T10:00Z"]);
}

#[test]
fn what_the_clocks_show_twice_is_done_once() {
    // Prague shows 02:00 to 03:00 twice on 25 October 2026, first as summer time, two hours ahead of UTC.
    let daily = next("30 2 * * *", "2026-10-24T12:00:00Z", "Europe/Prague", 2);
    assert_eq!(daily, ["2026-10-25T00:30Z", "2026-10-26T01:30Z"]);
    let between = next("30 2 * * *", "2026-10-25T01:15:00Z", "Europe/Prague", 1);
    assert_eq!(between, ["2026-10-26T01:30Z"]);
    let hourly = next("0 * * * *", "2026-10-24T23:30:00Z", "Europe/Prague", 3);
    assert_eq!(hourly, ["2026-10-25T00:00Z", "2026-10-25T02:00Z", "2026-10-25T03:00Z"]);
}

/// Whether a local time fits the text of an expression, read another way: number by number.
fn fits(text: &str, time: DateTime) -> bool {
    let fields: Vec<&str> = text.split(' ').collect();
    let has = |field: usize, value: i8, least: i8, most: i8| {
        fields[field].split(',').any(|part| {
            let (range, step) = part.split_once('/').unwrap_or((part, "1"));
            let (first, last) = match range.split_once('-') {
                Some((first, last)) => (first.parse().unwrap(), last.parse().unwrap()),
                None if range == "*" => (least, most),
                None => (range.parse::<i8>().unwrap(), range.parse().unwrap()),
            };
            (first..=last).contains(&value) && (value - first) % step.parse::<i8>().unwrap() == 0
        })
    };
    let day = has(2, time.day(), 1, 31);
    let sunday = time.weekday().to_sunday_zero_offset();
    let weekday =
        has(4, sunday, 0, 6) || (sunday == 0 && fields[4] != "*" && !fields[4].starts_with('*') && has(4, 7, 0, 7));
    let restricted = !fields[2].starts_with('*') && !fields[4].starts_with('*');
    let days = if restricted { day || weekday } else { day && weekday };
    has(0, time.minute(), 0, 59) && has(1, time.hour(), 0, 23) && has(3, time.month(), 1, 12) && days
}

/// Every time of some days, found by walking through every minute with the clocks of the zone in view.
fn walked(text: &str, from: Timestamp, days: i64, in_zone: &Zone) -> Vec<Timestamp> {
    let local = |millis: i64| in_zone.rules().to_datetime(Instant::from_millisecond(millis).unwrap());
    let minute = jiff::SignedDuration::from_mins(1);
    let (mut seen, mut times) = (HashSet::new(), Vec::new());
    // From two days before, to know what was shown already.
    let start = from.unix_millis() - 2 * 86_400_000;
    let mut before = local(start - 60_000);
    for step in 0..(days + 2) * 1440 {
        let millis = start + step * 60_000;
        let shown = local(millis);
        let mut due = seen.insert(shown) && fits(text, shown);
        let mut skipped = before + minute;
        while skipped < shown {
            due |= fits(text, skipped);
            skipped += minute;
        }
        if due && millis > from.unix_millis() {
            times.push(Timestamp::from_unix_millis(millis));
        }
        before = shown;
    }
    times
}

fn field(least: u8, most: u8) -> impl Strategy<Value = String> {
    let one = (least..=most).prop_map(|value| value.to_string());
    let range = (least..=most, least..=most).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b)));
    let stepped =
        (least..most, 1..=3_u8).prop_map(move |(first, step)| format!("{first}-{most}/{}", step.min(most - first)));
    let part = prop_oneof![3 => one, 2 => range, 1 => stepped];
    prop_oneof![
        3 => Just("*".to_owned()),
        1 => Just("*/2".to_owned()),
        4 => prop::collection::vec(part, 1..3).prop_map(|parts| parts.join(",")),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn the_next_times_are_those_that_a_walk_through_every_minute_finds(
        (minute, hour) in (field(0, 59), field(0, 23)),
        (day, month, weekday) in (field(1, 31), field(1, 12), field(0, 7)),
        (place, offset) in prop::sample::select(vec![
            ("UTC", "2026-02-27T00:00:00Z"),
            ("Europe/Prague", "2026-03-28T00:00:00Z"),
            ("Europe/Prague", "2026-10-24T00:00:00Z"),
            ("America/New_York", "2026-03-07T00:00:00Z"),
            ("America/New_York", "2026-10-31T00:00:00Z"),
            ("Australia/Lord_Howe", "2026-04-04T00:00:00Z"),
            ("Australia/Lord_Howe", "2026-10-03T00:00:00Z"),
            ("Pacific/Apia", "2011-12-29T00:00:00Z"),
            ("Asia/Kathmandu", "2026-01-01T00:00:00Z"),
            ("America/St_Johns", "2006-10-28T00:00:00Z"),
            ("Asia/Gaza", "2010-03-26T00:00:00Z"),
        ]).prop_flat_map(|(place, start)| (Just((place, start)), 0..1440 * 60_000_i64))
            .prop_map(|((place, start), more)| (place, at(start).unix_millis() + more)),
    ) {
        let text = format!("{minute} {hour} {day} {month} {weekday}");
        let Ok(expression) = CronExpression::parse(&text) else {
            return Err(TestCaseError::reject("never matches"));
        };
        let (in_zone, from) = (zone(place), Timestamp::from_unix_millis(offset));
        let wanted = walked(&text, Timestamp::from_unix_millis(offset - offset.rem_euclid(60_000)), 3, &in_zone);
        let wanted: Vec<Timestamp> = wanted.into_iter().filter(|&time| time > from).collect();
        let mut found = Vec::new();
        let mut time = from;
        while found.len() < wanted.len() {
            time = expression.next_after(time, &in_zone).unwrap();
            found.push(time);
        }
        prop_assert_eq!(&found, &wanted, "{} in {}", text, place);
        let behind = expression.next_after(time, &in_zone).unwrap();
        prop_assert!(behind.unix_millis() > from.unix_millis() - 60_000 + 3 * 86_400_000 - 60_000, "{} {}", text, behind);
    }

    #[test]
    fn any_text_is_an_expression_or_refused(text in "[-*/,@0-9A-Z ]{0,20}|.{0,30}") {
        if let Ok(expression) = CronExpression::parse(&text) {
            prop_assert_eq!(CronExpression::parse(expression.as_str()), Ok(expression.clone()));
            prop_assert!(expression.next_after(at("2026-01-01T00:00:00Z"), &Zone::utc()).is_some());
        }
    }
}
