//! OpenID Connect authenticator.
//!
//! What always holds: nothing of a token is believed before it is clear that the one provider signed it, in a way
//! the operator allows, for this client and for now. A token of another issuer is left to others. What a claim
//! must be it must be exactly: nothing is turned into text, and who has no name is nobody.

mod distributed;
mod provider;
mod rules;

pub use provider::is_https;

use crate::authentication::jose::Compact;
use auth::User;
use auth::tokens::{Authenticator, Identified, Verdict};
use distributed::Elsewhere;
use env::{MaybeReady, World, unix_seconds};
use outbound::{HttpClient, TtlCache};
use provider::Provider;
use rules::{Fault, Rules, issuer, seconds};
use std::sync::Arc;
use std::time::Duration;

/// Every way of signing that can be allowed.
pub const ALGORITHMS: [&str; 9] =
    ["RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512"];

/// How many known tokens are kept, and for how long at most.
const KEPT: usize = 32 * 1024;
const KEPT_BYTES: usize = 32 * 1024 * 1024;
const KEPT_FOR: Duration = Duration::from_secs(10);

/// Whom to believe, and what to make of it.
pub struct Options {
    /// What the provider calls itself: an https URL, below which it describes itself.
    pub issuer: String,
    /// For whom tokens must be meant.
    pub client_id: String,
    /// Calls the provider.
    pub caller: HttpClient,
    pub username_claim: String,
    /// What the provider's names begin with here, so that they are not taken for others.
    pub username_prefix: String,
    /// Empty if no groups are read.
    pub groups_claim: String,
    pub groups_prefix: String,
    /// Ways of signing that are allowed.
    pub algorithms: Vec<String>,
    /// Claims that must be there, and what they must be.
    pub required: Vec<(String, String)>,
}

impl Options {
    /// As it is when the operator says nothing more.
    pub fn new(issuer: &str, client_id: &str, caller: HttpClient) -> Self {
        Options {
            issuer: issuer.to_owned(),
            client_id: client_id.to_owned(),
            caller,
            username_claim: "sub".to_owned(),
            username_prefix: Self::username_prefix("", "sub", issuer),
            groups_claim: String::new(),
            groups_prefix: String::new(),
            algorithms: vec!["RS256".to_owned()],
            required: Vec::new(),
        }
    }

    /// What names begin with, given what the operator says: mail addresses need nothing to be told from others,
    /// and `-` is nothing.
    pub fn username_prefix(given: &str, claim: &str, issuer: &str) -> String {
        match given {
            "" if claim != "email" => format!("{issuer}#"),
            "-" => String::new(),
            given => given.to_owned(),
        }
    }
}

/// See the module.
pub struct Oidc {
    rules: Rules,
    provider: Arc<Provider>,
    elsewhere: Elsewhere,
    world: World,
    memory: TtlCache<Verdict>,
}

impl Oidc {
    /// Begins to fetch what is needed from the provider.
    pub fn start(options: Options, world: &World) -> Self {
        let caller = Arc::new(options.caller);
        let provider = Provider::new(&options.issuer, caller.clone(), world.clone());
        provider.begin();
        Oidc {
            rules: Rules {
                issuer: options.issuer,
                client_id: options.client_id,
                username_claim: options.username_claim,
                username_prefix: options.username_prefix,
                groups_claim: options.groups_claim,
                groups_prefix: options.groups_prefix,
                algorithms: options.algorithms,
                required: options.required,
            },
            elsewhere: Elsewhere::new(caller, world.clone()),
            provider,
            world: world.clone(),
            memory: TtlCache::new(world.clone(), KEPT, KEPT_BYTES),
        }
    }

    async fn verdict(&self, mut token: Compact<'_>, key: outbound::Key) -> Verdict {
        match self.user(&mut token).await {
            Ok(user) => {
                let verdict = Verdict::Known(Identified::anywhere(Arc::new(user)));
                let left = seconds(&token.claims, "exp").unwrap_or(0) - unix_seconds(&self.world);
                let left = Duration::from_secs(u64::try_from(left).unwrap_or(0));
                self.memory.put(key, verdict.clone(), super::webhook::size(&verdict), left.min(KEPT_FOR));
                verdict
            }
            Err(why) => Verdict::Refused(format!("oidc: {why}")),
        }
    }

    async fn user(&self, token: &mut Compact<'_>) -> Result<User, Fault> {
        let rules = &self.rules;
        rules.check(token, unix_seconds(&self.world))?;
        if !self.provider.signed(token) {
            self.provider.signed_after_all(token).await?;
        }
        if !rules.groups_claim.is_empty() && token.claims.at(&[&rules.groups_claim]).is_none() {
            self.elsewhere.gather(rules, &mut token.claims).await?;
        }
        rules.user(&token.claims)
    }
}

impl Authenticator for Oidc {
    fn identify<'a>(&'a self, token: &'a str, _: &'a [String]) -> MaybeReady<'a, Verdict> {
        let key = self.memory.key([token.as_bytes()]);
        if let Some(verdict) = self.memory.get(&key) {
            return verdict.into();
        }
        match Compact::parse(token) {
            Some(parsed) if issuer(&parsed.claims) == self.rules.issuer => {
                MaybeReady::later(self.verdict(parsed, key))
            }
            _ => Verdict::Unknown.into(),
        }
    }
}
