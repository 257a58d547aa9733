//! From what the metrics ask for to what is done: stabilization, limits on the pace, the smallest and the largest count.
//!
//! What was recommended and done lately is kept here, by autoscaler; a restart forgets it, and begins with the count
//! that there is.

use super::options::Options;
use k8s_openapi::api::autoscaling::v2::{HPAScalingPolicy, HPAScalingRules, HorizontalPodAutoscalerBehavior};
use std::collections::VecDeque;
use std::time::Duration;

/// Without rules the count at most doubles at a time, or becomes this.
const SMALL: i32 = 4;

/// What was recommended, and by how much the count was changed; when, by a clock that never goes back.
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
    /// Reason and message of being able to scale.
    pub able: (&'static str, &'static str),
    /// Whether a limit was met, with reason and message.
    pub limited: (bool, &'static str, &'static str),
}

/// What there is and what may be.
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
    /// The first time there is a count, it is what is recommended.
    pub fn begin(&mut self, current: i32, now: Duration) {
        if self.recommended.is_empty() {
            self.recommended.push_back((now, current));
        }
    }

    /// What is to be done about a recommendation.
    pub fn limit(
        &mut self,
        wanted: i32,
        range: Range,
        behavior: Option<&HorizontalPodAutoscalerBehavior>,
        options: &Options,
        now: Duration,
    ) -> LimitOutcome {
        let (stable, able) = match behavior {
            None => self.stabilize(wanted, options, now),
            Some(behavior) => self.stabilize_by_rules(wanted, range, behavior, options, now),
        };
        let (replicas, (reason, message)) = match behavior {
            None => clamp(stable, range),
            Some(behavior) => self.pace(stable, range, behavior, now),
        };
        LimitOutcome { replicas, able, limited: (replicas != stable, reason, message) }
    }

    /// The count was changed.
    pub fn scaled(
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
        let longest = rules.iter().flat_map(policies).map(|it| it.period_seconds).max().unwrap_or(0);
        forget(changes, now, seconds(longest));
        changes.push_back((now, to.saturating_sub(from).saturating_abs()));
    }

    fn recommend(&mut self, wanted: i32, keep: Duration, now: Duration) {
        forget(&mut self.recommended, now, keep);
        self.recommended.push_back((now, wanted));
    }

    fn stabilize(
        &mut self,
        wanted: i32,
        options: &Options,
        now: Duration,
    ) -> (i32, (&'static str, &'static str)) {
        let window = options.downscale_stabilization;
        let highest = since(&self.recommended, now, window).max().map_or(wanted, |it| it.max(wanted));
        self.recommend(wanted, window, now);
        (highest, if highest == wanted { READY } else { HIGHER })
    }

    fn stabilize_by_rules(
        &mut self,
        wanted: i32,
        range: Range,
        behavior: &HorizontalPodAutoscalerBehavior,
        options: &Options,
        now: Duration,
    ) -> (i32, (&'static str, &'static str)) {
        let window = |rules: &Option<HPAScalingRules>, otherwise: Duration| {
            rules.as_ref().and_then(|it| it.stabilization_window_seconds).map_or(otherwise, seconds)
        };
        let up = window(&behavior.scale_up, Duration::ZERO);
        let down = window(&behavior.scale_down, options.downscale_stabilization);
        let lowest = since(&self.recommended, now, up).min().map_or(wanted, |it| it.min(wanted));
        let highest = since(&self.recommended, now, down).max().map_or(wanted, |it| it.max(wanted));
        self.recommend(wanted, up.max(down), now);
        let stable = range.current.max(lowest).min(highest);
        let why = if wanted >= range.current { LOWER } else { HIGHER };
        (stable, if stable == wanted { READY } else { why })
    }

    /// No faster than the rules allow.
    fn pace(
        &self,
        wanted: i32,
        range: Range,
        behavior: &HorizontalPodAutoscalerBehavior,
        now: Duration,
    ) -> (i32, (&'static str, &'static str)) {
        let current = range.current;
        if wanted > current {
            let limit = self.highest(current, behavior.scale_up.as_ref(), now).max(current);
            let (most, why) = if range.most > limit { (limit, TOO_FAST_UP) } else { (range.most, TOO_MANY) };
            if wanted > most {
                return (most, why);
            }
        } else if wanted < current {
            let limit = self.lowest(current, behavior.scale_down.as_ref(), now).min(current);
            let (least, why) =
                if range.least < limit { (limit, TOO_FAST_DOWN) } else { (range.least, TOO_FEW) };
            if wanted < least {
                return (least, why);
            }
        }
        (wanted, WITHIN)
    }

    /// How many there were when a period began.
    fn before(&self, current: i32, period: i32, now: Duration) -> i32 {
        let sum = |events| since(events, now, seconds(period)).fold(0i32, i32::saturating_add);
        let (added, removed) = (sum(&self.ups), sum(&self.downs));
        current.saturating_sub(added).saturating_add(removed)
    }

    fn highest(&self, current: i32, rules: Option<&HPAScalingRules>, now: Duration) -> i32 {
        let Some(rules) = rules else { return i32::MAX };
        let limits = policies(rules).map(|policy| {
            let before = self.before(current, policy.period_seconds, now);
            match policy.type_.as_str() {
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

    fn lowest(&self, current: i32, rules: Option<&HPAScalingRules>, now: Duration) -> i32 {
        let Some(rules) = rules else { return 0 };
        let limits = policies(rules).map(|policy| {
            let before = self.before(current, policy.period_seconds, now);
            match policy.type_.as_str() {
                "Pods" => before.saturating_sub(policy.value),
                _ => (f64::from(before) * (1.0 - f64::from(policy.value) / 100.0)) as i32,
            }
        });
        // the least change leaves the most
        match rules.select_policy.as_deref() {
            Some("Disabled") => current,
            Some("Min") => limits.max().unwrap_or(0),
            _ => limits.min().unwrap_or(0),
        }
    }
}

fn policies(rules: &HPAScalingRules) -> impl Iterator<Item = &HPAScalingPolicy> {
    rules.policies.iter().flatten()
}

fn seconds(number: i32) -> Duration {
    Duration::from_secs(u64::try_from(number).unwrap_or(0))
}

/// What happened within a time.
fn since(events: &VecDeque<(Duration, i32)>, now: Duration, window: Duration) -> impl Iterator<Item = i32> {
    events.iter().filter(move |(at, _)| now.saturating_sub(*at) < window).map(|(_, what)| *what)
}

fn forget(events: &mut VecDeque<(Duration, i32)>, now: Duration, keep: Duration) {
    while events.front().is_some_and(|(at, _)| now.saturating_sub(*at) >= keep) {
        events.pop_front();
    }
}

/// Without rules: within the range, and not more than twice as many.
fn clamp(wanted: i32, range: Range) -> (i32, (&'static str, &'static str)) {
    let fast = range.current.saturating_mul(2).max(SMALL);
    let (most, why) = if range.most > fast { (fast, TOO_FAST_UP) } else { (range.most, TOO_MANY) };
    if wanted < range.least {
        (range.least, TOO_FEW)
    } else if wanted > most {
        (most, why)
    } else {
        (wanted, WITHIN)
    }
}

#[cfg(test)]
mod tests;
