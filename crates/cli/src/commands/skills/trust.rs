//! `palyra skills trust`: lets a key speak for a publisher.

use std::{fs, io, path::Path};

use clap::Args;
use palyra_client::Client;
use palyra_package::{PublisherKey, PublisherName};
use palyra_types::visible::visible;

use crate::{
    Outcome,
    exit::Exit,
    failure::Failure,
    terminal::{GOOD, Terminal},
};

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TrustArgs {
    /// The publisher: the first part of the ids of its skills.
    publisher: PublisherName,
    /// Its public key: a .pub file, or the line of base64 in one.
    key: String,
}

pub(super) async fn run(args: &TrustArgs, daemon: &Client, terminal: &Terminal) -> Outcome {
    let key = public_key(&args.key)?;
    let publishers = daemon.pin_key(args.publisher.as_str(), &key.to_string()).await?;
    if terminal.json {
        terminal.document("skill.publishers", &publishers);
        return Ok(Exit::Ok);
    }
    let (publisher, id) = (&args.publisher, key.key_id());
    terminal.out(format!("{} key {id} speaks for {publisher} from now on", terminal.paint(GOOD, "✔")));
    // Distrusting the key put them there, and trusting it again is no look at them.
    for skill in daemon.skills().await?.skills.iter().filter(|skill| skill.quarantine.is_some()) {
        if skill.publisher == publisher.as_str() {
            terminal.talk(format!("{} is in quarantine: palyra skills release {}", skill.id, skill.id));
        }
    }
    Ok(Exit::Ok)
}

/// A public key, by its line or by its file.
pub(super) fn public_key(text: &str) -> Result<PublisherKey, Failure> {
    let what = format!("`{}` is no public key", visible(text));
    let unreadable = |error: &io::Error| {
        let help = "name the .pub file of the publisher, or the second line of it";
        Failure::new(Exit::Usage, "bad_key", what.clone(), error.to_string(), help)
    };
    let content = match PublisherKey::parse(text) {
        Ok(key) => return Ok(key),
        Err(_) => fs::read_to_string(Path::new(text)).map_err(|error| unreadable(&error))?,
    };
    PublisherKey::parse(&content)
        .map_err(|error| Failure::new(Exit::Usage, "bad_key", what.clone(), error.to_string(), error.advice()))
}

const EXAMPLES: &str = "\
Examples:
  palyra skills trust acme acme.pub
  palyra skills trust acme RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3";

#[cfg(test)]
mod tests {
    use palyra_package::SecretSigningKey;

    use super::*;

    #[test]
    fn a_key_is_named_by_its_line_or_by_its_file() {
        let key = SecretSigningKey::generate(None).unwrap().public();
        assert_eq!(public_key(&key.to_string()).unwrap(), key);
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("acme.pub");
        fs::write(&file, key.to_file()).unwrap();
        assert_eq!(public_key(file.to_str().unwrap()).unwrap(), key);
        fs::write(&file, "untrusted comment: no key\nAAAA\n").unwrap();
        for wrong in [file.to_str().unwrap(), "nowhere.pub", ""] {
            assert_eq!(public_key(wrong).unwrap_err().code, "bad_key");
        }
    }
}
