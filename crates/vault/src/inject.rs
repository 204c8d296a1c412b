//! Puts secrets into requests in the place of placeholders, where a binding lets them stand, and takes them out of what comes back.
//!
//! Guarantees: a value gets into a request only if the request goes to the bound host, and the placeholder stands at a bound place of it; a
//! placeholder anywhere else refuses the request. What binds is what was approved with the call and still is in the vault. What a host sends
//! back passes without every value that this run has sent anywhere.
//! Does not: connect, or look into requests to other hosts that are encrypted. A placeholder is worth nothing there.

use std::sync::{Arc, Mutex, PoisonError};

use base64::{Engine, prelude::BASE64_STANDARD};
use http::{HeaderName, HeaderValue, Uri, header, request, response, uri::PathAndQuery};
use palyra_types::{HostName, SecretRef, visible::visible};
use zeroize::Zeroizing;

use crate::{
    binding::{Binding, Position, is_unreserved},
    needles::{Held, More, Needle, Needles, Spelling, Told},
    placeholder::Placeholder,
    redact::{RedactingStream, Redactor},
    value::SecretValue,
    vault::{Lease, Vault},
};

/// A secret that a run may use without seeing it.
#[derive(Debug, Clone)]
pub struct Armed {
    /// The secret.
    pub secret: SecretRef,
    /// What the run sees.
    pub placeholder: Placeholder,
    /// Where it may go, as it was approved.
    pub bindings: Vec<Binding>,
}

/// The secrets of one run.
pub struct Injection(Arc<Secrets>);

struct Secrets {
    vault: Arc<Vault>,
    armed: Vec<Armed>,
    placeholders: Needles,
    witness: Arc<dyn Witness>,
    redactor: Redactor,
    /// What was sent.
    sent: Mutex<Sent>,
}

/// Hears of what becomes of secrets.
pub trait Witness: Send + Sync {
    /// A secret went to a host for the first time in this run, or at another place of a request. Waits for nobody.
    fn used(&self, used: &Used);

    /// A placeholder stood where it may not.
    fn misused(&self, misuse: &Misuse);
}

/// A secret that went somewhere.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Used {
    /// The secret.
    pub secret: SecretRef,
    /// Its version.
    pub version: u32,
    /// The host.
    pub host: HostName,
    /// Its port.
    pub port: u16,
    /// Where in the request.
    pub position: Position,
    /// The binding that let it.
    pub binding: u64,
}

/// Why a request is not sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Misuse {
    /// The placeholder stands where it may not.
    #[error("the placeholder of `{secret}` stands {place} of a request to `{host}`, where no binding lets it go")]
    Misplaced {
        /// The secret.
        secret: SecretRef,
        /// Where it stands, in words.
        place: String,
        /// The host.
        host: HostName,
    },
    /// The secret is not to be had, or cannot stand there.
    #[error("the secret `{secret}` cannot be sent: {why}")]
    Unavailable {
        /// The secret.
        secret: SecretRef,
        /// Why.
        why: String,
    },
}

#[derive(Default)]
struct Sent {
    told: Vec<Used>,
}

impl Injection {
    /// The secrets of a run.
    #[must_use]
    ///
    /// The redactor knows what the run could have been sent by others; what it sends itself is added.
    pub fn new(vault: Arc<Vault>, armed: Vec<Armed>, redactor: Redactor, witness: Arc<dyn Witness>) -> Self {
        let text = |one: &Armed| Zeroizing::new(one.placeholder.as_str().as_bytes().to_vec());
        let placeholders = armed.iter().map(|one| Needle::new(text(one), Spelling::Exact));
        let placeholders = Needles::new(placeholders);
        Self(Arc::new(Secrets { vault, armed, placeholders, witness, redactor, sent: Mutex::default() }))
    }

    /// Whether a secret may go to this host. TLS is terminated for exactly these.
    #[must_use]
    pub fn covers(&self, host: &HostName, port: u16) -> bool {
        self.0.armed.iter().flat_map(|one| &one.bindings).any(|binding| binding.terms.leads_to(host, port))
    }

