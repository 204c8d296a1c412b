//! `[[provider]]`: what is configured of a provider.
//!
//! Guarantees: what is left out is a good choice; what passed [`check`] can be used, and every fallback leads somewhere.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use palyra_types::{SecretRef, word::nearest};
use serde::{Deserialize, Serialize};

use crate::{
    base_url::BaseUrl,
    name::{ModelName, ProviderName},
    retry::Backoff,
};

/// `[[provider]]`: one server of models.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderSection {
    /// What it is called.
    pub name: ProviderName,
    /// Where it is, such as `https://api.openai.com/v1`.
    pub base_url: BaseUrl,
    /// The secret that it is asked with, such as `global/openai`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<SecretRef>,
    /// The names that clients use for models, and what the provider calls these.
    #[serde(default)]
    pub models: BTreeMap<ModelName, ModelName>,
    /// Whether models that are not in `models` are reached, too, as `PROVIDER/MODEL`.
    #[serde(default)]
    pub pass_through: bool,
    /// Who is asked when this one cannot be used: names that clients use for models, or names of providers, which are asked for the same
    /// model.
    #[serde(default)]
    pub fallback: Vec<ModelName>,
    /// How long a connection may take.
    #[serde(default = "defaults::connect_seconds")]
    pub connect_seconds: u32,
    /// How long it may take until an answer begins.
    #[serde(default = "defaults::answer_seconds")]
    pub answer_seconds: u32,
    /// How long it may take between two pieces of an answer.
    #[serde(default = "defaults::idle_seconds")]
    pub idle_seconds: u32,
    /// How often a request is sent again where that is safe.
    #[serde(default = "defaults::retries")]
    pub retries: u32,
    /// After how many failures in a row the provider is left alone.
    #[serde(default = "defaults::breaker_failures")]
    pub breaker_failures: u32,
    /// For how long it is left alone.
    #[serde(default = "defaults::breaker_seconds")]
    pub breaker_seconds: u32,
    /// The largest answer that is held in memory. Streams are not.
    #[serde(default = "defaults::max_answer_bytes")]
    pub max_answer_bytes: usize,
}

impl ProviderSection {
    /// A provider at this address, with the usual choices. It serves nothing yet.
    #[must_use]
    pub const fn new(name: ProviderName, base_url: BaseUrl) -> Self {
        Self {
            name,
            base_url,
            key: None,
            models: BTreeMap::new(),
            pass_through: false,
            fallback: Vec::new(),
            connect_seconds: defaults::connect_seconds(),
            answer_seconds: defaults::answer_seconds(),
            idle_seconds: defaults::idle_seconds(),
            retries: defaults::retries(),
            breaker_failures: defaults::breaker_failures(),
            breaker_seconds: defaults::breaker_seconds(),
            max_answer_bytes: defaults::max_answer_bytes(),
        }
    }

    /// Its times and limits, as a provider is told.
    #[must_use]
    pub fn settings(&self) -> Settings {
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        Settings {
            connect: seconds(self.connect_seconds),
            answer: seconds(self.answer_seconds),
            idle: seconds(self.idle_seconds),
            retries: self.retries,
            backoff: Backoff::default(),
            breaker_failures: self.breaker_failures,
            breaker_open: seconds(self.breaker_seconds),
            max_answer_bytes: self.max_answer_bytes,
        }
    }

    /// Whether its key crosses a network that others can read. It is allowed, and worth a warning.
    #[must_use]
    pub fn shows_its_key(&self) -> bool {
        self.key.is_some() && !self.base_url.is_encrypted() && !self.base_url.is_local()
    }

