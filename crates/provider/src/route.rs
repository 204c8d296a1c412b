//! All providers that are configured: which one a model is at, and who is asked when that one cannot be used.
//!
//! Guarantees: candidates are asked in the order that is configured, each at most once for one model, whatever loops the fallbacks make;
//! the next one is asked only before anything of an answer was passed on; a refusal such as 400 or 401 is an answer, so nobody else is
//! asked then; when nobody answers, all failures are told.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt,
};

use hyper::body::Bytes;
use palyra_types::{SecretRef, visible::visible, word::nearest};

use crate::{
    answer::Answer,
    client::{Endpoint, Provider, Request, World},
    config::{ProviderSection, SectionError, Settings, check},
    error::ProviderError,
    key::Key,
    name::{ModelName, ProviderName},
    trust::{Trust, TrustError},
};

/// Whoever has the keys of providers.
pub trait Keys: Sync {
    /// The key that this secret holds, or none if it cannot be had.
    fn key(&self, secret: &SecretRef) -> impl Future<Output = Option<Key>> + Send;
}

/// What is asked, besides the model and the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// What is asked for.
    pub endpoint: Endpoint,
    /// Whether the answer is wanted as a stream of events.
    pub streams: bool,
}

/// All providers that are configured.
#[derive(Debug)]
pub struct Providers {
    members: Vec<Member>,
    by_model: BTreeMap<ModelName, usize>,
}

impl Providers {
    /// All providers of a configuration, with the certificates of further authorities that they may show. Nothing is sent yet.
    ///
    /// # Errors
    /// When they cannot be used as they are configured.
    pub fn new(sections: &[ProviderSection], extra_roots: Option<&str>, world: &World) -> Result<Self, Unusable> {
        let trust = Trust::needed_by(sections, extra_roots)?;
        Self::with_settings(sections, &trust, world, ProviderSection::settings)
    }

    /// As [`Self::new`], with times and limits of the caller's.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_settings(
        sections: &[ProviderSection],
        trust: &Trust,
        world: &World,
        settings: impl Fn(&ProviderSection) -> Settings,
    ) -> Result<Self, Unusable> {
        check(sections)?;
        let mut members = Vec::with_capacity(sections.len());
        let mut by_model = BTreeMap::new();
        for (index, section) in sections.iter().enumerate() {
            let provider = Provider::new(&section.base_url, settings(section), trust, world.clone())?;
            members.push(Member { section: section.clone(), provider });
            for model in section.models.keys() {
                by_model.entry(model.clone()).or_insert(index);
            }
        }
        Ok(Self { members, by_model })
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// One of them, and what is configured of it.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<(&ProviderSection, &Provider)> {
        let found = self.members.iter().find(|member| member.section.name.as_str() == name)?;
        Some((&found.section, &found.provider))
    }

    /// All of them, in the order that is configured.
    pub fn iter(&self) -> impl Iterator<Item = (&ProviderSection, &Provider)> {
        self.members.iter().map(|member| (&member.section, &member.provider))
    }

    /// The names by which clients reach models, and the provider of each. A model that another provider of the same name hides is reached
    /// as `PROVIDER/MODEL`. What is passed through is not known here.
    #[must_use]
    pub fn models(&self) -> Vec<(String, ProviderName)> {
        let mut models = Vec::new();
        for (index, Member { section, .. }) in self.members.iter().enumerate() {
            for model in section.models.keys() {
                let shown = match self.by_model.get(model) {
                    Some(&first) if first == index => model.to_string(),
                    _ => format!("{}/{model}", section.name),
                };
                models.push((shown, section.name.clone()));
            }
        }
        models
    }

    /// Who is asked for a model, in order: the provider that it is at, then the fallbacks of that, then the fallbacks of these.
    ///
    /// # Errors
    /// When no provider has such a model.
    pub fn resolve(&self, model: &str) -> Result<Vec<Candidate<'_>>, Unknown> {
        let first = self.place(model).ok_or_else(|| self.unknown(model))?;
        let mut candidates = Vec::new();
        let mut seen = BTreeSet::new();
        let mut next = VecDeque::from([first]);
        while let Some(place) = next.pop_front() {
            let Some(member) = self.members.get(place.member) else { continue };
            if !seen.insert((place.member, place.upstream.clone())) {
                continue;
            }
            next.extend(member.section.fallback.iter().filter_map(|to| self.fall(&place, to)));
            candidates.push(Candidate { section: &member.section, provider: &member.provider, model: place.upstream });
        }
        Ok(candidates)
    }

    /// Asks for a model: the first candidate, and the next ones while those before them cannot be used. The body is made for each, with the
    /// name that its provider has for the model.
    ///
    /// # Errors
    /// When no provider has such a model, or none of them answers.
    pub async fn send(
        &self,
        model: &str,
        ask: Ask,
        make_body: impl Fn(&ModelName) -> Bytes,
        keys: &impl Keys,
    ) -> Result<Answered, RouteError> {
        let mut failures: Vec<Failure> = Vec::new();
        let mut attempts = 0_u32;
        for candidate in self.resolve(model)? {
            let (tried, outcome) = candidate.send(ask, &make_body, keys).await;
            attempts = attempts.saturating_add(tried);
            let (provider, model) = (candidate.section.name.clone(), candidate.model);
            match outcome {
                Ok(answer) => return Ok(Answered { provider, model, attempts, failures, answer }),
                Err(error) => failures.push(Failure { provider, model, attempts: tried, error }),
            }
        }
        match failures.pop() {
            Some(last) => Err(AllFailed { model: model.to_owned(), before: failures, last: Box::new(last) }.into()),
            // INVARIANT: a model that is known has a candidate.
            None => Err(self.unknown(model).into()),
        }
    }

    /// Where a name that a client uses leads.
    fn place(&self, model: &str) -> Option<Place> {
        if let Some(&member) = self.by_model.get(model) {
            return self.at(member, model);
        }
        let (name, model) = model.split_once('/')?;
        let member = self.members.iter().position(|member| member.section.name.as_str() == name)?;
        self.at(member, model)
    }

    /// Where a model is at a provider: what is configured, or itself where everything is passed through.
    fn at(&self, member: usize, model: &str) -> Option<Place> {
        let section = &self.members.get(member)?.section;
        let asked = ModelName::parse(model).ok()?;
        let upstream = match section.models.get(model) {
            Some(upstream) => upstream.clone(),
            None if section.pass_through => asked.clone(),
            None => return None,
        };
        Some(Place { member, asked, upstream })
    }

    /// Where a fallback leads from here: to a model, or to the same model at another provider. One that does not know the name which the
    /// client used is asked by the name that the provider before it has for the model, if it passes everything through.
    fn fall(&self, from: &Place, to: &ModelName) -> Option<Place> {
        let Some(member) = self.members.iter().position(|member| member.section.name.as_str() == to.as_str()) else {
            return self.place(to.as_str());
        };
        let knows = self.members.get(member)?.section.models.contains_key(&from.asked);
        self.at(member, if knows { from.asked.as_str() } else { from.upstream.as_str() })
    }

    fn unknown(&self, model: &str) -> Unknown {
        let known = self.models();
        let known: Vec<&str> = known.iter().map(|(name, _)| name.as_str()).collect();
        Unknown { model: model.to_owned(), near: nearest(model, &known).map(str::to_owned) }
    }
}

