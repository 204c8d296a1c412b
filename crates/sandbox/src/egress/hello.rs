//! Reads the first message of a TLS client: which server it names, and whether it hides another name. And reads of a
//! host's answer whether it asks for such a message again.
//!
//! Guarantees: every length is checked; a hello may be split over records and reads in any way; two extensions of one
//! type, two server names, or bytes behind the hello in its record make it unreadable, so that no server reads it
//! differently. Never panics.
//! Does not: decrypt, or change anything. What was read is passed on as it came.

use std::collections::BTreeSet;

/// What is known about a connection by its first bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reading {
    /// Nothing yet: the hello is not complete.
    More,
    /// This is the hello.
    Hello(ClientHello),
    /// This is no TLS.
    NotTls,
    /// This begins like TLS and goes on like nothing that a server would take.
    Broken(&'static str),
}

/// What a hello says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientHello {
    /// The server that the client wants to talk to.
    pub server_name: Option<Vec<u8>>,
    /// Whether there is an encrypted part, which may name another server.
    pub is_encrypted: bool,
    /// How many bytes it takes, records and all. What follows is something else.
    pub length: usize,
}

/// What is known about a host's answer to a hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Nothing yet.
    More,
    /// The host asks for another hello. So many bytes were needed to say that, records and all.
    Again(usize),
    /// The host asks for nothing: it says hello itself, or is none that speaks TLS.
    Settled,
}

/// Reads what has come so far.
pub(crate) fn read(bytes: &[u8]) -> Reading {
    let mut rest = Bytes(bytes);
    let mut message = Vec::new();
    let mut announced = 0_usize;
    loop {
        match rest.0 {
            [] => return Reading::More,
            [HANDSHAKE] | [HANDSHAKE, 3] | [HANDSHAKE, 3, _] | [HANDSHAKE, 3, _, _] => return Reading::More,
            [HANDSHAKE, 3, ..] => {}
            _ if announced == 0 => return Reading::NotTls,
            _ => return Reading::Broken("something else comes between the parts of the hello"),
        }
        let Some(length) = rest.take(3).and_then(|_| rest.u16()) else { return Reading::More };
        if length == 0 || length > LONGEST_RECORD {
            return Reading::Broken("a record has a length that none has");
        }
        announced = announced.saturating_add(length);
        let here = length.min(rest.0.len());
        message.extend_from_slice(rest.take(here).unwrap_or_default());
        match whole(&message, announced) {
            Ok(Some(body)) => {
                let length = bytes.len() - rest.0.len();
                return match parse(body) {
                    Ok(hello) => Reading::Hello(ClientHello { length, ..hello }),
                    Err(reason) => Reading::Broken(reason),
                };
            }
            Ok(None) if here < length => return Reading::More,
            Ok(None) => {}
            Err(reason) => return Reading::Broken(reason),
        }
    }
}

/// Where the next handshake message of a client begins, behind what may stand between two of them: early data, and the
/// records that only look like a change of ciphers. Nothing as long as none has begun.
///
/// # Errors
/// When there is something else.
pub(crate) fn next_message(bytes: &[u8]) -> Result<Option<usize>, &'static str> {
    let mut rest = Bytes(bytes);
    loop {
        match rest.0 {
            [] => return Ok(None),
            [HANDSHAKE, ..] => return Ok(Some(bytes.len() - rest.0.len())),
            [CHANGE_CIPHER | ALERT | DATA, ..] => {}
            _ => return Err("something else than TLS follows the hello"),
        }
        let Some(length) = rest.take(3).and_then(|_| rest.u16()) else { return Ok(None) };
        if rest.take(length).is_none() {
            return Ok(None);
        }
    }
}

/// Reads what a host has answered so far.
pub(crate) fn answer(bytes: &[u8]) -> Answer {
    let mut rest = Bytes(bytes);
    let mut message = Vec::new();
    loop {
        let is_handshake = match rest.0 {
            [] => return Answer::More,
            [HANDSHAKE, ..] => true,
            // A warning, or what is left of the answer before.
            [ALERT | CHANGE_CIPHER, ..] => false,
            _ => return Answer::Settled,
        };
        let Some(length) = rest.take(3).and_then(|_| rest.u16()) else { return Answer::More };
        let here = length.min(rest.0.len());
        let content = rest.take(here).unwrap_or_default();
        if is_handshake {
            message.extend_from_slice(content);
        }
        match asks_again(&message) {
            Some(false) => return Answer::Settled,
            Some(true) if here == length => return Answer::Again(bytes.len() - rest.0.len()),
            Some(true) | None if here < length => return Answer::More,
            Some(true) | None => {}
        }
    }
}

