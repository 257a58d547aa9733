//! Follows everything below the prefix, over lost connections and lost history.
//!
//! # Up to which revision a watch has told everything
//!
//! Who reads must know that nothing is missing up to the etcd's newest revision, also where that one changed nothing
//! below the prefix. An etcd can be asked how far a watch has come, but before 3.4.31 and 3.5.13 its answer may overtake
//! changes that are still on their way. So there are two ways, chosen anew for each server that is watched, since it is
//! that server's answer which must be right:
//!
//! - A server that answers in order is watched below the prefix, and asked for its progress while somebody waits.
//! - Any other is watched as a whole. Each revision has changes, all of them come on the one watch in order, and the
//!   revision of the last is how far it has come; nothing need be asked. What is not below the prefix is dropped.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use outbound::{Messages, RpcError, Sender};
use store::StoreError;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::client::{Failure, One, Pause, TIME};
use crate::load::load;
use crate::messages::{Event, Range, STATUS, Status, WATCH, Watched, progress, watch};
use crate::publisher::{Item, Seen};
use crate::shared::Shared;

/// How often progress is asked for while somebody waits: an etcd that is busy does not answer.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// Why a watch ended.
enum End {
    /// Nothing goes on.
    Over,
    /// The revision from which it should go on is gone.
    Compacted,
    /// It may go on elsewhere, or later.
    Lost(String),
}

impl From<Failure> for End {
    fn from(failure: Failure) -> Self {
        End::Lost(failure.to_string())
    }
}

impl From<RpcError> for End {
    fn from(why: RpcError) -> Self {
        End::Lost(why.to_string())
    }
}

impl From<StoreError> for End {
    fn from(_: StoreError) -> Self {
        End::Over
    }
}

/// What a message was about.
#[derive(Debug, PartialEq, Eq)]
enum Told {
    Changes,
    Progress,
}

pub(crate) struct Watching {
    pub shared: Arc<Shared>,
    pub items: mpsc::Sender<Item>,
    /// Everything up to here has been sent on.
    pub last: u64,
}

impl Watching {
    /// Until nothing goes on.
    pub(crate) async fn run(mut self) {
        let shared = self.shared.clone();
        tokio::select! {
            () = shared.ended() => (),
            () = self.go_on() => (),
        }
    }

    async fn go_on(&mut self) {
        let mut pause = Pause::default();
        loop {
            let one_started = self.last;
            let end = match self.follow(&mut pause).await {
                Err(End::Compacted) => {
                    tracing::warn!(
                        after = self.last,
                        "the etcd has forgotten what changed; reading all again"
                    );
                    self.reload().await.err()
                }
                end => end.err(),
            };
            match end {
                None | Some(End::Compacted) => (),
                Some(End::Over) => return,
                Some(End::Lost(why)) => {
                    if self.shared.handed() >= one_started && self.shared.healthy().is_ok() {
                        tracing::warn!(%why, "the watch of the etcd is lost; trying again");
                    }
                    self.shared.is_in_trouble(why);
                    sleep(pause.next(&self.shared.world)).await;
                }
            }
        }
    }

    /// Watches one server for as long as that goes well.
    async fn follow(&mut self, pause: &mut Pause) -> Result<(), End> {
        let shared = self.shared.clone();
        let one = shared.client.one();
        let followed = self.follow_one(&one, pause).await;
        if let Err(End::Lost(_)) = followed {
            one.give_up();
        }
        followed
    }

    async fn follow_one(&mut self, one: &One<'_>, pause: &mut Pause) -> Result<(), End> {
        // the newest, as all of the etcd's servers agree: one alone may rightly be behind
        let (key, end) = self.shared.prefix.bounds();
        let newest = self.shared.client.range(&Range { key: key.clone(), ..Range::default() }).await?;
        self.shared.recognize(newest.header, self.last)?;
        // who may not ask, or is not answered, takes the way that is always right
        let answers_in_order = match one.call(STATUS, &[]).await {
            Ok(answer) => Status::read(&answer).is_ok_and(|status| in_order(&status.version)),
            Err(Failure::RpcError { why: RpcError::Refused { .. }, .. }) => false,
            Err(failure) => return Err(failure.into()),
        };
        let from = self.last + 1;
        let asked = match answers_in_order {
            true => watch(&key, &end, from, true),
            false => watch(b"\0", b"\0", from, false),
        };
        let (sender, mut messages) = one.open(WATCH, &asked).await?;
        let created = timeout(TIME, messages.next()).await;
        let created = created.map_err(|_| End::Lost("the watch did not begin in time".to_owned()))?;
        self.take(created?, answers_in_order, &mut Vec::new()).await?;
        *pause = Pause::default();
        self.shared.is_well();
        self.listen(&sender, &mut messages, answers_in_order).await
    }

