//! Backups in the format of age, which other programs open.
//!
//! Guarantees: a backup is encrypted before it leaves this module, to keys that only their owners have, or under a passphrase; what is read is
//! what somebody who could write such a backup put there, whole. Does not: keep versions that do not count any more.

use std::io::{Read, Write};

use age::{
    Decryptor, Encryptor, Identity, Recipient,
    armor::{ArmoredReader, ArmoredWriter, Format},
    scrypt,
    secrecy::SecretString,
    x25519,
};
use base64::{Engine, prelude::BASE64_STANDARD};
use palyra_types::{SecretRef, Timestamp, visible::visible};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::{
    binding::BindingTerms,
    error::VaultError,
    stage::{NewSecret, VaultChange},
    value::SecretValue,
    vault::{Reading, Vault},
};

/// What is in a backup. Wiped when it is dropped.
#[derive(Debug)]
pub struct Backup {
    /// The secrets.
    pub secrets: Vec<NewSecret>,
    /// Where they may go.
    pub bindings: Vec<BindingTerms>,
}

/// Who can open a backup.
#[derive(Debug, Clone)]
pub enum Sealing {
    /// Whoever has one of the keys that these belong to: `age1…`.
    Recipients(Vec<String>),
    /// Whoever knows the passphrase.
    Passphrase(Zeroizing<String>),
}

/// What opens a backup.
#[derive(Debug, Clone)]
pub enum Opening {
    /// A key: the lines of an identity file, such as `AGE-SECRET-KEY-1…`.
    Identities(Zeroizing<String>),
    /// A passphrase.
    Passphrase(Zeroizing<String>),
}

impl Vault {
    /// Everything that counts, encrypted.
    ///
    /// # Errors
    /// When a value cannot be read, or nobody could open the backup.
    pub fn export(&self, sealing: &Sealing) -> Result<Vec<u8>, BackupError> {
        let (reading, versions, bindings) = {
            let contents = self.read();
            let mut newest: Vec<_> = contents.secrets.values().filter_map(|all| all.last()).cloned().collect();
            newest.sort_by(|one, other| one.about.secret.cmp(&other.about.secret));
            let bindings = contents.bindings.values().map(|binding| binding.terms.clone()).collect();
            (Reading::of(&contents), newest, bindings)
        };
        let mut document =
            Document { palyra_vault_backup: VERSION, created: self.ground.clock.now(), secrets: Vec::new(), bindings };
        for version in versions {
            let lease = reading.lease(&version)?;
            document.secrets.push(Secret {
                secret: version.about.secret.clone(),
                value: Zeroizing::new(BASE64_STANDARD.encode(lease.value.expose())),
                expires: version.about.expires,
                rotate_after_days: version.about.rotate_after_days,
                note: version.about.note.clone(),
            });
        }
        let text = Zeroizing::new(serde_json::to_vec(&document).map_err(|_| BackupError::Unwritable)?);
        encrypt(&text, sealing)
    }
}

impl Backup {
    /// Opens a backup.
    ///
    /// # Errors
    /// When it is none, or this does not open it.
    pub fn open(backup: &[u8], opening: &Opening) -> Result<Self, BackupError> {
        Self::read(&Self::decrypt(backup, opening)?)
    }

    /// What was encrypted, as [`Backup::read`] takes it: for whoever has the key and not the vault.
    ///
    /// # Errors
    /// As [`Backup::open`].
    pub fn decrypt(backup: &[u8], opening: &Opening) -> Result<Zeroizing<Vec<u8>>, BackupError> {
        decrypt(backup, opening)
    }

    /// Reads what somebody else has decrypted.
    ///
    /// # Errors
    /// When it is no backup of a vault.
    pub fn read(text: &[u8]) -> Result<Self, BackupError> {
        let document: Document = serde_json::from_slice(text).map_err(|_| BackupError::NotABackup)?;
        if document.palyra_vault_backup != VERSION {
            return Err(BackupError::NotABackup);
        }
        let secret = |kept: Secret| {
            let value = BASE64_STANDARD.decode(kept.value.as_bytes()).map_err(|_| BackupError::NotABackup)?;
            Ok(NewSecret {
                secret: kept.secret,
                value: SecretValue::new(value).map_err(VaultError::from)?,
                expires: kept.expires,
                rotate_after_days: kept.rotate_after_days,
                note: kept.note,
            })
        };
        let secrets = document.secrets.into_iter().map(secret).collect::<Result<_, BackupError>>()?;
        Ok(Self { secrets, bindings: document.bindings })
    }

