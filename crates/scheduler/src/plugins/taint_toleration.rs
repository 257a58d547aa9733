//! TaintToleration: keeps pods off nodes with taints that they do not tolerate, and prefers nodes with fewer such
//! taints of effect `PreferNoSchedule`.

use api::core::v1::{Taint, Toleration};

use crate::framework::{Code, FilterResult, Reason, Rejection};
use crate::node_info::NodeInfo;
use crate::plugins::normalize;
use crate::pod_info::PodInfo;

pub const NO_SCHEDULE: &str = "NoSchedule";
pub const NO_EXECUTE: &str = "NoExecute";
pub const PREFER_NO_SCHEDULE: &str = "PreferNoSchedule";

pub fn filter(pod: &PodInfo, node: &NodeInfo) -> FilterResult {
    match untolerated(&node.node.spec.taints, &pod.pod.spec.tolerations) {
        None => Ok(()),
        Some(taint) => Err(Rejection::new(
            Code::UnschedulableAndUnresolvable,
            Reason::UntoleratedTaint { key: (&*taint.key).into(), value: (&*taint.value).into() },
        )),
    }
}

/// The number of taints of effect `PreferNoSchedule` that the pod does not tolerate.
pub fn score(pod: &PodInfo, node: &NodeInfo) -> i64 {
    let tolerations = &pod.pod.spec.tolerations;
    let soft = node.node.spec.taints.iter().filter(|taint| taint.effect == PREFER_NO_SCHEDULE);
    let tolerated = |taint: &Taint| {
        let of_effect = |it: &&Toleration| it.effect.is_empty() || it.effect == PREFER_NO_SCHEDULE;
        tolerations.iter().filter(of_effect).any(|toleration| tolerates(toleration, taint))
    };
    soft.filter(|taint| !tolerated(taint)).count() as i64
}

pub fn normalize(scores: &mut [i64]) {
    normalize::by_maximum(scores, true);
}

/// The first taint that keeps pods away and that none of the tolerations tolerates.
pub fn untolerated<'a>(taints: &'a [Taint], tolerations: &[Toleration]) -> Option<&'a Taint> {
    let hard = taints.iter().filter(|taint| matches!(&*taint.effect, NO_SCHEDULE | NO_EXECUTE));
    hard.into_iter().find(|taint| !tolerations.iter().any(|toleration| tolerates(toleration, taint)))
}

pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    (toleration.effect.is_empty() || toleration.effect == taint.effect)
        && (toleration.key.is_empty() || toleration.key == taint.key)
        && match &*toleration.operator {
            "" | "Equal" => toleration.value == taint.value,
            "Exists" => true,
            _ => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn toleration(key: &str, operator: &str, value: &str, effect: &str) -> Toleration {
        let [key, operator, value, effect] = [key, operator, value, effect].map(str::to_owned);
        Toleration { key, operator, value, effect, ..Toleration::default() }
    }

    #[test]
    fn tolerations_match_by_key_operator_value_and_effect() {
        let taint =
            Taint { key: "k".into(), value: "v".into(), effect: NO_SCHEDULE.into(), ..Taint::default() };
        for (key, operator, value, effect, expected) in [
            ("k", "", "v", "", true),
            ("k", "Equal", "w", "", false),
            ("k", "Exists", "", NO_SCHEDULE, true),
            ("k", "Exists", "", NO_EXECUTE, false),
            ("", "Exists", "", "", true),
            ("k", "Like", "v", "", false),
        ] {
            assert_eq!(
                tolerates(&toleration(key, operator, value, effect), &taint),
                expected,
                "{key} {operator}"
            );
        }
    }
}
