//! The versions that an operation can have met, by the order of calls and returns.

use super::timeline::Timeline;
use crate::history::{History, Operation, Outcome, Point, Version};

/// See the module.
#[derive(Debug)]
pub struct Bounds {
    /// Ends of operations and events of watches, and the newest version that was known then.
    known: Vec<(Point, Version)>,
    /// Begins of writes, and the oldest version that this or a later write made.
    made: Vec<(Point, Version)>,
}

impl Bounds {
    pub fn of(history: &History, timeline: &Timeline) -> Self {
        let seen = history.watches.iter().flat_map(|it| &it.notices);
        let mut known: Vec<_> = seen.map(|it| (it.at, it.notice.version())).collect();
        let mut made = Vec::new();
        for operation in &history.operations {
            let is_write = operation.call.value().is_some();
            match &operation.outcome {
                Outcome::Object(object) => {
                    known.push((operation.end, object.version));
                    if is_write {
                        made.push((operation.begin, object.version));
                    }
                }
                Outcome::List { version, .. } => known.push((operation.end, *version)),
                Outcome::Deleted(uids) => {
                    let versions = uids.iter().filter_map(|uid| timeline.deletion(uid));
                    known.extend(versions.map(|version| (operation.end, version)));
                }
                Outcome::Absent | Outcome::Refused(_) | Outcome::Unknown => {}
            }
        }
        known.sort_unstable();
        let mut newest = 0;
        for (_, version) in &mut known {
            newest = newest.max(*version);
            *version = newest;
        }
        made.sort_unstable();
        let mut oldest = Version::MAX;
        for (_, version) in made.iter_mut().rev() {
            oldest = oldest.min(*version);
            *version = oldest;
        }
        Bounds { known, made }
    }

    /// The versions at which an operation on the newest state can have happened: from the first, before the second.
    pub fn of_operation(&self, operation: &Operation) -> (Version, Version) {
        (self.newest_before(operation.begin), self.oldest_after(operation.end))
    }

    /// The newest version that some client had met before this point.
    pub fn newest_before(&self, point: Point) -> Version {
        let count = self.known.partition_point(|(end, _)| *end < point);
        count.checked_sub(1).and_then(|at| self.known.get(at)).map_or(0, |(_, version)| *version)
    }

    /// The oldest version of a write that began after this point.
    pub fn oldest_after(&self, point: Point) -> Version {
        let count = self.made.partition_point(|(begin, _)| *begin <= point);
        self.made.get(count).map_or(Version::MAX, |(_, version)| *version)
    }
}
