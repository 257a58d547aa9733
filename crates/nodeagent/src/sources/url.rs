//! Static pods of a URL, read in intervals.

use super::static_pods::{StaticPlace, StaticSource, read};
use super::{PodChange, PodSet};
use crate::probes::http::{self, Url};
use env::World;
use std::time::Duration;
use tokio::sync::mpsc;

const TIMEOUT: Duration = Duration::from_secs(10);

/// Reads a URL.
pub struct UrlSource {
    pub url: String,
    pub headers: Vec<(String, String)>,
    pub node: String,
    pub interval: Duration,
    pub world: World,
}

impl UrlSource {
    pub async fn run(self, changes: mpsc::UnboundedSender<PodChange>) {
        let (mut set, mut last, mut is_first) = (PodSet::default(), String::new(), true);
        let base =
            Url { is_https: false, host: String::new(), port: 0, has_port: false, path: String::new() };
        let Some(url) = base.join(&self.url) else {
            tracing::error!(url = %self.url, "the URL of static pods is invalid");
            return;
        };
        loop {
            match http::fetch(&url, &self.headers, TIMEOUT).await {
                Ok(response) if response.status == 200 && !response.body.is_empty() => {
                    if response.body != last {
                        let place = StaticPlace {
                            node: self.node.clone(),
                            source: StaticSource::Url,
                            origin: self.url.clone(),
                            seen: api::Time::from(self.world.now()).to_string(),
                        };
                        match read(response.body.as_bytes(), &place) {
                            Ok(pods) => set.replace(pods, &changes),
                            Err(why) => tracing::error!(url = %self.url, %why, "static pods cannot be read"),
                        }
                        last = response.body;
                    }
                }
                Ok(response) if response.status == 200 => set.replace([], &changes),
                Ok(response) => tracing::warn!(url = %self.url, status = response.status, "no static pods"),
                Err(why) => tracing::warn!(url = %self.url, %why, "no static pods"),
            }
            if std::mem::take(&mut is_first) {
                let _ = changes.send(PodChange::Synced);
            }
            env::sleep(&self.world, self.interval).await;
        }
    }
}
