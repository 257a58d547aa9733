//! The chain of authenticators.
//!
//! 1. front-proxy headers, on a connection of a proxy
//! 2. the client certificate
//! 3. the bearer token, also of a WebSocket, by each token authenticator in order
//! 4. anonymous, if enabled and no credentials were invalid
//!
//! Invariants: the first authenticator that knows the user decides; an error of one does not stop the next,
//! but credentials that none accepts are refused, never taken as anonymous. Authenticated users are in
//! `system:authenticated`.

use crate::authentication::{FrontProxy, websocket};
use crate::serve::Peer;
use auth::User;
use auth::tokens::{AuthenticatedUser, Authenticator, Bearer, Verdict, bearer};
use env::World;
use http::HeaderMap;
use metrics::{Descriptor, Histogram, Registry};
use rest::RequestRecord;
use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// The error for a token that no authenticator knows.
const INVALID_TOKEN: &str = "invalid bearer token";
const MISPLACED_TOKEN: &str =
    "the provided Authorization header contains extra space before the bearer token, and is ignored";

/// The configured chain.
pub struct Chain {
    /// Options of front proxies.
    pub front_proxy: Option<FrontProxy>,
    /// Prefix of WebSocket protocols that are tokens.
    pub websocket_prefix: String,
    /// Token authenticators, in order.
    pub tokens: Vec<Arc<dyn Authenticator>>,
    /// Audiences of this server.
    pub audiences: Arc<[String]>,
    /// Whether requests without credentials are served as anonymous.
    pub anonymous: bool,
    pub world: World,
    /// Histogram of the remaining validity of client certificates.
    pub remaining: OnceLock<Histogram>,
}

const REMAINING: Descriptor = Descriptor::alpha(
    "apiserver_client_certificate_expiration_seconds",
    "Remaining validity of client certificates.",
)
.sizes(&[
    0, 1_800, 3_600, 7_200, 21_600, 43_200, 86_400, 172_800, 345_600, 604_800, 2_592_000, 7_776_000,
    15_552_000, 31_104_000,
]);

/// Why a request is not authenticated: all errors.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Refusal(Vec<String>);

impl Refusal {
    /// Whether the request had no credentials.
    pub fn has_no_credentials(&self) -> bool {
        self.0.is_empty()
    }

    fn add(&mut self, why: impl Into<String>) {
        let why = why.into();
        if !self.0.contains(&why) {
            self.0.push(why);
        }
    }

    fn extend(&mut self, more: Refusal) {
        more.0.into_iter().for_each(|why| self.add(why));
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0[..] {
            [] => f.write_str("no credentials were provided"),
            [one] => f.write_str(one),
            several => write!(f, "[{}]", several.join(", ")),
        }
    }
}

impl Chain {
    /// Removes all credentials from headers.
    pub fn remove_credentials(&self, headers: &mut HeaderMap) {
        headers.remove(http::header::AUTHORIZATION);
        websocket::remove_token(headers, &self.websocket_prefix);
        // the request is that of the impersonated user already
        let impersonation = headers.keys().filter(|name| name.as_str().starts_with("impersonate-"));
        let impersonation: Vec<http::HeaderName> = impersonation.cloned().collect();
        impersonation.into_iter().for_each(|name| drop(headers.remove(name)));
        let Some(front) = &self.front_proxy else { return };
        for name in front.username_headers.iter().chain(&front.group_headers) {
            headers.remove(name);
        }
        let extra = |name: &http::HeaderName| {
            front.extra_prefixes.iter().any(|prefix| name.as_str().starts_with(prefix.as_str()))
        };
        let names: Vec<http::HeaderName> = headers.keys().filter(|name| extra(name)).cloned().collect();
        names.into_iter().for_each(|name| drop(headers.remove(name)));
    }

    /// Registers metrics.
    pub fn add_metrics(&self, registry: &Registry) {
        self.remaining.get_or_init(|| registry.one(REMAINING));
    }

