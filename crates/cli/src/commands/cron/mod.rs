//! `palyra cron …`: calls that are scheduled, for people who look after them.

mod change;
mod list;
mod show;

use clap::Subcommand;
use palyra_api::cron::Schedule;
use palyra_client::Client;

use crate::{
    Outcome,
    at::At,
    connection::meet,
    failure::Failure,
    short_id::{Sort, meant},
    terminal::Terminal,
};

#[derive(Subcommand)]
pub(crate) enum CronCommand {
    /// List what is scheduled, and when it is due.
    List,
    /// Tell everything about a schedule.
    Show(NamedArgs),
    /// Let a schedule fire no more until it is resumed.
    Pause(NamedArgs),
    /// Let a schedule fire again.
    Resume(NamedArgs),
    /// Delete a schedule. A call of it that is under way goes on.
    Delete(NamedArgs),
}

#[derive(clap::Args)]
pub(crate) struct NamedArgs {
    /// The schedule: its name, OWNER/NAME, its id, or the beginning or the end of that.
    schedule: String,
}

pub(crate) fn run(command: CronCommand, at: &At, terminal: &Terminal) -> Outcome {
    meet(at, terminal, async |daemon| match command {
        CronCommand::List => list::run(daemon, terminal).await,
        CronCommand::Show(args) => show::run(&find(daemon, &args.schedule).await?, terminal),
        CronCommand::Pause(args) => change::pause(&find(daemon, &args.schedule).await?, daemon, terminal).await,
        CronCommand::Resume(args) => change::resume(&find(daemon, &args.schedule).await?, daemon, terminal).await,
        CronCommand::Delete(args) => change::delete(&find(daemon, &args.schedule).await?, daemon, terminal).await,
    })
}

/// The schedule that is meant.
async fn find(daemon: &Client, text: &str) -> Result<Schedule, Failure> {
    let schedules = daemon.schedules().await?.schedules;
    let named: Vec<_> =
        schedules.iter().filter(|one| one.name == text || format!("{}/{}", one.owner, one.name) == text).collect();
    match named.as_slice() {
        [one] => Ok((*one).clone()),
        _ => meant(&schedules, |one| one.id.as_str(), text, &SCHEDULE).cloned(),
    }
}

const SCHEDULE: Sort = Sort {
    one: "schedule",
    many: "schedules",
    code: "unknown_schedule",
    help: "`palyra cron list` shows them; where several have one name, write OWNER/NAME or the id",
};
