//! A client that watches a collection from its beginning to its end, over restarts of the server.

use super::collection::{Collection, is_expired, read_notice};
use crate::history::{Notice, Version, Watch};
use client::Client;
use http::Request;
use std::time::Duration;

/// The name of the object whose creation ends all watches.
pub const END: &str = "the-end";
/// The pause before the next connection.
const PAUSE: Duration = Duration::from_millis(5);

/// See the module.
pub struct Watcher {
    pub id: u32,
    /// One for each server; connections take turns on them.
    pub clients: Vec<Client>,
    pub collection: Collection,
    /// The version at which the collection was empty.
    pub start: Version,
    /// After how many seconds a connection ends by itself.
    pub timeout: u64,
}

/// The end of a connection.
enum End {
    /// The watch goes on from the version that it has reached.
    Broken,
    /// The server no longer has the version that was reached: the watch begins anew.
    Expired,
}

impl Watcher {
    /// Watches until the end has been seen, or until the run is over. There is one watch, unless versions expire.
    pub async fn run(self, is_over: impl Fn() -> bool) -> anyhow::Result<Vec<Watch>> {
        let from = |start| Watch { client: self.id, start, notices: Vec::new(), is_complete: false };
        let (mut watches, mut watch, mut reached) = (Vec::new(), from(self.start), self.start);
        for client in self.clients.iter().cycle() {
            if watch.is_complete || is_over() {
                break;
            }
            if let End::Expired = self.follow(client, &mut watch, &mut reached).await?
                && let Ok(version) = self.collection.version(client).await
            {
                watches.push(std::mem::replace(&mut watch, from(version)));
                reached = version;
            }
            tokio::time::sleep(PAUSE).await;
        }
        watches.push(watch);
        Ok(watches)
    }

    /// Watches over one connection, from the version that was reached.
    async fn follow(&self, client: &Client, watch: &mut Watch, reached: &mut Version) -> anyhow::Result<End> {
        let path = format!(
            "{}?watch=true&allowWatchBookmarks=true&timeoutSeconds={}&resourceVersion={reached}",
            self.collection.path, self.timeout
        );
        let mut lines = match client.request_lines(Request::get(path).body(Vec::new())?).await {
            Ok(lines) => lines,
            Err(error) if error.is(410) => return Ok(End::Expired),
            Err(_) => return Ok(End::Broken),
        };
        // a connection that breaks may break in the middle of a line
        while let Ok(Some(line)) = lines.next_line().await {
            if is_expired(&line) {
                return Ok(End::Expired);
            }
            let Some(notice) = read_notice(&line)? else { continue };
            *reached = match &notice {
                Notice::Change(change) => change.object.version,
                Notice::Bookmark(version) => *version,
            };
            watch.is_complete = matches!(&notice, Notice::Change(it) if it.object.name == END);
            watch.notices.push(notice);
            if watch.is_complete {
                break;
            }
        }
        Ok(End::Broken)
    }
}
