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
    let mut pages = Pages::new(prefix, PAGE);
    let mut is_first = true;
    while let Some((header, pairs)) = pages.next(client).await? {
        if std::mem::take(&mut is_first) {
            page(header, Vec::new());
        }
        page(header, pairs);
    }
    Ok(pages.header.unwrap_or_default())
}

/// The pages of one read.
pub(crate) struct Pages {
    range: RangeRequest,
    limit: i64,
    /// The header of the first page, whose revision all pages have.
    pub header: Option<Header>,
    ended: bool,
}

impl Pages {
    /// Pages of at most `limit` keys.
    pub(crate) fn new(prefix: &Prefix, limit: i64) -> Self {
        let (key, range_end) = prefix.bounds();
        let range = RangeRequest { key, range_end, limit, ..RangeRequest::default() };
        Pages { range, limit, header: None, ended: false }
    }

    /// The next page; `None` after the last. After an error the read cannot go on.
    pub(crate) async fn next(
        &mut self,
        client: &Client,
    ) -> Result<Option<(Header, Vec<KeyValue>)>, ClientError> {
        if self.ended {
            return Ok(None);
        }
        let response = loop {
            match client.range(&self.range).await {
                Err(failure) if failure.is_response_too_large() && self.range.limit > 1 => {
                    self.range.limit /= 2;
                }
                response => break response?,
            }
        };
        let header = *self.header.get_or_insert_with(|| Header::from(response.header));
        self.range.revision = header.revision as i64;
        self.range.limit = (self.range.limit * 2).min(self.limit);
        match response.kvs.last() {
            Some(last) if response.more => self.range.key = Bytes::from([&last.key[..], b"\0"].concat()),
            _ => self.ended = true,
        }
        Ok(Some((header, response.kvs)))
    }
}
