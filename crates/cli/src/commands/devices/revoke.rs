//! `palyra devices revoke`: a device is cut off, at once and for good.

use clap::Args;
use palyra_api::device::RevokeDevice;
use palyra_client::Client;

use crate::{
    Outcome,
    connection::Connection,
    exit::Exit,
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
}

pub(super) async fn run(args: &RevokeArgs, daemon: &Client, connection: &Connection, terminal: &Terminal) -> Outcome {
    let devices = daemon.devices().await?.devices;
    let device = meant(&devices, |device| device.id.as_str(), &args.id, &DEVICE)?;
    let how = RevokeDevice { even_the_last: args.even_the_last };
    revoked::tell(&daemon.revoke_device(&device.id, &how).await?, terminal);
    if device.this_one {
        terminal.talk("that was this device: the daemon lets it in no more");
        terminal.talk(format!("what it keeps is of no use: {}", connection.once_refused()));
    }
    Ok(Exit::Ok)
}

const DEVICE: Sort = Sort {
    one: "device",
    many: "devices",
    code: "no_such_device",
    help: "`palyra devices list` shows them; at least 4 characters of an id are enough",
};