    fn check_alone(&self) -> Result<(), SectionError> {
        let provider = || self.name.clone();
        let times = [
            ("connect_seconds", self.connect_seconds),
            ("answer_seconds", self.answer_seconds),
            ("idle_seconds", self.idle_seconds),
            ("breaker_seconds", self.breaker_seconds),
        ];
        let counts = [("retries", self.retries, 0, 10), ("breaker_failures", self.breaker_failures, 1, 1_000)];
        let numbers = times.map(|(key, value)| (key, value, 1, 3_600)).into_iter().chain(counts);
        for (key, value, least, most) in numbers {
            if !(least..=most).contains(&value) {
                return Err(SectionError::OutOfRange {
                    provider: provider(),
                    key,
                    least: least.into(),
                    most: most.into(),
                });
            }
        }
        if !(1..=LARGEST_ANSWER).contains(&self.max_answer_bytes) {
            let most = LARGEST_ANSWER.try_into().unwrap_or(u64::MAX);
            return Err(SectionError::OutOfRange { provider: provider(), key: "max_answer_bytes", least: 1, most });
        }
        if self.models.is_empty() && !self.pass_through {
            return Err(SectionError::ServesNothing { provider: provider() });
        }
        Ok(())
    }
}

/// Checks all providers that are configured, each alone and all together.
///
/// # Errors
/// With the first thing that makes no sense.
pub fn check(sections: &[ProviderSection]) -> Result<(), SectionError> {
    let mut names = BTreeSet::new();
    for section in sections {
        section.check_alone()?;
        if !names.insert(section.name.as_str()) {
            return Err(SectionError::Twice { provider: section.name.clone() });
        }
    }
    for section in sections {
        if let Some(model) = section.models.keys().find(|model| names.contains(model.as_str())) {
            return Err(SectionError::Ambiguous { provider: section.name.clone(), model: model.clone() });
        }
        section.fallback.iter().try_for_each(|fallback| check_fallback(section, fallback, sections))?;
    }
    Ok(())
}

fn check_fallback(from: &ProviderSection, to: &ModelName, sections: &[ProviderSection]) -> Result<(), SectionError> {
    let provider = || from.name.clone();
    if let Some(other) = sections.iter().find(|other| other.name.as_str() == to.as_str()) {
        if other.name == from.name {
            return Err(SectionError::ToItself { provider: provider() });
        }
        let has = |model: &&ModelName| other.pass_through || other.models.contains_key(*model);
        return match from.models.keys().find(|model| !has(model)) {
            Some(model) => {
                Err(SectionError::Lacking { provider: provider(), fallback: other.name.clone(), model: model.clone() })
            }
            None => Ok(()),
        };
    }
    let divided = to.as_str().split_once('/').and_then(|(name, model)| {
        sections.iter().find(|other| other.name.as_str() == name).map(|other| (other, model))
    });
    let reached = divided.is_some_and(|(other, model)| other.pass_through || other.models.contains_key(model));
    if reached || sections.iter().any(|other| other.models.contains_key(to)) {
        return Ok(());
    }
    let known =
        sections.iter().flat_map(|other| other.models.keys().map(ModelName::as_str).chain([other.name.as_str()]));
    let known: Vec<&str> = known.filter(|&name| name != from.name.as_str()).collect();
    let near = nearest(to.as_str(), &known).map(str::to_owned);
    Err(SectionError::UnknownFallback { provider: provider(), fallback: to.clone(), near })
}

/// The times and limits of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// How long a connection may take.
    pub connect: Duration,
    /// How long it may take until an answer begins, the connection included.
    pub answer: Duration,
    /// How long it may take between two pieces of an answer.
    pub idle: Duration,
    /// How often a request is sent again where that is safe.
    pub retries: u32,
    /// How long to wait before that.
    pub backoff: Backoff,
    /// After how many failures in a row the provider is left alone.
    pub breaker_failures: u32,
    /// For how long.
    pub breaker_open: Duration,
    /// The largest answer that is held in memory.
    pub max_answer_bytes: usize,
}

