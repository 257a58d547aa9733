//! What a store held when it was opened, with the values opened.
//!
//! What always holds: every object that there is now can be read, or there is no start. What was replaced or deleted
//! since and can be opened by nobody, since its key is gone for good after a rotation, takes the history before it
//! along: what is left is as if the store had kept no more.
//!
//! ```text
//! 1 /a=x (old key)   2 /b=y   3 /a=x (new key)   4 /b=z       the old key is gone: history begins at 3
//!                    2 /b=y   3 /a=x             4 /b=z
//! ```

use crate::keyring::Keyring;
use crate::open::{CONCURRENCY, Forms, open_all};
use crate::{Failure, Form};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use store::{Recovered, Revision};

/// For how long, and how often, key servers that are not there yet are waited for.
const ATTEMPTS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(500);

/// Why a store cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key} in the store cannot be opened: {why}")]
pub struct Unopened {
    pub key: String,
    pub why: String,
}

/// What was recovered, as it was written.
pub(crate) struct Opened {
    pub records: Vec<Recovered>,
    pub forms: Forms,
    /// Where history begins, if not where the store says.
    pub floor: Option<Revision>,
}

pub(crate) async fn recover(keyring: &Keyring, mut records: Vec<Recovered>) -> Result<Opened, Unopened> {
    let plan = keyring.current();
    let concerned = |record: &Recovered| {
        let Some(value) = &record.value else { return false };
        value.starts_with(keyring.reserved().as_bytes()) || plan.of(&record.key).is_some()
    };
    let concerned: Vec<usize> = (0..records.len()).filter(|at| concerned(&records[*at])).collect();
    let mut forms = HashMap::new();
    let mut failed: Vec<(usize, Failure)> = Vec::new();
    let mut attempts = ATTEMPTS;
    for some in concerned.chunks(CONCURRENCY) {
        let mut left: Vec<usize> = some.to_vec();
        loop {
            let value = |at: &usize| Some((records[*at].key.clone(), records[*at].value.clone()?));
            let values: Vec<_> = left.iter().filter_map(value).collect();
            let answers = open_all(keyring, &plan, &values).await;
            let mut again = Vec::new();
            for (at, answer) in left.iter().copied().zip(answers) {
                match answer {
                    Ok((plain, form)) => {
                        records[at].value = Some(plain);
                        forms.insert(at, form);
                    }
                    Err(why) => again.push((at, why)),
                }
            }
            let Some(why) = again.iter().map(|(_, why)| why).find(|why| why.passing && attempts > 0) else {
                failed.append(&mut again);
                break;
            };
            if attempts == ATTEMPTS {
                tracing::warn!(
                    why = why.message,
                    "values cannot be opened yet: waiting for their key server"
                );
            }
            attempts -= 1;
            tokio::time::sleep(PAUSE).await;
            left = again.into_iter().map(|(at, _)| at).collect();
        }
    }
    let next = successors(&records);
    let mut floor = None;
    for (at, why) in failed {
        match next[at] {
            None => return Err(Unopened { key: records[at].key.to_string(), why: why.message }),
            Some(replaced) => floor = floor.max(Some(replaced)),
        }
    }
    let kept = forms.into_iter().filter(|(at, form)| next[*at].is_none() && *form != Form::CLEAR);
    let forms = kept.map(|(at, form)| (records[at].key.clone(), form)).collect();
    if let Some(floor) = floor {
        tracing::warn!(%floor, "history before this revision cannot be opened, and is left out");
        records = cut(records, &next, floor);
    }
    Ok(Opened { records, forms, floor })
}

/// At which revision each record was replaced or deleted.
fn successors(records: &[Recovered]) -> Vec<Option<Revision>> {
    let mut later: HashMap<&Arc<str>, Revision> = HashMap::new();
    let mut next: Vec<_> =
        records.iter().rev().map(|record| later.insert(&record.key, record.revision)).collect();
    next.reverse();
    next
}

/// What is left where history begins at `floor`: the state then, and every change after it.
fn cut(records: Vec<Recovered>, next: &[Option<Revision>], floor: Revision) -> Vec<Recovered> {
    let mut left = Vec::new();
    for (mut record, next) in records.into_iter().zip(next) {
        let after = record.revision > floor;
        let lasts = record.value.is_some() && next.is_none_or(|next| next > floor);
        if after || lasts {
            record.history &= after;
            left.push(record);
        }
    }
    left
}
