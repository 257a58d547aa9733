//! A client that watches a collection from its beginning to its end, over restarts of the server: one watch that goes on
//! where its last connection ended, or many that each begin with the state of the collection.

use super::collection::{Collection, is_expired, read_notice};
use crate::history::{Delivery, Freshness, Notice, Order, Start, Version, Watch};
use client::Client;
use http::Request;
use std::sync::Arc;
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
    pub order: Arc<Order>,
    pub course: Course,
    /// After how many seconds a connection ends by itself.
    pub timeout: u64,
}

/// How a watcher begins its connections.
#[derive(Debug, Clone, Copy)]
pub enum Course {
    /// After the version that the last one has reached; the first one after this version.
    Onward(Version),
    /// With the state of the collection: in turns with the version 0 and without a version.
    Anew,
}

/// The end of a connection.
enum End {
    /// The watch goes on from the version that it has reached.
    Broken,
    /// The server no longer has the version that was reached: the watch begins anew.
    Expired,
}

impl Watcher {
    /// Watches until the end has been seen, or until the run is over.
    pub async fn run(self, is_over: impl Fn() -> bool) -> anyhow::Result<Vec<Watch>> {
        let (mut watches, mut next) = (Vec::new(), None);
        let mut watch = self.begin(match self.course {
            Course::Onward(version) => Start::After(version),
            Course::Anew => Start::State(Freshness::Latest),
        });
        for client in self.clients.iter().cycle() {
            if let Some(start) = next.take() {
                let last = std::mem::replace(&mut watch, self.begin(start));
                // a connection that was refused has shown nothing
                watches.extend((!last.notices.is_empty()).then_some(last));
            }
            if is_over() {
                break;
            }
            let end = self.follow(client, &mut watch).await?;
            if watch.is_complete {
                break;
            }
            next = match (self.course, end) {
                (Course::Onward(_), End::Broken) => None,
                (Course::Onward(_), End::Expired) => {
                    self.collection.version(client).await.ok().map(Start::After)
                }
                (Course::Anew, _) if watch.notices.is_empty() => Some(watch.start),
                (Course::Anew, _) => Some(Start::State(match watch.start {
                    Start::State(Freshness::Latest) => Freshness::Any,
                    _ => Freshness::Latest,
                })),
            };
            tokio::time::sleep(PAUSE).await;
        }
        watches.push(watch);
        Ok(watches)
    }

    fn begin(&self, start: Start) -> Watch {
        let begin = self.order.draw();
        Watch { client: self.id, start, begin, notices: Vec::new(), is_complete: false }
    }

    /// Watches over one connection, from where the watch is.
    async fn follow(&self, client: &Client, watch: &mut Watch) -> anyhow::Result<End> {
        let version = match watch.start {
            Start::After(version) => Some(watch.notices.last().map_or(version, |it| it.notice.version())),
            Start::State(Freshness::Any) => Some(0),
            Start::State(_) => None,
        };
        let version = version.map(|it| format!("&resourceVersion={it}")).unwrap_or_default();
        let path = format!(
            "{}?watch=true&allowWatchBookmarks=true&timeoutSeconds={}{version}",
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
            watch.is_complete = matches!(&notice, Notice::Change(it) if it.object.name == END);
            watch.notices.push(Delivery { at: self.order.draw(), notice });
            if watch.is_complete {
                break;
            }
        }
        Ok(End::Broken)
    }
}
