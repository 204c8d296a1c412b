//! Clients that know of no proxy: they connect to the synthetic address of a name.
//!
//! Guarantees: a connection is one to the name behind its address, or it is reset. Does not: believe anything that the
//! client says about where it goes; its first words only have to agree.

use std::sync::Arc;

use tokio::net::TcpStream;

use super::{
    door::{ConnectionOutcome, Via},
    ledger::Entry,
    lobby::Seat,
    opening::{Client, reset},
    refusal::EgressRefusalKind as Kind,
    run::Run,
    tunnel::{Reached, Tunnel},
};

/// Serves one client.
pub(crate) async fn serve(run: Arc<Run>, stream: TcpStream) {
    let mut entry = Entry::new(&run.ledger, Via::Direct);
    let Ok(local) = stream.local_addr() else { return };
    let Some(host) = run.names.name_of(local.ip()) else {
        reset(&stream);
        let address = local.ip().to_canonical().to_string();
        entry = entry.named(&address, local.port());
        return entry.refused_as(Kind::NotListed, &format!("no name was given the address {address}"));
    };
    let mut client = Client::new(stream, Vec::new());
    entry.meant(&host, local.port());
    let admitted = tokio::select! {
        admitted = async {
            run.count()?;
            run.admit(&mut entry, host, local.port()).await
        } => admitted,
        () = client.gone(run.limits.header_bytes) => return,
    };
    match admitted {
        Ok(passage) => {
            let seat = Arc::new(Seat::new(&run.lobby));
            let tunnel = Tunnel { client, passage, entry };
            tunnel.carry(&run, &seat, Reached::NotYet).await;
        }
        Err(refusal) => {
            entry.ends(ConnectionOutcome::Refused(refusal.clone()));
            drop(entry);
            client.reject(&refusal).await;
        }
    }
}