    /// Authenticates a request.
    pub async fn authenticate(
        &self,
        headers: &HeaderMap,
        peer: &Peer,
        record: &RequestRecord,
    ) -> Result<Arc<User>, Refusal> {
        let mut refusal = Refusal::default();
        if let Some(user) = self.authenticate_certificate(headers, peer, &mut refusal) {
            return Ok(user);
        }
        let authorization = headers.get(http::header::AUTHORIZATION);
        // a header that is not UTF-8 is refused as a token; checking first is much faster than replacing
        let authorization = authorization.map(|value| match std::str::from_utf8(value.as_bytes()) {
            Ok(text) => Cow::Borrowed(text),
            Err(_) => String::from_utf8_lossy(value.as_bytes()),
        });
        match authorization.as_deref().map_or(Bearer::Nothing, bearer) {
            Bearer::Nothing => {}
            Bearer::Misplaced => record.warn(MISPLACED_TOKEN),
            Bearer::Token(token) => match self.authenticate_token(token, record).await {
                Ok(user) => return Ok(user),
                Err(why) => refusal.extend(why),
            },
        }
        match websocket::token(headers, &self.websocket_prefix) {
            Ok(None) => {}
            Ok(Some(token)) => match self.authenticate_token(&token, record).await {
                Ok(user) => return Ok(user),
                Err(why) => refusal.extend(why),
            },
            Err(why) => refusal.add(why),
        }
        if refusal.0.is_empty() && self.anonymous {
            return Ok(Arc::new(User::anonymous()));
        }
        Err(refusal)
    }

    /// Authenticates a token for this server, and records its annotations.
    async fn authenticate_token(&self, token: &str, record: &RequestRecord) -> Result<Arc<User>, Refusal> {
        let identified = self.owner(token, &self.audiences).await?;
        for (key, text) in identified.annotations {
            record.annotate(key, text);
        }
        Ok(identified.user)
    }

    /// The user of the client certificate, or the user that a front proxy names.
    fn authenticate_certificate(
        &self,
        headers: &HeaderMap,
        peer: &Peer,
        refusal: &mut Refusal,
    ) -> Option<Arc<User>> {
        let verified = peer.certificate.as_ref()?.current();
        let certificate = &verified.certificate;
        // a connection may outlive its certificate
        let now = env::unix_seconds(&self.world);
        if now > certificate.until {
            refusal.add("x509: certificate has expired");
            return None;
        }
        if let Some(remaining) = self.remaining.get() {
            remaining.observe(certificate.until.abs_diff(now));
        }
        let proxied = match (&self.front_proxy, &certificate.proxy) {
            (Some(front), Some(Ok(name))) => front.user(headers, name),
            _ => Ok(None),
        };
        match (proxied, &certificate.user) {
            (Ok(Some(user)), _) => return Some(Arc::new(user.authenticated())),
            (_, Some(Ok(user))) => return Some(user.clone()),
            (Err(why), _) => refusal.add(why),
            _ => {}
        }
        if let Some(Err(why)) = &certificate.proxy {
            refusal.add(why);
        }
        if let Some(Err(why)) = &certificate.user {
            refusal.add(why);
        }
        None
    }

    /// Authenticates a token for the given audiences.
    pub async fn owner(&self, token: &str, audiences: &[String]) -> Result<AuthenticatedUser, Refusal> {
        let mut faults = Vec::new();
        for one in &self.tokens {
            let here = if one.reads_audiences() { None } else { Some(self.common(audiences)) };
            if here.as_ref().is_some_and(|here| here.is_empty()) && !audiences.is_empty() {
                continue;
            }
            match one.identify(token, audiences).get().await {
                Verdict::Known(mut identified) => {
                    identified.audiences = here.unwrap_or(identified.audiences);
                    if identified.user.lacks_authenticated() {
                        identified.user = Arc::new(User::clone(&identified.user).authenticated());
                    }
                    return Ok(identified);
                }
                Verdict::Refused(why) => faults.push(why),
                Verdict::Unknown => {}
            }
        }
        let mut refusal = Refusal::default();
        refusal.add(INVALID_TOKEN);
        faults.into_iter().for_each(|why| refusal.add(why));
        Err(refusal)
    }

    /// The given audiences that are the server's own.
    fn common(&self, audiences: &[String]) -> Arc<[String]> {
        if audiences == &*self.audiences {
            return self.audiences.clone();
        }
        audiences.iter().filter(|one| self.audiences.contains(one)).cloned().collect()
    }
}

#[cfg(test)]
mod tests;