    /// Puts secrets into the head of a request to a host, and tells what happens to the body.
    ///
    /// # Errors
    /// When a placeholder stands where it may not, or a secret is not to be had. The request must not be sent then.
    pub fn request(&self, (host, port): (&HostName, u16), head: &mut request::Parts) -> Result<RequestBody, Misuse> {
        let done = self.0.inject(&Target { host, port, path: head.uri.path().to_owned() }, head);
        done.inspect_err(|misuse| self.0.witness.misused(misuse))
    }

    /// Looks for placeholders in the head of a request that no secret can go with, and tells what happens to the body.
    ///
    /// # Errors
    /// When there is one.
    pub fn elsewhere(&self, host: &HostName, head: &request::Parts) -> Result<RequestBody, Misuse> {
        let done = self.0.search(host, head).map(|()| self.0.watched(host));
        done.inspect_err(|misuse| self.0.witness.misused(misuse))
    }

    /// Takes out of the head of an answer what was sent, and of the body what comes.
    pub fn response(&self, head: &mut response::Parts) -> RedactingStream {
        let redactor = &self.0.redactor;
        let tells =
            |name: &&HeaderName| redactor.finds(name.as_str().as_bytes()) || redactor.finds_made_small(name.as_str());
        let named: Vec<HeaderName> = head.headers.keys().filter(tells).cloned().collect();
        for name in named {
            head.headers.remove(name);
        }
        for value in head.headers.values_mut().filter(|value| redactor.finds(value.as_bytes())) {
            // Asterisks can stand where anything else could.
            *value =
                HeaderValue::from_bytes(&redactor.redact(value.as_bytes())).unwrap_or(HeaderValue::from_static("*"));
        }
        redactor.stream()
    }

    /// What went where until now.
    #[must_use]
    pub fn used(&self) -> Vec<Used> {
        self.0.sent.lock().unwrap_or_else(PoisonError::into_inner).told.clone()
    }
}

impl Secrets {
    fn inject(self: &Arc<Self>, to: &Target<'_>, head: &mut request::Parts) -> Result<RequestBody, Misuse> {
        if let Some(one) = self.found(to.path.as_bytes()) {
            return Err(misplaced(one, "in the path", to.host));
        }
        if let Some((query, one)) = head.uri.query().and_then(|query| Some((query, self.found(query.as_bytes())?))) {
            let query = self.in_query(query, to)?;
            head.uri = with_query(&head.uri, &query).ok_or_else(|| unspeakable(one, "a URL"))?;
        }
        for (name, value) in &mut head.headers {
            if let Some(one) = self.found(name.as_str().as_bytes()) {
                return Err(misplaced(one, "in the name of a header", to.host));
            }
            if let Some(swapped) = self.in_header(name, value, to)? {
                *value = swapped;
            }
        }
        // SECURITY: a value that a host repeats could be had in parts, of which none is taken out. Answers come whole.
        head.headers.remove(header::RANGE);
        head.headers.remove(header::IF_RANGE);
        let media = head.headers.get(header::CONTENT_TYPE).and_then(|media| media.to_str().ok()).unwrap_or_default();
        Ok(self.in_body(media, to))
    }

    /// Looks for placeholders without putting anything in their place.
    fn search(&self, host: &HostName, head: &request::Parts) -> Result<(), Misuse> {
        let search = |bytes: &[u8], place: &str| match self.found(bytes) {
            Some(one) => Err(misplaced(one, place, host)),
            None => Ok(()),
        };
        search(head.uri.to_string().as_bytes(), "in the address")?;
        for (name, value) in &head.headers {
            search(name.as_str().as_bytes(), "in the name of a header")?;
            search(value.as_bytes(), &format!("in the header `{name}`"))?;
            if let Some(login) = basic(value) {
                search(&login, &format!("in the header `{name}`"))?;
            }
        }
        Ok(())
    }

