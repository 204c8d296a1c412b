//! `palyra reload`: has the daemon read its configuration and policies again.

use crate::{
    Outcome,
    at::At,
    connection::meet,
    exit::Exit,
    terminal::{GOOD, Terminal},
};

pub(crate) fn run(at: &At, terminal: &Terminal) -> Outcome {
    let set = meet(at, terminal, async |daemon| Ok(daemon.reload().await?))?;
    if terminal.json {
        terminal.document("policy.set", set);
        return Ok(Exit::Ok);
    }
    terminal.out(format!(
        "{}: {} policies, preset {}",
        terminal.paint(GOOD, "✔ in force"),
        set.policies.len(),
        set.preset
    ));
    for warning in &set.warnings {
        terminal.talk(format!("warning: {warning}"));
    }
    Ok(Exit::Ok)
}
