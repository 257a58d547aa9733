//! Everybody who can tell who is calling, in the order in which they are asked.
//!
//! 1. the certificate of the connection
//! 2. the bearer token, by each that knows tokens, in their order
//! 3. nobody in particular, where that is allowed and nothing was shown that could not be believed
//!
//! What always holds: the first to know the caller decides; one that finds fault does not keep the next from
//! being asked, but what nobody could believe is refused, never taken for nobody. Whoever is identified is in the
//! group of the authenticated.

use crate::serve::Peer;
use auth::User;
use auth::tokens::{Authenticator, Identified, Verdict, bearer};
use http::HeaderMap;
use rest::Notes;
use std::fmt;
use std::sync::Arc;

/// What is told when a token is known to nobody and nobody says why.
const INVALID_TOKEN: &str = "invalid bearer token";

/// See the module.
pub struct Chain {
    /// Who knows tokens, in the order in which they are asked.
    pub tokens: Vec<Arc<dyn Authenticator>>,
    /// For whom tokens are meant that are shown to this server.
    pub audiences: Arc<[String]>,
    /// Whether those who show nothing are answered as nobody in particular.
    pub anonymous: bool,
}

/// Why nobody believes a caller: everything that was found wrong.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Refusal(Vec<String>);

impl Refusal {
    fn add(&mut self, why: String) {
        if !self.0.contains(&why) {
            self.0.push(why);
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0[..] {
            [one] => f.write_str(one),
            several => write!(f, "[{}]", several.join(", ")),
        }
    }
}

impl Chain {
    /// Who sent a request.
    pub async fn caller(
        &self,
        headers: &HeaderMap,
        peer: &Peer,
        notes: &Notes,
    ) -> Result<Arc<User>, Refusal> {
        let mut refusal = Refusal::default();
        match &peer.certificate {
            Some(Ok(user)) => return Ok(user.clone()),
            Some(Err(why)) => refusal.add(why.clone()),
            None => {}
        }
        let given = headers.get(http::header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        if let Some(token) = given.and_then(bearer) {
            match self.owner(token, &self.audiences).await {
                Ok(known) => {
                    for (key, text) in known.annotations {
                        notes.annotate(key, text);
                    }
                    return Ok(known.user);
                }
                Err(why) => why.0.into_iter().for_each(|why| refusal.add(why)),
            }
        }
        if refusal.0.is_empty() && self.anonymous {
            return Ok(Arc::new(User::anonymous()));
        }
        Err(refusal)
    }

    /// Whose a token is, for whoever was shown it.
    pub async fn owner(&self, token: &str, audiences: &[String]) -> Result<Identified, Refusal> {
        let mut refusal = Refusal::default();
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
                Verdict::Refused(why) => refusal.add(why),
                Verdict::Unknown => {}
            }
        }
        if refusal.0.is_empty() {
            refusal.add(INVALID_TOKEN.to_owned());
        }
        Err(refusal)
    }

    /// Those of the server's own audiences that are among these.
    fn common(&self, audiences: &[String]) -> Arc<[String]> {
        if audiences == &*self.audiences {
            return self.audiences.clone();
        }
        self.audiences.iter().filter(|own| audiences.contains(own)).cloned().collect()
    }
}
