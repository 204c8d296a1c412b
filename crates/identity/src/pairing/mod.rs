//! Pairing: how a device that nobody knows comes to hold a certificate.
//!
//! The operator opens a [`Pairing`] on the daemon, which shows a PIN and a QR code. The device connects by TLS, and both sides prove to each
//! other that they know the code, without saying it (SPAKE2). Then the operator compares what the device shows with what the daemon shows,
//! and says yes. Only then is there a certificate.
//!
//! ```text
//! device                                          daemon
//!   hello  { method, pake, csr, name, os }  →       counts a guess before it answers
//!                                           ←  challenge { pake }
//!   proof  { mac }                          →       wrong: refused, and the guess is gone
//!                                           ←  proof { mac }
//!                                                   the operator confirms
//!                                           ←  granted { device_id, certificate, authorities, … }
//!   kept   {}                               →
//!                                           ←  done {}
//! ```
//!
//! Guarantees: a code bears three guesses, two minutes and one use; whoever listens, relays or replays learns nothing that a guess could be
//! checked against later; the proofs cover both keys, the authority and the TLS connection itself, so that who sits in the middle fails
//! even while the code is right on both ends; either side may hang up at any time, and nothing is left but a used guess.
//! Does not: move bytes, wait, or ask anybody. The daemon and the command line do.
//!
//! | you look for | read |
//! |---|---|
//! | PIN, secret and QR code | [`code`] |
//! | what is sent, and how it is cut into frames | [`message`], [`frames`] |
//! | what the proofs say about the connection | [`channel`] |
//! | the two sides | [`device`], [`daemon`] |
//! | one open pairing, its guesses and its end | [`open`] |

pub mod channel;
pub mod code;
pub mod daemon;
pub mod device;
pub mod failure;
pub mod frames;
pub mod label;
pub mod message;
pub mod open;
mod transcript;

pub use channel::{Channel, ChannelError};
pub use code::{Code, CodeError, Method, PairingCode, Pin, QrText, Secret, qr_modules};
pub use daemon::{DaemonSide, ProvedDevice};
pub use device::{AwaitingProof, DeviceHello, DeviceSide, Proved};
pub use failure::PairingError;
pub use frames::{FrameError, Frames, encode};
pub use label::{Label, LabelError};
pub use message::{Granted, Hello, Message, RefusalCode, Refused};
pub use open::{ConfirmError, End, Guess, Pairing, PairingRefusal, PairingState};

#[cfg(test)]
mod tests;
