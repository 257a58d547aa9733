//! Tokens of service accounts: asked for through the account, and known again when they are shown.
//!
//! What always holds: a token is good for the audiences and the time it was made for, and only for as long as
//! the account, and the object it was bound to, are the ones that it was made for. That a token was signed here is
//! found out once and remembered; whether it still holds is looked at each time, in the objects as they are.

mod bound;
mod fault;
mod issuer;
mod legacy;
mod request;
pub mod tracking;

pub use issuer::{CONFIGURATION_PATH, Issuer, KEYS_PATH, Published};
pub use request::{TokenRequests, part};

use crate::authentication::jose::{Compact, PublicKey};
use crate::authentication::objects::Objects;
use crate::authentication::remembered::{Lookups, Remembered};
use auth::tokens::{Authenticator, Identified, Verdict};
use auth::{SERVICE_ACCOUNT_PREFIX, User, service_account_groups};
use bound::Bound;
use env::{MaybeReady, World};
use fault::Fault;
use legacy::Legacy;
use metrics::Counter;
use names::Names;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How many tokens are remembered at least.
const REMEMBERED: usize = 4096;

/// What tokens are judged by.
pub struct Trust {
    /// Any of these may have signed a token.
    pub keys: Vec<PublicKey>,
    /// Any of these may have issued it.
    pub issuers: Vec<String>,
    /// For whom a token is meant that does not say.
    pub audiences: Arc<[String]>,
    /// Whether tokens from secrets are good only while the secret and the account exist.
    pub lookup: bool,
    /// Whether it is noted on secrets when their tokens were last used.
    pub tracked: bool,
    pub names: Names,
}

/// Knows the tokens that were issued here, of both forms: those that are asked for, and those of old that are kept
/// in secrets.
pub struct Accounts {
    trust: Trust,
    /// What the claims about the cluster stand under, and what the claims of old begin with.
    claims: String,
    old_claims: String,
    old_issuer: String,
    objects: Objects,
    seen: Remembered<Arc<Seen>>,
    lookups: Lookups,
    pub uses: Uses,
}

/// How often tokens were used that people should know about.
#[derive(Default)]
pub struct Uses {
    /// From secrets, good forever.
    pub legacy: Counter,
    /// Past the time at which they should have been replaced.
    pub stale: Counter,
    /// That have such a time, and were used before it.
    pub fresh: Counter,
}

/// A token that was signed here.
struct Seen {
    user: Arc<User>,
    subject: String,
    /// For whom it is meant; nobody in particular if empty.
    audiences: Vec<String>,
    /// Which of the server's own audiences are among them.
    here: Arc<[String]>,
    form: Form,
}

enum Form {
    Bound(Bound),
    Legacy(Legacy),
}

impl Accounts {
    pub fn new(trust: Trust, objects: Objects, lookups: Lookups, world: &World) -> Self {
        let claims = trust.names.well_known_domain.to_string();
        Accounts {
            old_claims: format!("{claims}/serviceaccount/"),
            old_issuer: format!("{}/serviceaccount", trust.names.vendor),
            claims,
            trust,
            objects,
            seen: Remembered::new(REMEMBERED, world),
            lookups,
            uses: Uses::default(),
        }
    }

    fn judge(&self, token: &str, audiences: &[String]) -> Verdict {
        let seen = match self.signed(token) {
            Ok(Some(seen)) => seen,
            Ok(None) => return Verdict::Unknown,
            Err(why) => return Verdict::Refused(why),
        };
        match self.holds(&seen, token, audiences) {
            Ok(known) => Verdict::Known(known),
            Err(why) => Verdict::Refused(why),
        }
    }