/// Why providers cannot be used as they are configured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SectionError {
    /// A number that makes no sense.
    #[error("`{key}` of the provider `{provider}` is not between {least} and {most}")]
    OutOfRange {
        /// Whose it is.
        provider: ProviderName,
        /// Which one.
        key: &'static str,
        /// What it may be at the least.
        least: u64,
        /// And at the most.
        most: u64,
    },
    /// Neither models nor all models.
    #[error("no model is reached at the provider `{provider}`")]
    ServesNothing {
        /// Which one.
        provider: ProviderName,
    },
    /// Two of one name.
    #[error("two providers are called `{provider}`")]
    Twice {
        /// What they are called.
        provider: ProviderName,
    },
    /// A model that is called like a provider.
    #[error("`{model}` of the provider `{provider}` is also the name of a provider")]
    Ambiguous {
        /// Whose model it is.
        provider: ProviderName,
        /// What it is called.
        model: ModelName,
    },
    /// A fallback to where it came from.
    #[error("the provider `{provider}` falls back to itself")]
    ToItself {
        /// Which one.
        provider: ProviderName,
    },
    /// A fallback that is neither a model nor a provider.
    #[error(
        "the provider `{provider}` falls back to `{fallback}`, which is neither a model nor a provider{}",
        .near.as_ref().map(|near| format!("; did you mean `{near}`?")).unwrap_or_default()
    )]
    UnknownFallback {
        /// Whose fallback it is.
        provider: ProviderName,
        /// Where it leads.
        fallback: ModelName,
        /// What may be meant.
        near: Option<String>,
    },
    /// A fallback to a provider that does not have the model.
    #[error("the provider `{provider}` falls back to `{fallback}`, which has no model `{model}`")]
    Lacking {
        /// Whose fallback it is.
        provider: ProviderName,
        /// Where it leads.
        fallback: ProviderName,
        /// What is missing there.
        model: ModelName,
    },
}

impl SectionError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::OutOfRange { .. } => "choose a number in between, or leave the key out",
            Self::ServesNothing { .. } => {
                "add a model, such as `models = { fast = \"gpt-4o-mini\" }`, or `pass_through = true`"
            }
            Self::Twice { .. } => "give each provider a name of its own",
            Self::Ambiguous { .. } => "call the model something else",
            Self::ToItself { .. } => "leave it out of its own `fallback`",
            Self::UnknownFallback { .. } => "name a model as clients do, or a provider",
            Self::Lacking { .. } => "add the model to that provider, or fall back to a model that it has",
        }
    }
}

/// What is left out.
mod defaults {
    pub(super) const fn connect_seconds() -> u32 {
        10
    }

    pub(super) const fn answer_seconds() -> u32 {
        120
    }

    pub(super) const fn idle_seconds() -> u32 {
        120
    }

    pub(super) const fn retries() -> u32 {
        2
    }

    pub(super) const fn breaker_failures() -> u32 {
        5
    }

    pub(super) const fn breaker_seconds() -> u32 {
        30
    }

    pub(super) const fn max_answer_bytes() -> usize {
        64 << 20
    }
}

