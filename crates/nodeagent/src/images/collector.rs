//! Removes images that no container uses when their filesystem is too full.
//!
//! Every five minutes the images are listed, and the times noted at which each was first seen and last in use. When the
//! filesystem has reached the high threshold, unused images go, the longest unused first, until the low threshold is
//! reached. An image that was seen first a short time ago stays: a pod may be about to use it.

use crate::runtime::{ContainerInfo, ImageInfo, SharedRuntime};
use crate::stats::FilesystemUsage;
use client::Note;
use env::World;
use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The time between collections.
const INTERVAL: Duration = Duration::from_secs(300);

/// When an image was seen, by the monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ImageTimes {
    /// Nothing for an image that was there before the agent.
    first_seen: Option<Duration>,
    last_used: Option<Duration>,
}

/// Thresholds of a collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageThresholds {
    /// Percent of the filesystem in use at which images are removed; 100 is never.
    pub high: u64,
    /// Percent at which enough were removed.
    pub low: u64,
    pub min_age: Duration,
}

impl ImageThresholds {
    /// Bytes to free, if the filesystem has reached the high threshold.
    fn bytes_to_free(&self, usage: &FilesystemUsage) -> Option<u64> {
        let capacity = usage.capacity;
        let available = usage.available.min(capacity);
        let free = u64::try_from(u128::from(available) * 100 / u128::from(capacity.max(1))).unwrap_or(100);
        if capacity == 0 || self.high >= 100 || 100 - free.min(100) < self.high {
            return None;
        }
        let wanted = u128::from(capacity) * u128::from(100 - self.low.min(100)) / 100;
        Some(u64::try_from(wanted).unwrap_or(u64::MAX).saturating_sub(available))
    }
}

/// See the module.
pub struct ImageCollector {
    pub runtime: SharedRuntime,
    pub world: World,
    pub thresholds: ImageThresholds,
    /// Images that stay, though no container uses them: that of sandboxes.
    pub kept: Vec<String>,
    /// Takes events about the node.
    pub events: Arc<dyn Fn(Note) + Send + Sync>,
    times: HashMap<String, ImageTimes>,
}

/// The images that no container uses and that may be removed.
pub fn unused<'a>(
    images: &'a [ImageInfo],
    containers: &[ContainerInfo],
    kept: &[String],
) -> Vec<&'a ImageInfo> {
    let used: BTreeSet<&str> = containers.iter().flat_map(|it| [&*it.image, &*it.image_ref]).collect();
    let is_used = |image: &ImageInfo| {
        let mut names = image.tags.iter().chain(&image.digests).chain([&image.id]);
        image.is_pinned || names.any(|name| used.contains(&**name) || kept.contains(name))
    };
    images.iter().filter(|image| !is_used(image)).collect()
}

impl ImageCollector {
    pub fn new(
        runtime: SharedRuntime,
        world: World,
        thresholds: ImageThresholds,
        kept: Vec<String>,
        events: Arc<dyn Fn(Note) + Send + Sync>,
    ) -> Self {
        ImageCollector { runtime, world, thresholds, kept, events, times: HashMap::new() }
    }

    /// Runs until the task is dropped.
    pub async fn run(mut self) {
        let mut is_first = true;
        loop {
            let path = match self.runtime.image_fs().await {
                Ok(found) => found.into_iter().next().map(|it| it.mountpoint),
                Err(_) => None,
            };
            let usage = path.and_then(|path| crate::stats::filesystem(Path::new(&path)));
            self.collect(usage.as_ref(), std::mem::take(&mut is_first)).await;
            env::sleep(&self.world, INTERVAL).await;
        }
    }