    async fn listen(
        &mut self,
        sender: &Sender,
        messages: &mut Messages,
        answers_in_order: bool,
    ) -> Result<(), End> {
        let mut wanted = self.shared.wanted.subscribe();
        let mut parts = Vec::new();
        // a question is under way, and is asked again by then
        let mut again: Option<Instant> = None;
        loop {
            let behind = answers_in_order && *wanted.borrow_and_update() > self.last;
            if behind && again.is_none() {
                again = Some(Instant::now() + ASK_AGAIN);
                // without room there are questions enough
                sender.send(&progress());
            }
            tokio::select! {
                message = messages.next() => {
                    if self.take(message?, answers_in_order, &mut parts).await? == Told::Progress {
                        again = None;
                    }
                }
                changed = wanted.changed(), if answers_in_order && !behind => {
                    changed.map_err(|_| End::Over)?;
                }
                () = sleep_until(again.unwrap_or_else(Instant::now)), if again.is_some() => again = None,
            }
        }
    }

    /// Sends on what a message tells. The last revision of a message of which more follows is kept in `parts`, since
    /// there may be more of it.
    async fn take(
        &mut self,
        message: Option<Bytes>,
        answers_in_order: bool,
        parts: &mut Vec<Event>,
    ) -> Result<Told, End> {
        let Some(message) = message else { return Err(End::Lost("the watch was ended".to_owned())) };
        let told = Watched::read(&message).map_err(|why| End::Lost(why.to_string()))?;
        if told.canceled {
            let why = if told.reason.is_empty() { "the watch was canceled".to_owned() } else { told.reason };
            return Err(if told.compacted > 0 { End::Compacted } else { End::Lost(why) });
        }
        if told.created {
            self.shared.recognize(told.header, 0)?;
            return Ok(Told::Changes);
        }
        let what = if told.events.is_empty() { Told::Progress } else { Told::Changes };
        parts.extend(told.events);
        let open = match parts.last() {
            Some(last) if told.fragment => last.pair.mod_revision,
            _ => u64::MAX,
        };
        let done = parts.partition_point(|event| event.pair.mod_revision < open);
        let events: Vec<_> = parts.drain(..done).collect();
        let upto = match events.last() {
            Some(last) => last.pair.mod_revision,
            None if what == Told::Progress && answers_in_order && parts.is_empty() => told.header.revision,
            None => return Ok(what),
        };
        if upto > self.last {
            let known = std::mem::replace(&mut self.last, upto);
            let changes = events.into_iter().filter(|event| event.pair.mod_revision > known);
            let changes = changes.filter_map(|event| self.seen(event)).collect();
            self.items.send(Item::Changes { changes, upto }).await.map_err(|_| End::Over)?;
        }
        Ok(what)
    }

    fn seen(&self, event: Event) -> Option<Seen> {
        let key = self.shared.prefix.inward(&event.pair.key)?;
        let value = (!event.deleted).then_some(event.pair.value);
        Some(Seen { revision: event.pair.mod_revision, key, value, supposed: false })
    }

    /// Reads everything again, and sends on what is not as it was.
    async fn reload(&mut self) -> Result<(), End> {
        let shared = self.shared.clone();
        let (mut changed, mut live) = (Vec::new(), HashSet::new());
        let header = load(&shared.client, &shared.prefix, |_, pairs| {
            if pairs.is_empty() {
                changed.clear();
                live.clear();
            }
            let index = shared.index.lock();
            for pair in pairs {
                let Some(key) = shared.prefix.inward(&pair.key) else { continue };
                if index.get(&key) != Some(&pair.mod_revision) {
                    let value = Some(Bytes::copy_from_slice(&pair.value));
                    let (revision, key) = (pair.mod_revision, key.clone());
                    changed.push(Seen { revision, key, value, supposed: false });
                }
                live.insert(key);
            }
        });
        let header = header.await?;
        shared.recognize(header, self.last)?;
        self.last = header.revision;
        let item = Item::Reload { changed, live, upto: header.revision };
        self.items.send(item).await.map_err(|_| End::Over)
    }
}

/// Whether a server of this version tells how far a watch has come after everything that it has told before.
fn in_order(version: &str) -> bool {
    let mut numbers = version.split(['.', '-', '+']).map(|part| part.parse::<u32>().ok());
    let mut next = || numbers.next().flatten();
    let (Some(major), Some(minor), Some(patch)) = (next(), next(), next()) else { return false };
    match (major, minor) {
        (3, 4) => patch >= 31,
        (3, 5) => patch >= 13,
        _ => (major, minor) >= (3, 6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_answer_in_order_are_known() {
        for good in ["3.4.31", "3.5.13", "3.5.21", "3.6.0", "3.6.0-rc.1", "4.0.0", "3.10.1+x"] {
            assert!(in_order(good), "{good}");
        }
        for bad in ["3.4.30", "3.4.23", "3.5.12", "3.5.0", "3.3.27", "2.9.99", "", "3.6", "next"] {
            assert!(!in_order(bad), "{bad}");
        }
    }
}
