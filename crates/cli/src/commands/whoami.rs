//! `palyra whoami`: who this device is to the daemon, and which daemon that is.

use palyra_api::health::Identity;
use palyra_types::visible::visible;
use serde::Serialize;

use crate::{
    Outcome,
    at::At,
    connection::Connection,
    exit::Exit,
    terminal::{BOLD, Terminal},
};

#[derive(Serialize)]
struct WhoAmI<'a> {
    #[serde(flatten)]
    identity: &'a Identity,
    daemon: Daemon<'a>,
}

#[derive(Serialize)]
struct Daemon<'a> {
    /// What it is called here; nothing for the one of this state directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    address: String,
}

pub(crate) fn run(at: &At, terminal: &Terminal) -> Outcome {
    let connection = Connection::find(at, terminal)?;
    let identity = connection.run(async |daemon| Ok(daemon.identity().await?))?;
    let name = connection.place().err().map(|name| name.as_str());
    let address = connection.identity().address.to_string();
    if terminal.json {
        terminal.document("whoami", WhoAmI { identity: &identity, daemon: Daemon { name, address } });
        return Ok(Exit::Ok);
    }
    let line =
        |name: &str, text: &str| terminal.out_rows(format!("{}  {text}", terminal.paint(BOLD, &format!("{name:<10}"))));
    line("principal", &visible(&identity.principal));
    line("roles", &list(identity.roles.iter().map(|role| visible(role)), "none"));
    line("credential", &credential(&identity));
    if let Some(scopes) = &identity.scopes {
        line("scopes", &list(scopes.iter().map(|scope| visible(scope)), "none"));
    }
    let workspaces = identity.workspaces.as_ref();
    line(
        "workspaces",
        &workspaces.map_or_else(|| "all".to_owned(), |all| list(all.iter().map(ToString::to_string), "none")),
    );
    if let Some(until) = identity.until {
        let renewed = if identity.credential == "device" { ", and renewed before that" } else { "" };
        line("until", &format!("{until}{renewed}"));
    }
    match name {
        Some(name) => line("daemon", &format!("{name}, at {address}")),
        None => line("daemon", &format!("of this state directory, at {address}")),
    }
    Ok(Exit::Ok)
}

/// The credential in words.
fn credential(identity: &Identity) -> String {
    let device = identity.device.as_ref().map(ToString::to_string);
    let which = device.or_else(|| identity.token.as_ref().map(ToString::to_string));
    format!("{} {}", visible(&identity.credential), which.unwrap_or_default()).trim_end().to_owned()
}

fn list(words: impl Iterator<Item = String>, none: &str) -> String {
    let all = words.collect::<Vec<_>>().join(", ");
    if all.is_empty() { none.to_owned() } else { all }
}