/// Who is asked, and for what.
#[derive(Debug, Clone)]
pub struct Candidate<'a> {
    /// What is configured of the provider.
    pub section: &'a ProviderSection,
    /// The provider.
    pub provider: &'a Provider,
    /// What the provider calls the model.
    pub model: ModelName,
}

impl Candidate<'_> {
    async fn send(
        &self,
        ask: Ask,
        make_body: &impl Fn(&ModelName) -> Bytes,
        keys: &impl Keys,
    ) -> (u32, Result<Answer, ProviderError>) {
        let key = match &self.section.key {
            None => None,
            // SECURITY: a provider that wants a key is not asked without one; the request would tell it what nobody pays for.
            Some(secret) => match keys.key(secret).await {
                Some(key) => Some(key),
                None => return (0, Err(ProviderError::NoKey)),
            },
        };
        let Ask { endpoint, streams } = ask;
        let request = Request { endpoint, body: make_body(&self.model), key: key.as_ref(), streams };
        self.provider.send_counting(request).await
    }
}

/// An answer, and who gave it.
#[derive(Debug)]
pub struct Answered {
    /// Who answers.
    pub provider: ProviderName,
    /// What it calls the model.
    pub model: ModelName,
    /// How often the request was sent, to all providers together.
    pub attempts: u32,
    /// Who was asked before and could not be used.
    pub failures: Vec<Failure>,
    /// What it says.
    pub answer: Answer,
}

/// A provider that was asked and could not be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Which one.
    pub provider: ProviderName,
    /// What it calls the model.
    pub model: ModelName,
    /// How often it was asked.
    pub attempts: u32,
    /// Why not.
    pub error: ProviderError,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { provider, model, attempts, error } = self;
        match attempts {
            0 => write!(f, "`{provider}` (model `{model}`, not asked): {error}"),
            1 => write!(f, "`{provider}` (model `{model}`, asked once): {error}"),
            _ => write!(f, "`{provider}` (model `{model}`, asked {attempts} times): {error}"),
        }
    }
}

/// Why there is no answer for a model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// No provider has it.
    #[error(transparent)]
    Unknown(#[from] Unknown),
    /// Nobody who has it answers.
    #[error(transparent)]
    AllFailed(#[from] AllFailed),
}

impl RouteError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::Unknown(_) => "ask for one of the models that `GET /v1/models` lists, or add it to a `[[provider]]`",
            Self::AllFailed(all) => all.last.error.advice(),
        }
    }
}

/// A model that no provider has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "no provider has a model `{}`{}",
    visible(.model),
    .near.as_ref().map(|near| format!("; did you mean `{near}`?")).unwrap_or_default()
)]
pub struct Unknown {
    /// What was asked for.
    pub model: String,
    /// What may be meant.
    pub near: Option<String>,
}

