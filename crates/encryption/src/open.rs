//! Opens stored values, several at the same time where a key server must be asked.

use crate::keyring::{Keyring, Plan};
use crate::{Failure, Form};
use bytes::Bytes;
use futures_util::future::join_all;
use std::collections::HashMap;
use std::sync::Arc;

/// Values that are opened at the same time, where a key server must be asked.
pub(crate) const CONCURRENCY: usize = 32;

/// In which form the values of keys are kept, for those that are not in the clear.
pub(crate) type Forms = HashMap<Arc<str>, Form>;

/// Opens values, each with its key, some at the same time; the answers are in their order.
pub(crate) async fn open_all(
    keyring: &Keyring,
    plan: &Plan,
    values: &[(Arc<str>, Bytes)],
) -> Vec<Result<(Bytes, Form), Failure>> {
    let mut opened = Vec::with_capacity(values.len());
    for some in values.chunks(CONCURRENCY) {
        let each: Vec<_> = some.iter().map(|(key, value)| open(keyring, plan, key, value)).collect();
        opened.extend(join_all(each).await);
    }
    opened
}

async fn open(keyring: &Keyring, plan: &Plan, key: &str, value: &Bytes) -> Result<(Bytes, Form), Failure> {
    match plan.of(key) {
        Some(chain) => chain.open(&keyring.bound(key), value, &keyring.measures).await,
        None if value.starts_with(keyring.reserved().as_bytes()) => {
            Err(Failure::from("it is sealed, and no provider is configured for its resource"))
        }
        None => Ok((value.clone(), Form::CLEAR)),
    }
}