    /// The header with the values in it, if there is a placeholder in it.
    fn in_header(
        &self,
        name: &HeaderName,
        value: &HeaderValue,
        to: &Target<'_>,
    ) -> Result<Option<HeaderValue>, Misuse> {
        let place = || format!("in the header `{name}`");
        let at = At { position: Position::Header(name.as_str().to_owned()), place: &place, to };
        let plain = |value: &SecretValue| Some(value.expose().to_vec());
        let login = basic(value).and_then(|login| Some((self.found(&login)?, login)));
        let (one, spelt) = match (login, self.found(value.as_bytes())) {
            (Some((one, login)), _) => {
                let login = self.swap(&login, &at, &plain)?;
                (one, Zeroizing::new(format!("Basic {}", BASE64_STANDARD.encode(&login)).into_bytes()))
            }
            (None, Some(one)) => (one, self.swap(value.as_bytes(), &at, &plain)?),
            (None, None) => return Ok(None),
        };
        let mut value = HeaderValue::from_bytes(&spelt).map_err(|_| unspeakable(one, "a header"))?;
        value.set_sensitive(true);
        Ok(Some(value))
    }

    fn in_query(&self, query: &str, to: &Target<'_>) -> Result<Zeroizing<String>, Misuse> {
        let mut spelt = Zeroizing::new(String::new());
        for (number, pair) in query.split('&').enumerate() {
            if number > 0 {
                spelt.push('&');
            }
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if let Some(one) = self.found(name.as_bytes()) {
                return Err(misplaced(one, "in the name of a parameter", to.host));
            }
            if self.found(value.as_bytes()).is_none() {
                spelt.push_str(pair);
                continue;
            }
            let place = || format!("in the parameter `{}`", visible(name));
            let at = At { position: Position::Query(name.to_owned()), place: &place, to };
            let swapped = self.swap(value.as_bytes(), &at, &|value| Some(percent(value.expose())))?;
            spelt.push_str(name);
            spelt.push('=');
            spelt.push_str(&String::from_utf8_lossy(&swapped));
        }
        Ok(spelt)
    }

    fn in_body(self: &Arc<Self>, media: &str, to: &Target<'_>) -> RequestBody {
        let form = Form::of(media);
        let mut body = self.watched(to.host);
        for (one, fate) in self.armed.iter().zip(&mut body.fates) {
            if let Some(binding) = self.binding(one, &Position::Body, to) {
                *fate = Fate::Bound { form, host: to.host.clone(), port: to.port, binding: binding.id };
            }
        }
        body
    }

    fn watched(self: &Arc<Self>, host: &HostName) -> RequestBody {
        let refused = |one: &Armed| Fate::Refused(misplaced(one, "in the body", host));
        RequestBody {
            secrets: Arc::clone(self),
            held: Held::default(),
            fates: self.armed.iter().map(refused).collect(),
        }
    }

    /// Puts the values into a text, each as this spells it.
    fn swap(
        &self,
        text: &[u8],
        at: &At<'_>,
        spell: &dyn Fn(&SecretValue) -> Option<Vec<u8>>,
    ) -> Result<Zeroizing<Vec<u8>>, Misuse> {
        let mut out = Zeroizing::new(Vec::with_capacity(text.len()));
        Held::default().go(&self.placeholders, text, More::NothingComes, |told| {
            match told {
                Told::Harmless(bytes) => out.extend_from_slice(bytes),
                Told::Needle(number) => {
                    let Some(one) = self.armed.get(number) else { return Ok(()) };
                    let binding = self.binding(one, &at.position, at.to);
                    let binding = binding.ok_or_else(|| misplaced(one, &(at.place)(), at.to.host))?;
                    let lease = self.lease(one)?;
                    let spelt = spell(&lease.value).ok_or_else(|| unspeakable(one, "that place"))?;
                    out.extend_from_slice(&Zeroizing::new(spelt));
                    self.note(lease, (at.to.host, at.to.port), &at.position, binding.id);
                }
            }
            Ok(())
        })?;
        Ok(out)
    }

