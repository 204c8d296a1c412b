//! Arms a call, or a server, with the secrets that it uses: placeholders or values for what runs, and somebody who looks into its connections.
//!
//! Guarantees: what runs is given a placeholder that nobody else has, or, where a person said so for this very call, the value; what goes to a
//! host gets the value where a binding that was approved lets it; what comes back, and what comes out of the call, is without the values.
//! Each use is journalled, and so is each attempt at one that is refused.
//! Does not: decide. It is for this crate, which did.

use std::sync::{
    Arc, Weak,
    atomic::{AtomicBool, Ordering},
};

use palyra_journal::RecordKind;
use palyra_sandbox::{
    PrivateFile, PrivateVariable, SECRET_FILES,
    egress::{BodyFilter, EgressRefusal, EgressRefusalKind, Interceptor},
};
use palyra_types::{HostName, SecretRef, entropy::Entropy};
use palyra_vault::{
    Placeholder, RedactingStream, Redactor, SecretValue, Vault,
    inject::{Armed, Injection, Misuse, RequestBody, Used, Witness},
};
use serde::Serialize;
use zeroize::Zeroizing;

use crate::{
    account::Account,
    secret::{Handed, SecretUse, UsedSecret},
};

/// The secrets of one call.
pub(crate) struct CallSecrets {
    injection: Arc<Injection>,
    /// What stands for each secret that is used unseen, by its name.
    placeholders: Vec<(String, Placeholder)>,
    variables: Vec<PrivateVariable>,
    files: Vec<PrivateFile>,
    /// Those that are handed over, and whether that was told.
    handed: Vec<UsedSecret>,
    is_told: AtomicBool,
    /// Takes out what was known when the call was armed, and what was sent since.
    redactor: Redactor,
    account: Weak<Account>,
}

impl CallSecrets {
    /// Arms a call.
    ///
    /// # Errors
    /// When a secret is not to be had, in words.
    pub(crate) fn arm(
        uses: &[SecretUse],
        vault: &Arc<Vault>,
        entropy: &dyn Entropy,
        account: &Arc<Account>,
    ) -> Result<Self, String> {
        let (mut armed, mut placeholders) = (Vec::new(), Vec::new());
        let (mut variables, mut files, mut handed) = (Vec::new(), Vec::new(), Vec::new());
        let mut values: Vec<SecretValue> = Vec::new();
        for SecretUse { name, secret, handed: how, bindings } in uses {
            let lease = vault.get(secret).map_err(|error| error.to_string())?;
            match how {
                Handed::Unseen => {
                    let placeholder = Placeholder::generate(entropy).map_err(|error| error.to_string())?;
                    variables.push((name.clone(), Zeroizing::new(placeholder.to_string())));
                    placeholders.push((name.clone(), placeholder.clone()));
                    armed.push(Armed { secret: secret.clone(), placeholder, bindings: bindings.clone() });
                }
                Handed::Variable => {
                    let text = std::str::from_utf8(lease.value.expose()).ok().filter(|text| !text.contains('\0'));
                    let text = text.ok_or_else(|| format!("the value of `{secret}` cannot be in a variable"))?;
                    variables.push((name.clone(), Zeroizing::new(text.to_owned())));
                }
                Handed::File => {
                    let content = Zeroizing::new(lease.value.expose().to_vec());
                    files.push(PrivateFile { name: name.clone(), content });
                    variables.push((name.clone(), Zeroizing::new(format!("{SECRET_FILES}/{name}"))));
                }
            }
            if *how != Handed::Unseen {
                handed.push(UsedSecret { secret: secret.clone(), version: lease.version, handed: *how, went: None });
            }
            values.push(lease.value);
        }
        let redactor = Redactor::new(&values);
        account.redact_by(redactor.clone());
        let account = Arc::downgrade(account);
        let witness = Arc::new(Journalled { account: Weak::clone(&account) });
        let injection = Arc::new(Injection::new(Arc::clone(vault), armed, redactor.clone(), witness));
        let is_told = AtomicBool::new(false);
        Ok(Self { injection, placeholders, variables, files, handed, is_told, redactor, account })
    }

    /// What a process is given.
    pub(crate) fn private(&self) -> (Vec<PrivateVariable>, Vec<PrivateFile>) {
        (self.variables.clone(), self.files.clone())
    }

