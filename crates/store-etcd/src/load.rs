//! The paginated read of all keys below the prefix at one revision.

use bytes::Bytes;
use grpc::etcd::{KeyValue, RangeRequest};

use crate::client::{Client, ClientError};
use crate::header::Header;
use crate::prefix::Prefix;

/// Keys per page, unless values are large.
const PAGE: i64 = 1000;
/// How often the read restarts because its revision was compacted meanwhile.
const TRIES: usize = 5;

/// Calls back with every page. An empty page comes first, at the start and at every restart.
pub(crate) async fn load(
    client: &Client,
    prefix: &Prefix,
    mut page: impl FnMut(Header, Vec<KeyValue>),
) -> Result<Header, ClientError> {
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
    page: &mut impl FnMut(Header, Vec<KeyValue>),
) -> Result<Header, ClientError> {
    let (key, end) = prefix.bounds();
    let mut range = RangeRequest { key, range_end: end, limit: PAGE, ..RangeRequest::default() };
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
            let header = Header::from(response.header);
            page(header, Vec::new());
            header
        });
        range.revision = header.revision as i64;
        let last = response.kvs.last().map(|pair| [&pair.key[..], b"\0"].concat());
        page(header, response.kvs);
        match last {
            Some(next) if response.more => range.key = Bytes::from(next),
            _ => return Ok(header),
        }
        range.limit = (range.limit * 2).min(PAGE);
    }
}
