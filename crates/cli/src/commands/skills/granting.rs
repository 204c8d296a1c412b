//! What is granted and taken back, as people write it: `log`, `http=api.example.org:443`, `secret:token=github`, `files:notes=docs:read`.
//!
//! Guarantees: what comes out holds nothing but what was there before, what was named, and of that only what the skill asks for.

use std::{fmt, str::FromStr};

use clap::Args;
use palyra_package::{
    Capabilities, Destination, FileAccess, FileGrant, GrantError, Grants, Offer, Unchosen, capability::DestinationError,
};
use palyra_types::{SecretRef, vault::SecretRefError, visible::visible, word::nearest};

use super::words::quoted;
use crate::{exit::Exit, failure::Failure};

/// The flags that grant.
#[derive(Args, Default)]
pub(crate) struct GrantFlags {
    /// Grant this: log, clock, random, kv, http (every host that it asks for), http=HOST:PORT, secret:NAME=SECRET or
    /// files:NAME=DIRECTORY[:read|:write]. Can be given again.
    #[arg(long = "grant", value_name = "WHAT")]
    pub(super) grants: Vec<Given>,
    /// Grant everything that it asks for and that needs no choice. Which secret and which directory, you have to say.
    #[arg(long)]
    pub(super) grant_all: bool,
}

impl GrantFlags {
    /// Whether anything is granted.
    pub(super) const fn are_given(&self) -> bool {
        self.grant_all || !self.grants.is_empty()
    }

    /// What is granted in the end, to a skill that asks for this and had that.
    pub(super) fn over(&self, before: Grants, asked: &Capabilities) -> Result<Grants, Failure> {
        let mut grants = before;
        if self.grant_all {
            let Offer { grants: all, .. } = Grants::all_of(asked);
            grants = Grants { secrets: grants.secrets, files: grants.files, ..all };
        }
        for given in &self.grants {
            let within = given.give(&mut grants, asked).and_then(|()| grants.check_within(asked));
            within.map_err(|error| refused(&error, given.meant(asked)))?;
        }
        grants.check_within(asked).map_err(|error| refused(&error, None))?;
        Ok(grants)
    }
}

/// One thing to grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Given {
    Log,
    Clock,
    Random,
    Kv,
    EveryHost,
    Host(Destination),
    Secret { name: String, secret: SecretRef },
    Directory { name: String, path: String, access: Option<FileAccess> },
}

impl Given {
    fn give(&self, grants: &mut Grants, asked: &Capabilities) -> Result<(), GrantError> {
        let not_asked = |what: &str| GrantError::NotAsked(what.to_owned());
        match self {
            Self::Log => grants.log = true,
            Self::Clock => grants.clock = true,
            Self::Random => grants.random = true,
            Self::Kv => grants.kv = Some(asked.kv.ok_or_else(|| not_asked("kv"))?),
            Self::EveryHost if asked.http.is_empty() => return Err(not_asked("http")),
            Self::EveryHost => grants.http.extend(asked.http.iter().cloned()),
            Self::Host(host) => {
                grants.http.insert(host.clone());
            }
            Self::Secret { name, secret } => {
                grants.secrets.insert(name.clone(), secret.clone());
            }
            Self::Directory { name, path, access } => {
                let wanted = asked.files.get(name).ok_or_else(|| not_asked(&format!("directory {name}")))?;
                let access = access.unwrap_or(*wanted);
                grants.files.insert(name.clone(), FileGrant { path: path.clone(), access });
            }
        }
        Ok(())
    }

    /// What was meant, if it has a name that the skill does not ask for and one that it does comes near.
    ///
    /// SECURITY: never another host. A skill could ask for one that is spelt like a host which people know, and wait for the mistake.
    fn meant(&self, asked: &Capabilities) -> Option<String> {
        match self {
            Self::Secret { name, secret } => Some(format!("secret:{}={secret}", near(name, asked.secrets.keys())?)),
            Self::Directory { name, path, access } => {
                let access = access.map(|access| format!(":{access}")).unwrap_or_default();
                Some(format!("files:{}={path}{access}", near(name, asked.files.keys())?))
            }
            Self::Log | Self::Clock | Self::Random | Self::Kv | Self::EveryHost | Self::Host(_) => None,
        }
    }
}

