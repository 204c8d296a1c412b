//! `palyra vault list`: the secrets, and where each may go.

use palyra_api::vault::{Secret, Secrets};
use palyra_client::Client;
use palyra_types::visible::visible;

use super::words::{age, end};
use crate::{
    Outcome,
    exit::Exit,
    table,
    terminal::{Terminal, WAIT, shown},
};

pub(super) async fn run(daemon: &Client, terminal: &Terminal) -> Outcome {
    let Secrets { secrets } = daemon.secrets().await?;
    if terminal.json {
        terminal.document("vault.secrets", Secrets { secrets });
        return Ok(Exit::Ok);
    }
    let rows: Vec<[String; 5]> = secrets.iter().map(row).collect();
    table::print(["NAME", "VERSION", "AGE", "EXPIRES", "MAY GO"], &rows, terminal);
    if secrets.is_empty() {
        terminal.talk("there are no secrets; `palyra vault put NAME` keeps one");
    }
    let late = secrets.iter().filter(|one| one.has_expired || one.is_due).count();
    if late > 0 {
        let line = format!("! {late} expired or due; `palyra vault rotate NAME` asks for another value");
        terminal.talk(terminal.paint_err(WAIT, &line));
    }
    Ok(Exit::Ok)
}

fn row(secret: &Secret) -> [String; 5] {
    let places: Vec<String> = secret.bindings.iter().map(|binding| shown(&binding.words)).collect();
    let places = if places.is_empty() { "nowhere".to_owned() } else { places.join("; or ") };
    [visible(&secret.secret.to_string()), secret.version.to_string(), age(secret), end(secret), places]
}