/// Whether a message asks for another hello, once that is known and all of it is there.
fn asks_again(message: &[u8]) -> Option<bool> {
    if message.first().is_some_and(|&kind| kind != SERVER_HELLO) {
        return Some(false);
    }
    let mut rest = Bytes(message);
    let length = rest.take(1).and_then(|_| rest.u24())?;
    let mut body = Bytes(rest.0);
    let random = body.take(2).and_then(|_| body.take(RETRY.len()))?;
    if random != RETRY {
        return Some(false);
    }
    rest.take(length).map(|_| true)
}

/// The body of the hello, once all of it is there.
fn whole(message: &[u8], announced: usize) -> Result<Option<&[u8]>, &'static str> {
    if message.first().is_some_and(|&kind| kind != CLIENT_HELLO) {
        return Err("the first message is no client hello");
    }
    let mut rest = Bytes(message);
    let Some(length) = rest.take(1).and_then(|_| rest.u24()) else { return Ok(None) };
    if length > LONGEST_HELLO {
        return Err("the hello is too long");
    }
    if announced > length + 4 {
        return Err("something follows the hello in its record");
    }
    Ok(rest.take(length))
}

fn parse(body: &[u8]) -> Result<ClientHello, &'static str> {
    fields(body).ok_or("the hello is cut off or overlong inside")?
}

/// `None` where a length leads beyond what is there.
fn fields(body: &[u8]) -> Option<Result<ClientHello, &'static str>> {
    let mut rest = Bytes(body);
    if rest.u8()? != 3 {
        return Some(Err("the hello has a version that none has"));
    }
    rest.take(1 + 32)?;
    let session = rest.vector8()?;
    let suites = rest.vector16()?;
    let compressions = rest.vector8()?;
    if session.len() > 32 || suites.is_empty() || suites.len() % 2 != 0 || compressions.is_empty() {
        return Some(Err("the hello has a field with a length that none has"));
    }
    let mut hello = ClientHello { server_name: None, is_encrypted: false, length: 0 };
    if rest.0.is_empty() {
        return Some(Ok(hello));
    }
    let mut extensions = Bytes(rest.vector16()?);
    if !rest.0.is_empty() {
        return Some(Err("something follows the extensions"));
    }
    let mut kinds = BTreeSet::new();
    while !extensions.0.is_empty() {
        let kind = extensions.u16()?;
        let content = extensions.vector16()?;
        if !kinds.insert(kind) {
            return Some(Err("an extension stands there twice"));
        }
        match kind {
            SERVER_NAME => match server_name(content)? {
                Ok(name) => hello.server_name = Some(name),
                Err(reason) => return Some(Err(reason)),
            },
            ENCRYPTED_HELLO | ENCRYPTED_NAME => hello.is_encrypted = true,
            _ => {}
        }
    }
    Some(Ok(hello))
}

fn server_name(content: &[u8]) -> Option<Result<Vec<u8>, &'static str>> {
    let mut outer = Bytes(content);
    let mut list = Bytes(outer.vector16()?);
    let kind = list.u8()?;
    let name = list.vector16()?;
    if kind != 0 || name.is_empty() || !list.0.is_empty() || !outer.0.is_empty() {
        return Some(Err("there is not one server name"));
    }
    Some(Ok(name.to_vec()))
}

/// What is left to read.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1).and_then(<[u8]>::first).copied()
    }

    fn number(&mut self, bytes: usize) -> Option<usize> {
        Some(self.take(bytes)?.iter().fold(0, |number, &byte| (number << 8) | usize::from(byte)))
    }

    fn u16(&mut self) -> Option<usize> {
        self.number(2)
    }

    fn u24(&mut self) -> Option<usize> {
        self.number(3)
    }

    fn vector8(&mut self) -> Option<&'a [u8]> {
        let length = self.number(1)?;
        self.take(length)
    }

    fn vector16(&mut self) -> Option<&'a [u8]> {
        let length = self.number(2)?;
        self.take(length)
    }
}

const CHANGE_CIPHER: u8 = 20;
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;
const CLIENT_HELLO: u8 = 1;
const SERVER_HELLO: u8 = 2;
/// In the place of a server's random number this says that the server hello is a request for another client hello
/// (RFC 8446, 4.1.3).
const RETRY: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2, 0xa2, 0x11,
    0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];
const SERVER_NAME: usize = 0;
const ENCRYPTED_HELLO: usize = 0xfe0d;
/// The draft that came before.
const ENCRYPTED_NAME: usize = 0xffce;
const LONGEST_RECORD: usize = 1 << 14;
const LONGEST_HELLO: usize = 1 << 14;

#[cfg(test)]
mod tests;
