use super::*;
use crate::tests::{json, problems};

const NEWER: &str = r#"{"kind":"HorizontalPodAutoscaler","apiVersion":"autoscaling/v2","metadata":{"name":"a"},
    "spec":{"scaleTargetRef":{"kind":"Deployment","name":"x"},"minReplicas":1,"maxReplicas":3,
    "behavior":{"scaleDown":{"selectPolicy":"Max","policies":[{"type":"Percent","value":100,"periodSeconds":15}]}},
    "metrics":[
    {"type":"Pods","pods":{"metric":{"name":"p","selector":{"matchLabels":{"type":"b","a":"<"}}},
        "target":{"type":"AverageValue","averageValue":"5"}}},
    {"type":"Object","object":{"metric":{"name":"o"},"describedObject":{"kind":"Service","name":"s"},
        "target":{"type":"Value","value":"7"}}},
    {"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":50}}}]},
    "status":{"currentReplicas":2,"desiredReplicas":3,
    "conditions":[{"type":"AbleToScale","status":"True","lastTransitionTime":null}],
    "currentMetrics":[{"type":"Resource","resource":{"name":"cpu","current":{"averageValue":"10m","averageUtilization":50}}}]}}"#;

fn annotation(object: &Value, name: &str) -> String {
    let key = format!("autoscaling.alpha.kubernetes.io/{name}");
    object.text(&["metadata", "annotations", &key]).to_owned()
}

#[test]
fn fields_unknown_to_v1_are_kept_in_annotations() {
    let newer = json(NEWER);
    let older = convert::older(newer.clone());
    assert_eq!(older.at(&["spec", "targetCPUUtilizationPercentage"]), Some(&Value::Int(50)));
    assert_eq!(older.at(&["status", "currentCPUUtilizationPercentage"]), Some(&Value::Int(50)));
    assert_eq!(
        annotation(&older, "metrics"),
        concat!(
            r#"[{"type":"Pods","pods":{"metricName":"p","targetAverageValue":"5","#,
            r#""selector":{"matchLabels":{"a":"\u003c","type":"b"}}}},"#,
            r#"{"type":"Object","object":{"target":{"kind":"Service","name":"s"},"metricName":"o","targetValue":"7"}}]"#
        )
    );
    assert_eq!(
        annotation(&older, "behavior"),
        concat!(
            r#"{"ScaleUp":null,"ScaleDown":{"StabilizationWindowSeconds":null,"SelectPolicy":"Max","#,
            r#""Policies":[{"Type":"Percent","Value":100,"PeriodSeconds":15}]}}"#
        )
    );
    assert_eq!(convert::newer(older), newer);
}

#[test]
fn annotations_that_make_no_sense_go_away() {
    let mut older = json(
        r#"{"apiVersion":"autoscaling/v1","metadata":{"annotations":{"autoscaling.alpha.kubernetes.io/metrics":"bogus",
        "autoscaling.alpha.kubernetes.io/behavior":"{\"scaleup\":{\"policies\":[]}}","q":"r"}},"spec":{"maxReplicas":3}}"#,
    );
    convert::settle(&mut older);
    assert_eq!(older.at(&["metadata", "annotations", "q"]), Some(&"r".into()));
    assert_eq!(annotation(&older, "metrics"), "");
    let behavior = r#"{"ScaleUp":{"StabilizationWindowSeconds":null,"SelectPolicy":null,"Policies":null},"ScaleDown":null}"#;
    assert_eq!(annotation(&older, "behavior"), behavior);
    assert_eq!(older.at(&["spec", "targetCPUUtilizationPercentage"]), Some(&Value::Int(80)));
}

#[test]
fn rules_are_those_of_the_newer_version() {
    let mut object = json(NEWER);
    assert_eq!(problems(&rules::validate(&object, 1)), [""; 0]);
    object.set(&["spec", "minReplicas"], 5);
    object.set(
        &["spec", "metrics"],
        json(r#"[{"type":"Bogus","pods":{"metric":{"name":"p"},"target":{"type":"x"}}}]"#),
    );
    let fields: Vec<_> = rules::validate(&object, 1).into_iter().map(|it| it.field).collect();
    assert_eq!(
        fields,
        [
            "spec.maxReplicas",
            "spec.metrics[0].type",
            "spec.metrics[0].pods.target.type",
            "spec.metrics[0].pods.target.averageValue",
            "spec.metrics[0].type"
        ]
    );
}

#[test]
fn rows_tell_targets() {
    let row = columns::cells(&json(NEWER), std::time::Duration::ZERO);
    assert_eq!(row[1..3], ["Deployment/x".into(), Value::from("<unknown>/5, <unknown>/7 + 1 more...")]);
    let row =
        columns::cells(&as_newer(&json(r#"{"apiVersion":"autoscaling/v1"}"#)), std::time::Duration::ZERO);
    assert_eq!(row[2], "<unknown>/80%".into());
}
