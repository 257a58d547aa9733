//! Upkeep: periodic work whose effect cannot be seen if nothing else happens meanwhile.
//!
//! On a real clock its timers are ordinary ones. A [`Paused`](crate::Paused) clock that has nothing else to do coasts: it
//! leaves out ticks of upkeep. After it each timer is as if no tick had been left out, because
//!
//! - ticks are left out in whole periods, so that those that remain come at their usual times;
//! - a renewal keeps its last tick, and a check its first one after that, so that no check finds a lease that would have
//!   been renewed:
//!
//! ```text
//!                       until
//! renewal, 10 s   x x x x r │ r   r      x left out    r, c fires
//! check, 5 s      xxxxxxxxx │c c c c c
//! check, 1 h         x    x c               once for those that were left out: the next one may be far
//! ```

use std::time::Duration;

/// A clock stops coasting so long before the next ordinary deadline. It is longer than the period of a usual renewal and
/// of a check for it together, so that what a check remembers of the last renewal is as usual, too.
pub(crate) const LANDING: Duration = Duration::from_secs(20);

/// What a timer of upkeep is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rank {
    /// Keeps something alive: renews a lease, reports a status.
    Renewal,
    /// Checks for something, or corrects it: finds leases that have expired, compares objects with what they should be.
    Check,
}

/// A kind of timer. See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upkeep {
    pub rank: Rank,
    pub period: Duration,
}

impl Upkeep {
    pub const fn renewal(period: Duration) -> Self {
        Upkeep { rank: Rank::Renewal, period }
    }

    pub const fn check(period: Duration) -> Self {
        Upkeep { rank: Rank::Check, period }
    }

    /// The first time after `now` that is a number of periods after a tick.
    pub fn next_tick(&self, tick: Duration, now: Duration) -> Duration {
        let period = self.period.max(Duration::from_nanos(1));
        let into = now.saturating_sub(tick).as_nanos() % period.as_nanos();
        let last =
            now.max(tick).saturating_sub(Duration::from_nanos(u64::try_from(into).unwrap_or(u64::MAX)));
        last.saturating_add(period)
    }

    /// The first tick after `now` of a timer that is due at `deadline`, or was put off until then.
    pub(crate) fn first_tick(&self, deadline: Duration, now: Duration) -> Duration {
        let ahead = deadline.saturating_sub(now).as_nanos();
        let period = self.period.as_nanos().max(1);
        let put_off = ahead.saturating_sub(1) / period * period;
        deadline.saturating_sub(Duration::from_nanos(u64::try_from(put_off).unwrap_or(u64::MAX)))
    }

    /// The first tick that remains of a timer that is due at `deadline` if ticks up to `until` are left out.
    pub(crate) fn remaining_tick(&self, deadline: Duration, until: Duration) -> Duration {
        if deadline > until {
            return deadline;
        }
        let next = self.next_tick(deadline, until);
        match self.rank {
            Rank::Renewal => next.saturating_sub(self.period),
            // its next tick may come after the landing
            Rank::Check if self.period > LANDING => until,
            Rank::Check => next,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn remaining(rank: Rank, period: u32, deadline: u32, until: u32) -> u64 {
        Upkeep { rank, period: SECOND * period }.remaining_tick(SECOND * deadline, SECOND * until).as_secs()
    }

    #[test]
    fn renewals_keep_their_last_tick() {
        assert_eq!(remaining(Rank::Renewal, 10, 3, 100), 93);
        assert_eq!(remaining(Rank::Renewal, 10, 10, 100), 100);
        assert_eq!(remaining(Rank::Renewal, 300, 50, 100), 50);
        assert_eq!(remaining(Rank::Renewal, 10, 101, 100), 101);
    }

    #[test]
    fn ticks_that_were_put_off_come_back() {
        let first = |period: u32, deadline: u32, now: u32| {
            Upkeep::check(SECOND * period).first_tick(SECOND * deadline, SECOND * now).as_secs()
        };
        assert_eq!(first(10, 93, 50), 53);
        assert_eq!(first(10, 90, 50), 60);
        assert_eq!(first(10, 55, 50), 55, "it was not put off");
        assert_eq!(first(10, 60, 50), 60);
        assert_eq!(first(10, 40, 50), 40, "it is due");
    }

    #[test]
    fn checks_keep_the_tick_after_it_or_come_once() {
        assert_eq!(remaining(Rank::Check, 5, 3, 100), 103);
        assert_eq!(remaining(Rank::Check, 5, 5, 100), 105);
        assert_eq!(remaining(Rank::Check, 3600, 50, 100), 100);
        assert_eq!(remaining(Rank::Check, 3600, 150, 100), 150);
        assert_eq!(remaining(Rank::Check, 0, 50, 100), 100, "without a period it is always due");
    }
}
