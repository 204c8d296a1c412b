//! Idempotency keys of calls that are being proposed just now, and are not durable yet.
//!
//! The journal keeps keys for a day, in the transaction that first records their call. Until then this keeps a second request with the same key
//! waiting, so that it finds what the first one left.

use std::{
    collections::HashSet,
    sync::{Mutex, PoisonError},
};

use tokio::sync::Notify;

/// The keys in use.
#[derive(Default)]
pub struct KeysUnderWay {
    keys: Mutex<HashSet<(String, String)>>,
    left: Notify,
}

impl KeysUnderWay {
    /// Takes a key of a principal, once nobody else has it.
    pub async fn take(&self, principal: String, key: String) -> KeyInUse<'_> {
        let name = (principal, key);
        loop {
            let left = self.left.notified();
            tokio::pin!(left);
            // Enabled before it is looked at, so that no leaving is missed.
            left.as_mut().enable();
            if self.keys.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone()) {
                return KeyInUse { keys: self, name };
            }
            left.await;
        }
    }
}

/// A key in use. It is free again when this is dropped.
pub struct KeyInUse<'a> {
    keys: &'a KeysUnderWay,
    name: (String, String),
}

impl Drop for KeyInUse<'_> {
    fn drop(&mut self) {
        self.keys.keys.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.name);
        self.keys.left.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_key_is_had_by_one_at_a_time() {
        let keys = KeysUnderWay::default();
        let take = |principal: &str| keys.take(principal.to_owned(), "k".to_owned());
        let first = take("agent:a").await;
        let _other = take("agent:b").await;
        let soon = Duration::from_millis(20);
        assert!(tokio::time::timeout(soon, take("agent:a")).await.is_err());
        drop(first);
        assert!(tokio::time::timeout(soon, take("agent:a")).await.is_ok());
    }
}
