//! Periodic ticks by the clock of a world.

use std::time::Duration;

use crate::{Upkeep, World};

/// Ticks at once, and then one period after the tick before: a late tick delays the next ones, and after a jump of the
/// clock one tick stands for all that were missed.
pub struct Interval {
    world: World,
    period: Duration,
    next: Duration,
    upkeep: Option<Upkeep>,
}

impl Interval {
    /// Starts now. A period of zero is one nanosecond, so that time passes.
    pub fn new(world: &World, period: Duration) -> Self {
        let period = period.max(Duration::from_nanos(1));
        Self { world: world.clone(), period, next: world.elapsed(), upkeep: None }
    }

    /// The same for [`Upkeep`]. A late tick does not delay the next ones: each comes a number of periods after the first.
    pub fn upkeep(world: &World, upkeep: Upkeep) -> Self {
        Self { upkeep: Some(upkeep), ..Self::new(world, upkeep.period) }
    }

    /// Makes the next tick due now.
    pub fn reset_immediately(&mut self) {
        self.next = self.world.elapsed();
    }

    /// Waits for the next tick. A call that is dropped before it completes loses no tick.
    pub async fn tick(&mut self) {
        match self.upkeep {
            None => self.world.sleep_until(self.next).await,
            Some(upkeep) => self.world.sleep_upkeep_until(self.next, upkeep).await,
        }
        let now = self.world.elapsed();
        self.next = match self.upkeep {
            None => now.saturating_add(self.period),
            Some(upkeep) => upkeep.next_tick(self.next, now),
        };
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::{Seeded, Simulated};

    const SECOND: Duration = Duration::from_secs(1);

    fn ticks(interval: &mut Interval) -> usize {
        std::iter::repeat_with(|| interval.tick().now_or_never()).take_while(Option::is_some).count()
    }

    #[test]
    fn an_interval_ticks_at_once_and_then_once_per_period() {
        let simulated = Simulated::new(0, 0);
        let world: World = simulated.clone();
        let mut interval = Interval::new(&world, SECOND * 10);
        assert_eq!(ticks(&mut interval), 1);
        simulated.advance(SECOND * 9);
        assert_eq!(ticks(&mut interval), 0);
        simulated.advance(SECOND);
        assert_eq!(ticks(&mut interval), 1);
    }

    #[test]
    fn one_tick_stands_for_all_that_were_missed() {
        let simulated = Simulated::new(0, 0);
        let world: World = simulated.clone();
        let mut interval = Interval::new(&world, SECOND * 10);
        assert_eq!(ticks(&mut interval), 1);
        simulated.advance(SECOND * 35);
        assert_eq!(ticks(&mut interval), 1);
        simulated.advance(SECOND * 5);
        assert_eq!(ticks(&mut interval), 0, "the next comes a period after the late one");
        interval.reset_immediately();
        assert_eq!(ticks(&mut interval), 1);
    }

    #[test]
    fn a_late_tick_of_upkeep_does_not_delay_the_next_ones() {
        let simulated = Simulated::new(0, 0);
        let world: World = simulated.clone();
        let mut interval = Interval::upkeep(&world, Upkeep::check(SECOND * 10));
        assert_eq!(ticks(&mut interval), 1);
        simulated.advance(SECOND * 35);
        assert_eq!(ticks(&mut interval), 1);
        simulated.advance(SECOND * 4);
        assert_eq!(ticks(&mut interval), 0);
        simulated.advance(SECOND);
        assert_eq!(ticks(&mut interval), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_interval_follows_the_paused_clock_of_tokio() {
        let world: World = Seeded::new(0, 0);
        let mut interval = Interval::new(&world, SECOND);
        for _ in 0..4 {
            interval.tick().await;
        }
        assert_eq!(world.elapsed(), SECOND * 3);
    }
}
