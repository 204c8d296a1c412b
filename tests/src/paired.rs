//! A device that pairs with a daemon, step by step, over a real connection: what `palyra pair` does, with room for mistakes.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a device that cannot be set up ends the test")]

use std::sync::Arc;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use palyra_api::device::{ConfirmPairing, NewPairing, Pairing, Renewal, Renewed};
use palyra_client::{Client, ClientError};
use palyra_identity::{
    Address, DeviceIdentity, DeviceKeyRequest, new_device_key,
    pairing::{Channel, Code, DeviceHello, DeviceSide, Frames, Granted, Label, Message, Pin, Proved, QrText, encode},
    pairing_client_config, request_for,
};
use palyra_types::clock::SystemClock;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinHandle,
};
use tokio_rustls::{TlsConnector, client::TlsStream, rustls::pki_types::ServerName};

use crate::daemon::DaemonLab;

/// A device that is about to be paired.
pub struct Candidate {
    stream: TlsStream<TcpStream>,
    frames: Frames,
    /// Its key, as PEM.
    pub key: String,
    request: DeviceKeyRequest,
    name: String,
}

impl Candidate {
    /// A device with a new key, connected to the control listener.
    pub async fn connect(lab: &DaemonLab, name: &str) -> Self {
        let (key, request) = new_device_key().unwrap();
        let config = pairing_client_config(Arc::new(SystemClock::new())).unwrap();
        let stream = TcpStream::connect(lab.control()).await.unwrap();
        let stream = TlsConnector::from(config).connect(ServerName::try_from("localhost").unwrap(), stream).await;
        let (key, name) = (key.to_string(), name.to_owned());
        Self { stream: stream.unwrap(), frames: Frames::new(), key, request, name }
    }

    /// Shows that it knows a code. `None` if the daemon says no, and then why.
    ///
    /// # Errors
    /// The code of the refusal.
    pub async fn prove(&mut self, code: Code) -> Result<Proved, String> {
        let channel = Channel::of_device(self.stream.get_ref().1).unwrap();
        let hello = DeviceHello {
            request: self.request.clone(),
            name: Label::parse(&self.name).unwrap(),
            os: Label::parse("Lab OS 1").unwrap(),
        };
        let (side, hello) = DeviceSide::begin(code, hello, channel);
        self.say(&hello).await;
        let challenge = self.hear().await?;
        let (side, proof) = side.on_challenge(challenge).map_err(|error| error.code().to_string())?;
        self.say(&proof).await;
        let proof = self.hear().await?;
        side.on_proof(proof).map_err(|error| error.code().to_string())
    }

    /// Says hello and nothing more.
    pub async fn greet(&mut self, code: Code) -> Result<(), String> {
        let channel = Channel::of_device(self.stream.get_ref().1).unwrap();
        let hello = DeviceHello {
            request: self.request.clone(),
            name: Label::parse(&self.name).unwrap(),
            os: Label::parse("Lab OS 1").unwrap(),
        };
        let (_, hello) = DeviceSide::begin(code, hello, channel);
        self.say(&hello).await;
        self.hear().await.map(|_| ())
    }

    /// Waits for its certificate.
    ///
    /// # Errors
    /// The code of the refusal.
    pub async fn granted(&mut self, proved: &Proved) -> Result<Granted, String> {
        let message = self.hear().await?;
        proved.on_granted(message).map_err(|error| error.code().to_string())
    }

    /// Says that it kept its certificate, and waits to be told that it is let in.
    ///
    /// # Errors
    /// The code of the refusal.
    pub async fn kept(&mut self) -> Result<(), String> {
        self.say(&Message::Kept {}).await;
        self.hear().await.map(|_| ())
    }

    /// The identity that comes of what it was granted.
    #[must_use]
    pub fn identity(&self, lab: &DaemonLab, granted: &Granted) -> DeviceIdentity {
        DeviceIdentity {
            name: "lab".to_owned(),
            address: Address::parse(&lab.control().to_string()).unwrap(),
            authorities: granted.authorities.clone(),
            certificate: granted.certificate.clone(),
            key: self.key.clone().into(),
            device: granted.device_id.clone(),
            principal: granted.principal.clone(),
            role: granted.role.clone(),
        }
    }

    /// Sends bytes as they are.
    pub async fn raw(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes).await;
        let _ = self.stream.flush().await;
    }

    async fn say(&mut self, message: &Message) {
        self.raw(&encode(message).unwrap()).await;
    }

    /// What the daemon says next.
    ///
    /// # Errors
    /// The code of a refusal, or `closed`.
    pub async fn hear(&mut self) -> Result<Message, String> {
        let mut space = [0; 4_096];
        loop {
            match self.frames.pop() {
                Ok(Some(Message::Refused(refused))) => return Err(refused.code.to_string()),
                Ok(Some(message)) => return Ok(message),
                Ok(None) => {}
                Err(error) => return Err(error.to_string()),
            }
            match self.stream.read(&mut space).await {
                Ok(0) | Err(_) => return Err("closed".to_owned()),
                Ok(count) => self.frames.push(space.get(..count).unwrap_or_default()).unwrap(),
            }
        }
    }
}

/// The code of a PIN.
#[must_use]
pub fn pin(text: &str) -> Code {
    Code::Pin(Pin::parse(text).unwrap())
}

/// The code of a QR text.
#[must_use]
pub fn secret(text: &str) -> Code {
    Code::Secret(QrText::parse(text).unwrap().secret)
}

/// Pairs a device, from its hello to its identity.
pub async fn pair(lab: &DaemonLab, new: &NewPairing) -> DeviceIdentity {
    let Granting { mut device, identity, confirming } = grant(lab, lab.owner(), new).await;
    device.kept().await.unwrap();
    confirming.await.unwrap().unwrap();
    identity
}

/// A device that was granted its certificate, and has yet to say that it kept it.
pub struct Granting {
    /// The device.
    pub device: Candidate,
    /// Who it is, once it is let in.
    pub identity: DeviceIdentity,
    /// Whoever confirmed it, and waits for what comes of it.
    pub confirming: JoinHandle<Result<Pairing, ClientError>>,
}

/// Pairs a device that somebody confirms, up to its certificate and no further.
pub async fn grant(lab: &DaemonLab, by: Client, new: &NewPairing) -> Granting {
    let open = by.open_pairing(new).await.unwrap();
    let mut device = Candidate::connect(lab, "phone").await;
    let proved = device.prove(pin(&open.pin)).await.unwrap();
    let key = by.pairing(&open.id).await.unwrap().device.unwrap().observed.key;
    let confirming = tokio::spawn(async move { by.confirm_pairing(&open.id, &ConfirmPairing { key }).await });
    let granted = device.granted(&proved).await.unwrap();
    let identity = device.identity(lab, &granted);
    Granting { device, identity, confirming }
}

/// Has the certificate of a device renewed, and everything that is trusted told to it, as every command does.
pub async fn renew(lab: &DaemonLab, device: &mut DeviceIdentity) {
    let request = request_for(&device.key).unwrap();
    let csr = BASE64_URL_SAFE_NO_PAD.encode(request.der());
    let Renewed { certificate, authorities, .. } = lab.of_device(device).renew(&Renewal { csr }).await.unwrap();
    (device.certificate, device.authorities) = (certificate, authorities);
}