    /// The binding that lets a secret stand at this place of this request.
    fn binding<'a>(&self, one: &'a Armed, position: &Position, to: &Target<'_>) -> Option<&'a Binding> {
        one.bindings.iter().find(|binding| {
            let terms = &binding.terms;
            terms.leads_to(to.host, to.port)
                && terms.positions.contains(position)
                && terms.covers(&to.path)
                // What was approved counts only as long as it holds.
                && self.vault.binding(binding.id).as_ref() == Some(binding)
        })
    }

    fn lease(&self, one: &Armed) -> Result<Lease, Misuse> {
        let unavailable = |why: String| Misuse::Unavailable { secret: one.secret.clone(), why };
        let lease = self.vault.get(&one.secret).map_err(|error| unavailable(error.to_string()))?;
        match lease.value.len() {
            length if length < SHORTEST_UNSEEN => Err(unavailable(format!(
                "it has {length} bytes, and what is shorter than {SHORTEST_UNSEEN} could not be taken out of answers"
            ))),
            length if length > LONGEST_UNSEEN => {
                Err(unavailable(format!("it has {length} bytes, and at most {LONGEST_UNSEEN} can stand in a request")))
            }
            _ => Ok(lease),
        }
    }

    /// Remembers that a value goes out, before it does.
    fn note(&self, lease: Lease, (host, port): (&HostName, u16), position: &Position, binding: u64) {
        let Lease { secret, version, value } = lease;
        let used = Used { secret, version, host: host.clone(), port, position: position.clone(), binding };
        self.redactor.add(&value);
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        if !sent.told.contains(&used) {
            sent.told.push(used.clone());
            drop(sent);
            self.witness.used(&used);
        }
    }

    /// The secret whose placeholder is in a text.
    fn found(&self, text: &[u8]) -> Option<&Armed> {
        self.armed.get(self.placeholders.find(text)?)
    }
}

impl std::fmt::Debug for Injection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Injection").field("armed", &self.0.armed).finish_non_exhaustive()
    }
}

/// What happens to the body of a request.
pub struct RequestBody {
    secrets: Arc<Secrets>,
    held: Held,
    /// What becomes of each placeholder.
    fates: Vec<Fate>,
}

/// What becomes of a placeholder in a body.
enum Fate {
    /// The value takes its place, once there is one.
    Bound { form: Form, host: HostName, port: u16, binding: u64 },
    /// The value takes its place, spelt so.
    Swapped(Zeroizing<Vec<u8>>),
    /// It may not stand there.
    Refused(Misuse),
}

impl RequestBody {
    /// Whether what comes out may be of another length than what goes in.
    #[must_use]
    pub fn changes_length(&self) -> bool {
        self.fates.iter().any(|fate| !matches!(fate, Fate::Refused(_)))
    }

    /// Takes a piece, and gives what may be sent.
    ///
    /// # Errors
    /// When a placeholder stands there that may not. The request must not be finished then.
    pub fn push(&mut self, piece: &[u8], out: &mut Vec<u8>) -> Result<(), Misuse> {
        self.go(piece, More::MayCome, out)
    }

    /// Gives the rest.
    ///
    /// # Errors
    /// As [`RequestBody::push`].
    pub fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), Misuse> {
        self.go(&[], More::NothingComes, out)
    }

    fn go(&mut self, piece: &[u8], more: More, out: &mut Vec<u8>) -> Result<(), Misuse> {
        let Self { secrets, held, fates } = self;
        let done = held.go(&secrets.placeholders, piece, more, |told| {
            match told {
                Told::Harmless(bytes) => out.extend_from_slice(bytes),
                Told::Needle(number) => {
                    let (Some(one), Some(fate)) = (secrets.armed.get(number), fates.get_mut(number)) else {
                        return Ok(());
                    };
                    let spelt = match fate {
                        Fate::Refused(misuse) => return Err(misuse.clone()),
                        Fate::Swapped(spelt) => std::mem::take(spelt),
                        Fate::Bound { form, host, port, binding } => {
                            // What was bound when the head came may be so no more.
                            let is_bound = |known: &Binding| secrets.vault.binding(known.id).as_ref() == Some(known);
                            if !one.bindings.iter().any(|known| known.id == *binding && is_bound(known)) {
                                return Err(misplaced(one, "in the body", host));
                            }
                            let lease = secrets.lease(one)?;
                            let spelt = form.spell(&lease.value).ok_or_else(|| unspeakable(one, "such a body"))?;
                            secrets.note(lease, (host, *port), &Position::Body, *binding);
                            Zeroizing::new(spelt)
                        }
                    };
                    out.extend_from_slice(&spelt);
                    *fate = Fate::Swapped(spelt);
                }
            }
            Ok(())
        });
        done.inspect_err(|misuse| secrets.witness.misused(misuse))
    }
}