/// A name that is another one and comes near.
fn near<'a>(name: &str, names: impl Iterator<Item = &'a String>) -> Option<&'a str> {
    let names: Vec<&str> = names.map(String::as_str).collect();
    nearest(name, &names).filter(|near| *near != name)
}

/// One thing to take back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Taken {
    Log,
    Clock,
    Random,
    Kv,
    EveryHost,
    Host(Destination),
    Secret(String),
    Directory(String),
}

impl Taken {
    /// Takes it back. Says whether it was granted.
    pub(super) fn take(&self, grants: &mut Grants) -> bool {
        match self {
            Self::Log => std::mem::take(&mut grants.log),
            Self::Clock => std::mem::take(&mut grants.clock),
            Self::Random => std::mem::take(&mut grants.random),
            Self::Kv => grants.kv.take().is_some(),
            Self::EveryHost => !std::mem::take(&mut grants.http).is_empty(),
            Self::Host(host) => grants.http.remove(host),
            Self::Secret(name) => grants.secrets.remove(name).is_some(),
            Self::Directory(name) => grants.files.remove(name).is_some(),
        }
    }

    /// What was meant, if this is not granted and something that is comes near.
    pub(super) fn meant(&self, grants: &Grants) -> Option<Self> {
        match self {
            Self::Secret(name) => Some(Self::Secret(near(name, grants.secrets.keys())?.to_owned())),
            Self::Directory(name) => Some(Self::Directory(near(name, grants.files.keys())?.to_owned())),
            Self::Host(host) => {
                let hosts: Vec<String> = grants.http.iter().map(ToString::to_string).collect();
                Destination::parse(near(&host.to_string(), hosts.iter())?).map(Self::Host).ok()
            }
            Self::Log | Self::Clock | Self::Random | Self::Kv | Self::EveryHost => None,
        }
    }
}

impl fmt::Display for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Log => f.write_str("log"),
            Self::Clock => f.write_str("clock"),
            Self::Random => f.write_str("random"),
            Self::Kv => f.write_str("kv"),
            Self::EveryHost => f.write_str("http"),
            Self::Host(host) => write!(f, "http={host}"),
            Self::Secret(name) => write!(f, "secret:{}", visible(name)),
            Self::Directory(name) => write!(f, "files:{}", visible(name)),
        }
    }
}

impl FromStr for Given {
    type Err = GivenError;

    fn from_str(text: &str) -> Result<Self, GivenError> {
        if let Some((name, secret)) = text.strip_prefix("secret:").and_then(|rest| rest.split_once('=')) {
            return Ok(Self::Secret { name: name.to_owned(), secret: SecretRef::parse_or_global(secret)? });
        }
        if let Some((name, place)) = text.strip_prefix("files:").and_then(|rest| rest.split_once('=')) {
            let (path, access) = match place.rsplit_once(':') {
                Some((path, word)) => match FileAccess::parse(word) {
                    Ok(access) => (path, Some(access)),
                    // A word that was meant to narrow it must not be taken for a part of the path, and give more.
                    Err(error) => return Err(GivenError::Access(error)),
                },
                None => (place, None),
            };
            return Ok(Self::Directory { name: name.to_owned(), path: plain(path), access });
        }
        match Plain::parse(text)? {
            Plain::Log => Ok(Self::Log),
            Plain::Clock => Ok(Self::Clock),
            Plain::Random => Ok(Self::Random),
            Plain::Kv => Ok(Self::Kv),
            Plain::EveryHost => Ok(Self::EveryHost),
            Plain::Host(host) => Ok(Self::Host(host)),
        }
    }
}

impl FromStr for Taken {
    type Err = GivenError;

