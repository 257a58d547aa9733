//! The paginated read of all keys below the prefix at one revision.

use bytes::Bytes;

use crate::client::{Client, ClientError};
use crate::messages::{KeyValue, RangeRequest, ResponseHeader};
use crate::prefix::Prefix;

/// Keys per page, unless values are large.
const PAGE: u64 = 1000;
/// How often the read restarts because its revision was compacted meanwhile.
const TRIES: usize = 5;

/// Calls back with every page. An empty page comes first, at the start and at every restart.
pub(crate) async fn load(
    client: &Client,
    prefix: &Prefix,
    mut page: impl FnMut(ResponseHeader, Vec<KeyValue>),
) -> Result<ResponseHeader, ClientError> {
    let mut tries = 0;
    loop {
        match once(client, prefix, &mut page).await {
            Err(failure) if failure.compacted() && tries < TRIES => tries += 1,
            done => return done,
        }
    }
}

async fn once(
    client: &Client,
    prefix: &Prefix,
    page: &mut impl FnMut(ResponseHeader, Vec<KeyValue>),
) -> Result<ResponseHeader, ClientError> {
    let (key, end) = prefix.bounds();
    let mut range = RangeRequest { key, end, limit: PAGE, ..RangeRequest::default() };
    let mut pinned = None;
    loop {
        let response = match client.range(&range).await {
            Err(failure) if failure.is_response_too_large() && range.limit > 1 => {
                range.limit /= 2;
                continue;
            }
            response => response?,
        };
        let header = *pinned.get_or_insert_with(|| {
            page(response.header, Vec::new());
            response.header
        });
        range.revision = header.revision;
        let last = response.pairs.last().map(|pair| [&pair.key[..], b"\0"].concat());
        page(header, response.pairs);
        match last {
            Some(next) if response.more => range.key = Bytes::from(next),
            _ => return Ok(header),
        }
        range.limit = (range.limit * 2).min(PAGE);
    }
}