impl std::fmt::Debug for RequestBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RequestBody")
    }
}

/// Where a request goes.
struct Target<'a> {
    host: &'a HostName,
    port: u16,
    path: String,
}

/// A place in a request.
struct At<'a> {
    position: Position,
    /// In words.
    place: &'a dyn Fn() -> String,
    to: &'a Target<'a>,
}

/// How values are spelt in a body.
#[derive(Clone, Copy)]
enum Form {
    Plain,
    Json,
    UrlEncoded,
}

impl Form {
    fn of(media: &str) -> Self {
        let kind = media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match kind.as_str() {
            "application/x-www-form-urlencoded" => Self::UrlEncoded,
            "application/json" => Self::Json,
            _ if kind.ends_with("+json") => Self::Json,
            _ => Self::Plain,
        }
    }

    /// The value as it stands in such a body, if it can.
    fn spell(self, value: &SecretValue) -> Option<Vec<u8>> {
        match self {
            Self::Plain => Some(value.expose().to_vec()),
            Self::UrlEncoded => Some(percent(value.expose())),
            Self::Json => {
                let quoted = Zeroizing::new(serde_json::to_vec(std::str::from_utf8(value.expose()).ok()?).ok()?);
                quoted.get(1..quoted.len().saturating_sub(1)).map(<[u8]>::to_vec)
            }
        }
    }
}

fn misplaced(one: &Armed, place: &str, host: &HostName) -> Misuse {
    Misuse::Misplaced { secret: one.secret.clone(), place: place.to_owned(), host: host.clone() }
}

fn unspeakable(one: &Armed, place: &str) -> Misuse {
    Misuse::Unavailable { secret: one.secret.clone(), why: format!("its value cannot stand in {place}") }
}

/// Name and password of `Authorization: Basic`, decoded.
fn basic(value: &HeaderValue) -> Option<Zeroizing<Vec<u8>>> {
    let (scheme, encoded) = value.to_str().ok()?.split_once(' ')?;
    let is_basic = scheme.eq_ignore_ascii_case("basic");
    let login = is_basic.then(|| BASE64_STANDARD.decode(encoded.trim()))?;
    login.ok().map(Zeroizing::new)
}

fn percent(bytes: &[u8]) -> Vec<u8> {
    let digit = |nibble: u8| b"0123456789ABCDEF".get(usize::from(nibble & 15)).copied().unwrap_or(b'0');
    let spelt = |&byte: &u8| match is_unreserved(byte) {
        true => vec![byte],
        false => vec![b'%', digit(byte >> 4), digit(byte)],
    };
    bytes.iter().flat_map(spelt).collect()
}

fn with_query(uri: &Uri, query: &str) -> Option<Uri> {
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(format!("{}?{query}", uri.path())).ok()?);
    Uri::from_parts(parts).ok()
}

/// How long a value is at least that is used unseen: shorter ones are in every text, so they could not be taken out of answers.
pub const SHORTEST_UNSEEN: usize = 8;

/// How long at most: more does not fit into the head of a request.
pub const LONGEST_UNSEEN: usize = 8 << 10;

#[cfg(test)]
mod tests;
