//! `palyra cron list`: what is scheduled, and when it is due.

use palyra_api::cron::{Schedule, Schedules};
use palyra_client::Client;
use palyra_types::visible::visible;

use crate::{
    Outcome,
    exit::Exit,
    table::{self, moment, moment_or},
    terminal::Terminal,
};

pub(super) async fn run(daemon: &Client, terminal: &Terminal) -> Outcome {
    let Schedules { schedules } = daemon.schedules().await?;
    if terminal.json {
        terminal.document("cron", Schedules { schedules });
        return Ok(Exit::Ok);
    }
    let rows: Vec<[String; 7]> = schedules.iter().map(row).collect();
    table::print(["NAME", "OWNER", "TOOL", "WHEN", "NEXT", "LAST", "CAME TO"], &rows, terminal);
    if schedules.is_empty() {
        terminal.talk("nothing is scheduled; agents schedule calls with the tool `cron.create`");
    }
    Ok(Exit::Ok)
}

fn row(schedule: &Schedule) -> [String; 7] {
    let Schedule { name, owner, tool, when, enabled, next_due, last_fired, last_outcome, running, .. } = schedule;
    let next = match (enabled, next_due) {
        (false, _) => "paused".to_owned(),
        (true, Some(time)) => moment(*time),
        (true, None) => "never".to_owned(),
    };
    let came_to = match (running, last_outcome) {
        (Some(_), _) => "it runs, or waits".to_owned(),
        (None, Some(outcome)) => visible(outcome),
        (None, None) => String::new(),
    };
    [visible(name), visible(owner), tool.to_string(), visible(when), next, moment_or(*last_fired, "never"), came_to]
}
