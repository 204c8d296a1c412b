//! `palyra cron pause`, `resume` and `delete`.

use palyra_api::cron::Schedule;
use palyra_client::Client;
use palyra_types::visible::visible;

use crate::{
    Outcome,
    exit::Exit,
    table::moment_or,
    terminal::{GOOD, Terminal},
};

pub(super) async fn pause(schedule: &Schedule, daemon: &Client, terminal: &Terminal) -> Outcome {
    let paused = daemon.pause_schedule(&schedule.id).await?;
    tell(("cron.paused", "✔ paused"), &paused, "", terminal)
}

pub(super) async fn resume(schedule: &Schedule, daemon: &Client, terminal: &Terminal) -> Outcome {
    let resumed = daemon.resume_schedule(&schedule.id).await?;
    let next = format!(", due {}", moment_or(resumed.next_due, "never again"));
    tell(("cron.resumed", "✔ resumed"), &resumed, &next, terminal)
}

pub(super) async fn delete(schedule: &Schedule, daemon: &Client, terminal: &Terminal) -> Outcome {
    let deleted = daemon.delete_schedule(&schedule.id).await?;
    tell(("cron.deleted", "✔ deleted"), &deleted, "", terminal)
}

fn tell((kind, done): (&str, &str), schedule: &Schedule, more: &str, terminal: &Terminal) -> Outcome {
    if terminal.json {
        terminal.document(kind, schedule);
    } else {
        let name = format!("{}/{}", visible(&schedule.owner), visible(&schedule.name));
        terminal.out(format!("{} {name}{more}", terminal.paint(GOOD, done)));
    }
    Ok(Exit::Ok)
}
