//! The chain of authenticators, in order.
//!
//! 1. the headers of a proxy, on a connection that is a proxy's
//! 2. the certificate of the connection
//! 3. the bearer token, or that of a websocket, by each that knows tokens, in their order
//! 4. nobody in particular, where that is allowed and nothing was shown that could not be believed
//!
//! What always holds: the first to know the caller decides; one that finds fault does not keep the next from
//! being asked, but what nobody could believe is refused, never taken for nobody. Whoever is identified is in the
//! group of the authenticated.

use crate::authentication::{FrontProxy, websocket};
use crate::serve::Peer;
use auth::User;
use auth::tokens::{Authenticator, Bearer, Identified, Verdict, bearer};
use env::World;
use http::HeaderMap;
use metrics::{About, Histogram, Registry};
use rest::RequestRecord;
use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// What is told when a token is known to nobody.
const INVALID_TOKEN: &str = "invalid bearer token";
const MISPLACED_TOKEN: &str =
    "the provided Authorization header contains extra space before the bearer token, and is ignored";

/// See the module.
pub struct Chain {
    /// How proxies say who is calling, if any may.
    pub front_proxy: Option<FrontProxy>,
    /// What a protocol of a websocket begins with that is a token.
    pub websocket_prefix: String,
    /// Who knows tokens, in the order in which they are asked.
    pub tokens: Vec<Arc<dyn Authenticator>>,
    /// For whom tokens are meant that are shown to this server.
    pub audiences: Arc<[String]>,
    /// Whether those who show nothing are answered as nobody in particular.
    pub anonymous: bool,
    pub world: World,
    /// How long the certificates of callers are still good for, if anybody counts.
    pub remaining: OnceLock<Histogram>,
}

const REMAINING: About = About::alpha(
    "apiserver_client_certificate_expiration_seconds",
    "How long the certificates are still good for that requests came with.",
)
.sizes(&[
    0, 1_800, 3_600, 7_200, 21_600, 43_200, 86_400, 172_800, 345_600, 604_800, 2_592_000, 7_776_000,
    15_552_000, 31_104_000,
]);

/// Why nobody believes a caller: everything that was found wrong.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Refusal(Vec<String>);

impl Refusal {
    /// Whether there was nothing that could have been believed.
    pub fn is_nothing_shown(&self) -> bool {
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
            [] => f.write_str("nothing was shown"),
            [one] => f.write_str(one),
            several => write!(f, "[{}]", several.join(", ")),
        }
    }
}

impl Chain {
    /// Takes out of headers everything by which a caller could be known.
    pub fn forget(&self, headers: &mut HeaderMap) {
        headers.remove(http::header::AUTHORIZATION);
        websocket::forget_token(headers, &self.websocket_prefix);
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

    /// Counts from now on.
    pub fn measure(&self, registry: &Registry) {
        self.remaining.get_or_init(|| registry.one(REMAINING));
    }

    /// Who sent a request.
    pub async fn caller(
        &self,
        headers: &HeaderMap,
        peer: &Peer,
        notes: &RequestRecord,
    ) -> Result<Arc<User>, Refusal> {
        let mut refusal = Refusal::default();
        if let Some(user) = self.by_certificate(headers, peer, &mut refusal) {
            return Ok(user);
        }
        let given = headers.get(http::header::AUTHORIZATION);
        // what is no text is no token either, and is refused as one; checking first is much faster than replacing
        let given = given.map(|value| match std::str::from_utf8(value.as_bytes()) {
            Ok(text) => Cow::Borrowed(text),
            Err(_) => String::from_utf8_lossy(value.as_bytes()),
        });
        match given.as_deref().map_or(Bearer::Nothing, bearer) {
            Bearer::Nothing => {}
            Bearer::Misplaced => notes.warn(MISPLACED_TOKEN),
            Bearer::Token(token) => match self.noted(token, notes).await {
                Ok(user) => return Ok(user),
                Err(why) => refusal.extend(why),
            },
        }
        match websocket::token(headers, &self.websocket_prefix) {
            Ok(None) => {}
            Ok(Some(token)) => match self.noted(&token, notes).await {
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

    /// Whose a token is that was shown to this server, with what is to be noted about it.
    async fn noted(&self, token: &str, notes: &RequestRecord) -> Result<Arc<User>, Refusal> {
        let known = self.owner(token, &self.audiences).await?;
        for (key, text) in known.annotations {
            notes.annotate(key, text);
        }
        Ok(known.user)
    }

    /// Whom the connection's certificate stands for, or the one whom it vouches for.
    fn by_certificate(&self, headers: &HeaderMap, peer: &Peer, refusal: &mut Refusal) -> Option<Arc<User>> {
        let verified = peer.certificate.as_ref()?.current();
        let shown = &verified.certificate;
        // a connection may outlast the certificate that it was made with
        let now = env::unix_seconds(&self.world);
        if now > shown.until {
            refusal.add("x509: certificate has expired");
            return None;
        }
        if let Some(remaining) = self.remaining.get() {
            remaining.observe(shown.until.abs_diff(now));
        }
        let vouched = match (&self.front_proxy, &shown.proxy) {
            (Some(front), Some(Ok(name))) => front.user(headers, name),
            _ => Ok(None),
        };
        match (vouched, &shown.user) {
            (Ok(Some(user)), _) => return Some(Arc::new(user.authenticated())),
            (_, Some(Ok(user))) => return Some(user.clone()),
            (Err(why), _) => refusal.add(why),
            _ => {}
        }
        if let Some(Err(why)) = &shown.proxy {
            refusal.add(why);
        }
        if let Some(Err(why)) = &shown.user {
            refusal.add(why);
        }
        None
    }

    /// Whose a token is, for whoever was shown it.
    pub async fn owner(&self, token: &str, audiences: &[String]) -> Result<Identified, Refusal> {
        let mut faults = Vec::new();
        for one in &self.tokens {
            let here = if one.reads_audiences() { None } else { Some(self.common(audiences)) };
            if here.as_ref().is_some_and(|here| here.is_empty()) && !audiences.is_empty() {
                continue;
            }
            match one.identify(token, audiences).get().await {
                Verdict::Known(mut known) => {
                    known.audiences = here.unwrap_or(known.audiences);
                    if known.user.lacks_authenticated() {
                        known.user = Arc::new(User::clone(&known.user).authenticated());
                    }
                    return Ok(known);
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

    /// Those of these audiences that are the server's own.
    fn common(&self, audiences: &[String]) -> Arc<[String]> {
        if audiences == &*self.audiences {
            return self.audiences.clone();
        }
        audiences.iter().filter(|one| self.audiences.contains(one)).cloned().collect()
    }
}

#[cfg(test)]
mod tests;
