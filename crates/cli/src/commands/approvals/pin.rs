//! `palyra approvals pin`: sets the PIN that shows that a person is there.

use std::io::{self, BufRead};

use crate::{
    Outcome, at::At, connection::Connection, exit::Exit, failure::Failure, keyboard::Keyboard, terminal::Terminal,
};

pub(super) async fn run(at: &At, terminal: &Terminal) -> Outcome {
    at.unnamed(WHAT)?;
    let connection = Connection::find(at, terminal)?;
    let contact = connection.here(WHAT)?;
    let pin = match Keyboard::open() {
        Some(mut keyboard) => {
            let (first, again) = (keyboard.secret("PIN: ").await, keyboard.secret("once more: ").await);
            if first != again {
                return Err(refused("the two differ", "type the same one twice"));
            }
            first
        }
        None => io::stdin().lock().lines().next().and_then(Result::ok),
    };
    let pin = pin.ok_or_else(|| refused("there is none", "type one, or send it by standard input"))?;
    contact.set_presence(&pin).map_err(|error| {
        Failure::new(Exit::Failure, "no_pin", "the PIN is not set", error.to_string(), error.advice())
    })?;
    if terminal.json {
        terminal.document("approvals.pin", serde_json::json!({ "set": true }));
    }
    terminal
        .talk("the PIN is set; with `presence = \"pin\"` under [approvals] in config.toml the next daemon asks for it");
    Ok(Exit::Ok)
}

const WHAT: &str = "setting the PIN";

fn refused(cause: &str, help: &str) -> Failure {
    Failure::new(Exit::Usage, "no_pin", "the PIN is not set", cause, help)
}
