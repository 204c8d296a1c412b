//! A daemon and its devices in memory, for tests: real handshakes, no sockets, and time that stands still.

use std::{
    io::{Read, Write},
    sync::Arc,
};

use palyra_types::{Clock, DeviceId, Timestamp, clock::ManualClock, entropy::SystemEntropy};
use rustls::{
    ClientConfig, ClientConnection, ConnectionCommon, Error, ServerConfig, ServerConnection, SideData,
    pki_types::ServerName,
};

use crate::{
    Address, Authority, DeviceIdentity, DeviceKeyRequest, SERVER_NAME, ServerCertificate, issue_device, issue_server,
    new_device_key,
};

/// A daemon.
pub(crate) struct Lab {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) authority: Authority,
    pub(crate) server: ServerCertificate,
}

impl Lab {
    pub(crate) fn new() -> Self {
        let clock = Arc::new(ManualClock::at(START));
        let authority = Authority::create(&*clock, &SystemEntropy).unwrap();
        Self::with(clock, authority)
    }

    /// A daemon with another authority, at the same time.
    pub(crate) fn with(clock: Arc<ManualClock>, authority: Authority) -> Self {
        let server = issue_server(&authority, &["192.0.2.7".to_owned()], &*clock, &SystemEntropy).unwrap();
        Self { clock, authority, server }
    }

    pub(crate) fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock) as Arc<dyn Clock>
    }

    pub(crate) fn after(&self, days: i64) {
        self.clock.set_wall(Timestamp::from_unix_millis(START.unix_millis() + days * DAY));
    }

    /// A device that was paired with this daemon just now.
    pub(crate) fn device(&self) -> DeviceIdentity {
        let (key, request) = new_device_key().unwrap();
        self.device_with(key, &request)
    }

    pub(crate) fn device_with(&self, key: zeroize::Zeroizing<String>, request: &DeviceKeyRequest) -> DeviceIdentity {
        let device = DeviceId::parse("laptop-1").unwrap();
        let issued = issue_device(&self.authority, request, &device, &*self.clock, &SystemEntropy).unwrap();
        DeviceIdentity {
            name: "home".to_owned(),
            address: Address::parse("192.0.2.7:7443").unwrap(),
            authorities: self.authority.bundle_pem(),
            certificate: issued.pem,
            key,
            device,
            principal: "user:ada".to_owned(),
            role: Some("owner".to_owned()),
        }
    }
}

/// Two ends of one connection.
#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) server: ServerConnection,
    pub(crate) client: ClientConnection,
}

/// Who ended a handshake, and why.
#[derive(Debug, PartialEq)]
pub(crate) enum Failed {
    Server(Error),
    Client(Error),
}

impl Wire {
    /// Shakes hands until there is nothing left to say.
    pub(crate) fn connect(server: Arc<ServerConfig>, client: Arc<ClientConfig>) -> Result<Self, Failed> {
        let client = ClientConnection::new(client, ServerName::try_from(SERVER_NAME).unwrap()).unwrap();
        let mut wire = Self { server: ServerConnection::new(server).unwrap(), client };
        wire.carry()?;
        assert!(!wire.server.is_handshaking() && !wire.client.is_handshaking());
        Ok(wire)
    }

    /// Carries everything that either end has to say to the other.
    pub(crate) fn carry(&mut self) -> Result<(), Failed> {
        while self.client.wants_write() || self.server.wants_write() {
            carry(&mut self.client, &mut self.server).map_err(Failed::Server)?;
            carry(&mut self.server, &mut self.client).map_err(Failed::Client)?;
        }
        Ok(())
    }

    /// Says something from the client to the server.
    pub(crate) fn send_to_server(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.client.writer().write_all(bytes).unwrap();
        self.carry().unwrap();
        heard(&mut self.server)
    }

    /// Says something from the server to the client.
    pub(crate) fn send_to_client(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.server.writer().write_all(bytes).unwrap();
        self.carry().unwrap();
        heard(&mut self.client)
    }
}

fn carry<A: SideData, B: SideData>(from: &mut ConnectionCommon<A>, to: &mut ConnectionCommon<B>) -> Result<(), Error> {
    let mut bytes = Vec::new();
    while from.wants_write() {
        from.write_tls(&mut bytes).unwrap();
    }
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        to.read_tls(&mut rest).unwrap();
        to.process_new_packets()?;
    }
    Ok(())
}

fn heard<A: SideData>(end: &mut ConnectionCommon<A>) -> Vec<u8> {
    let mut bytes = vec![0; 16 * 1024];
    let length = end.reader().read(&mut bytes).unwrap();
    bytes.truncate(length);
    bytes
}

/// Bytes from hexadecimal digits.
pub(crate) fn unhex(digits: &str) -> Vec<u8> {
    let digits: Vec<char> = digits.chars().filter(|digit| !digit.is_whitespace()).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap()).collect()
}

pub(crate) const START: Timestamp = Timestamp::from_unix_millis(1_770_000_000_000);

pub(crate) const DAY: i64 = 24 * 60 * 60 * 1_000;