    /// What stands for each secret that is used unseen, by its name.
    pub(crate) fn placeholders(&self) -> &[(String, Placeholder)] {
        &self.placeholders
    }

    /// Journals what is handed over, as it is.
    pub(crate) fn tell_handed(&self) {
        self.is_told.store(true, Ordering::Release);
        if let Some(account) = self.account.upgrade() {
            self.handed.iter().for_each(|one| account.tell(RecordKind::VaultUsed, one));
        }
    }

    /// What was used until now.
    pub(crate) fn used(&self) -> Vec<UsedSecret> {
        let handed = self.handed.iter().filter(|_| self.is_told.load(Ordering::Acquire)).cloned();
        handed.chain(self.injection.used().into_iter().map(UsedSecret::from)).collect()
    }

    /// What comes out of the call, without the values.
    pub(crate) fn redact(&self, bytes: &mut Vec<u8>, is_cut: bool) {
        *bytes = match is_cut {
            true => self.redactor.redact_cut(bytes),
            false => self.redactor.redact(bytes),
        };
    }

    /// The same for a text.
    pub(crate) fn redact_text(&self, text: &mut String) {
        self.redactor.redact_text(text);
    }

    /// For what comes out in lines that are read as they come.
    pub(crate) fn lines(&self) -> LineRedaction {
        LineRedaction { stream: self.redactor.stream(), redactor: self.redactor.clone() }
    }

    /// For what comes out while the call runs.
    pub(crate) fn live(&self) -> LiveRedaction {
        LiveRedaction { stream: self.redactor.stream(), redactor: self.redactor.clone(), at: 0, held: 0 }
    }
}

impl Interceptor for CallSecrets {
    fn intercepts(&self, host: &HostName, port: u16) -> bool {
        self.injection.covers(host, port)
    }

    fn request(
        &self,
        host: &HostName,
        port: u16,
        head: &mut http::request::Parts,
    ) -> Result<Box<dyn BodyFilter>, EgressRefusal> {
        let body = self.injection.request((host, port), head).map_err(|misuse| refusal(&misuse))?;
        Ok(Box::new(Outgoing(body)))
    }

    fn response(
        &self,
        _: &HostName,
        _: u16,
        head: &mut http::response::Parts,
    ) -> Result<Box<dyn BodyFilter>, EgressRefusal> {
        Ok(Box::new(Incoming(self.injection.response(head))))
    }

    fn elsewhere(
        &self,
        host: &HostName,
        _: u16,
        head: &http::request::Parts,
    ) -> Result<Box<dyn BodyFilter>, EgressRefusal> {
        let body = self.injection.elsewhere(host, head).map_err(|misuse| refusal(&misuse))?;
        Ok(Box::new(Outgoing(body)))
    }
}

/// Output of a call while it runs, without the values.
pub(crate) struct LiveRedaction {
    stream: RedactingStream,
    redactor: Redactor,
    /// Where the next piece should begin.
    at: u64,
    /// How many bytes of what came are kept back.
    held: u64,
}

impl LiveRedaction {
    /// Takes a piece, and gives what may be told, with where it begins.
    pub(crate) fn push(&mut self, offset: u64, piece: &[u8]) -> (u64, Vec<u8>) {
        if offset != self.at {
            // Something was missed in between, so what was kept back never becomes whole.
            (self.stream, self.held) = (self.redactor.stream(), 0);
        }
        let begins = offset.saturating_sub(self.held);
        let mut out = Vec::with_capacity(piece.len());
        self.stream.push(piece, &mut out);
        let length = |bytes: &[u8]| u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.at = offset.saturating_add(length(piece));
        self.held = self.at.saturating_sub(begins).saturating_sub(length(&out));
        (begins, out)
    }

    /// What is left when there is no more, with where it begins.
    pub(crate) fn finish(&mut self) -> (u64, Vec<u8>) {
        let (begins, mut out) = (self.at.saturating_sub(self.held), Vec::new());
        self.stream.finish(&mut out);
        self.held = 0;
        (begins, out)
    }
}

/// Output that is read line by line while it comes, without the values.
///
/// A line that has ended is told at once: whoever reads it waits for nothing else. A value that goes on in the next line is not found, which none does
/// where each line is a text of its own, such as JSON.
pub(crate) struct LineRedaction {
    redactor: Redactor,
    stream: RedactingStream,
}

