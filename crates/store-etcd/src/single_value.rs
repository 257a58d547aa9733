//! One value in an etcd, without the rest: what servers of a cluster must agree on before they can read its objects.

use bytes::Bytes;
use env::World;
use grpc::etcd::RangeRequest;
use store::StoreError;

use crate::txn::{Compare, Txn, TxnOp};
use crate::{Options, Prefix, connect, when_reachable};

/// The key in etcd of a key of the store.
fn etcd_key(options: &Options, key: &str) -> Result<Bytes, StoreError> {
    let found = Prefix::new(&options.prefix).etcd_key(key);
    found.ok_or_else(|| StoreError::Unavailable(format!("{key} is not a key of the store")))
}

/// The value of a key, if there is one.
pub async fn read(options: &Options, key: &str, world: &World) -> Result<Option<Bytes>, StoreError> {
    let client = connect(options, world)?;
    let range = RangeRequest { key: etcd_key(options, key)?, ..RangeRequest::default() };
    let response = when_reachable(&client, options, world, || client.range(&range)).await?;
    Ok(response.kvs.into_iter().next().map(|pair| pair.value))
}

/// Creates a key. Returns the value that it has then: another, if another process was first.
pub async fn create(options: &Options, key: &str, value: Bytes, world: &World) -> Result<Bytes, StoreError> {
    let client = connect(options, world)?;
    let txn = Txn {
        key: etcd_key(options, key)?,
        compare: vec![Compare::ModIs(0)],
        op: TxnOp::Put { value: value.clone(), lease: 0 },
        keys_only: false,
        taken: Vec::new(),
        freed: Vec::new(),
    };
    let outcome = when_reachable(&client, options, world, || client.txn(&txn)).await?;
    match (outcome.succeeded, outcome.current) {
        (false, Some(current)) => Ok(current.value),
        _ => Ok(value),
    }
}
