//! A store that encrypts the values of another store.
//!
//! Invariants: the subscriber receives plaintext. Own writes are not decrypted again: the plaintext travels beside
//! the ciphertext. Only writes of other servers to the same store are decrypted. If one cannot be decrypted, its
//! error is kept until the value is replaced: see [`Store::unreadable`].

use crate::Form;
use crate::decrypt::{Forms, decrypt_all};
use crate::keyring::{Keyring, Plan};
use crate::recover::{DecryptError, DecryptedRecords, recover};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use store::{
    BoxFuture, Change, Note, Op, RecoveredRecord, Revision, Snapshot, Stats, Store, StoreError, Subscriber,
    Write,
};
use tokio::runtime::Handle;

/// Decryption errors by key.
type UnreadableKeys = BTreeMap<Arc<str>, String>;

/// See the module.
pub struct EncryptedStore {
    inner: Arc<dyn Store>,
    keyring: Arc<Keyring>,
    forms: Arc<Mutex<Forms>>,
    unreadable: Arc<Mutex<UnreadableKeys>>,
    /// History before this revision cannot be decrypted.
    floor: Revision,
    runtime: Handle,
}

/// The plaintext that travels beside a ciphertext from its writer to the subscriber.
struct WriteNote {
    plain: Bytes,
    form: Form,
    note: Option<Note>,
}

impl EncryptedStore {
    /// Wraps a store with a keyring and decrypts its recovered records. A store without a keyring is returned as it
    /// is, unless other servers, which may have keys, write to it.
    pub async fn over(
        inner: Arc<dyn Store>,
        recovered: Vec<RecoveredRecord>,
        keyring: Option<Arc<Keyring>>,
        empty: impl FnOnce() -> Keyring,
    ) -> Result<(Arc<dyn Store>, Vec<RecoveredRecord>), DecryptError> {
        let needed = keyring.is_some();
        let keyring = keyring.unwrap_or_else(|| Arc::new(empty()));
        let DecryptedRecords { records, forms, floor } = recover(&keyring, recovered).await?;
        if !needed && floor.is_none() && inner.catch_up().is_none() {
            return Ok((inner, records));
        }
        let (forms, floor) = (Arc::new(Mutex::new(forms)), floor.unwrap_or_default());
        let (unreadable, runtime) = (Arc::default(), Handle::current());
        Ok((Arc::new(EncryptedStore { inner, keyring, forms, unreadable, floor, runtime }), records))
    }
}

impl Store for EncryptedStore {
    fn start(&self, mut subscriber: Subscriber) -> Result<(), StoreError> {
        let (forms, unreadable) = (self.forms.clone(), self.unreadable.clone());
        let (keyring, runtime) = (self.keyring.clone(), self.runtime.clone());
        self.inner.start(Box::new(move |changes| {
            let plan = keyring.current();
            let is_plain = |change: &Change| is_plain(change, &plan, keyring.reserved());
            if unreadable.lock().is_empty() && changes.iter().all(is_plain) {
                return subscriber(changes);
            }
            subscriber(&as_published(changes, &keyring, &plan, (&forms, &unreadable), &runtime));
        }))
    }

