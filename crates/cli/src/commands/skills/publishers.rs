//! `palyra skills publishers`: who is trusted, and by which keys.

use palyra_api::skill::{Publisher, Publishers};
use palyra_client::Client;

use crate::{
    Outcome,
    exit::Exit,
    table::{self, moment},
    terminal::{Terminal, shown},
};

pub(super) async fn run(daemon: &Client, terminal: &Terminal) -> Outcome {
    let Publishers { publishers } = daemon.publishers().await?;
    if terminal.json {
        terminal.document("skill.publishers", Publishers { publishers });
        return Ok(Exit::Ok);
    }
    let rows: Vec<[String; 5]> = publishers.iter().flat_map(rows).collect();
    table::print(["PUBLISHER", "KEY", "STATE", "BY", "SINCE"], &rows, terminal);
    if rows.is_empty() {
        terminal.talk("no publisher is trusted; `palyra skills trust PUBLISHER KEY.pub` does that");
    }
    Ok(Exit::Ok)
}

fn rows(publisher: &Publisher) -> Vec<[String; 5]> {
    let name = || shown(&publisher.name);
    let trusted = publisher.keys.iter().map(|key| {
        let how = if key.how == "first_use" { "✔ trusted on first use" } else { "✔ trusted" };
        [name(), shown(&key.key_id), how.to_owned(), shown(&key.by), moment(key.at)]
    });
    let gone = publisher
        .distrusted
        .iter()
        .map(|key| [name(), shown(&key.key_id), "✖ distrusted".to_owned(), String::new(), String::new()]);
    trusted.chain(gone).collect()
}
