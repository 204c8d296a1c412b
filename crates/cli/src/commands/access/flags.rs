//! `palyra access flags …`: the parts of the daemon that can be switched on and off.

use clap::Subcommand;
use palyra_api::member::{Flags, SetFlag};
use palyra_client::Client;
use palyra_types::visible::visible;

use crate::{
    Outcome,
    exit::Exit,
    failure::Failure,
    terminal::{BOLD, DIM, GOOD, Terminal},
};

#[derive(Subcommand, Default)]
pub(crate) enum FlagsCommand {
    /// List them.
    #[default]
    List,
    /// Switch one on or off.
    Set {
        /// Its name.
        name: String,
        /// on or off.
        #[arg(value_parser = ["on", "off"], value_name = "on|off", hide_possible_values = true)]
        state: String,
    },
}

pub(super) async fn run(command: FlagsCommand, daemon: &Client, terminal: &Terminal) -> Outcome {
    let flags = match command {
        FlagsCommand::List => daemon.flags().await?,
        FlagsCommand::Set { name, state } => {
            let set = daemon.set_flag(&name, &SetFlag { on: state == "on" }).await;
            // The name is all that can be wrong with it.
            set.map_err(|error| Failure::from(error).advised("bad_request", "`palyra access flags` lists them"))?
        }
    };
    show(&flags, terminal);
    Ok(Exit::Ok)
}

fn show(flags: &Flags, terminal: &Terminal) {
    if terminal.json {
        terminal.document("flags", flags);
        return;
    }
    for flag in &flags.flags {
        let (glyph, style, word) = if flag.on { ("✔", GOOD, "on") } else { ("·", DIM, "off") };
        let unusual = if flag.on == flag.by_default { "" } else { " (not the default)" };
        terminal.out(format!(
            "{}  {}{unusual}",
            terminal.paint(style, &format!("{glyph} {word:<3}")),
            terminal.paint(BOLD, &visible(&flag.name))
        ));
        terminal.out_rows(terminal.paint(DIM, &format!("       {}", visible(&flag.about))));
    }
}