    /// What a token says, if it was issued and signed here; `None` if it is somebody else's.
    fn signed(&self, token: &str) -> Result<Option<Arc<Seen>>, Fault> {
        let digest = self.seen.digest(token);
        if let Some(seen) = self.seen.get(&digest) {
            self.lookups.remembered.inc();
            return Ok(Some(seen));
        }
        let Some(read) = Compact::parse(token) else { return Ok(None) };
        let issuer = read.claims.text(&["iss"]);
        let trusted = self.trust.issuers.iter().any(|one| one == issuer);
        // an issuer may call itself as the one of old; its tokens are told by what they claim
        let old = issuer == self.old_issuer && !(trusted && read.claims.at(&[&self.claims]).is_some());
        if !old && !trusted {
            return Ok(None);
        }
        // the key that the token names is tried first
        let (named, others): (Vec<_>, Vec<_>) =
            self.trust.keys.iter().partition(|key| key.id() == read.key_id);
        if !named.into_iter().chain(others).any(|key| read.is_signed_by(key)) {
            self.lookups.failed.inc();
            return Err("square/go-jose: error in cryptographic primitive".to_owned());
        }
        let seen = Arc::new(self.read(&read, old)?);
        self.lookups.found_out.inc();
        self.seen.put(digest, seen.clone());
        Ok(Some(seen))
    }

    fn read(&self, token: &Compact<'_>, old: bool) -> Result<Seen, Fault> {
        let claims = &token.claims;
        let subject = claims.text(&["sub"]).to_owned();
        let audiences = match claims.at(&["aud"]).and_then(|it| it.as_str()) {
            Some(one) => vec![one.to_owned()],
            None => crate::reviews::list_of(claims, &["aud"]),
        };
        let mut extra = BTreeMap::new();
        let (namespace, name, uid, form) = if old {
            let read = Legacy::read(claims, &self.old_claims, &subject)?;
            let account = &read.account;
            (read.namespace.clone(), account.name.clone(), account.uid.clone(), Form::Legacy(read))
        } else {
            let read = Bound::read(claims, &self.claims)?;
            for (what, text) in
                read.pod().into_iter().flat_map(|pod| [("name", &pod.name), ("uid", &pod.uid)])
            {
                let key = self.trust.names.well_known_under("authentication", &format!("pod-{what}"));
                extra.insert(key, vec![text.clone()]);
            }
            let account = &read.account;
            (read.namespace.clone(), account.name.clone(), account.uid.clone(), Form::Bound(read))
        };
        let groups = service_account_groups(&namespace).into();
        let user =
            User { uid, groups, extra, ..User::named(format!("{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}")) };
        let here = self.common(&audiences, &self.trust.audiences);
        Ok(Seen { user: Arc::new(user.authenticated()), subject, audiences, here, form })
    }

    /// Which of those that were asked for a token is meant for.
    fn common(&self, meant: &[String], wanted: &[String]) -> Arc<[String]> {
        let meant = if meant.is_empty() { &self.trust.audiences } else { meant };
        wanted.iter().filter(|it| meant.contains(it)).cloned().collect()
    }

    /// Whether a token that was signed here is good now, and for whom.
    fn holds(&self, seen: &Seen, token: &str, wanted: &[String]) -> Result<Identified, Fault> {
        let own = &self.trust.audiences;
        let audiences =
            if wanted == &**own { seen.here.clone() } else { self.common(&seen.audiences, wanted) };
        if audiences.is_empty() && !own.is_empty() {
            let meant = if seen.audiences.is_empty() { own } else { &seen.audiences[..] };
            return Err(format!(
                "token audiences {} is invalid for the target audiences {}",
                quoted(meant),
                quoted(wanted)
            ));
        }
        let mut annotations = Vec::new();
        let mut note = |name: &str, text: String| {
            annotations.push((format!("{}/{name}", self.trust.names.group("authentication")), text));
        };
        if seen.audiences.is_empty() {
            self.uses.legacy.inc();
            note("legacy-token", seen.subject.clone());
        }
        match &seen.form {
            Form::Legacy(claims) if self.trust.lookup => {
                claims.check(token, &self.objects)?;
                if self.trust.tracked {
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
                        let subject = &seen.subject;
                        let text = format!("subject: {subject}, seconds after warning threshold: {past}");
                        note("stale-token", text);
                    }
                    None => {}
                }
            }
        }
        Ok(Identified { user: seen.user.clone(), audiences, annotations })
    }
}

impl Authenticator for Accounts {
    fn reads_audiences(&self) -> bool {
        true
    }

    fn identify<'a>(&'a self, token: &'a str, audiences: &'a [String]) -> MaybeReady<'a, Verdict> {
        self.judge(token, audiences).into()
    }
}

fn quoted(texts: &[String]) -> String {
    format!("[{}]", texts.iter().map(|text| format!("{text:?}")).collect::<Vec<_>>().join(" "))
}
