//! Service account tokens: issued by the `token` subresource, verified when presented.
//!
//! Invariants: a token is valid for its audiences and its time, and only while the account and the bound
//! object are those that it was issued for. Signatures are verified once and cached; validity and objects are
//! checked each time.

mod bound;
mod fault;
mod issuer;
mod legacy;
mod request;
pub mod tracking;

pub use issuer::{CONFIGURATION_PATH, DiscoveryDocuments, Issuer, KEYS_PATH};
pub use request::{TokenRequests, part};

use crate::authentication::jose::{Compact, PublicKey};
use crate::authentication::objects::Objects;
use crate::authentication::token_cache::{TokenCache, TokenCacheMetrics};
use auth::tokens::{AuthenticatedUser, Authenticator, Verdict};
use auth::{SERVICE_ACCOUNT_PREFIX, User, service_account_groups};
use bound::BoundToken;
use env::{MaybeReady, World};
use fault::Fault;
use legacy::LegacyToken;
use metrics::Counter;
use names::Names;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Minimum number of cached tokens.
const CACHE_ENTRIES: usize = 4096;

/// Options of verification.
pub struct VerifierOptions {
    /// Keys that may have signed a token.
    pub keys: Vec<PublicKey>,
    /// Issuers that may have issued it.
    pub issuers: Vec<String>,
    /// Audiences of a token without audiences.
    pub audiences: Arc<[String]>,
    /// Whether tokens from Secrets are valid only while the Secret and the account exist.
    pub lookup: bool,
    /// Whether Secrets record when their tokens were last used.
    pub tracks_use: bool,
    pub names: Names,
}

/// Authenticator of service account tokens: bound ones, and legacy ones in Secrets.
pub struct Accounts {
    options: VerifierOptions,
    /// Prefixes of the private claims of bound and of legacy tokens.
    claims: String,
    legacy_claims: String,
    legacy_issuer: String,
    objects: Objects,
    verified: TokenCache<Arc<VerifiedToken>>,
    metrics: TokenCacheMetrics,
    pub uses: TokenUseMetrics,
}

/// Metrics of token uses.
#[derive(Default)]
pub struct TokenUseMetrics {
    /// Legacy tokens from Secrets, which do not expire.
    pub legacy: Counter,
    /// Extended tokens past the time of their replacement.
    pub stale: Counter,
    /// Extended tokens before that time.
    pub fresh: Counter,
}

/// A token with a verified signature.
struct VerifiedToken {
    user: Arc<User>,
    subject: String,
    /// Its audiences; empty means those of the server.
    audiences: Vec<String>,
    /// The server's own audiences among them.
    own_audiences: Arc<[String]>,
    form: Form,
}

enum Form {
    Bound(BoundToken),
    Legacy(LegacyToken),
}

impl Accounts {
    pub fn new(
        options: VerifierOptions,
        objects: Objects,
        metrics: TokenCacheMetrics,
        world: &World,
    ) -> Self {
        let claims = options.names.well_known_domain.to_string();
        Accounts {
            legacy_claims: format!("{claims}/serviceaccount/"),
            legacy_issuer: format!("{}/serviceaccount", options.names.vendor),
            claims,
            options,
            objects,
            verified: TokenCache::new(CACHE_ENTRIES, world),
            metrics,
            uses: TokenUseMetrics::default(),
        }
    }

    fn authenticate(&self, token: &str, audiences: &[String]) -> Verdict {
        let verified = match self.verify(token) {
            Ok(Some(verified)) => verified,
            Ok(None) => return Verdict::Unknown,
            Err(why) => return Verdict::Refused(why),
        };
        match self.check(&verified, token, audiences) {
            Ok(identified) => Verdict::Known(identified),
            Err(why) => Verdict::Refused(why),
        }
    }

    /// Verifies the signature of a token; `None` if another issuer issued it.
    fn verify(&self, token: &str) -> Result<Option<Arc<VerifiedToken>>, Fault> {
        let digest = self.verified.digest(token);
        if let Some(verified) = self.verified.get(&digest) {
            self.metrics.hits.inc();
            return Ok(Some(verified));
        }
        let Some(read) = Compact::parse(token) else { return Ok(None) };
        let issuer = read.claims.text(&["iss"]);
        let trusted = self.options.issuers.iter().any(|one| one == issuer);
        // the current issuer may have the name of the legacy one; the claims tell the two forms apart
        let is_legacy =
            issuer == self.legacy_issuer && !(trusted && read.claims.at(&[&self.claims]).is_some());
        if !is_legacy && !trusted {
            return Ok(None);
        }
        // the key that the token names is tried first
        let (named, others): (Vec<_>, Vec<_>) =
            self.options.keys.iter().partition(|key| key.id() == read.key_id);
        if !named.into_iter().chain(others).any(|key| read.is_signed_by(key)) {
            self.metrics.failed.inc();
            return Err("square/go-jose: error in cryptographic primitive".to_owned());
        }
        let verified = Arc::new(self.read(&read, is_legacy)?);
        self.metrics.misses.inc();
        self.verified.put(digest, verified.clone());
        Ok(Some(verified))
    }