    /// The same as documents for [`Backup::read`], of which none but one with a single secret is much longer than this. Where secrets may go
    /// comes last, when all of them are there.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn portions(self, most: usize) -> Result<Vec<Zeroizing<Vec<u8>>>, BackupError> {
        let (mut portions, mut secrets, mut length) = (Vec::new(), Vec::new(), 0);
        let document = |secrets, bindings| {
            let created = Timestamp::from_unix_millis(0);
            let document = Document { palyra_vault_backup: VERSION, created, secrets, bindings };
            serde_json::to_vec(&document).map(Zeroizing::new).map_err(|_| BackupError::Unwritable)
        };
        for new in self.secrets {
            let secret = Secret {
                value: Zeroizing::new(BASE64_STANDARD.encode(new.value.expose())),
                secret: new.secret,
                expires: new.expires,
                rotate_after_days: new.rotate_after_days,
                note: new.note,
            };
            let long = secret.value.len() + secret.note.as_ref().map_or(0, String::len) + ABOUT_A_SECRET;
            if length + long > most && !secrets.is_empty() {
                portions.push(document(std::mem::take(&mut secrets), Vec::new())?);
                length = 0;
            }
            length += long;
            secrets.push(secret);
        }
        portions.push(document(secrets, self.bindings)?);
        Ok(portions)
    }

    /// The change that brings it back. What has expired meanwhile, what is there already, and where a secret may go
    /// already is left out and counted.
    #[must_use]
    pub fn into_change(self, vault: &Vault) -> (VaultChange, usize) {
        let now = vault.ground.clock.now();
        let all = self.secrets.len() + self.bindings.len();
        // What is there already is no other version.
        let is_there =
            |new: &NewSecret| vault.get(&new.secret).is_ok_and(|there| there.value.expose() == new.value.expose());
        let is_wanted = |new: &NewSecret| new.expires.is_none_or(|at| at > now) && !is_there(new);
        let secrets: Vec<NewSecret> = self.secrets.into_iter().filter(is_wanted).collect();
        let is_known = |terms: &BindingTerms| {
            vault.describe(&terms.secret).is_ok_and(|known| known.bindings.iter().any(|one| one.terms == *terms))
        };
        let has_secret =
            |terms: &BindingTerms| vault.has(&terms.secret) || secrets.iter().any(|new| new.secret == terms.secret);
        let bindings: Vec<BindingTerms> =
            self.bindings.into_iter().filter(|terms| !is_known(terms) && has_secret(terms)).collect();
        let left_out = all - secrets.len() - bindings.len();
        (VaultChange::Add { secrets, bindings }, left_out)
    }
}

/// A backup, before it is encrypted.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    palyra_vault_backup: u32,
    created: Timestamp,
    secrets: Vec<Secret>,
    bindings: Vec<BindingTerms>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Secret {
    secret: SecretRef,
    /// In base 64.
    value: Zeroizing<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rotate_after_days: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

fn encrypt(text: &[u8], sealing: &Sealing) -> Result<Vec<u8>, BackupError> {
    let encryptor = match sealing {
        Sealing::Passphrase(words) if words.is_empty() => return Err(BackupError::Nobody),
        Sealing::Passphrase(words) => Encryptor::with_user_passphrase(SecretString::from(words.to_string())),
        Sealing::Recipients(recipients) => {
            let read = |text: &String| {
                text.trim().parse::<x25519::Recipient>().map_err(|_| BackupError::Recipient(text.clone()))
            };
            let recipients = recipients.iter().map(read).collect::<Result<Vec<_>, _>>()?;
            let recipients = recipients.iter().map(|one| one as &dyn Recipient);
            Encryptor::with_recipients(recipients).map_err(|_| BackupError::Nobody)?
        }
    };
    let mut backup = Vec::new();
    let write = || {
        let armored = ArmoredWriter::wrap_output(&mut backup, Format::AsciiArmor)?;
        let mut writer = encryptor.wrap_output(armored)?;
        writer.write_all(text)?;
        writer.finish()?.finish()?;
        Ok::<(), std::io::Error>(())
    };
    write().map_err(|_| BackupError::Unwritable)?;
    Ok(backup)
}

fn decrypt(backup: &[u8], opening: &Opening) -> Result<Zeroizing<Vec<u8>>, BackupError> {
    let decryptor = Decryptor::new(ArmoredReader::new(backup)).map_err(|_| BackupError::NotABackup)?;
    let mut identities: Vec<Box<dyn Identity>> = Vec::new();
    match opening {
        Opening::Passphrase(words) => {
            let mut identity = scrypt::Identity::new(SecretString::from(words.to_string()));
            // SECURITY: what a guess costs stands in the backup. It must not cost hours.
            identity.set_max_work_factor(MOST_WORK);
            identities.push(Box::new(identity));
        }
        Opening::Identities(lines) => {
            let meant = lines.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
            for line in meant {
                let identity = line.parse::<x25519::Identity>().map_err(|_| BackupError::Identity)?;
                identities.push(Box::new(identity));
            }
        }
    }
    let mut reader = decryptor.decrypt(identities.iter().map(AsRef::as_ref)).map_err(|_| BackupError::NotOpened)?;
    let mut text = Zeroizing::new(Vec::with_capacity(backup.len()));
    reader.read_to_end(&mut text).map_err(|_| BackupError::NotOpened)?;
    Ok(text)
}

/// Why there is no backup.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// Something that is no backup of a vault.
    #[error("this is no backup of a vault")]
    NotABackup,
    /// Another key or passphrase.
    #[error("neither key nor passphrase opens the backup")]
    NotOpened,
    /// A recipient that is none.
    #[error("`{}` is no public key of age", visible(.0))]
    Recipient(String),
    /// An identity that is none.
    #[error("there is a line that is no secret key of age")]
    Identity,
    /// Nobody could open it.
    #[error("nobody could open the backup")]
    Nobody,
    /// It could not be made.
    #[error("the backup could not be encrypted")]
    Unwritable,
    /// Something about the vault.
    #[error(transparent)]
    Vault(#[from] VaultError),
}

impl BackupError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::NotABackup => "give the file that `palyra vault export` has written",
            Self::NotOpened => "give the key file or the passphrase that belongs to it",
            Self::Recipient(_) => "`age-keygen` prints one: it begins with `age1`",
            Self::Identity => "give the file that `age-keygen` has written",
            Self::Nobody => "name a recipient, or give a passphrase",
            Self::Unwritable => "try again",
            Self::Vault(error) => error.advice(),
        }
    }
}

const VERSION: u32 = 1;

/// How long a secret in a document is at most, without its value and what is noted about it.
const ABOUT_A_SECRET: usize = 512;

/// How much a guess of a passphrase may cost, as a power of two: some seconds.
const MOST_WORK: u8 = 20;
