//! Decrypts the records of a store when it is opened.
//!
//! Invariant: every current object can be decrypted, or opening fails. If a replaced or deleted value cannot be
//! decrypted, because its key is gone after a rotation, the history up to it is dropped, as if it had been
//! compacted.
//!
//! ```text
//! 1 /a=x (old key)   2 /b=y   3 /a=x (new key)   4 /b=z       the old key is gone: history begins at 3
//!                    2 /b=y   3 /a=x             4 /b=z
//! ```

use crate::decrypt::{CONCURRENCY, Forms, decrypt_all};
use crate::keyring::Keyring;
use crate::{Form, TransformError};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use store::{RecoveredRecord, Revision};

/// How often, and at which interval, an unreachable KMS plugin is retried.
const ATTEMPTS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(500);

/// A stored value that cannot be decrypted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key} in the store cannot be decrypted: {why}")]
pub struct DecryptError {
    pub key: String,
    pub why: String,
}

/// The decrypted records.
pub(crate) struct DecryptedRecords {
    pub records: Vec<RecoveredRecord>,
    pub forms: Forms,
    /// The oldest readable revision, if it is later than the store's.
    pub floor: Option<Revision>,
}

pub(crate) async fn recover(
    keyring: &Keyring,
    mut records: Vec<RecoveredRecord>,
) -> Result<DecryptedRecords, DecryptError> {
    let plan = keyring.current();
    let concerned = |record: &RecoveredRecord| {
        let Some(value) = &record.value else { return false };
        value.starts_with(keyring.reserved().as_bytes()) || plan.of(&record.key).is_some()
    };
    let concerned: Vec<usize> = (0..records.len()).filter(|at| concerned(&records[*at])).collect();
    if concerned.is_empty() {
        return Ok(DecryptedRecords { records, forms: HashMap::new(), floor: None });
    }
    for at in &concerned {
        // one that was written in plain text, before its resource was encrypted
        let record = &mut records[*at];
        record.unpack().map_err(|why| DecryptError { key: record.key.to_string(), why })?;
    }
    let mut forms = HashMap::new();
    let mut failed: Vec<(usize, TransformError)> = Vec::new();
    let mut attempts = ATTEMPTS;
    for some in concerned.chunks(CONCURRENCY) {
        let mut left: Vec<usize> = some.to_vec();
        loop {
            let value = |at: &usize| Some((records[*at].key.clone(), records[*at].value.clone()?));
            let values: Vec<_> = left.iter().filter_map(value).collect();
            let answers = decrypt_all(keyring, &plan, &values).await;
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
            let Some(why) = again.iter().map(|(_, why)| why).find(|why| why.is_transient && attempts > 0)
            else {
                failed.append(&mut again);
                break;
            };
            if attempts == ATTEMPTS {
                tracing::warn!(
                    why = why.message,
                    "values cannot be decrypted yet; waiting for the KMS plugin"
                );
            }
            attempts -= 1;
            env::io::sleep(PAUSE).await;
            left = again.into_iter().map(|(at, _)| at).collect();
        }
    }
    let next = successors(&records);
    let mut floor = None;
    for (at, why) in failed {
        match next[at] {
            None => return Err(DecryptError { key: records[at].key.to_string(), why: why.message }),
            Some(replaced) => floor = floor.max(Some(replaced)),
        }
    }
    let kept = forms.into_iter().filter(|(at, form)| next[*at].is_none() && *form != Form::CLEAR);
    let forms = kept.map(|(at, form)| (records[at].key.clone(), form)).collect();
    if let Some(floor) = floor {
        tracing::warn!(%floor, "history before this revision cannot be decrypted and is dropped");
        records = cut(records, &next, floor);
    }
    Ok(DecryptedRecords { records, forms, floor })
}

/// The revision at which each record was replaced or deleted.
fn successors(records: &[RecoveredRecord]) -> Vec<Option<Revision>> {
    let mut later: HashMap<&Arc<str>, Revision> = HashMap::new();
    let mut next: Vec<_> =
        records.iter().rev().map(|record| later.insert(&record.key, record.revision)).collect();
    next.reverse();
    next
}

/// The records that remain if history begins at `floor`: the state then, and every change after it.
fn cut(records: Vec<RecoveredRecord>, next: &[Option<Revision>], floor: Revision) -> Vec<RecoveredRecord> {
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
