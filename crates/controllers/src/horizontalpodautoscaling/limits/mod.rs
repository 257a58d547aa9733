//! Limits of recommendations: stabilization, scaling policies, minimum and maximum.
//!
//! The history holds the recent recommendations and changes of one autoscaler; a restart forgets it and begins with the
//! current number of replicas.

use super::options::Options;
use api::autoscaling::v2::{HPAScalingRules, HorizontalPodAutoscalerBehavior};
use std::collections::VecDeque;
use std::time::Duration;

/// Without a behavior the replicas at most double at a time, or become this many.
const SMALL: i32 = 4;

/// Recent recommendations and changes of the replicas, with the time of a monotonic clock.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct History {
    recommended: VecDeque<(Duration, i32)>,
    ups: VecDeque<(Duration, i32)>,
    downs: VecDeque<(Duration, i32)>,
}

/// The number of replicas within the limits, and the conditions that report it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LimitOutcome {
    pub replicas: i32,
    /// Reason and message of `AbleToScale`.
    pub able: (&'static str, &'static str),
    /// Status, reason and message of `ScalingLimited`.
    pub limited: (bool, &'static str, &'static str),
}

/// The current number of replicas, and its bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    pub current: i32,
    pub least: i32,
    pub most: i32,
}

const LOWER: (&str, &str) = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
);
const HIGHER: (&str, &str) = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent recommendation",
);
const READY: (&str, &str) = ("ReadyForNewScale", "recommended size matches current size");
const TOO_FEW: (&str, &str) =
    ("TooFewReplicas", "the desired replica count is less than the minimum replica count");
const TOO_MANY: (&str, &str) =
    ("TooManyReplicas", "the desired replica count is more than the maximum replica count");
const TOO_FAST_UP: (&str, &str) =
    ("ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate");
const TOO_FAST_DOWN: (&str, &str) =
    ("ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate");
const WITHIN: (&str, &str) = ("DesiredWithinRange", "the desired count is within the acceptable range");

impl History {
    /// Begins an empty history with the current number as recommendation.
    pub fn begin(&mut self, current: i32, now: Duration) {
        if self.recommended.is_empty() {
            self.recommended.push_back((now, current));
        }
    }

    /// Limits a recommendation.
    pub fn limit(
        &mut self,
        recommended: i32,
        range: Range,
        behavior: Option<&HorizontalPodAutoscalerBehavior>,
        options: &Options,
        now: Duration,
    ) -> LimitOutcome {
        let (stable, able) = match behavior {
            None => self.stabilize(recommended, options, now),
            Some(behavior) => self.stabilize_by_rules(recommended, range, behavior, options, now),
        };
        let (replicas, (reason, message)) = match behavior {
            None => clamp(stable, range),
            Some(behavior) => self.pace(stable, range, behavior, now),
        };
        LimitOutcome { replicas, able, limited: (replicas != stable, reason, message) }
    }

    /// Records a change of the replicas.
    pub fn record_change(
        &mut self,
        from: i32,
        to: i32,
        behavior: Option<&HorizontalPodAutoscalerBehavior>,
        now: Duration,
    ) {
        let Some(behavior) = behavior else { return };
        let (changes, rules) = match to > from {
            true => (&mut self.ups, &behavior.scale_up),
            false => (&mut self.downs, &behavior.scale_down),
        };
        let longest = rules.iter().flat_map(|it| &it.policies).map(|it| it.period_seconds).max().unwrap_or(0);
        forget(changes, now, seconds(longest));
        changes.push_back((now, to.saturating_sub(from).saturating_abs()));
    }

    fn recommend(&mut self, recommended: i32, keep: Duration, now: Duration) {
        forget(&mut self.recommended, now, keep);
        self.recommended.push_back((now, recommended));
    }

    fn stabilize(
        &mut self,
        recommended: i32,
        options: &Options,
        now: Duration,
    ) -> (i32, (&'static str, &'static str)) {
        let window = options.downscale_stabilization;
        let highest =
            since(&self.recommended, now, window).max().map_or(recommended, |it| it.max(recommended));
        self.recommend(recommended, window, now);
        (highest, if highest == recommended { READY } else { HIGHER })
    }