    fn read(&self, token: &Compact<'_>, is_legacy: bool) -> Result<VerifiedToken, Fault> {
        let claims = &token.claims;
        let subject = claims.text(&["sub"]).to_owned();
        let audiences = match claims.at(&["aud"]).and_then(|it| it.as_str()) {
            Some(one) => vec![one.to_owned()],
            None => crate::string_lists::list_of(claims, &["aud"]),
        };
        let mut extra = BTreeMap::new();
        let (namespace, name, uid, form) = if is_legacy {
            let read = LegacyToken::read(claims, &self.legacy_claims, &subject)?;
            let account = &read.account;
            (read.namespace.clone(), account.name.clone(), account.uid.clone(), Form::Legacy(read))
        } else {
            let read = BoundToken::read(claims, &self.claims)?;
            for (field, text) in
                read.pod().into_iter().flat_map(|pod| [("name", &pod.name), ("uid", &pod.uid)])
            {
                let key = self.options.names.well_known_under("authentication", &format!("pod-{field}"));
                extra.insert(key, vec![text.clone()]);
            }
            let account = &read.account;
            (read.namespace.clone(), account.name.clone(), account.uid.clone(), Form::Bound(read))
        };
        let groups = service_account_groups(&namespace).into();
        let user =
            User { uid, groups, extra, ..User::named(format!("{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}")) };
        let own_audiences = self.common(&audiences, &self.options.audiences);
        Ok(VerifiedToken { user: Arc::new(user.authenticated()), subject, audiences, own_audiences, form })
    }

    /// The requested audiences that a token is valid for.
    fn common(&self, token_audiences: &[String], requested: &[String]) -> Arc<[String]> {
        let token_audiences =
            if token_audiences.is_empty() { &self.options.audiences } else { token_audiences };
        requested.iter().filter(|it| token_audiences.contains(it)).cloned().collect()
    }

    /// Checks that a token is valid now, and for which audiences.
    fn check(
        &self,
        verified: &VerifiedToken,
        token: &str,
        requested: &[String],
    ) -> Result<AuthenticatedUser, Fault> {
        let own = &self.options.audiences;
        let audiences = if requested == &**own {
            verified.own_audiences.clone()
        } else {
            self.common(&verified.audiences, requested)
        };
        if audiences.is_empty() && !own.is_empty() {
            let token_audiences = if verified.audiences.is_empty() { own } else { &verified.audiences[..] };
            return Err(format!(
                "token audiences {} is invalid for the target audiences {}",
                quoted(token_audiences),
                quoted(requested)
            ));
        }
        let mut annotations = Vec::new();
        let mut note = |name: &str, text: String| {
            annotations.push((format!("{}/{name}", self.options.names.group("authentication")), text));
        };
        if verified.audiences.is_empty() {
            self.uses.legacy.inc();
            note("legacy-token", verified.subject.clone());
        }
        match &verified.form {
            Form::Legacy(claims) if self.options.lookup => {
                claims.check(token, &self.objects)?;
                if self.options.tracks_use {
                    claims.note_use(&self.objects);
                }
            }
            Form::Legacy(_) => {}
            Form::Bound(claims) => {
                let now = self.objects.world().map(|world| env::unix_seconds(&world)).unwrap_or(i64::MAX);
                claims.check(now, &self.objects)?;
                match claims.past_warning(now) {
                    Some(0) => self.uses.fresh.inc(),
                    Some(past) => {
                        self.uses.stale.inc();
                        let subject = &verified.subject;
                        let text = format!("subject: {subject}, seconds after warning threshold: {past}");
                        note("stale-token", text);
                    }
                    None => {}
                }
            }
        }
        Ok(AuthenticatedUser { user: verified.user.clone(), audiences, annotations })
    }
}

impl Authenticator for Accounts {
    fn reads_audiences(&self) -> bool {
        true
    }

    fn identify<'a>(&'a self, token: &'a str, audiences: &'a [String]) -> MaybeReady<'a, Verdict> {
        self.authenticate(token, audiences).into()
    }
}

fn quoted(texts: &[String]) -> String {
    format!("[{}]", texts.iter().map(|text| schema::problem::quoted(text)).collect::<Vec<_>>().join(" "))
}