impl LineRedaction {
    /// Takes a piece, and gives what may be told.
    pub(crate) fn push(&mut self, piece: &[u8], out: &mut Vec<u8>) {
        let ended = piece.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        let (lines, begun) = piece.split_at_checked(ended).unwrap_or((piece, &[]));
        if !lines.is_empty() {
            self.stream.push(lines, out);
            self.finish(out);
        }
        self.stream.push(begun, out);
    }

    /// What is left when there is no more.
    pub(crate) fn finish(&mut self, out: &mut Vec<u8>) {
        self.stream.finish(out);
        self.stream = self.redactor.stream();
    }
}

/// The body of a request.
struct Outgoing(RequestBody);

impl BodyFilter for Outgoing {
    fn changes_length(&self) -> bool {
        self.0.changes_length()
    }

    fn push(&mut self, piece: &[u8], out: &mut Vec<u8>) -> Result<(), EgressRefusal> {
        self.0.push(piece, out).map_err(|misuse| refusal(&misuse))
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), EgressRefusal> {
        self.0.finish(out).map_err(|misuse| refusal(&misuse))
    }
}

/// The body of an answer.
struct Incoming(RedactingStream);

impl BodyFilter for Incoming {
    fn changes_length(&self) -> bool {
        false
    }

    fn push(&mut self, piece: &[u8], out: &mut Vec<u8>) -> Result<(), EgressRefusal> {
        self.0.push(piece, out);
        Ok(())
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), EgressRefusal> {
        self.0.finish(out);
        Ok(())
    }
}

/// Journals what becomes of secrets: on the call's own account, before the call is attested.
struct Journalled {
    account: Weak<Account>,
}

impl Witness for Journalled {
    fn used(&self, used: &Used) {
        if let Some(account) = self.account.upgrade() {
            account.tell(RecordKind::VaultUsed, &UsedSecret::from(used.clone()));
        }
    }

    fn misused(&self, misuse: &Misuse) {
        #[derive(Serialize)]
        struct Told<'a> {
            secret: &'a SecretRef,
            #[serde(skip_serializing_if = "Option::is_none")]
            host: Option<&'a HostName>,
            what: String,
        }
        let (secret, host) = match misuse {
            Misuse::Misplaced { secret, host, .. } => (secret, Some(host)),
            Misuse::Unavailable { secret, .. } => (secret, None),
        };
        if let Some(account) = self.account.upgrade() {
            account.tell_some(RecordKind::VaultMisused, &Told { secret, host, what: misuse.to_string() });
        }
    }
}

fn refusal(misuse: &Misuse) -> EgressRefusal {
    let kind = match misuse {
        Misuse::Misplaced { .. } => EgressRefusalKind::SecretMisplaced,
        Misuse::Unavailable { .. } => EgressRefusalKind::SecretUnavailable,
    };
    EgressRefusal::new(kind, misuse.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_has_ended_is_told_at_once_and_without_values() {
        let value = SecretValue::new(b"hunter\n22".to_vec()).unwrap();
        let known = Redactor::new([&value, &SecretValue::new(b"hunter22".to_vec()).unwrap()]);
        let mut lines = LineRedaction { stream: known.stream(), redactor: known };
        let mut told = |piece: &[u8]| {
            let mut out = Vec::new();
            lines.push(piece, &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(told(b"{\"a\":\"hunter22\"}\n"), "{\"a\":\"********\"}\n");
        assert_eq!(told(b"hunter\n"), "hunter\n");
        assert_eq!(told(b"{\"b\":\"hunt"), "");
        assert_eq!(told(b"er22\"}\nx"), "{\"b\":\"********\"}\n");
    }

    #[test]
    fn live_output_is_without_values_and_says_where_it_begins() {
        let value = SecretValue::new(b"hunter22".to_vec()).unwrap();
        let known = Redactor::new([&value]);
        let mut live = LiveRedaction { stream: known.stream(), redactor: known, at: 0, held: 0 };
        assert_eq!(live.push(0, b"a hunt"), (0, b"a ".to_vec()));
        assert_eq!(live.push(6, b"er22 b h"), (2, b"******** b ".to_vec()));
        // A piece was missed: what was kept back is not told in a place where it did not stand.
        assert_eq!(live.push(100, b"ello hu"), (100, b"ello ".to_vec()));
        assert_eq!(live.finish(), (105, b"hu".to_vec()));
    }
}
