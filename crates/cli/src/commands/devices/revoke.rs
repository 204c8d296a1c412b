//! `palyra devices revoke`: a device is cut off, at once and for good.

use clap::Args;
use palyra_api::device::RevokeDevice;
use palyra_client::Client;

use crate::{
    Outcome,
    connection::Connection,
    exit::Exit,
    keyboard::Keyboard,
    revoked,
    short_id::{Sort, meant},
    terminal::Terminal,
};

#[derive(Args)]
pub(crate) struct RevokeArgs {
    /// The device: its id, or the beginning or the end of it.
    id: String,
    /// Revoke even the last device of the last owner. Then only whoever can write the daemon's state directory lets one in again.
    #[arg(long)]
    even_the_last: bool,
    /// Do not ask, even if it is the device in use.
    #[arg(long)]
    yes: bool,
}

pub(super) async fn run(args: &RevokeArgs, daemon: &Client, connection: &Connection, terminal: &Terminal) -> Outcome {
    let devices = daemon.devices().await?.devices;
    let device = meant(&devices, |device| device.id.as_str(), &args.id, &DEVICE)?;
    if device.this_one && !args.yes && !is_meant(connection).await {
        terminal.talk("nothing was revoked");
        return Ok(Exit::Rejected);
    }
    let how = RevokeDevice { even_the_last: args.even_the_last };
    revoked::tell(&daemon.revoke_device(&device.id, &how).await?, terminal);
    if device.this_one {
        terminal.talk("that was this device: the daemon lets it in no more");
        terminal.talk(format!("what it keeps is of no use: {}", connection.once_refused()));
    }
    Ok(Exit::Ok)
}

/// Asks whoever is at the terminal whether they mean the device in use. Without anybody there, it is meant.
async fn is_meant(connection: &Connection) -> bool {
    let Some(mut keyboard) = Keyboard::open() else { return true };
    keyboard.show("that is the device in use: the daemon will let it in no more, and it never comes back");
    keyboard.show(&format!("afterwards, {}", connection.once_refused()));
    keyboard.prompt("revoke it? [y/N] ");
    matches!(keyboard.line().await.as_deref().map(str::trim), Some("y" | "Y" | "yes"))
}

const DEVICE: Sort = Sort {
    one: "device",
    many: "devices",
    code: "no_such_device",
    help: "`palyra devices list` shows them; at least 4 characters of an id are enough",
};
