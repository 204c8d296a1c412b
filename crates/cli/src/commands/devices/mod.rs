//! `palyra devices …`: who is paired with the daemon, and how another one is.

mod authority;
mod confirm;
mod export;
mod list;
mod pair;
mod qr;
mod revoke;

use clap::Subcommand;
use palyra_api::device::Candidate;
use palyra_types::visible::visible;

use crate::{Outcome, at::At, connection::Connection, terminal::Terminal};

#[derive(Subcommand)]
pub(crate) enum DevicesCommand {
    /// Open a pairing: shows a PIN and a QR code, and asks before a device is let in.
    Pair(pair::PairArgs),
    /// Tell how a pairing stands, or end it.
    Pairing(confirm::PairingArgs),
    /// Say yes to the device that knew the PIN of a pairing.
    Confirm(confirm::ConfirmArgs),
    /// List the paired devices.
    List(list::ListArgs),
    /// Revoke a device, at once. It never comes back; it has to be paired anew.
    Revoke(revoke::RevokeArgs),
    /// Write the key and the certificate of this device to files, for programs such as curl.
    Export(export::ExportArgs),
    /// See and replace the authority that certifies devices.
    Authority(authority::AuthorityArgs),
}

pub(crate) fn run(command: DevicesCommand, at: &At, terminal: &Terminal) -> Outcome {
    if let DevicesCommand::Authority(args) = &command {
        authority::follow(*args, at, terminal)?;
    }
    let connection = Connection::find(at, terminal)?;
    connection.run(async |daemon| match command {
        DevicesCommand::Pair(args) => pair::run(&args, daemon, terminal).await,
        DevicesCommand::Pairing(args) => confirm::show(&args, daemon, terminal).await,
        DevicesCommand::Confirm(args) => confirm::run(&args, daemon, terminal).await,
        DevicesCommand::List(args) => list::run(&args, daemon, terminal).await,
        DevicesCommand::Revoke(args) => revoke::run(&args, daemon, &connection, terminal).await,
        // What this device holds is here; nobody is asked.
        DevicesCommand::Export(args) => export::run(&args, &connection, terminal),
        DevicesCommand::Authority(args) => authority::run(args, daemon, terminal).await,
    })
}

/// What is known of a device that wants to be paired: what the daemon saw, and apart from it what the device says.
fn candidate(device: &Candidate) -> [String; 6] {
    let Candidate { observed, reported } = device;
    [
        "observed, by the daemon itself".to_owned(),
        format!("  address  {}", visible(&observed.address)),
        format!("  key      {}", visible(&observed.fingerprint)),
        "reported, by the device, and checked by nobody".to_owned(),
        format!("  name     {}", visible(&reported.name)),
        format!("  system   {}", visible(&reported.os)),
    ]
}