    async fn collect(&mut self, usage: Option<&FilesystemUsage>, is_first: bool) {
        let (Ok(images), Ok(containers)) = (self.runtime.images().await, self.runtime.containers(None).await)
        else {
            return;
        };
        let now = self.world.elapsed();
        let unused = unused(&images, &containers, &self.kept);
        self.note(&images, &unused, now, is_first);
        let Some(wanted) = usage.and_then(|usage| self.thresholds.bytes_to_free(usage)) else { return };
        let mut freed = 0;
        for image in self.candidates(&unused, now) {
            if freed >= wanted {
                break;
            }
            match self.runtime.remove_image(&image.id).await {
                Ok(()) => freed += image.size,
                Err(why) => tracing::warn!(image = image.id, %why, "an unused image was not removed"),
            }
        }
        if freed < wanted {
            let message = format!(
                "Failed to garbage collect required amount of images. Attempted to free {wanted} bytes, but only found \
                 {freed} bytes eligible to free."
            );
            (self.events)(Note::warning("FreeDiskSpaceFailed", message));
        }
    }

    /// Notes when images were seen.
    fn note(&mut self, images: &[ImageInfo], unused: &[&ImageInfo], now: Duration, is_first: bool) {
        let unused: BTreeSet<&str> = unused.iter().map(|it| &*it.id).collect();
        let before = std::mem::take(&mut self.times);
        for image in images {
            let new = ImageTimes { first_seen: (!is_first).then_some(now), last_used: None };
            let mut times = before.get(&image.id).copied().unwrap_or(new);
            if !unused.contains(&*image.id) {
                times.last_used = Some(now);
            }
            self.times.insert(image.id.clone(), times);
        }
    }

    /// The images that may go, in this order.
    fn candidates<'a>(&self, unused: &[&'a ImageInfo], now: Duration) -> Vec<&'a ImageInfo> {
        let age = |times: &ImageTimes| times.first_seen.map_or(Duration::MAX, |at| now.saturating_sub(at));
        let times =
            |image: &ImageInfo| self.times.get(&image.id).filter(|it| age(it) >= self.thresholds.min_age);
        let mut old: Vec<(&ImageTimes, &ImageInfo)> =
            unused.iter().filter_map(|image| Some((times(image)?, *image))).collect();
        old.sort_by_key(|(times, _)| (times.last_used, times.first_seen));
        old.into_iter().map(|(_, image)| image).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::simulated::SimulatedRuntime;
    use env::Simulated;

    fn image(id: &str, size: u64) -> ImageInfo {
        ImageInfo { id: id.to_owned(), size, ..ImageInfo::default() }
    }

    const THRESHOLDS: ImageThresholds =
        ImageThresholds { high: 85, low: 80, min_age: Duration::from_secs(120) };

    #[test]
    fn a_full_filesystem_is_freed_to_the_low_threshold() {
        let check = |available, expected| {
            let usage = FilesystemUsage { available, capacity: 1000, ..FilesystemUsage::default() };
            assert_eq!(THRESHOLDS.bytes_to_free(&usage), expected, "{available}");
        };
        check(160, None);
        // the free percent is rounded down
        check(159, Some(41));
        check(150, Some(50));
        check(0, Some(200));
        let never = ImageThresholds { high: 100, ..THRESHOLDS };
        let usage = FilesystemUsage { available: 0, capacity: 1000, ..FilesystemUsage::default() };
        assert_eq!(never.bytes_to_free(&usage), None);
        assert_eq!(THRESHOLDS.bytes_to_free(&FilesystemUsage::default()), None);
    }

    #[test]
    fn images_that_were_unused_for_long_go_first() {
        let clock = Simulated::new(0, 1);
        let runtime = Arc::new(SimulatedRuntime::new(clock.clone()));
        let mut collector =
            ImageCollector::new(runtime, clock, THRESHOLDS, vec!["pause".to_owned()], Arc::new(|_| {}));
        let mut images = vec![image("a", 1), image("b", 2), image("pause", 3)];
        let uses =
            |name: &str| vec![ContainerInfo { image_ref: name.to_owned(), ..ContainerInfo::default() }];
        let at = Duration::from_secs;
        collector.note(&images, &unused(&images, &uses("a"), &collector.kept), at(300), true);
        images.push(image("new", 4));
        let left = unused(&images, &[], &collector.kept.clone());
        collector.note(&images, &left, at(600), false);
        let ids = |now| collector.candidates(&left, now).iter().map(|it| it.id.clone()).collect::<Vec<_>>();
        assert_eq!(ids(at(700)), ["b", "a"], "a new image stays for a while");
        assert_eq!(ids(at(720)), ["b", "new", "a"]);
    }
}
