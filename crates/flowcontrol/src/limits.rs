//! How many seats each level has: its share of all, and what others lend it.

/// A level as its owner set it up.
#[derive(Debug, Clone, PartialEq)]
pub struct Share {
    pub shares: u32,
    /// Of its seats, how many percent others may use while it does not.
    pub lendable_percent: u32,
    /// How many percent of its own it may borrow at the most; without one there is no such limit.
    pub borrowing_percent: Option<u32>,
}

/// What follows from that for a server with so many seats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    pub nominal: u32,
    /// What is never lent.
    pub least: u32,
    /// With all that may be borrowed.
    pub most: u32,
}

/// The seats of every level, given those of the server.
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

/// What a level was seen to want.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    pub bounds: Bounds,
    /// The most of the last while.
    pub most: u32,
    /// A smooth estimate.
    pub smooth: f64,
}

impl Wanted {
    fn least(&self) -> f64 {
        f64::from(self.bounds.least.max(self.bounds.nominal.min(self.most)))
    }

    /// The seats that it should have, if there were enough.
    pub fn target(&self) -> f64 {
        self.smooth.max(self.least())
    }
}

/// The limits of the next while, and the part of its target that every level gets within its bounds: nobody gets less than what is kept for it or what it used of its own, and the
/// rest goes to all by what they want, within their bounds.
pub fn lend(levels: &[Wanted], server: u32) -> (f64, Vec<u32>) {
    let least: Vec<f64> = levels.iter().map(Wanted::least).collect();
    let most: Vec<f64> =
        levels.iter().zip(&least).map(|(level, least)| f64::from(level.bounds.most).max(*least)).collect();
    let target: Vec<f64> = levels.iter().map(Wanted::target).collect();
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
    // what everybody gets grows with the fraction: the one that uses everything up is found by halving
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
            let wanted = |at: usize, most: u32| Wanted { bounds: seats[at], most, smooth: most.into() };
            lend(&[wanted(0, first), wanted(1, second)], 100).1
        };
        // nobody wants anything: the seats are where they belong
        assert_eq!(want(0, 0), [50, 50]);
        // one wants all: it gets what the other does not need and may lend
        assert_eq!(want(500, 0), [75, 25]);
        // the other may borrow no more than a fifth
        assert_eq!(want(0, 500), [40, 60]);
        // both want all: each has its own
        assert_eq!(want(500, 500), [50, 50]);
    }
}