    fn from_str(text: &str) -> Result<Self, GivenError> {
        let bare = |rest: &str| rest.split_once('=').map_or(rest, |(name, _)| name).to_owned();
        if let Some(name) = text.strip_prefix("secret:") {
            return Ok(Self::Secret(bare(name)));
        }
        if let Some(name) = text.strip_prefix("files:") {
            return Ok(Self::Directory(bare(name)));
        }
        match Plain::parse(text)? {
            Plain::Log => Ok(Self::Log),
            Plain::Clock => Ok(Self::Clock),
            Plain::Random => Ok(Self::Random),
            Plain::Kv => Ok(Self::Kv),
            Plain::EveryHost => Ok(Self::EveryHost),
            Plain::Host(host) => Ok(Self::Host(host)),
        }
    }
}

/// What is written alike for granting and for taking back.
enum Plain {
    Log,
    Clock,
    Random,
    Kv,
    EveryHost,
    Host(Destination),
}

impl Plain {
    fn parse(text: &str) -> Result<Self, GivenError> {
        match text {
            "log" => Ok(Self::Log),
            "clock" => Ok(Self::Clock),
            "random" => Ok(Self::Random),
            "kv" => Ok(Self::Kv),
            "http" => Ok(Self::EveryHost),
            _ => match text.strip_prefix("http=") {
                Some(host) => Ok(Self::Host(Destination::parse(host)?)),
                None => Err(match meant_by(text) {
                    Some(meant) => GivenError::Misspelt { text: text.to_owned(), meant },
                    None => GivenError::Unknown(text.to_owned()),
                }),
            },
        }
    }
}

/// The flags that would grant what is asked for and is not granted. What has to be chosen stands there in capitals.
pub(super) fn flags_for_the_rest(asked: &Capabilities, granted: &Grants) -> Vec<String> {
    let mut what: Vec<String> = Vec::new();
    let plain = [
        (asked.log && !granted.log, "log"),
        (asked.clock && !granted.clock, "clock"),
        (asked.random && !granted.random, "random"),
        (asked.kv.is_some() && granted.kv != asked.kv, "kv"),
    ];
    what.extend(plain.into_iter().filter(|(is_missing, _)| *is_missing).map(|(_, word)| word.to_owned()));
    what.extend(asked.http.difference(&granted.http).map(|host| format!("http={host}")));
    let secrets = asked.secrets.keys().filter(|name| !granted.secrets.contains_key(*name));
    what.extend(secrets.map(|name| format!("secret:{name}=SECRET")));
    let files =
        asked.files.iter().filter(|(name, access)| granted.files.get(*name).map(|one| &one.access) < Some(access));
    what.extend(files.map(|(name, access)| format!("files:{name}=DIRECTORY:{access}")));
    what.iter().map(|what| format!("--grant {}", quoted(what))).collect()
}

/// What has to be chosen, and was not, in sentences.
pub(super) fn still_to_choose(asked: &Capabilities, granted: &Grants) -> Vec<String> {
    let unchosen = Grants::all_of(asked).unchosen.into_iter();
    unchosen
        .filter_map(|one| match one {
            Unchosen::Secret { name, purpose } => (!granted.secrets.contains_key(&name))
                .then(|| format!("which secret is `{name}`? It says: {}", visible(&purpose))),
            Unchosen::Directory { name, access } => (!granted.files.contains_key(&name))
                .then(|| format!("which directory of the workspace is `{name}`? It wants to {access}")),
        })
        .collect()
}

/// A path without what means nothing at its ends.
fn plain(path: &str) -> String {
    let path = path.strip_prefix("./").unwrap_or(path);
    match path.trim_end_matches('/') {
        "" => ".".to_owned(),
        path => path.to_owned(),
    }
}

fn refused(error: &GrantError, meant: Option<String>) -> Failure {
    let what = "that cannot be granted";
    let help = match meant {
        Some(meant) => format!("did you mean `--grant {}`?", quoted(&meant)),
        None => error.advice().to_owned(),
    };
    Failure::new(Exit::Usage, "cannot_grant", what, error.to_string(), help)
}

