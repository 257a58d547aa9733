//! The pressures of a node over time: a state machine over observations.
//!
//! ```text
//! observation below a threshold -> pressure, kept for the transition period after the last such observation
//!                               -> after its grace period the threshold is to be acted on
//! ```
//!
//! A threshold that was passed is left when the minimum reclaim is available, too.

use super::thresholds::{Observations, Pressure, Threshold};
use std::collections::BTreeMap;
use std::time::Duration;

/// See the module. Times are those of the monotonic clock.
#[derive(Debug, Default)]
pub struct PressureState {
    /// When a threshold was passed, by its index.
    passed_at: BTreeMap<usize, Duration>,
    last_seen: BTreeMap<Pressure, Duration>,
}

/// What follows from an observation.
#[derive(Debug, Clone, PartialEq)]
pub struct PressureReport {
    pub pressures: Vec<Pressure>,
    /// The thresholds to act on, in the order in which they are configured.
    pub actionable: Vec<Threshold>,
}

impl PressureState {
    /// Takes an observation.
    pub fn observe(
        &mut self,
        thresholds: &[Threshold],
        observations: &Observations,
        transition: Duration,
        now: Duration,
    ) -> PressureReport {
        let mut actionable = Vec::new();
        for (index, threshold) in thresholds.iter().enumerate() {
            let was_passed = self.passed_at.contains_key(&index);
            if !threshold.is_passed(observations, was_passed) {
                self.passed_at.remove(&index);
                continue;
            }
            let since = *self.passed_at.entry(index).or_insert(now);
            self.last_seen.insert(threshold.signal.pressure(), now);
            if now.saturating_sub(since) >= threshold.grace.unwrap_or_default() {
                actionable.push(*threshold);
            }
        }
        self.last_seen.retain(|_, at| *at == now || now.saturating_sub(*at) < transition);
        PressureReport { pressures: self.last_seen.keys().copied().collect(), actionable }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eviction::thresholds::{Amount, Observation, Signal};

    fn observations(memory: u64) -> Observations {
        Observations::from([(Signal::Memory, Observation { available: memory, capacity: 1000 })])
    }

    #[test]
    fn pressures_begin_and_end() {
        let hard = Threshold {
            signal: Signal::Memory,
            amount: Amount::Absolute(100),
            grace: None,
            reclaim: Some(Amount::Absolute(50)),
        };
        let soft = Threshold {
            amount: Amount::Share(0.2),
            grace: Some(Duration::from_secs(60)),
            reclaim: None,
            ..hard
        };
        let mut state = PressureState::default();
        let mut check = |memory: u64, at: u64, has_pressure: bool, actionable: &[Threshold]| {
            let transition = Duration::from_secs(300);
            let thresholds = [hard, soft];
            let now = Duration::from_secs(at);
            let report = state.observe(&thresholds, &observations(memory), transition, now);
            assert_eq!(
                report.pressures,
                if has_pressure { vec![Pressure::Memory] } else { Vec::new() },
                "{at}"
            );
            assert_eq!(report.actionable, actionable, "{at}");
        };
        check(500, 0, false, &[]);
        check(150, 10, true, &[]);
        check(199, 60, true, &[]);
        check(199, 70, true, &[soft]);
        check(99, 80, true, &[hard, soft]);
        // not enough is reclaimed yet
        check(120, 90, true, &[hard, soft]);
        check(200, 100, true, &[]);
        check(120, 110, true, &[]);
        check(500, 409, true, &[]);
        check(500, 410, false, &[]);
    }
}
