//! Creates a token secret for every service account that names none, where the gate that ended this is off.
//!
//! A secret that its account does not name in the end is deleted again. An account that names a token gets no second
//! one.

use super::Tokens;
use api::Resource;
use api::core::v1::{ObjectReference, Secret, ServiceAccount};
use api::meta::v1::ObjectMeta;
use client::{Failure, Key};

/// How often the write of an account is tried in spite of conflicts.
const TRIES: usize = 10;

impl Tokens {
    /// Ensures that an account names a token.
    pub(super) async fn ensure_token(&self, key: &Key) -> Result<(), Failure> {
        let Some(cached) = self.accounts.get(key) else { return Ok(()) };
        if self.has_token(&cached).await? {
            return Ok(());
        }
        let live = self.accounts_in(&key.namespace).get_opt(&key.name).await?;
        // a newer version adds the account to the queue again
        let Some(live) = live.filter(|it| it.resource_version() == cached.resource_version()) else {
            return Ok(());
        };
        let secret = self.new_secret(&live);
        let created = self.secrets_in(&key.namespace).create(&secret).await?;
        match self.add_reference(live, created.name()).await {
            Ok(true) => Ok(()),
            Ok(false) => self.delete(&created).await,
            Err(why) => {
                self.delete(&created).await?;
                Err(why)
            }
        }
    }

    /// Whether an account names a secret that is a token of its own.
    async fn has_token(&self, account: &ServiceAccount) -> Result<bool, Failure> {
        let namespace = account.namespace();
        for name in account.secrets.iter().map(|it| &it.name).filter(|it| !it.is_empty()) {
            let secret = match self.secrets.get(&Key::new(namespace, name)) {
                Some(cached) => Some((*cached).clone()),
                // a new secret may not be in the cache yet
                None => self.secrets_in(namespace).get_opt(name).await?,
            };
            let token = secret.filter(|it| it.type_ == self.context.names.account_token_type());
            let reference = token.and_then(|it| self.annotations.account(&it));
            if reference.is_some_and(|it| it.key.name == account.name() && it.refers_to(account)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// A token secret that is to be filled.
    fn new_secret(&self, account: &ServiceAccount) -> Secret {
        let annotations = [
            (self.annotations.name.clone(), account.name().to_owned()),
            (self.annotations.uid.clone(), account.uid().to_owned()),
        ];
        Secret {
            metadata: ObjectMeta {
                generate_name: format!("{}-token-", account.name()),
                annotations: annotations.into(),
                ..ObjectMeta::default()
            },
            type_: self.context.names.account_token_type(),
            ..Secret::default()
        }
    }

    /// Adds a secret to an account. Returns `false` if the account is gone or names a token already.
    async fn add_reference(&self, account: ServiceAccount, secret: &str) -> Result<bool, Failure> {
        let accounts = self.accounts_in(account.namespace());
        let (name, uid) = (account.name().to_owned(), account.uid().to_owned());
        let mut next = account;
        for _ in 0..TRIES {
            next.secrets.push(ObjectReference { name: secret.to_owned(), ..ObjectReference::default() });
            match accounts.replace(&next).await {
                Ok(_) => return Ok(true),
                Err(why) if why.is(404) => return Ok(false),
                Err(why) if !why.is(409) => return Err(why.into()),
                Err(_) => {}
            }
            match accounts.get_opt(&name).await?.filter(|it| it.uid() == uid) {
                Some(live) if !self.has_token(&live).await? => next = live,
                _ => return Ok(false),
            }
        }
        Ok(false)
    }
}
