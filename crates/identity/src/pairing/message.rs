//! What the two sides of a pairing say to each other.
//!
//! Guarantees: a message has one meaning. Fields that are not known, or stand there twice, are refused; bytes are base64url without padding,
//! in one spelling; what a device says about itself hides nothing.

use palyra_types::{DeviceId, word::words};
use serde::{Deserialize, Serialize};

use super::{code::Method, label::Label};

/// One message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Message {
    /// The device begins.
    Hello(Hello),
    /// The daemon's part of the key exchange.
    Challenge {
        /// Its SPAKE2 message.
        #[serde(with = "base64url")]
        pake: Vec<u8>,
    },
    /// Whoever sends it knows the code. First the device, then the daemon.
    Proof {
        /// A code of authentication over everything that was said.
        #[serde(with = "base64url")]
        mac: Vec<u8>,
    },
    /// The operator has confirmed; this is what the device becomes.
    Granted(Granted),
    /// The device has written down what it was granted.
    Kept {},
    /// The daemon lets the device in from now on.
    Done {},
    /// It ends here.
    Refused(Refused),
}

/// How a device begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    /// The version of the protocol.
    pub v: u64,
    /// How the code came to the device.
    pub method: Method,
    /// Its SPAKE2 message.
    #[serde(with = "base64url")]
    pub pake: Vec<u8>,
    /// Its request for a certificate.
    #[serde(with = "base64url")]
    pub csr: Vec<u8>,
    /// What it calls itself.
    pub name: Label,
    /// What it runs on.
    pub os: Label,
}

/// What a device becomes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Granted {
    /// What the daemon calls the device.
    pub device_id: DeviceId,
    /// Its certificate, as PEM.
    pub certificate: String,
    /// The authorities to trust, as PEM.
    pub authorities: String,
    /// For whom it acts.
    pub principal: String,
    /// The most that it may do, if it acts for a person.
    pub role: Option<String>,
}

/// Why it ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refused {
    /// For programs.
    pub code: RefusalCode,
    /// For people. From the other side: to be shown with `visible`.
    pub message: String,
}

words! {
    /// Why a pairing ends without a certificate.
    pub enum RefusalCode ("code of a refusal") {
        /// No pairing is open.
        NoPairing = "no_pairing",
        /// The code is wrong, or somebody is in the middle.
        WrongCode = "wrong_code",
        /// No guesses are left.
        UsedUp = "used_up",
        /// The time is over.
        TooLate = "too_late",
        /// Another device has proved that it knows the code.
        Busy = "busy",
        /// A message that makes no sense here.
        BadMessage = "bad_message",
        /// The operator did not answer in time.
        NotConfirmed = "not_confirmed",
        /// The operator said no.
        Denied = "denied",
        /// The device did not keep what it was granted.
        NotKept = "not_kept",
        /// The daemon could not go on.
        Internal = "internal",
    }
}

impl RefusalCode {
    /// What whoever holds the device can do about it.
    #[must_use]
    pub const fn advice(self) -> &'static str {
        match self {
            Self::NoPairing | Self::UsedUp | Self::TooLate => "open a new pairing on the daemon",
            Self::WrongCode => {
                "check the code and try again; if it was right, somebody may be in the middle: use another network"
            }
            Self::Busy => "if the other device is not yours, deny it on the daemon and open a new pairing",
            Self::BadMessage => "use the same version of the program on both sides",
            Self::NotConfirmed => "open a new pairing, and confirm the device on the daemon",
            Self::Denied => "ask the operator",
            Self::NotKept => "check that the disk of the device has space, and open a new pairing",
            Self::Internal => "look into the log of the daemon",
        }
    }
}

impl Message {
    /// A refusal.
    #[must_use]
    pub fn refused(code: RefusalCode, message: impl Into<String>) -> Self {
        Self::Refused(Refused { code, message: message.into() })
    }

    /// The word in `type`.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Hello(_) => "hello",
            Self::Challenge { .. } => "challenge",
            Self::Proof { .. } => "proof",
            Self::Granted(_) => "granted",
            Self::Kept {} => "kept",
            Self::Done {} => "done",
            Self::Refused(_) => "refused",
        }
    }
}

/// Bytes in JSON.
mod base64url {
    use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&URL_SAFE_NO_PAD.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        URL_SAFE_NO_PAD.decode(text).map_err(|_| de::Error::custom("not base64url without padding"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Message, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_message_is_written_as_the_protocol_says() {
        let hello = Message::Hello(Hello {
            v: 1,
            method: Method::Pin,
            pake: vec![0xff, 0xfe],
            csr: vec![1],
            name: Label::parse("laptop").unwrap(),
            os: Label::parse("linux").unwrap(),
        });
        let granted = Message::Granted(Granted {
            device_id: DeviceId::parse("dev-1").unwrap(),
            certificate: "C".to_owned(),
            authorities: "A".to_owned(),
            principal: "user:ada".to_owned(),
            role: Some("owner".to_owned()),
        });
        for (message, text) in [
            (hello, r#"{"type":"hello","v":1,"method":"pin","pake":"__4","csr":"AQ","name":"laptop","os":"linux"}"#),
            (Message::Challenge { pake: vec![0] }, r#"{"type":"challenge","pake":"AA"}"#),
            (Message::Proof { mac: vec![] }, r#"{"type":"proof","mac":""}"#),
            (
                granted,
                r#"{"type":"granted","device_id":"dev-1","certificate":"C","authorities":"A","principal":"user:ada","role":"owner"}"#,
            ),
            (Message::Kept {}, r#"{"type":"kept"}"#),
            (Message::Done {}, r#"{"type":"done"}"#),
            (
                Message::refused(RefusalCode::WrongCode, "no"),
                r#"{"type":"refused","code":"wrong_code","message":"no"}"#,
            ),
        ] {
            assert_eq!(serde_json::to_string(&message).unwrap(), text);
            assert_eq!(read(text), Ok(message.clone()));
            assert!(text.contains(&format!(r#""type":"{}""#, message.kind())));
        }
    }

    #[test]
    fn a_message_with_anything_else_in_it_is_refused() {
        for text in [
            r#"{}"#,
            r#"{"type":"kept","more":1}"#,
            r#"{"type":"done","type":"done"}"#,
            r#"{"type":"bye"}"#,
            r#"{"type":"challenge","pake":"AA","pake":"AA"}"#,
            r#"{"type":"challenge","pake":"AA","more":1}"#,
            r#"{"type":"challenge","pake":"AA=="}"#,
            r#"{"type":"challenge","pake":"AB"}"#,
            r#"{"type":"challenge","pake":"+w"}"#,
            r#"{"type":"refused","code":"because","message":""}"#,
            r#"{"type":"hello","v":1,"method":"pin","pake":"","csr":"","name":"a\u202eb","os":"linux"}"#,
            r#"{"type":"hello","v":1,"method":"nfc","pake":"","csr":"","name":"a","os":"linux"}"#,
            r#"{"type":"hello","v":1,"method":"pin","pake":"","csr":"","name":"a","os":"linux","x":1}"#,
            r#"[{"type":"kept"}]"#,
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
