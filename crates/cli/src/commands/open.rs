//! `palyra open`: a link that opens the console once.

use crate::{Outcome, at::At, connection::Connection, exit::Exit, terminal::Terminal};

pub(crate) fn run(at: &At, terminal: &Terminal) -> Outcome {
    let connection = Connection::find(at, terminal)?;
    let link = connection.run(async |daemon| Ok(daemon.console_link().await?))?;
    if terminal.json {
        terminal.document("console.link", &link);
    } else {
        terminal.out(&link.url);
        terminal.talk(format!("it works once, until {}", link.until));
        if let Err(name) = connection.place() {
            terminal.talk(format!("open it in a browser on the machine of `{name}`, and on no other"));
        }
    }
    Ok(Exit::Ok)
}