/// More than that is not held in memory for anybody.
const LARGEST_ANSWER: usize = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    struct File {
        provider: Vec<ProviderSection>,
    }

    fn read(text: &str) -> Vec<ProviderSection> {
        toml::from_str::<File>(text).unwrap().provider
    }

    fn checked(text: &str) -> String {
        match check(&read(text)) {
            Ok(()) => "fine".to_owned(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn what_is_left_out_is_the_usual_choice() {
        let sections =
            read("[[provider]]\nname = \"local\"\nbase_url = \"http://127.0.0.1:11434/v1/\"\npass_through = true");
        let name = ProviderName::parse("local").unwrap();
        let url = BaseUrl::parse("http://127.0.0.1:11434/v1").unwrap();
        assert_eq!(sections, [ProviderSection { pass_through: true, ..ProviderSection::new(name, url) }]);
        assert_eq!(check(&sections), Ok(()));
        let settings = sections[0].settings();
        assert_eq!((settings.connect, settings.answer), (Duration::from_secs(10), Duration::from_secs(120)));
        assert_eq!((settings.retries, settings.breaker_failures, settings.max_answer_bytes), (2, 5, 64 << 20));
    }

    #[test]
    fn a_section_reads_back_as_it_was_written() {
        let text = "[[provider]]\nname = \"openai\"\nbase_url = \"https://api.openai.com/v1\"\nkey = \"global/openai\"\n\
                    models = { fast = \"gpt-4o-mini\" }\nfallback = [\"slow\"]\nretries = 0";
        let section = read(text).remove(0);
        let again: ProviderSection = toml::from_str(&toml::to_string(&section).unwrap()).unwrap();
        assert_eq!(again, section);
        assert_eq!(section.key.unwrap().to_string(), "global/openai");
    }

    #[test]
    fn unknown_keys_and_bad_addresses_are_refused() {
        let refused = |text: &str| toml::from_str::<ProviderSection>(text).unwrap_err().to_string();
        let start = "name = \"a\"\nbase_url = \"https://a.example\"\n";
        assert!(refused(&format!("{start}model = 1")).contains("unknown field `model`"));
        assert!(refused("name = \"a\"\nbase_url = \"https://u:pw1@a.example\"").contains("holds credentials"));
        assert!(refused("name = \"A\"\nbase_url = \"https://a.example\"").contains("`A` is no name of a provider"));
        assert!(refused(&format!("{start}key = \"openai\"")).contains("has no scope"));
    }

    #[test]
    fn what_makes_no_sense_is_told() {
        let one = "[[provider]]\nname = \"one\"\nbase_url = \"https://a.example\"\n";
        let two = "[[provider]]\nname = \"two\"\nbase_url = \"https://b.example\"\n";
        for (text, told) in [
            (one.to_owned(), "no model is reached at the provider `one`"),
            (format!("{one}pass_through = true\n{one}pass_through = true"), "two providers are called `one`"),
            (format!("{one}models = {{ one = \"x\" }}"), "`one` of the provider `one` is also the name of a provider"),
            (
                format!("{one}pass_through = true\nretries = 11"),
                "`retries` of the provider `one` is not between 0 and 10",
            ),
            (
                format!("{one}pass_through = true\nidle_seconds = 0"),
                "`idle_seconds` of the provider `one` is not between 1 and 3600",
            ),
            (
                format!("{one}pass_through = true\nmax_answer_bytes = 0"),
                "`max_answer_bytes` of the provider `one` is not between 1 and 1073741824",
            ),
            (format!("{one}pass_through = true\nfallback = [\"one\"]"), "the provider `one` falls back to itself"),
            (
                format!("{one}pass_through = true\nfallback = [\"fsat\"]\n{two}models = {{ fast = \"x\" }}"),
                "the provider `one` falls back to `fsat`, which is neither a model nor a provider; did you mean `fast`?",
            ),
            (
                format!("{one}models = {{ slow = \"y\" }}\nfallback = [\"two\"]\n{two}models = {{ fast = \"x\" }}"),
                "the provider `one` falls back to `two`, which has no model `slow`",
            ),
            (
                format!(
                    "{one}models = {{ a = \"y\" }}\nfallback = [\"two\", \"fast\", \"two/z\"]\n{two}models = {{ fast = \"x\" }}\npass_through = true"
                ),
                "fine",
            ),
        ] {
            assert_eq!(checked(&text), told, "{text}");
        }
    }

    #[test]
    fn a_key_in_the_clear_is_noticed() {
        for (url, shows) in [("http://10.0.0.1/v1", true), ("https://a.example", false), ("http://localhost:1", false)]
        {
            let name = ProviderName::parse("one").unwrap();
            let mut section = ProviderSection::new(name, BaseUrl::parse(url).unwrap());
            assert!(!section.shows_its_key());
            section.key = Some(SecretRef::parse("global/one").unwrap());
            assert_eq!(section.shows_its_key(), shows, "{url}");
        }
    }
}
