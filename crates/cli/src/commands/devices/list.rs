//! `palyra devices list`: the paired devices, and on demand those that were revoked.

use clap::Args;
use palyra_api::device::{Device, DeviceState, Devices};
use palyra_client::Client;
use palyra_types::visible::visible;

use crate::{
    Outcome,
    exit::Exit,
    table::{self, moment, moment_or},
    terminal::Terminal,
};

#[derive(Args)]
pub(crate) struct ListArgs {
    /// Also those that were revoked.
    #[arg(long)]
    all: bool,
}

pub(super) async fn run(args: &ListArgs, daemon: &Client, terminal: &Terminal) -> Outcome {
    let Devices { devices } = daemon.devices().await?;
    let there = devices.len();
    let devices: Vec<Device> =
        devices.into_iter().filter(|device| args.all || device.state != DeviceState::Revoked).collect();
    if terminal.json {
        terminal.document("devices", Devices { devices });
        return Ok(Exit::Ok);
    }
    let rows: Vec<[String; 8]> = devices.iter().map(row).collect();
    table::print(["", "ID", "NAME", "FOR", "AT MOST", "STATE", "LAST SEEN", "CERTIFICATE UNTIL"], &rows, terminal);
    if devices.iter().any(|device| device.this_one) {
        terminal.talk("* is this device");
    }
    if devices.iter().any(|device| device.state == DeviceState::CutOff) {
        terminal.talk(
            "what is cut off does not trust the authority, or is not trusted by it: `palyra devices revoke ID`, and pair it again",
        );
    }
    match there - devices.len() {
        0 => {}
        hidden => terminal.talk(format!("{hidden} revoked; `palyra devices list --all` shows them")),
    }
    Ok(Exit::Ok)
}

fn row(device: &Device) -> [String; 8] {
    [
        if device.this_one { "*" } else { " " }.to_owned(),
        device.id.to_string(),
        visible(&device.name),
        visible(&device.principal),
        device.role.map_or_else(|| "-".to_owned(), |role| role.to_string()),
        state(device.state).to_owned(),
        moment_or(device.last_seen, "never"),
        moment(device.certificate_until),
    ]
}

const fn state(state: DeviceState) -> &'static str {
    match state {
        DeviceState::Awaiting => "awaiting",
        DeviceState::Active => "active",
        DeviceState::CutOff => "cut off",
        DeviceState::Revoked => "revoked",
    }
}