/// Everybody who was asked, and why none of them answers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no provider answers for the model `{}`: {}", visible(.model), self.told())]
pub struct AllFailed {
    /// What was asked for.
    pub model: String,
    /// All but the last, in order.
    pub before: Vec<Failure>,
    /// The last one.
    pub last: Box<Failure>,
}

impl AllFailed {
    /// All of them, in order.
    pub fn failures(&self) -> impl Iterator<Item = &Failure> {
        self.before.iter().chain([&*self.last])
    }

    fn told(&self) -> String {
        self.failures().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }
}

/// Why providers cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// As they are configured.
    #[error(transparent)]
    Section(#[from] SectionError),
    /// Where they are.
    #[error(transparent)]
    Address(#[from] crate::base_url::BaseUrlError),
    /// Because nobody is trusted.
    #[error(transparent)]
    Trust(#[from] TrustError),
}

impl Unusable {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::Section(error) => error.advice(),
            Self::Address(error) => error.advice(),
            Self::Trust(error) => error.advice(),
        }
    }
}

#[derive(Debug)]
struct Member {
    section: ProviderSection,
    provider: Provider,
}

/// A model at a provider.
#[derive(Debug, Clone)]
struct Place {
    member: usize,
    asked: ModelName,
    upstream: ModelName,
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use palyra_types::{Timestamp, clock::ManualClock, entropy::SeededEntropy};
    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    struct File {
        provider: Vec<ProviderSection>,
    }

    const FILE: &str = r#"
        [[provider]]
        name = "one"
        base_url = "http://127.0.0.1:1"
        models = { fast = "fast-1", "one/odd" = "odd-1" }
        fallback = ["two", "cheap"]

        [[provider]]
        name = "two"
        base_url = "http://127.0.0.1:2"
        models = { fast = "fast-2", cheap = "cheap-2" }
        pass_through = true
        fallback = ["three", "one/fast"]

        [[provider]]
        name = "three"
        base_url = "http://127.0.0.1:3"
        pass_through = true
        fallback = ["fast"]
    "#;

    fn providers() -> Providers {
        let clock = Arc::new(ManualClock::at(Timestamp::from_unix_millis(0)));
        let world = World { clock, entropy: Arc::new(SeededEntropy::new(1)) };
        let sections = toml::from_str::<File>(FILE).unwrap().provider;
        Providers::new(&sections, None, &world).unwrap()
    }

    fn order(model: &str) -> String {
        let providers = providers();
        let candidates = providers.resolve(model).unwrap();
        candidates.iter().map(|one| format!("{}:{}", one.section.name, one.model)).collect::<Vec<_>>().join(" ")
    }

    #[tokio::test]
    async fn the_first_provider_that_has_a_model_is_asked_first_and_loops_end() {
        assert_eq!(order("fast"), "one:fast-1 two:fast-2 two:cheap-2 three:fast-2 three:cheap-2");
        assert_eq!(order("cheap"), "two:cheap-2 three:cheap-2 one:fast-1 two:fast-2 three:fast-2");
    }

    #[tokio::test]
    async fn a_provider_can_be_named_before_the_model() {
        assert!(order("two/fast").starts_with("two:fast-2 "));
        assert!(order("two/some/new:model").starts_with("two:some/new:model three:some/new:model "));
        assert!(order("one/fast").starts_with("one:fast-1 "));
        assert!(order("one/odd").starts_with("one:odd-1 two:odd-1 "));
    }

    #[tokio::test]
    async fn an_unknown_model_is_refused_with_the_nearest_one() {
        let providers = providers();
        let refused = |model: &str| providers.resolve(model).unwrap_err().to_string();
        assert_eq!(refused("fats"), "no provider has a model `fats`; did you mean `fast`?");
        assert_eq!(refused("one/other"), "no provider has a model `one/other`; did you mean `one/odd`?");
        assert_eq!(refused("banana"), "no provider has a model `banana`");
        assert_eq!(refused("two/a\u{202e}"), "no provider has a model `two/a<U+202E>`; did you mean `two/fast`?");
        assert_eq!(refused(""), "no provider has a model ``");
    }

    #[tokio::test]
    async fn models_are_listed_by_the_names_that_reach_them() {
        let providers = providers();
        let models = providers.models();
        let listed: Vec<String> = models.iter().map(|(name, provider)| format!("{name}@{provider}")).collect();
        assert_eq!(listed, ["fast@one", "one/odd@one", "cheap@two", "two/fast@two"]);
        for (name, provider) in &models {
            assert_eq!(&providers.resolve(name).unwrap()[0].section.name, provider);
        }
    }

    #[test]
    fn a_failure_tells_who_was_asked_how_often() {
        let failure = |attempts| Failure {
            provider: ProviderName::parse("one").unwrap(),
            model: ModelName::parse("m").unwrap(),
            attempts,
            error: ProviderError::NoKey,
        };
        let all = AllFailed { model: "fast".to_owned(), before: vec![failure(0)], last: Box::new(failure(3)) };
        assert_eq!(
            all.to_string(),
            "no provider answers for the model `fast`: \
             `one` (model `m`, not asked): the key of the provider cannot be had; \
             `one` (model `m`, asked 3 times): the key of the provider cannot be had"
        );
    }
}
