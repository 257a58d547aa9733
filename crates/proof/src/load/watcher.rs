//! A client that watches a collection from its beginning to its end, over restarts of the server.

use super::collection::{Collection, read_notice};
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
    pub client: Client,
    pub collection: Collection,
    /// The version at which the collection was empty.
    pub start: Version,
    /// After how many seconds a connection ends by itself.
    pub timeout: u64,
}

impl Watcher {
    /// Watches until the end has been seen, or until the run is over.
    pub async fn run(self, is_over: impl Fn() -> bool) -> anyhow::Result<Watch> {
        let mut watch = Watch { client: self.id, start: self.start, notices: Vec::new(), is_complete: false };
        let mut reached = self.start;
        while !watch.is_complete && !is_over() {
            self.follow(&mut watch, &mut reached).await?;
            tokio::time::sleep(PAUSE).await;
        }
        Ok(watch)
    }

    /// Watches over one connection, from the version that was reached.
    async fn follow(&self, watch: &mut Watch, reached: &mut Version) -> anyhow::Result<()> {
        let path = format!(
            "{}?watch=true&allowWatchBookmarks=true&timeoutSeconds={}&resourceVersion={reached}",
            self.collection.path, self.timeout
        );
        let Ok(mut lines) = self.client.request_lines(Request::get(path).body(Vec::new())?).await else {
            return Ok(());
        };
        // a connection that breaks may break in the middle of a line
        while let Ok(Some(line)) = lines.next_line().await {
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
        Ok(())
    }
}
