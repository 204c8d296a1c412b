//! `palyra vault rotate`: another value of a secret, or another key for the whole vault.

use clap::Args;
use palyra_client::Client;
use palyra_types::SecretRef;

use super::{
    put::{Terms, put},
    secret,
    value::ValueArgs,
    words,
};
use crate::{Outcome, exit::Exit, failure::Failure, terminal::Terminal};

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RotateArgs {
    /// The secret that is to have another value. Without it, the vault has another key.
    #[arg(value_parser = secret)]
    name: Option<SecretRef>,
    #[command(flatten)]
    value: ValueArgs,
    #[command(flatten)]
    terms: Terms,
}

impl RotateArgs {
    /// Refuses what makes no sense before anybody is asked anything.
    pub(super) fn check(&self) -> Result<(), Failure> {
        self.value.check()?;
        if self.name.is_none() && (self.value.is_given() || self.terms.are_given()) {
            let help = "name the secret: `palyra vault rotate NAME`";
            let cause = "a new key of the vault takes no value, file or time";
            return Err(Failure::new(Exit::Usage, "usage", "it is not said which secret", cause, help));
        }
        Ok(())
    }
}

pub(super) async fn run(args: &RotateArgs, daemon: &Client, terminal: &Terminal) -> Outcome {
    let Some(name) = &args.name else {
        let status = daemon.rotate_vault().await?;
        match terminal.json {
            true => terminal.document("vault.status", &status),
            false => {
                words::tell(&status, terminal);
                terminal.talk("everything is sealed under a new key; what sealed it before is forgotten");
            }
        }
        return Ok(Exit::Ok);
    };
    // One that is not there is told before anybody types anything.
    daemon.secret(name).await?;
    let value = args.value.read(&name.to_string()).await?;
    put(name, value, &args.terms, daemon, terminal).await
}

const EXAMPLES: &str = "\
Examples:
  palyra vault rotate github           asks for the new value; the earlier one is kept as a version
  palyra vault rotate                  seals everything under a new key";