    fn stabilize_by_rules(
        &mut self,
        recommended: i32,
        range: Range,
        behavior: &HorizontalPodAutoscalerBehavior,
        options: &Options,
        now: Duration,
    ) -> (i32, (&'static str, &'static str)) {
        let window = |rules: Option<&HPAScalingRules>, otherwise: Duration| {
            rules.and_then(|it| it.stabilization_window_seconds).map_or(otherwise, seconds)
        };
        let up = window(behavior.scale_up.as_deref(), Duration::ZERO);
        let down = window(behavior.scale_down.as_deref(), options.downscale_stabilization);
        let lowest = since(&self.recommended, now, up).min().map_or(recommended, |it| it.min(recommended));
        let highest = since(&self.recommended, now, down).max().map_or(recommended, |it| it.max(recommended));
        self.recommend(recommended, up.max(down), now);
        let stable = range.current.max(lowest).min(highest);
        let why = if recommended >= range.current { LOWER } else { HIGHER };
        (stable, if stable == recommended { READY } else { why })
    }

    /// Limits a recommendation to the rate of the scaling policies.
    fn pace(
        &self,
        recommended: i32,
        range: Range,
        behavior: &HorizontalPodAutoscalerBehavior,
        now: Duration,
    ) -> (i32, (&'static str, &'static str)) {
        let current = range.current;
        if recommended > current {
            let limit = self.highest(current, behavior.scale_up.as_deref(), now).max(current);
            let (most, why) = if range.most > limit { (limit, TOO_FAST_UP) } else { (range.most, TOO_MANY) };
            if recommended > most {
                return (most, why);
            }
        } else if recommended < current {
            let limit = self.lowest(current, behavior.scale_down.as_deref(), now).min(current);
            let (least, why) =
                if range.least < limit { (limit, TOO_FAST_DOWN) } else { (range.least, TOO_FEW) };
            if recommended < least {
                return (least, why);
            }
        }
        (recommended, WITHIN)
    }

    /// The number of replicas when a period began.
    fn before(&self, current: i32, period: i32, now: Duration) -> i32 {
        let sum = |events| since(events, now, seconds(period)).fold(0i32, i32::saturating_add);
        let (added, removed) = (sum(&self.ups), sum(&self.downs));
        current.saturating_sub(added).saturating_add(removed)
    }

    /// The highest number of replicas that the policies allow.
    fn highest(&self, current: i32, rules: Option<&HPAScalingRules>, now: Duration) -> i32 {
        let Some(rules) = rules else { return i32::MAX };
        let limits = rules.policies.iter().map(|policy| {
            let before = self.before(current, policy.period_seconds, now);
            match &*policy.type_ {
                "Pods" => before.saturating_add(policy.value),
                _ => (f64::from(before) * (1.0 + f64::from(policy.value) / 100.0)).ceil() as i32,
            }
        });
        match rules.select_policy.as_deref() {
            Some("Disabled") => current,
            Some("Min") => limits.min().unwrap_or(i32::MAX),
            _ => limits.max().unwrap_or(i32::MAX),
        }
    }

    /// The lowest number of replicas that the policies allow.
    fn lowest(&self, current: i32, rules: Option<&HPAScalingRules>, now: Duration) -> i32 {
        let Some(rules) = rules else { return 0 };
        let limits = rules.policies.iter().map(|policy| {
            let before = self.before(current, policy.period_seconds, now);
            match &*policy.type_ {
                "Pods" => before.saturating_sub(policy.value),
                _ => (f64::from(before) * (1.0 - f64::from(policy.value) / 100.0)) as i32,
            }
        });
        // the smallest change leaves the most replicas
        match rules.select_policy.as_deref() {
            Some("Disabled") => current,
            Some("Min") => limits.max().unwrap_or(0),
            _ => limits.min().unwrap_or(0),
        }
    }
}

fn seconds(number: i32) -> Duration {
    Duration::from_secs(u64::try_from(number).unwrap_or(0))
}

/// The values of the events within a window.
fn since(events: &VecDeque<(Duration, i32)>, now: Duration, window: Duration) -> impl Iterator<Item = i32> {
    events.iter().filter(move |(at, _)| now.saturating_sub(*at) < window).map(|(_, value)| *value)
}

/// Drops the events older than `keep`.
fn forget(events: &mut VecDeque<(Duration, i32)>, now: Duration, keep: Duration) {
    while events.front().is_some_and(|(at, _)| now.saturating_sub(*at) >= keep) {
        events.pop_front();
    }
}

/// Limits without a behavior: the range, and at most twice the current number.
fn clamp(recommended: i32, range: Range) -> (i32, (&'static str, &'static str)) {
    let fast = range.current.saturating_mul(2).max(SMALL);
    let (most, why) = if range.most > fast { (fast, TOO_FAST_UP) } else { (range.most, TOO_MANY) };
    if recommended < range.least {
        (range.least, TOO_FEW)
    } else if recommended > most {
        (most, why)
    } else {
        (recommended, WITHIN)
    }
}

#[cfg(test)]
mod tests;
