//! OpenID Connect authenticator.
//!
//! Invariants: claims are trusted only after the token proves to be signed by the provider with a permitted
//! algorithm, for this client and the current time. A token of another issuer is left to other
//! authenticators. Claims must have the exact type; an empty user name is rejected.

mod distributed;
mod provider;
mod rules;

pub use provider::is_https;

use crate::authentication::jose::Compact;
use auth::User;
use auth::tokens::{AuthenticatedUser, Authenticator, Verdict};
use distributed::DistributedClaims;
use env::{MaybeReady, World, unix_seconds};
use outbound::{HttpClient, TtlCache};
use provider::Provider;
use rules::{Fault, Rules, issuer, seconds};
use std::sync::Arc;
use std::time::Duration;

/// All algorithms that can be permitted.
pub const ALGORITHMS: [&str; 9] =
    ["RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512"];

/// Bounds of the cache of verified tokens.
const CACHE_ENTRIES: usize = 32 * 1024;
const CACHE_BYTES: usize = 32 * 1024 * 1024;
const CACHE_TTL: Duration = Duration::from_secs(10);

/// Options of the provider.
pub struct Options {
    /// The issuer: an https URL, below which the discovery document is.
    pub issuer: String,
    /// The audience that tokens must have.
    pub client_id: String,
    /// The client that calls the provider.
    pub client: HttpClient,
    pub username_claim: String,
    /// Prefix of user names, to separate them from other users.
    pub username_prefix: String,
    /// Empty if groups are not read.
    pub groups_claim: String,
    pub groups_prefix: String,
    /// Permitted algorithms.
    pub algorithms: Vec<String>,
    /// Required claims with their values.
    pub required: Vec<(String, String)>,
}

impl Options {
    /// The defaults of the command line.
    pub fn new(issuer: &str, client_id: &str, client: HttpClient) -> Self {
        Options {
            issuer: issuer.to_owned(),
            client_id: client_id.to_owned(),
            client,
            username_claim: "sub".to_owned(),
            username_prefix: Self::username_prefix("", "sub", issuer),
            groups_claim: String::new(),
            groups_prefix: String::new(),
            algorithms: vec!["RS256".to_owned()],
            required: Vec::new(),
        }
    }

    /// The effective prefix: emails need none by default, and `-` means none.
    pub fn username_prefix(configured: &str, claim: &str, issuer: &str) -> String {
        match configured {
            "" if claim != "email" => format!("{issuer}#"),
            "-" => String::new(),
            configured => configured.to_owned(),
        }
    }
}

/// The authenticator.
pub struct Oidc {
    rules: Rules,
    provider: Arc<Provider>,
    distributed_claims: DistributedClaims,
    world: World,
    cache: TtlCache<Verdict>,
}

impl Oidc {
    /// Starts to fetch the provider's keys.
    pub fn start(options: Options, world: &World) -> Self {
        let client = Arc::new(options.client);
        let provider = Provider::new(&options.issuer, client.clone(), world.clone());
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
            distributed_claims: DistributedClaims::new(client, world.clone()),
            provider,
            world: world.clone(),
            cache: TtlCache::new(world.clone(), CACHE_ENTRIES, CACHE_BYTES),
        }
    }

    async fn verdict(&self, mut token: Compact<'_>, key: outbound::Key) -> Verdict {
        match self.user(&mut token).await {
            Ok(user) => {
                let verdict = Verdict::Known(AuthenticatedUser::anywhere(Arc::new(user)));
                let left = seconds(&token.claims, "exp").unwrap_or(0) - unix_seconds(&self.world);
                let left = Duration::from_secs(u64::try_from(left).unwrap_or(0));
                self.cache.put(key, verdict.clone(), super::webhook::size(&verdict), left.min(CACHE_TTL));
                verdict
            }
            Err(why) => Verdict::Refused(format!("oidc: {why}")),
        }
    }

    async fn user(&self, token: &mut Compact<'_>) -> Result<User, Fault> {
        let rules = &self.rules;
        rules.check(token, unix_seconds(&self.world))?;
        if !self.provider.verifies(token) {
            self.provider.verify_or_fetch(token).await?;
        }
        if !rules.groups_claim.is_empty() && token.claims.at(&[&rules.groups_claim]).is_none() {
            self.distributed_claims.gather(rules, &mut token.claims).await?;
        }
        rules.user(&token.claims)
    }
}

impl Authenticator for Oidc {
    fn identify<'a>(&'a self, token: &'a str, _: &'a [String]) -> MaybeReady<'a, Verdict> {
        let key = self.cache.key([token.as_bytes()]);
        if let Some(verdict) = self.cache.get(&key) {
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
