//! Concurrency limits: each level's share of the server's seats, and the lending between levels.

/// The configured shares of a level.
#[derive(Debug, Clone, PartialEq)]
pub struct Share {
    pub shares: u32,
    /// The percentage of its seats that other levels may borrow.
    pub lendable_percent: u32,
    /// The percentage of its nominal seats that it may borrow at most; `None` for no limit.
    pub borrowing_percent: Option<u32>,
}

/// The resulting bounds for a server with a number of seats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    pub nominal: u32,
    /// Seats that are never lent.
    pub least: u32,
    /// Nominal seats plus the most that may be borrowed.
    pub most: u32,
}

/// The bounds of every level, given the server's seats.
pub fn bounds(levels: &[Share], server: u32) -> Vec<Bounds> {
    let all: u64 = levels.iter().map(|level| u64::from(level.shares)).sum();
    let of = |level: &Share| {
        let nominal = (u64::from(server) * u64::from(level.shares)).div_ceil(all.max(1)) as u32;
        let percent = |percent: u32| (f64::from(nominal) * f64::from(percent) / 100.0).round() as u32;
        let lendable = percent(level.lendable_percent.min(100));
        let most = level.borrowing_percent.map_or(server, |limit| nominal.saturating_add(percent(limit)));
        Bounds { nominal, least: nominal - lendable, most: most.max(nominal) }
    };
    levels.iter().map(of).collect()
}

/// The observed demand of a level.
#[derive(Debug, Clone, Copy)]
pub struct LevelDemand {
    pub bounds: Bounds,
    /// The highest demand of the last interval.
    pub most: u32,
    /// The smoothed estimate.
    pub smooth: f64,
}

impl LevelDemand {
    fn least(&self) -> f64 {
        f64::from(self.bounds.least.max(self.bounds.nominal.min(self.most)))
    }

    /// The target: the seats that it should have if there were enough.
    pub fn target(&self) -> f64 {
        self.smooth.max(self.least())
    }
}

/// The limits of the next interval, and the fraction of its target that every level gets within its bounds: no
/// level gets less than its minimum or than it used of its own seats, and the rest is divided by demand, within the
/// bounds.
pub fn lend(levels: &[LevelDemand], server: u32) -> (f64, Vec<u32>) {
    let least: Vec<f64> = levels.iter().map(LevelDemand::least).collect();
    let most: Vec<f64> =
        levels.iter().zip(&least).map(|(level, least)| f64::from(level.bounds.most).max(*least)).collect();
    let target: Vec<f64> = levels.iter().map(LevelDemand::target).collect();
    let server = f64::from(server);
    let given = |fraction: f64| -> Vec<f64> {
        let each = (0..levels.len()).map(|at| (fraction * target[at]).max(least[at]).min(most[at]));
        each.collect()
    };
    let total = |seats: &[f64]| seats.iter().sum::<f64>();
    let rounded = |seats: Vec<f64>| seats.into_iter().map(|seats| seats.round().max(1.0) as u32).collect();
    if total(&least) >= server {
        return (0.0, rounded(least));
    }
    // the total grows with the fraction: bisect for the one that uses all seats
    let (mut low, mut high) = (0.0, server.max(1.0));
    if total(&given(high)) <= server {
        return (high, rounded(given(high)));
    }
    for _ in 0..64 {
        let middle = (low + high) / 2.0;
        if total(&given(middle)) > server {
            high = middle;
        } else {
            low = middle;
        }
    }
    (low, rounded(given(low)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(shares: u32, lendable_percent: u32, borrowing_percent: Option<u32>) -> Share {
        Share { shares, lendable_percent, borrowing_percent }
    }

    #[test]
    fn shares_become_seats() {
        let levels = [share(30, 33, None), share(40, 25, Some(50)), share(5, 0, None)];
        let found = bounds(&levels, 600);
        assert_eq!(found[0], Bounds { nominal: 240, least: 161, most: 600 });
        assert_eq!(found[1], Bounds { nominal: 320, least: 240, most: 480 });
        assert_eq!(found[2], Bounds { nominal: 40, least: 40, most: 600 });
        assert_eq!(bounds(&[share(0, 0, None)], 600)[0].nominal, 0);
    }

    #[test]
    fn idle_seats_are_lent_and_come_back() {
        let levels = [share(50, 50, None), share(50, 50, Some(20))];
        let seats = bounds(&levels, 100);
        let want = |first: u32, second: u32| {
            let wanted = |at: usize, most: u32| LevelDemand { bounds: seats[at], most, smooth: most.into() };
            lend(&[wanted(0, first), wanted(1, second)], 100).1
        };
        // no demand: every level has its nominal seats
        assert_eq!(want(0, 0), [50, 50]);
        // one level needs all: it gets the lendable seats of the other
        assert_eq!(want(500, 0), [75, 25]);
        // the other may borrow at most a fifth
        assert_eq!(want(0, 500), [40, 60]);
        // both need all: each has its nominal seats
        assert_eq!(want(500, 500), [50, 50]);
    }
}
