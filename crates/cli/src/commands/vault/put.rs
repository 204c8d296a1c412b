//! `palyra vault put`: a value under a name.

use std::str::FromStr;

use clap::Args;
use palyra_api::vault::{KeptSecret, PutSecret};
use palyra_client::Client;
use palyra_types::{Clock, SecretRef, Timestamp, clock::SystemClock, visible::visible};

use super::{
    secret,
    value::{Value, ValueArgs, on_the_command_line},
};
use crate::{
    Outcome,
    exit::Exit,
    failure::Failure,
    lifetime::Lifetime,
    terminal::{GOOD, Terminal, WAIT},
};

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PutArgs {
    /// What to call it: NAME, which is global, or SCOPE/NAME, such as workspace:shop/github.
    name: String,
    #[command(flatten)]
    value: ValueArgs,
    #[command(flatten)]
    terms: Terms,
}

/// How long a value holds, and what is to be known about it.
#[derive(Args)]
pub(super) struct Terms {
    /// When it may be used no more: a time such as 30d, or a moment such as 2027-01-31T00:00:00Z.
    #[arg(long, value_name = "TIME")]
    expires: Option<Expiry>,
    /// After how many days it should be another one, such as 90d.
    #[arg(long, value_name = "DAYS")]
    rotate_after: Option<Days>,
    /// What is to be known about it. Everybody who may list secrets reads it.
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
}

impl Terms {
    /// Whether anything is said.
    pub(super) const fn are_given(&self) -> bool {
        self.expires.is_some() || self.rotate_after.is_some() || self.note.is_some()
    }
}

impl PutArgs {
    /// Refuses what makes no sense before anybody is asked anything.
    pub(super) fn check(&self) -> Result<(), Failure> {
        self.value.check()?;
        // SECURITY: whoever writes NAME=VALUE has written a value, which is repeated nowhere.
        if self.name.contains('=') {
            return Err(on_the_command_line());
        }
        self.secret().map(drop)
    }

    fn secret(&self) -> Result<SecretRef, Failure> {
        secret(&self.name).map_err(|error| {
            let what = format!("`{}` cannot name a secret", visible(&self.name));
            Failure::new(Exit::Usage, "usage", what, error.to_string(), error.advice())
        })
    }
}

pub(super) async fn run(args: &PutArgs, daemon: &Client, terminal: &Terminal) -> Outcome {
    let name = args.secret()?;
    let value = args.value.read(&name.to_string()).await?;
    put(&name, value, &args.terms, daemon, terminal).await
}

/// Puts a value, and tells which version it is.
pub(super) async fn put(
    name: &SecretRef,
    value: Value,
    terms: &Terms,
    daemon: &Client,
    terminal: &Terminal,
) -> Outcome {
    let unsendable = value.is_unsendable();
    let (value, encoding) = value.spelt();
    let put = PutSecret {
        value,
        encoding,
        expires_at: terms.expires.map(Expiry::at),
        rotate_after_days: terms.rotate_after.map(|days| days.0),
        note: terms.note.clone(),
    };
    let KeptSecret { secret, version } = daemon.put_secret(name, &put).await?;
    if terminal.json {
        terminal.document("vault.put", KeptSecret { secret, version });
        return Ok(Exit::Ok);
    }
    let name = visible(&secret.to_string());
    terminal.out(format!("{} {name}, version {version}", terminal.paint(GOOD, "✔ kept")));
    if let Some(why) = unsendable {
        terminal
            .talk(terminal.paint_err(WAIT, &format!("! {why}: it can be handed over, not sent unseen in a header")));
    }
    if version == 1 {
        terminal.talk(format!("it may go nowhere yet: `palyra vault bind {name} --host HOST` says where"));
    }
    Ok(Exit::Ok)
}

/// When a value may be used no more.
#[derive(Debug, Clone, Copy)]
pub(super) enum Expiry {
    In(Lifetime),
    At(Timestamp),
}

impl Expiry {
    fn at(self) -> Timestamp {
        match self {
            Self::At(at) => at,
            Self::In(lifetime) => {
                let millis = i64::try_from(lifetime.seconds()).unwrap_or(i64::MAX).saturating_mul(1_000);
                Timestamp::from_unix_millis(SystemClock::new().now().unix_millis().saturating_add(millis))
            }
        }
    }
}

impl FromStr for Expiry {
    type Err = ExpiryError;
    fn from_str(text: &str) -> Result<Self, ExpiryError> {
        match (text.parse(), Timestamp::parse(text)) {
            (Ok(lifetime), _) => Ok(Self::In(lifetime)),
            (_, Ok(at)) => Ok(Self::At(at)),
            _ => Err(ExpiryError(text.to_owned())),
        }
    }
}

/// Whole days.
#[derive(Debug, Clone, Copy)]
pub(super) struct Days(u32);

impl FromStr for Days {
    type Err = DaysError;
    fn from_str(text: &str) -> Result<Self, DaysError> {
        let refused = || DaysError(text.to_owned());
        let lifetime: Lifetime = text.parse().map_err(|_| refused())?;
        let days = lifetime.seconds() / A_DAY;
        match u32::try_from(days) {
            Ok(days) if days > 0 && lifetime.seconds().is_multiple_of(A_DAY) => Ok(Self(days)),
            _ => Err(refused()),
        }
    }
}

/// Neither a length of time nor a moment.
#[derive(Debug, thiserror::Error)]
#[error("`{}` is neither a length of time, such as 30d, nor a moment, such as 2027-01-31T00:00:00Z", visible(.0))]
pub(super) struct ExpiryError(String);

/// Not some days.
#[derive(Debug, thiserror::Error)]
#[error("`{}` is no number of days; write it like 90d", visible(.0))]
pub(super) struct DaysError(String);

const A_DAY: u64 = 24 * 60 * 60;

const EXAMPLES: &str = "\
Examples:
  palyra vault put github             asks twice, without showing it
  palyra vault put github < token     without the line feed at its end; --exact keeps it
  palyra vault put workspace:shop/tls --file key.pem --expires 365d";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_and_days_are_read_strictly() {
        assert!(matches!("30d".parse(), Ok(Expiry::In(_))));
        assert!(matches!("2027-01-31T00:00:00Z".parse(), Ok(Expiry::At(_))));
        for wrong in ["", "soon", "2027-01-31", "-1d"] {
            assert!(wrong.parse::<Expiry>().is_err(), "{wrong}");
        }
        assert_eq!("90d".parse::<Days>().map(|days| days.0).ok(), Some(90));
        assert_eq!("48h".parse::<Days>().map(|days| days.0).ok(), Some(2));
        for wrong in ["0d", "90", "30m", "36h"] {
            assert!(wrong.parse::<Days>().is_err(), "{wrong}");
        }
    }
}