/// What comes near to something that cannot be granted, as it would be written.
fn meant_by(text: &str) -> Option<String> {
    let end = text.find([':', '=']).unwrap_or(text.len());
    let (word, rest) = text.split_at_checked(end)?;
    let near = nearest(word, &["log", "clock", "random", "kv", "http", "secret", "files"])?;
    let names_something = rest.starts_with(':') && rest.contains('=');
    Some(match near {
        "http" if rest.is_empty() => "http".to_owned(),
        "http" => format!("http={}", rest.strip_prefix([':', '=']).unwrap_or_default()),
        "secret" if word == near || !names_something => "secret:NAME=SECRET".to_owned(),
        "files" if word == near || !names_something => "files:NAME=DIRECTORY".to_owned(),
        "secret" | "files" => format!("{near}{rest}"),
        plain => plain.to_owned(),
    })
}

/// Why something cannot be granted or taken back as it is written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GivenError {
    /// Nothing that can be granted, and nothing that comes near.
    #[error(
        "`{}` is none of log, clock, random, kv, http, http=HOST:PORT, secret:NAME=SECRET and files:NAME=DIRECTORY",
        visible(.0)
    )]
    Unknown(String),
    /// Nothing that can be granted, and something that may have been meant.
    #[error("`{}` is nothing that can be granted; did you mean `{}`?", visible(.text), visible(.meant))]
    Misspelt {
        /// What was written.
        text: String,
        /// What may have been meant.
        meant: String,
    },
    /// No host.
    #[error(transparent)]
    Host(#[from] DestinationError),
    /// No secret.
    #[error(transparent)]
    Secret(#[from] SecretRefError),
    /// No way to use a directory.
    #[error("files:NAME=DIRECTORY ends in :read or :write, or in neither: {0}")]
    Access(#[from] palyra_types::word::UnknownWord),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked() -> Capabilities {
        Capabilities {
            log: true,
            http: ["a.example:443", "b.example:443"].map(|host| Destination::parse(host).unwrap()).into(),
            secrets: [("token".to_owned(), "to sign in".to_owned())].into(),
            files: [("notes".to_owned(), FileAccess::Write)].into(),
            ..Capabilities::default()
        }
    }

    fn flags(grants: &[&str], grant_all: bool) -> GrantFlags {
        GrantFlags { grants: grants.iter().map(|text| text.parse().unwrap()).collect(), grant_all }
    }

    #[test]
    fn grants_are_read_as_they_are_written() {
        let read = |text: &str| text.parse::<Given>().unwrap();
        assert_eq!(read("http=a.example:443"), Given::Host(Destination::parse("a.example:443").unwrap()));
        let secret = SecretRef::parse("global/github").unwrap();
        assert_eq!(read("secret:token=github"), Given::Secret { name: "token".into(), secret });
        let directory = |path: &str, access| Given::Directory { name: "notes".into(), path: path.into(), access };
        assert_eq!(read("files:notes=docs/a:read"), directory("docs/a", Some(FileAccess::Read)));
        assert_eq!(read("files:notes=./docs/"), directory("docs", None));
        assert_eq!(read("files:notes=."), directory(".", None));
        for wrong in ["", "network", "http=", "http=a.example", "secret:token", "secret:token=x/y/z", "files:notes"] {
            assert!(wrong.parse::<Given>().is_err(), "{wrong}");
        }
        assert_eq!("secret:token".parse(), Ok(Taken::Secret("token".into())));
        assert_eq!("files:notes=docs".parse(), Ok(Taken::Directory("notes".into())));
    }

    #[test]
    fn nothing_is_granted_but_what_was_asked_for_and_named() {
        let grants = flags(&["log", "files:notes=docs"], false).over(Grants::default(), &asked()).unwrap();
        let notes = FileGrant { path: "docs".into(), access: FileAccess::Write };
        assert_eq!(grants, Grants { log: true, files: [("notes".into(), notes)].into(), ..Grants::default() });
        for wrong in ["clock", "kv", "http=c.example:443", "secret:other=x", "files:other=docs", "files:notes=../etc"] {
            assert_eq!(
                flags(&[wrong], false).over(Grants::default(), &asked()).unwrap_err().code,
                "cannot_grant",
                "{wrong}"
            );
        }
    }

    #[test]
    fn everything_is_what_needs_no_choice_and_the_rest_is_named() {
        let kept = flags(&["secret:token=github"], false).over(Grants::default(), &asked()).unwrap();
        let all = flags(&[], true).over(kept.clone(), &asked()).unwrap();
        assert_eq!(all, Grants { log: true, http: asked().http, ..kept });
        assert_eq!(still_to_choose(&asked(), &all), ["which directory of the workspace is `notes`? It wants to write"]);
        assert_eq!(flags_for_the_rest(&asked(), &all), ["--grant files:notes=DIRECTORY:write"]);
        let rest = flags_for_the_rest(&asked(), &Grants::default());
        assert_eq!(
            rest,
            [
                "--grant log",
                "--grant http=a.example:443",
                "--grant http=b.example:443",
                "--grant secret:token=SECRET",
                "--grant files:notes=DIRECTORY:write"
            ]
        );
    }

    #[test]
    fn a_misspelt_grant_is_asked_about_and_nonsense_is_not() {
        let meant = |text: &str| match text.parse::<Given>().unwrap_err() {
            GivenError::Misspelt { meant, .. } => Some(meant),
            _ => None,
        };
        for (text, expected) in [
            ("clok", "clock"),
            ("htpp=a.example:443", "http=a.example:443"),
            ("http:a.example:443", "http=a.example:443"),
            ("secrets:token=github", "secret:token=github"),
            ("file:notes=docs:read", "files:notes=docs:read"),
            ("secret:token", "secret:NAME=SECRET"),
            ("files", "files:NAME=DIRECTORY"),
        ] {
            assert_eq!(meant(text).as_deref(), Some(expected), "{text}");
        }
        assert_eq!((meant("network"), meant("")), (None, None));
    }

    #[test]
    fn a_name_that_the_skill_does_not_ask_for_is_asked_about_and_a_host_never_is() {
        let help = |text: &str| flags(&[text], false).over(Grants::default(), &asked()).unwrap_err().help;
        assert_eq!(help("secret:tokn=github"), "did you mean `--grant secret:token=global/github`?");
        assert_eq!(help("files:note=docs:read"), "did you mean `--grant files:notes=docs:read`?");
        for other in ["http=c.example:443", "secret:password=github", "files:notes=../etc", "clock"] {
            assert!(!help(other).contains("did you mean"), "{other}");
        }
        let granted = flags(&["secret:token=github", "http"], false).over(Grants::default(), &asked()).unwrap();
        let meant = |text: &str| text.parse::<Taken>().unwrap().meant(&granted).map(|meant| meant.to_string());
        assert_eq!(meant("secret:tokne").as_deref(), Some("secret:token"));
        assert_eq!(meant("http=c.example:443").as_deref(), Some("http=a.example:443"));
        assert_eq!((meant("files:notes"), meant("clock")), (None, None));
    }

    #[test]
    fn a_misspelt_way_to_use_a_directory_grants_nothing() {
        let refused = "files:notes=src:raed".parse::<Given>().unwrap_err();
        assert!(matches!(refused, GivenError::Access(_)), "{refused}");
        let read =
            Given::Directory { name: "notes".to_owned(), path: "src".to_owned(), access: Some(FileAccess::Read) };
        assert_eq!("files:notes=src:read".parse::<Given>().unwrap(), read);
    }

    #[test]
    fn what_is_taken_back_is_gone_and_the_rest_stays() {
        let mut grants = flags(&["log", "http"], false).over(Grants::default(), &asked()).unwrap();
        let host = |text: &str| Taken::Host(Destination::parse(text).unwrap());
        assert!(host("a.example:443").take(&mut grants));
        assert!(!host("a.example:443").take(&mut grants));
        assert_eq!(flags_for_the_rest(&asked(), &grants).first().unwrap(), "--grant http=a.example:443");
        assert!(Taken::EveryHost.take(&mut grants) && Taken::Log.take(&mut grants));
        assert_eq!(grants, Grants::default());
    }
}
