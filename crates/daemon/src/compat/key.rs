//! The key that a provider was asked with, taken out of whatever the provider says.
//!
//! Guarantees: a text that holds the key as it was sent, or as JSON spells it, is told without it. It is erased from memory when it is
//! dropped.
//! Does not: find what a provider took apart or encoded, such as a key that is spread over several events. Whoever does that can have it
//! leave by other ways.

use std::fmt;

use palyra_journal::mask::masked;
use palyra_provider::sse::SseEvent;
use zeroize::Zeroizing;

/// The key that a provider was asked with.
pub struct SentKey {
    plain: Zeroizing<String>,
    /// How JSON may spell it.
    spelt: Vec<Zeroizing<String>>,
}

impl SentKey {
    /// The key that is sent of a secret.
    #[must_use]
    pub fn of(secret: &str) -> Self {
        let plain = Zeroizing::new(secret.trim_ascii().to_owned());
        let mut spelt = Vec::new();
        // A word such as `none`, which servers take that want no key, stands in many an answer.
        if plain.len() >= SHORTEST {
            let quoted = Zeroizing::new(serde_json::to_string(plain.as_str()).unwrap_or_default());
            let inner = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(&plain);
            let inner = Zeroizing::new(inner.to_owned());
            if inner.contains('/') {
                spelt.push(Zeroizing::new(inner.replace('/', "\\/")));
            }
            spelt.push(inner);
        }
        Self { plain, spelt }
    }

    /// JSON without the key, if it holds that and the key can be told from any other word.
    #[must_use]
    pub fn out_of_json(&self, json: &str) -> Option<String> {
        let mut without = None;
        for spelt in &self.spelt {
            let text = without.as_deref().unwrap_or(json);
            // Nearly nothing holds it, so nothing is copied to find that out.
            if text.contains(spelt.as_str()) {
                without = Some(text.replace(spelt.as_str(), IN_ITS_PLACE));
            }
        }
        without
    }

    /// Takes it out of an event.
    pub fn out_of_event(&self, event: &mut SseEvent) {
        if let Some(data) = self.out_of_json(&event.data) {
            event.data = data;
        }
        if let Some(kind) = event.event.as_deref().and_then(|kind| self.out_of_json(kind)) {
            event.event = Some(kind);
        }
    }
}

impl fmt::Debug for SentKey {
    // SECURITY: whoever holds it spends its owner's money, so it does not belong in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SentKey")
    }
}

/// A text of a provider without the key that it was asked with, and without what looks like one.
#[must_use]
pub fn without(text: &str, key: Option<&SentKey>) -> String {
    match key.map(|key| key.plain.as_str()).filter(|key| !key.is_empty()) {
        Some(key) => masked(text.replace(key, IN_ITS_PLACE)),
        None => masked(text.to_owned()),
    }
}

const IN_ITS_PLACE: &str = "[the key]";

/// The shortest key that is looked for in what models say.
const SHORTEST: usize = 8;

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_key_is_found_as_it_was_sent_and_as_json_spells_it() {
        let secret = "a/long\\key+of=many\"kinds\"\n";
        let key = SentKey::of(secret);
        assert_eq!(without(&format!("Bearer: {secret}"), Some(&key)), "Bearer: [the key]\n");
        let told = json!({ "content": format!("it is {}", secret.trim()) }).to_string();
        for told in [told.replace('/', "\\/"), told] {
            let read: Value = serde_json::from_str(&told).unwrap();
            assert!(read["content"].as_str().unwrap().ends_with(secret.trim()), "{told}");
            let mut event = SseEvent { event: Some("message".to_owned()), data: told };
            key.out_of_event(&mut event);
            assert_eq!(event.data, r#"{"content":"it is [the key]"}"#);
        }
        assert_eq!(key.out_of_json("{}"), None);
        assert_eq!(format!("{key:?}"), "SentKey");
    }

    #[test]
    fn a_word_that_is_no_secret_stays_in_what_models_say_and_not_in_refusals() {
        let key = SentKey::of("none");
        assert_eq!(key.out_of_json(r#"{"content":"none of it"}"#), None);
        assert_eq!(without("`none` is no key", Some(&key)), "`[the key]` is no key");
        assert_eq!(without("nothing", Some(&SentKey::of(""))), "nothing");
    }
}
