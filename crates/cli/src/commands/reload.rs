//! `palyra reload`: has the daemon read its configuration and policies again.

use crate::{
    Outcome,
    connection::{block_on, owner},
    exit::Exit,
    terminal::{GOOD, Terminal},
};

pub(crate) fn run(terminal: &Terminal) -> Outcome {
    let set = block_on(async { owner()?.reload().await.map_err(Into::into) })?;
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
