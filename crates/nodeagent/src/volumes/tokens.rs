//! Tokens of service accounts for projected volumes, renewed before they expire.
//!
//! A token is renewed when a fifth of its time is left, or after a day. A token that cannot be renewed is used until it
//! expires, and its renewal is repeated.

use crate::objects::ObjectSource;
use api::authentication::v1::TokenRequestSpec;
use env::World;
use parking_lot::Mutex;
use std::collections::HashMap;

/// The age at which every token is renewed.
const MAX_AGE_SECONDS: i64 = 24 * 60 * 60;
/// Renewals of tokens from the same moment are spread over this time.
const MAX_JITTER_SECONDS: u64 = 10;
/// The wait after a renewal that has failed.
const RETRY_SECONDS: i64 = 10;

/// The request that a token answers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct TokenKey {
    namespace: String,
    account: String,
    audiences: Vec<String>,
    expiration_seconds: Option<i64>,
    pod_uid: String,
}

/// A token that was issued.
#[derive(Debug, Clone)]
pub struct Token {
    pub text: String,
    /// Seconds since the epoch.
    pub expires: i64,
    renew_at: i64,
}

/// See the module.
pub struct TokenCache {
    world: World,
    tokens: Mutex<HashMap<TokenKey, Token>>,
}

impl TokenCache {
    pub fn new(world: World) -> Self {
        TokenCache { world, tokens: Mutex::default() }
    }

    /// The text of a token that is valid for a while, requested if there is none.
    pub async fn token(
        &self,
        objects: &dyn ObjectSource,
        namespace: &str,
        account: &str,
        spec: TokenRequestSpec,
    ) -> Result<String, String> {
        self.issue(objects, namespace, account, spec).await.map(|it| it.text)
    }

    /// A token that is valid for a while, requested if there is none.
    pub async fn issue(
        &self,
        objects: &dyn ObjectSource,
        namespace: &str,
        account: &str,
        spec: TokenRequestSpec,
    ) -> Result<Token, String> {
        let key = TokenKey {
            namespace: namespace.to_owned(),
            account: account.to_owned(),
            audiences: spec.audiences.clone(),
            expiration_seconds: spec.expiration_seconds,
            pod_uid: spec.bound_object_ref.as_ref().map(|it| it.uid.clone()).unwrap_or_default(),
        };
        let now = env::unix_seconds(&self.world);
        let current = self.tokens.lock().get(&key).cloned();
        if let Some(token) = current.as_ref().filter(|token| now < token.renew_at) {
            return Ok(token.clone());
        }
        let lifetime = spec.expiration_seconds.unwrap_or(3600);
        match (objects.token(namespace, account, spec).await, current) {
            (Ok(status), _) => {
                let expires = status.expiration_timestamp.map_or(now + lifetime, |time| time.unix_seconds());
                let jitter = (env::random_u64(&self.world) % (MAX_JITTER_SECONDS * 1000) / 1000) as i64;
                let renew_at =
                    (expires - lifetime * 20 / 100).min(expires - lifetime + MAX_AGE_SECONDS) - jitter;
                let token = Token { text: status.token, expires, renew_at };
                self.tokens.lock().insert(key, token.clone());
                Ok(token)
            }
            (Err(error), Some(mut token)) if now < token.expires => {
                tracing::warn!(%error, namespace, account, "a token was not renewed");
                token.renew_at = now + RETRY_SECONDS;
                self.tokens.lock().insert(key, token.clone());
                Ok(token)
            }
            (Err(error), Some(_)) => {
                Err(format!("token \"{namespace}/{account}\" expired and refresh failed: {error}"))
            }
            (Err(error), None) => Err(format!("failed to fetch token: {error}")),
        }
    }

    /// When the first token of a pod is due for renewal, in seconds since the epoch.
    pub fn next_renewal(&self, pod_uid: &str) -> Option<i64> {
        let tokens = self.tokens.lock();
        tokens.iter().filter(|(key, _)| key.pod_uid == pod_uid).map(|(_, token)| token.renew_at).min()
    }

    /// Forgets the tokens of a pod.
    pub fn remove_pod(&self, pod_uid: &str) {
        self.tokens.lock().retain(|key, _| key.pod_uid != pod_uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::testing::FixedObjects;
    use api::authentication::v1::BoundObjectReference;
    use env::Simulated;
    use std::time::Duration;

    /// A request for ten minutes, bound to the pod `u`.
    fn ten_minutes() -> TokenRequestSpec {
        let reference = BoundObjectReference { uid: "u".to_owned(), ..BoundObjectReference::default() };
        TokenRequestSpec {
            expiration_seconds: Some(600),
            bound_object_ref: Some(Box::new(reference)),
            ..TokenRequestSpec::default()
        }
    }

    #[tokio::test]
    async fn tokens_are_renewed_when_a_fifth_of_their_time_is_left() {
        let simulated = Simulated::new(1_700_000_000, 1);
        let world: World = simulated.clone();
        let (cache, objects) = (TokenCache::new(world.clone()), FixedObjects::default());
        let get = async || {
            *objects.now.lock() = env::unix_seconds(&world);
            cache.token(&objects, "n", "default", ten_minutes()).await.unwrap()
        };
        assert_eq!(get().await, "token-1");
        assert!(cache.next_renewal("u").unwrap() <= env::unix_seconds(&world) + 480);
        assert_eq!(cache.next_renewal("other"), None);
        simulated.advance(Duration::from_secs(460));
        assert_eq!(get().await, "token-1");
        simulated.advance(Duration::from_secs(30));
        assert_eq!(get().await, "token-2");
        cache.remove_pod("u");
        assert_eq!(get().await, "token-3");
    }

    #[tokio::test]
    async fn a_failed_renewal_is_repeated_later() {
        let simulated = Simulated::new(1_700_000_000, 1);
        let world: World = simulated.clone();
        let (cache, objects) = (TokenCache::new(world.clone()), FixedObjects::default());
        let get = async || {
            *objects.now.lock() = env::unix_seconds(&world);
            cache.token(&objects, "n", "default", ten_minutes()).await
        };
        get().await.unwrap();
        *objects.token_error.lock() = Some("no answer".to_owned());
        simulated.advance(Duration::from_secs(500));
        assert_eq!(get().await.as_deref(), Ok("token-1"));
        assert_eq!(cache.next_renewal("u"), Some(env::unix_seconds(&world) + RETRY_SECONDS));
        simulated.advance(Duration::from_secs(100));
        let error = get().await.unwrap_err();
        assert!(error.starts_with("token \"n/default\" expired and refresh failed: "), "{error}");
        *objects.token_error.lock() = None;
        assert_eq!(get().await.as_deref(), Ok("token-2"));
    }
}