    fn write(&self, write: Write) -> BoxFuture<'_, Result<Revision, StoreError>> {
        let plan = self.keyring.current();
        let Some(chain) = plan.of(&write.key).filter(|chain| !chain.is_plaintext()) else {
            return self.inner.write(write);
        };
        let Op::Put { value, expires_at } = write.op else { return self.inner.write(write) };
        let chain = chain.clone();
        Box::pin(async move {
            let encrypted =
                chain.encrypt(&self.keyring.underlying_key(&write.key), &value, &self.keyring.metrics).await;
            let (encrypted, form) = encrypted.map_err(|why| {
                StoreError::Unavailable(format!("{} cannot be sealed: {}", write.key, why.message))
            })?;
            let note = Arc::new(WriteNote { plain: value, form, note: write.note });
            let op = Op::Put { value: encrypted, expires_at };
            // a summary has parts of the value
            self.inner.write(Write { op, note: Some(note), summary: Bytes::new(), ..write }).await
        })
    }

    fn revision(&self) -> Revision {
        self.inner.revision()
    }

    fn oldest(&self) -> Revision {
        self.inner.oldest().max(self.floor)
    }

    fn stats(&self) -> Stats {
        self.inner.stats()
    }

    fn catch_up(&self) -> Option<BoxFuture<'_, Result<(), StoreError>>> {
        self.inner.catch_up()
    }

    fn is_stale(&self, key: &str) -> bool {
        let form = || self.forms.lock().get(key).copied().unwrap_or(Form::CLEAR);
        self.keyring.current().of(key).is_some_and(|chain| chain.is_stale(form())) || self.inner.is_stale(key)
    }

    fn unreadable(&self) -> Option<String> {
        let unreadable = self.unreadable.lock();
        let (key, why) = unreadable.first_key_value()?;
        Some(format!(
            "{} in the store cannot be decrypted with the keys of this server, the first of {} objects that others wrote: \
             {why}; start the server with their keys",
            key,
            unreadable.len()
        ))
    }

    fn healthy(&self) -> Result<(), StoreError> {
        self.inner.healthy()
    }

    fn members(&self) -> BoxFuture<'_, Vec<Result<(), StoreError>>> {
        self.inner.members()
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        self.inner.probe()
    }

    /// Values stay encrypted.
    fn snapshot(&self) -> BoxFuture<'_, Result<Snapshot, StoreError>> {
        self.inner.snapshot()
    }

    fn tick(&self) -> BoxFuture<'_, ()> {
        self.inner.tick()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.inner.close()
    }
}

fn write_note(change: &Change) -> Option<&WriteNote> {
    change.note.as_ref()?.downcast_ref()
}

/// Whether a change can be passed on unchanged, with nothing recorded about its key.
fn is_plain(change: &Change, plan: &Plan, reserved: &str) -> bool {
    plan.of(&change.key).is_none() && write_note(change).is_none() && !is_encrypted(change, reserved)
}

fn is_encrypted(change: &Change, reserved: &str) -> bool {
    change.value.as_ref().is_some_and(|value| value.starts_with(reserved.as_bytes()))
}

/// Changes as the subscriber receives them.
fn as_published(
    changes: &[Change],
    keyring: &Keyring,
    plan: &Plan,
    (forms, unreadable): (&Mutex<Forms>, &Mutex<UnreadableKeys>),
    runtime: &Handle,
) -> Vec<Change> {
    let of_others = |change: &Change| {
        change.note.is_none() && (plan.of(&change.key).is_some() || is_encrypted(change, keyring.reserved()))
    };
    let (places, values): (Vec<usize>, Vec<_>) = changes
        .iter()
        .enumerate()
        .filter(|(_, change)| of_others(change))
        .filter_map(|(at, change)| Some((at, (change.key.clone(), change.value.clone()?))))
        .unzip();
    let mut opened = HashMap::new();
    if !values.is_empty() {
        opened = places.into_iter().zip(runtime.block_on(decrypt_all(keyring, plan, &values))).collect();
    }
    let (mut forms, mut unreadable) = (forms.lock(), unreadable.lock());
    let each = changes.iter().enumerate().map(|(at, change)| {
        let mut published = change.clone();
        let mut form = Form::CLEAR;
        unreadable.remove(&change.key);
        if let Some(write_note) = write_note(change) {
            published.value = Some(write_note.plain.clone());
            published.note = write_note.note.clone();
            form = write_note.form;
        } else if let Some(outcome) = opened.remove(&at) {
            match outcome {
                Ok((plain, found)) => (published.value, form) = (Some(plain), found),
                // passed on encrypted: the caches cannot decode it, and keep the previous object
                Err(why) => {
                    tracing::error!(
                        key = %change.key,
                        why = why.message,
                        "a value that another server wrote cannot be decrypted: this server is not ready until it is \
                         started with the keys of the other"
                    );
                    unreadable.insert(change.key.clone(), why.message);
                }
            }
        }
        if form == Form::CLEAR {
            forms.remove(&change.key);
        } else {
            forms.insert(change.key.clone(), form);
        }
        published
    });
    each.collect()
}
