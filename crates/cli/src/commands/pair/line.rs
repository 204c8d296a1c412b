//! The connection of a pairing: messages to the daemon and from it, over TLS that trusts nobody yet.
//!
//! Guarantees: nothing waits for ever. Does not: know who is there. The proofs of the pairing show that.

use std::{sync::Arc, time::Duration};

use palyra_identity::{
    Address, SERVER_NAME,
    pairing::{Channel, Frames, Message, encode},
    pairing_client_config,
};
use palyra_types::clock::SystemClock;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream, rustls::pki_types::ServerName};

use crate::{exit::Exit, failure::Failure};

/// A connection to whoever listens at an address.
pub(super) struct Line {
    stream: TlsStream<TcpStream>,
    frames: Frames,
    address: Address,
}

impl Line {
    /// Connects.
    pub(super) async fn connect(address: &Address) -> Result<Self, Failure> {
        let tls = pairing_client_config(Arc::new(SystemClock::new())).map_err(|error| {
            Failure::new(Exit::Failure, "tls", "there is no TLS here", error.to_string(), error.advice())
        })?;
        let name = ServerName::try_from(SERVER_NAME).map_err(|error| strange(address, &error.to_string()))?;
        let connected = timeout(PATIENCE, TcpStream::connect(address.to_string())).await;
        let stream = match connected {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(unreachable(address, &error.to_string())),
            Err(_) => return Err(unreachable(address, "nobody answered in time")),
        };
        match timeout(PATIENCE, TlsConnector::from(tls).connect(name, stream)).await {
            Ok(Ok(stream)) => Ok(Self { stream, frames: Frames::new(), address: address.clone() }),
            Ok(Err(error)) => Err(strange(address, &error.to_string())),
            Err(_) => Err(strange(address, "the handshake took too long")),
        }
    }

    /// What the proofs say about this very connection.
    pub(super) fn channel(&self) -> Result<Channel, Failure> {
        Channel::of_device(self.stream.get_ref().1).map_err(|error| strange(&self.address, &error.to_string()))
    }

    /// Sends a message.
    pub(super) async fn send(&mut self, message: &Message) -> Result<(), Failure> {
        let frame = encode(message).map_err(|error| strange(&self.address, &error.to_string()))?;
        let sent = timeout(PATIENCE, async {
            self.stream.write_all(&frame).await?;
            self.stream.flush().await
        });
        match sent.await {
            Ok(sent) => sent.map_err(|error| lost(&self.address, &error.to_string())),
            Err(_) => Err(lost(&self.address, "it takes nothing any more")),
        }
    }

    /// The next message, if it comes within this time.
    pub(super) async fn receive(&mut self, within: Duration) -> Result<Message, Failure> {
        match timeout(within, self.next()).await {
            Ok(message) => message,
            Err(_) => Err(lost(&self.address, "it did not answer in time")),
        }
    }

    async fn next(&mut self) -> Result<Message, Failure> {
        let mut piece = [0; 4096];
        loop {
            let strange = |error: palyra_identity::pairing::FrameError| strange(&self.address, &error.to_string());
            if let Some(message) = self.frames.pop().map_err(strange)? {
                return Ok(message);
            }
            let count = match self.stream.read(&mut piece).await {
                Ok(0) => return Err(lost(&self.address, "it hung up")),
                Ok(count) => count,
                Err(error) => return Err(lost(&self.address, &error.to_string())),
            };
            self.frames.push(piece.get(..count).unwrap_or_default()).map_err(strange)?;
        }
    }
}

fn unreachable(address: &Address, cause: &str) -> Failure {
    let help =
        "check the address; a daemon that others can reach has it as `control` under [listen] in its config.toml";
    let what = format!("nobody answers at {address}");
    Failure::new(Exit::Unreachable, "unreachable", what, cause, help)
}

fn strange(address: &Address, cause: &str) -> Failure {
    let what = format!("whoever listens at {address} does not pair");
    let help = "check the address, and open a pairing there: `palyra devices pair`";
    Failure::new(Exit::Unreachable, "no_pairing", what, cause, help)
}

fn lost(address: &Address, cause: &str) -> Failure {
    let what = format!("the daemon at {address} went away; nothing was paired");
    let help = "open another pairing there: `palyra devices pair`";
    Failure::new(Exit::Unreachable, "lost", what, cause, help)
}

/// How long the daemon may take for what needs no person.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
