//! Tokens that nobody asked for: every account gets one and names it, as it was before tokens were given to pods.
//!
//! Only where the gate that ended this is closed. What always holds: a secret that its account does not name in the
//! end is removed again, and an account that names a token gets no second one.

use super::Tokens;
use client::{Failure, Key, unless};
use k8s_openapi::api::core::v1::{ObjectReference, Secret, ServiceAccount};
use kube::ResourceExt;
use kube::api::{ObjectMeta, PostParams};

/// How often an account is tried that others write, too.
const TRIES: usize = 10;

impl Tokens {
    /// Sees to it that an account names a token.
    pub(super) async fn give_token(&self, key: &Key) -> Result<(), Failure> {
        let Some(seen) = self.accounts.get(key) else { return Ok(()) };
        if self.names_token(&seen).await? {
            return Ok(());
        }
        let live = unless(404, self.accounts_in(&key.namespace).get(&key.name).await)?;
        // what has changed since it was seen makes news
        let Some(live) = live.filter(|it| it.resource_version() == seen.resource_version()) else {
            return Ok(());
        };
        let secret = self.unfilled(&live);
        let made = self.secrets_in(&key.namespace).create(&PostParams::default(), &secret).await?;
        match self.name_token(live, &made.name_any()).await {
            Ok(true) => Ok(()),
            Ok(false) => self.remove(&made).await,
            Err(why) => {
                self.remove(&made).await?;
                Err(why)
            }
        }
    }

    /// Whether an account names a secret that is a token of its own.
    async fn names_token(&self, account: &ServiceAccount) -> Result<bool, Failure> {
        let namespace = account.namespace().unwrap_or_default();
        for name in account.secrets.iter().flatten().filter_map(|it| it.name.as_deref()) {
            let secret = match self.secrets.get(&Key::new(&namespace, name)) {
                Some(seen) => Some((*seen).clone()),
                // one that was just made has not been seen
                None => unless(404, self.secrets_in(&namespace).get(name).await)?,
            };
            let kind = self.context.names.account_token_type();
            let token = secret.filter(|it| it.type_.as_ref() == Some(&kind));
            let named = token.and_then(|it| self.annotations.account(&it));
            let own = named.filter(|it| it.key.name == account.name_any());
            if own.is_some_and(|it| it.uid.is_none() || it.uid == account.uid()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// A secret that asks for a token.
    fn unfilled(&self, account: &ServiceAccount) -> Secret {
        let named = [
            (self.annotations.name.clone(), account.name_any()),
            (self.annotations.uid.clone(), account.uid().unwrap_or_default()),
        ];
        Secret {
            metadata: ObjectMeta {
                generate_name: Some(format!("{}-token-", account.name_any())),
                annotations: Some(named.into()),
                ..ObjectMeta::default()
            },
            type_: Some(self.context.names.account_token_type()),
            ..Secret::default()
        }
    }

    /// Lets an account name a secret, unless it is another one by now, or names a token already.
    async fn name_token(&self, account: ServiceAccount, secret: &str) -> Result<bool, Failure> {
        let api = self.accounts_in(&account.namespace().unwrap_or_default());
        let (name, uid) = (account.name_any(), account.uid());
        let mut next = account;
        for _ in 0..TRIES {
            let reference = ObjectReference { name: Some(secret.to_owned()), ..ObjectReference::default() };
            next.secrets.get_or_insert_default().push(reference);
            match api.replace(&name, &PostParams::default(), &next).await.map_err(Failure::from) {
                Ok(_) => return Ok(true),
                Err(why) if why.is(404) => return Ok(false),
                Err(why) if !why.is(409) => return Err(why),
                Err(_) => {}
            }
            match unless(404, api.get(&name).await)?.filter(|it| it.uid() == uid) {
                Some(live) if !self.names_token(&live).await? => next = live,
                _ => return Ok(false),
            }
        }
        Ok(false)
    }
}
