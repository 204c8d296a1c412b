//! `palyra open`: a link that opens the console once.

use crate::{
    Outcome,
    connection::{block_on, owner},
    exit::Exit,
    terminal::Terminal,
};

pub(crate) fn run(terminal: &Terminal) -> Outcome {
    let client = owner()?;
    let link = block_on(async { Ok(client.console_link().await?) })?;
    if terminal.json {
        terminal.document("console.link", &link);
    } else {
        terminal.out(&link.url);
        terminal.talk(format!("it works once, until {}", link.until));
    }
    Ok(Exit::Ok)
}
