//! Decrypts stored values, concurrently where a KMS plugin is involved.

use crate::keyring::{Keyring, Plan};
use crate::{Form, TransformError};
use bytes::Bytes;
use futures_util::future::join_all;
use std::collections::HashMap;
use std::sync::Arc;

/// Values decrypted concurrently.
pub(crate) const CONCURRENCY: usize = 32;

/// The forms of stored values by key; plaintext has no entry.
pub(crate) type Forms = HashMap<Arc<str>, Form>;

/// Decrypts values, each with its key, concurrently; results are in the order of the values.
pub(crate) async fn decrypt_all(
    keyring: &Keyring,
    plan: &Plan,
    values: &[(Arc<str>, Bytes)],
) -> Vec<Result<(Bytes, Form), TransformError>> {
    let mut decrypted = Vec::with_capacity(values.len());
    for some in values.chunks(CONCURRENCY) {
        let each: Vec<_> = some.iter().map(|(key, value)| decrypt(keyring, plan, key, value)).collect();
        decrypted.extend(join_all(each).await);
    }
    decrypted
}

impl Keyring {
    /// Decrypts one value of the store; plaintext is returned as it is. The error says which key is missing.
    pub async fn decrypt(&self, key: &str, value: &Bytes) -> Result<Bytes, String> {
        let decrypted = decrypt(self, &self.current(), key, value).await;
        decrypted.map(|(plain, _)| plain).map_err(|why| why.message)
    }
}

async fn decrypt(
    keyring: &Keyring,
    plan: &Plan,
    key: &str,
    value: &Bytes,
) -> Result<(Bytes, Form), TransformError> {
    match plan.of(key) {
        Some(chain) => chain.decrypt(&keyring.underlying_key(key), value, &keyring.metrics).await,
        None if value.starts_with(keyring.reserved().as_bytes()) => {
            Err(TransformError::from("it is encrypted, and no provider is configured for its resource"))
        }
        None => Ok((value.clone(), Form::CLEAR)),
    }
}
