//! `palyra cron show`: everything about a schedule.

use palyra_api::cron::Schedule;
use palyra_types::visible::visible;

use crate::{
    Outcome,
    exit::Exit,
    table::moment_or,
    terminal::{BOLD, DIM, Terminal},
};

pub(super) fn run(schedule: &Schedule, terminal: &Terminal) -> Outcome {
    if terminal.json {
        terminal.document("schedule", schedule);
        return Ok(Exit::Ok);
    }
    let name = format!("{}/{}", visible(&schedule.owner), visible(&schedule.name));
    terminal.out_rows(format!("{}  {}", terminal.paint(BOLD, &name), schedule.id));
    let args = serde_json::to_string(&schedule.args).unwrap_or_default();
    let place = schedule.workspace.as_ref().map_or_else(|| "no workspace".to_owned(), ToString::to_string);
    let state = match (&schedule.paused, schedule.enabled) {
        (Some(why), _) => format!("paused: {}", visible(why)),
        (None, false) => "paused".to_owned(),
        (None, true) => format!("due {}", moment_or(schedule.next_due, "never again")),
    };
    let running = schedule.running.as_ref().map(|call| format!("call {}", visible(call)));
    let created =
        schedule.created_by_call.map(|call| format!("{}, by call {call}", moment_or(Some(schedule.created), "")));
    for (what, told) in [
        ("calls", Some(format!("{} {}", schedule.tool, visible(&args)))),
        ("in", Some(place)),
        ("when", Some(visible(&schedule.when))),
        ("missed", Some(format!("{}; {} passed without it", visible(&schedule.missed), schedule.missed_times))),
        ("state", Some(state)),
        ("runs", running),
        ("last", Some(moment_or(schedule.last_fired, "never"))),
        ("came to", schedule.last_outcome.as_ref().map(|outcome| visible(outcome))),
        ("created", created),
    ] {
        if let Some(told) = told {
            terminal.out_rows(format!("    {}{told}", terminal.paint(DIM, &format!("{what:<9}"))));
        }
    }
    Ok(Exit::Ok)
}
