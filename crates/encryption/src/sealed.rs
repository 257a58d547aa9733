//! A store before another one: values are sealed on the way in and opened on the way out.
//!
//! What always holds: the subscriber above sees the values that were written. What this process writes is never
//! opened again: the plain value travels beside the sealed one. Only what others write to the same store is. A value of
//! theirs that cannot be opened is remembered until it is replaced: see [`Store::unreadable`].

use crate::Form;
use crate::keyring::{Keyring, Plan};
use crate::open::{Forms, open_all};
use crate::recover::{Opened, Unopened, recover};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use store::{BoxFuture, Change, Note, Op, Recovered, Revision, Stats, Store, StoreError, Subscriber, Write};
use tokio::runtime::Handle;

/// Why the values of keys cannot be opened.
type Unreadable = BTreeMap<Arc<str>, String>;

/// See the module.
pub struct Sealed {
    inner: Arc<dyn Store>,
    keyring: Arc<Keyring>,
    forms: Arc<Mutex<Forms>>,
    unopened: Arc<Mutex<Unreadable>>,
    /// History before this cannot be opened any more.
    floor: Revision,
    runtime: Handle,
}

/// What travels beside a sealed value from its writer to the subscriber.
struct Beside {
    plain: Bytes,
    form: Form,
    note: Option<Note>,
}

impl Sealed {
    /// Puts a store behind a keyring and opens what was recovered from it. A store that needs none stays as it is, unless
    /// others write to it, who may have keys.
    pub async fn over(
        inner: Arc<dyn Store>,
        recovered: Vec<Recovered>,
        keyring: Option<Arc<Keyring>>,
        empty: impl FnOnce() -> Keyring,
    ) -> Result<(Arc<dyn Store>, Vec<Recovered>), Unopened> {
        let needed = keyring.is_some();
        let keyring = keyring.unwrap_or_else(|| Arc::new(empty()));
        let Opened { records, forms, floor } = recover(&keyring, recovered).await?;
        if !needed && floor.is_none() && inner.catch_up().is_none() {
            return Ok((inner, records));
        }
        let (forms, floor) = (Arc::new(Mutex::new(forms)), floor.unwrap_or_default());
        let (unopened, runtime) = (Arc::default(), Handle::current());
        Ok((Arc::new(Sealed { inner, keyring, forms, unopened, floor, runtime }), records))
    }
}

impl Store for Sealed {
    fn start(&self, mut subscriber: Subscriber) -> Result<(), StoreError> {
        let (forms, unopened) = (self.forms.clone(), self.unopened.clone());
        let (keyring, runtime) = (self.keyring.clone(), self.runtime.clone());
        self.inner.start(Box::new(move |changes| {
            let plan = keyring.current();
            let is_plain = |change: &Change| is_plain(change, &plan, keyring.reserved());
            if unopened.lock().is_empty() && changes.iter().all(is_plain) {
                return subscriber(changes);
            }
            subscriber(&shown(changes, &keyring, &plan, (&forms, &unopened), &runtime));
        }))
    }

    fn write(&self, write: Write) -> BoxFuture<'_, Result<Revision, StoreError>> {
        let plan = self.keyring.current();
        let Some(chain) = plan.of(&write.key).filter(|chain| !chain.writes_clear()) else {
            return self.inner.write(write);
        };
        let Op::Put { value, expires_at } = write.op else { return self.inner.write(write) };
        let chain = chain.clone();
        Box::pin(async move {
            let sealed = chain.seal(&self.keyring.bound(&write.key), &value, &self.keyring.measures).await;
            let (sealed, form) = sealed.map_err(|why| {
                StoreError::Unavailable(format!("{} cannot be sealed: {}", write.key, why.message))
            })?;
            let note = Arc::new(Beside { plain: value, form, note: write.note });
            let op = Op::Put { value: sealed, expires_at };
            self.inner.write(Write { op, note: Some(note), ..write }).await
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
        let unopened = self.unopened.lock();
        let (key, why) = unopened.first_key_value()?;
        Some(format!(
            "{} in the store cannot be opened with the keys of this server, the first of {} objects that others wrote: \
             {why}; start the server with their keys",
            key,
            unopened.len()
        ))
    }

    fn healthy(&self) -> Result<(), StoreError> {
        self.inner.healthy()
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        self.inner.probe()
    }

    fn tick(&self) -> BoxFuture<'_, ()> {
        self.inner.tick()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.inner.close()
    }
}

fn beside(change: &Change) -> Option<&Beside> {
    change.note.as_ref()?.downcast_ref()
}

/// Whether a change is handed on as it is, and nothing is remembered about its key.
fn is_plain(change: &Change, plan: &Plan, reserved: &str) -> bool {
    plan.of(&change.key).is_none() && beside(change).is_none() && !is_sealed(change, reserved)
}

fn is_sealed(change: &Change, reserved: &str) -> bool {
    change.value.as_ref().is_some_and(|value| value.starts_with(reserved.as_bytes()))
}

/// Changes as the subscriber above is to see them.
fn shown(
    changes: &[Change],
    keyring: &Keyring,
    plan: &Plan,
    (forms, unopened): (&Mutex<Forms>, &Mutex<Unreadable>),
    runtime: &Handle,
) -> Vec<Change> {
    let of_others = |change: &Change| {
        change.note.is_none() && (plan.of(&change.key).is_some() || is_sealed(change, keyring.reserved()))
    };
    let (places, values): (Vec<usize>, Vec<_>) = changes
        .iter()
        .enumerate()
        .filter(|(_, change)| of_others(change))
        .filter_map(|(at, change)| Some((at, (change.key.clone(), change.value.clone()?))))
        .unzip();
    let mut opened = HashMap::new();
    if !values.is_empty() {
        opened = places.into_iter().zip(runtime.block_on(open_all(keyring, plan, &values))).collect();
    }
    let (mut forms, mut unopened) = (forms.lock(), unopened.lock());
    let each = changes.iter().enumerate().map(|(at, change)| {
        let mut shown = change.clone();
        let mut form = Form::CLEAR;
        unopened.remove(&change.key);
        if let Some(beside) = beside(change) {
            shown.value = Some(beside.plain.clone());
            shown.note = beside.note.clone();
            form = beside.form;
        } else if let Some(outcome) = opened.remove(&at) {
            match outcome {
                Ok((plain, found)) => (shown.value, form) = (Some(plain), found),
                // handed on as it is: the caches cannot read it, and keep the object of before
                Err(why) => {
                    tracing::error!(
                        key = %change.key,
                        why = why.message,
                        "a value that another server wrote cannot be opened: this server is not ready until it is \
                         started with the keys of the other"
                    );
                    unopened.insert(change.key.clone(), why.message);
                }
            }
        }
        if form == Form::CLEAR {
            forms.remove(&change.key);
        } else {
            forms.insert(change.key.clone(), form);
        }
        shown
    });
    each.collect()
}
