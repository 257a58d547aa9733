//! Compaction by itself: of what is older than a time, or than a number of revisions.

use std::collections::VecDeque;
use std::time::Duration;

use env::World;

use crate::engine::Engine;
use crate::error::Error;

/// How often revisions are counted.
const REVISION_INTERVAL: Duration = Duration::from_secs(300);
/// The parts into which a time of retention is divided, and the longest of them.
const SAMPLES: u32 = 10;
const MAX_INTERVAL: Duration = Duration::from_secs(360);

/// The history that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    Time(Duration),
    Revisions(i64),
}

impl Retention {
    fn interval(self) -> Duration {
        match self {
            Self::Time(time) => (time / SAMPLES).clamp(Duration::from_secs(1), MAX_INTERVAL),
            Self::Revisions(_) => REVISION_INTERVAL,
        }
    }
}

/// Compacts until it is dropped.
pub async fn run(engine: &Engine, retention: Retention, world: &World) {
    let mut samples = VecDeque::new();
    loop {
        env::sleep(world, retention.interval()).await;
        let current = engine.shared().state.read().revision;
        let Some(revision) = due(retention, &mut samples, current, world.elapsed()) else { continue };
        match engine.write(move |writer| writer.compact(revision)).await {
            Ok(_) => tracing::info!(revision, "the history was compacted"),
            // it was compacted by a client, or not a single revision is old enough
            Err(Error::Compacted | Error::FutureRevision) => {}
            Err(error) => tracing::warn!(%error, revision, "the history cannot be compacted"),
        }
    }
}

/// The revision to compact at. `samples` are the revisions of earlier times.
fn due(
    retention: Retention,
    samples: &mut VecDeque<(Duration, i64)>,
    current: i64,
    now: Duration,
) -> Option<i64> {
    match retention {
        Retention::Revisions(kept) => Some(current - kept).filter(|revision| *revision > 0),
        Retention::Time(kept) => {
            samples.push_back((now, current));
            let mut revision = None;
            while let Some((at, sample)) = samples.front().copied() {
                if now.saturating_sub(at) < kept {
                    break;
                }
                revision = Some(sample);
                samples.pop_front();
            }
            revision
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_revisions_are_due() {
        let hour = Duration::from_secs(3600);
        let mut samples = VecDeque::new();
        let mut due = |current, minutes: u64| {
            due(Retention::Time(hour), &mut samples, current, Duration::from_secs(60 * minutes))
        };
        assert_eq!([due(10, 0), due(20, 30), due(30, 59)], [None; 3]);
        assert_eq!([due(40, 60), due(50, 95)], [Some(10), Some(20)]);
        let revisions = |current| super::due(Retention::Revisions(100), &mut VecDeque::new(), current, hour);
        assert_eq!((revisions(100), revisions(150)), (None, Some(50)));
    }
}
