//! Reads everything below the prefix as it was at one revision, page by page.

use bytes::Bytes;

use crate::client::{Client, Failure};
use crate::messages::{Header, Pair, Range};
use crate::prefix::Prefix;

/// Keys of a page, unless they are large.
const PAGE: u64 = 1000;
/// How often reading begins again because the revision went away meanwhile.
const TRIES: usize = 5;

/// Hands over every page; an empty one first says that all begins, for the first time or again.
pub(crate) async fn load(
    client: &Client,
    prefix: &Prefix,
    mut page: impl FnMut(Header, Vec<Pair>),
) -> Result<Header, Failure> {
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
    page: &mut impl FnMut(Header, Vec<Pair>),
) -> Result<Header, Failure> {
    let (key, end) = prefix.bounds();
    let mut range = Range { key, end, limit: PAGE, ..Range::default() };
    let mut pinned = None;
    loop {
        let found = match client.range(&range).await {
            Err(failure) if failure.too_large_an_answer() && range.limit > 1 => {
                range.limit /= 2;
                continue;
            }
            found => found?,
        };
        let header = *pinned.get_or_insert_with(|| {
            page(found.header, Vec::new());
            found.header
        });
        range.revision = header.revision;
        let last = found.pairs.last().map(|pair| [&pair.key[..], b"\0"].concat());
        page(header, found.pairs);
        match last {
            Some(next) if found.more => range.key = Bytes::from(next),
            _ => return Ok(header),
        }
        range.limit = (range.limit * 2).min(PAGE);
    }
}
