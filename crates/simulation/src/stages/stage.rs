//! A stage, read from a document.

use super::expression::Expression;
use super::fields::Fields;
use super::functions;
use super::template::Template;
use schema::time::{parse_duration, to_unix};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// Functions of templates about the cluster.
pub const CLUSTER_FUNCTIONS: &[&str] =
    &["Now", "StartTime", "Version", "NodeName", "NodePort", "NodeIP", "NodeIPWith", "PodIP", "PodIPWith"];

/// The kind of the objects that a stage changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StageKind {
    Pod,
    Node,
}

/// See the module.
#[derive(Debug, Clone, PartialEq)]
pub struct Stage {
    pub name: String,
    pub kind: StageKind,
    selector: Selector,
    /// The share of the objects that it gets where several stages match.
    pub weight: u64,
    delay: Delay,
    pub next: Next,
}

#[derive(Debug, Clone, PartialEq, Default)]
struct Selector {
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    expressions: Vec<Requirement>,
}

#[derive(Debug, Clone, PartialEq)]
struct Requirement {
    key: Expression,
    operator: Operator,
    values: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

/// A time that is fixed or read from the object.
#[derive(Debug, Clone, PartialEq, Default)]
struct StageDuration {
    fixed: Option<Duration>,
    from: Option<Expression>,
}

#[derive(Debug, Clone, PartialEq, Default)]
struct Delay {
    least: StageDuration,
    most: StageDuration,
}

/// What a stage does to an object.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Next {
    pub event: Option<StageEvent>,
    pub finalizers: Option<Finalizers>,
    pub status: Option<Template>,
    pub is_delete: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageEvent {
    pub is_warning: bool,
    pub reason: String,
    pub message: String,
}

/// A change of an object's finalizers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Finalizers {
    is_emptied: bool,
    remove: Vec<String>,
    add: Vec<String>,
}

impl Finalizers {
    pub fn apply(&self, current: &[String]) -> Vec<String> {
        let kept = current.iter().filter(|it| !self.is_emptied && !self.remove.contains(it));
        let mut finalizers: Vec<String> = kept.cloned().collect();
        let added = self.add.iter().filter(|it| !current.contains(it) || self.is_emptied);
        finalizers.extend(added.cloned());
        finalizers
    }
}

impl Stage {
    /// Reads a document. The errors are all that is wrong with it or not understood.
    pub fn read(document: &Value) -> Result<Self, Vec<String>> {
        let mut errors = Vec::new();
        let name = document["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let mut root = Fields::new(&format!("Stage {name:?}"), document, &mut errors);
        root.get("apiVersion");
        root.get("kind");
        root.get("metadata");
        let spec = root.object("spec", &mut errors);
        root.end(&mut errors);
        let Some(mut spec) = spec else { return Err(vec![format!("Stage {name:?}.spec: is missing")]) };
        let kind = kind(&mut spec, &mut errors);
        let stage = Stage {
            name,
            kind,
            selector: selector(&mut spec, &mut errors),
            weight: spec.number("weight", &mut errors).unwrap_or(0),
            delay: delay(&mut spec, &mut errors),
            next: next(&mut spec, &mut errors),
        };
        // the next stage always follows at once
        spec.flag("immediateNextStage", &mut errors);
        spec.end(&mut errors);
        if errors.is_empty() { Ok(stage) } else { Err(errors) }
    }

    pub fn matches(&self, object: &Value) -> bool {
        let has = |field: &str, expected: &BTreeMap<String, String>| {
            expected.iter().all(|(key, value)| object["metadata"][field][key] == **value)
        };
        let Selector { labels, annotations, expressions } = &self.selector;
        has("labels", labels)
            && has("annotations", annotations)
            && expressions.iter().all(|it| it.matches(object))
    }

    /// The delay before the stage, with a random share of its jitter from 0 to 1.
    pub fn delay(&self, object: &Value, unix_now: i64, share: f64) -> Duration {
        let least = self.delay.least.resolve(object, unix_now).unwrap_or_default();
        match self.delay.most.resolve(object, unix_now) {
            Some(most) if most > least => least + (most - least).mul_f64(share.clamp(0.0, 1.0)),
            Some(most) => most,
            None => least,
        }
    }
}

impl Requirement {
    fn matches(&self, object: &Value) -> bool {
        let found = self.key.find(object);
        let is_in = || {
            found.iter().any(|value| {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                self.values.contains(&text)
            })
        };
        match self.operator {
            Operator::In => is_in(),
            Operator::NotIn => !is_in(),
            Operator::Exists => !found.is_empty(),
            Operator::DoesNotExist => found.is_empty(),
        }
    }
}

impl StageDuration {
    /// The duration that an expression finds: `5s`, or the time until a point in time. Otherwise the fixed one.
    fn resolve(&self, object: &Value, unix_now: i64) -> Option<Duration> {
        let found = self.from.as_ref().and_then(|it| it.find(object).first()?.as_str());
        let read = found.and_then(|text| match parse_duration(text) {
            Ok(nanos) => Some(Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))),
            Err(_) => {
                let seconds = to_unix(text)?.saturating_sub(unix_now);
                Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
            }
        });
        read.or(self.fixed)
    }
}

fn kind(spec: &mut Fields<'_>, errors: &mut Vec<String>) -> StageKind {
    let path = spec.path("resourceRef");
    let Some(mut reference) = spec.object("resourceRef", errors) else {
        errors.push(format!("{path}: is missing"));
        return StageKind::Pod;
    };
    let group = reference.text("apiGroup", errors);
    let kind = reference.text("kind", errors);
    reference.end(errors);
    match (group.as_deref(), kind.as_deref()) {
        (None | Some("" | "v1"), Some("Pod")) => StageKind::Pod,
        (None | Some("" | "v1"), Some("Node")) => StageKind::Node,
        _ => {
            errors.push(format!("{path}: must be Pod or Node of v1"));
            StageKind::Pod
        }
    }
}

fn selector(spec: &mut Fields<'_>, errors: &mut Vec<String>) -> Selector {
    let Some(mut fields) = spec.object("selector", errors) else { return Selector::default() };
    let (labels, annotations) =
        (fields.texts("matchLabels", errors), fields.texts("matchAnnotations", errors));
    let mut expressions = Vec::new();
    for mut item in fields.objects("matchExpressions", errors) {
        let (key, operator) = (item.text("key", errors), item.text("operator", errors));
        let values = item.get("values").and_then(Value::as_array).into_iter().flatten();
        let values = values.map(|it| it.as_str().map_or_else(|| it.to_string(), str::to_owned)).collect();
        let operator = match operator.as_deref() {
            Some("In") => Some(Operator::In),
            Some("NotIn") => Some(Operator::NotIn),
            Some("Exists") => Some(Operator::Exists),
            Some("DoesNotExist") => Some(Operator::DoesNotExist),
            _ => {
                errors.push(format!("{}: must be In, NotIn, Exists or DoesNotExist", item.path("operator")));
                None
            }
        };
        let key = Expression::parse(&key.unwrap_or_default())
            .map_err(|why| errors.push(format!("{}: {why}", item.path("key"))));
        item.end(errors);
        if let (Ok(key), Some(operator)) = (key, operator) {
            expressions.push(Requirement { key, operator, values });
        }
    }
    fields.end(errors);
    Selector { labels, annotations, expressions }
}

fn delay(spec: &mut Fields<'_>, errors: &mut Vec<String>) -> Delay {
    let Some(mut fields) = spec.object("delay", errors) else { return Delay::default() };
    let mut duration = |millis: &'static str, from: &'static str| {
        let fixed = fields.number(millis, errors).map(Duration::from_millis);
        let from = fields.object(from, errors).and_then(|mut inner| {
            let text = inner.text("expressionFrom", errors).unwrap_or_default();
            let parsed = Expression::parse(&text);
            let parsed =
                parsed.map_err(|why| errors.push(format!("{}: {why}", inner.path("expressionFrom"))));
            inner.end(errors);
            parsed.ok()
        });
        StageDuration { fixed, from }
    };
    let least = duration("durationMilliseconds", "durationFrom");
    let most = duration("jitterDurationMilliseconds", "jitterDurationFrom");
    fields.end(errors);
    Delay { least, most }
}

fn next(spec: &mut Fields<'_>, errors: &mut Vec<String>) -> Next {
    let path = spec.path("next");
    let Some(mut fields) = spec.object("next", errors) else {
        errors.push(format!("{path}: is missing"));
        return Next::default();
    };
    let event = fields.object("event", errors).map(|mut inner| {
        let mut text = |name| inner.text(name, errors).unwrap_or_default();
        let (kind, reason, message) = (text("type"), text("reason"), text("message"));
        inner.end(errors);
        StageEvent { is_warning: kind == "Warning", reason, message }
    });
    let finalizers = fields.object("finalizers", errors).map(|mut inner| {
        let is_emptied = inner.flag("empty", errors);
        let mut values = |name| {
            let mut values = Vec::new();
            for mut item in inner.objects(name, errors) {
                values.extend(item.text("value", errors));
                item.end(errors);
            }
            values
        };
        let (remove, add) = (values("remove"), values("add"));
        inner.end(errors);
        Finalizers { is_emptied, remove, add }
    });
    let status = fields.text("statusTemplate", errors).and_then(|text| {
        parse_template(&text).map_err(|why| errors.push(format!("{path}.statusTemplate: {why}"))).ok()
    });
    if fields.text("statusSubresource", errors).is_some_and(|it| it != "status") {
        errors.push(format!("{path}.statusSubresource: must be status"));
    }
    let is_delete = fields.flag("delete", errors);
    fields.end(errors);
    Next { event, finalizers, status, is_delete }
}

/// A template all of whose functions exist.
fn parse_template(text: &str) -> Result<Template, String> {
    let template = Template::parse(text)?;
    let is_known = |name: &&str| functions::FUNCTIONS.contains(name) || CLUSTER_FUNCTIONS.contains(name);
    let unknown = template.functions().into_iter().find(|it| !is_known(it)).map(str::to_owned);
    match unknown {
        Some(name) => Err(format!("the function {name:?} is not understood")),
        None => Ok(template),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(spec: Value) -> Result<Stage, Vec<String>> {
        Stage::read(&json!({"apiVersion": "v", "kind": "Stage", "metadata": {"name": "s"}, "spec": spec}))
    }

    fn valid() -> Value {
        json!({
            "resourceRef": {"apiGroup": "v1", "kind": "Pod"},
            "selector": {
                "matchLabels": {"app": "web"},
                "matchAnnotations": {"a": "b"},
                "matchExpressions": [
                    {"key": ".metadata.deletionTimestamp", "operator": "DoesNotExist"},
                    {"key": ".status.phase", "operator": "NotIn", "values": ["Running"]},
                ],
            },
            "weight": 2,
            "delay": {
                "durationMilliseconds": 1000,
                "durationFrom": {"expressionFrom": ".metadata.annotations[\"delay\"]"},
                "jitterDurationMilliseconds": 3000,
            },
            "next": {
                "event": {"type": "Warning", "reason": "R", "message": "M"},
                "finalizers": {"remove": [{"value": "x"}], "add": [{"value": "y"}]},
                "statusTemplate": "phase: Running",
                "delete": false,
            },
        })
    }

    #[test]
    fn selectors_choose_objects() {
        let stage = read(valid()).unwrap();
        let pod = json!({"metadata": {"labels": {"app": "web"}, "annotations": {"a": "b"}}, "status": {"phase": "Pending"}});
        assert!(stage.matches(&pod));
        for (pointer, value) in [
            ("/metadata/labels/app", json!("other")),
            ("/metadata/annotations/a", json!("c")),
            ("/status/phase", json!("Running")),
        ] {
            let mut other = pod.clone();
            *other.pointer_mut(pointer).unwrap() = value;
            assert!(!stage.matches(&other), "{pointer}");
        }
        let mut deleted = pod;
        deleted["metadata"]["deletionTimestamp"] = json!("2020-01-01T00:00:00Z");
        assert!(!stage.matches(&deleted));
    }

    #[test]
    fn delays_are_fixed_or_of_the_object() {
        let stage = read(valid()).unwrap();
        let pod = |delay: &str| json!({"metadata": {"annotations": {"delay": delay}}});
        assert_eq!(stage.delay(&json!({}), 0, 0.5), Duration::from_secs(2));
        assert_eq!(stage.delay(&pod("2s"), 0, 0.0), Duration::from_secs(2));
        // a jitter that is shorter is the delay
        assert_eq!(stage.delay(&pod("5s"), 0, 0.5), Duration::from_secs(3));
        assert_eq!(stage.delay(&pod("1970-01-01T00:00:12Z"), 10, 0.0), Duration::from_secs(2));
    }

    /// The status that a stage gives an object.
    fn status(spec: Value, object: &Value) -> Value {
        let template = read(spec).unwrap().next.status.unwrap();
        let functions = |name: &str, _: &[Value]| match name {
            "Now" => Some(Ok(json!("2020-01-01T00:00:00Z"))),
            "NodeIP" => Some(Ok(json!("10.0.0.1"))),
            _ => None,
        };
        let rendered = template.render(object, &functions).unwrap();
        let document = schema::yaml::parse(rendered.as_bytes(), schema::yaml::Limits::default()).unwrap();
        serde_json::from_slice(&schema::encode::untyped(&document.value)).unwrap()
    }

    #[test]
    fn a_stage_of_nodes_that_become_ready_has_all_conditions() {
        let template = "{{ $at := Now }}\n{{ $since := or .metadata.creationTimestamp $at }}\nconditions:\n\
            {{ range NodeConditions }}\n- type: {{ .type | Quote }}\n  status: {{ .status | Quote }}\n  \
            reason: {{ .reason | Quote }}\n  message: {{ .message | Quote }}\n  \
            lastHeartbeatTime: {{ $at | Quote }}\n  lastTransitionTime: {{ $since | Quote }}\n{{ end }}\n\
            addresses:\n{{ with .status.addresses }}\n{{ YAML . 1 }}\n{{ else }}\n\
            - {type: InternalIP, address: {{ NodeIP | Quote }}}\n{{ end }}\nphase: Running\n";
        let spec = json!({
            "resourceRef": {"apiGroup": "v1", "kind": "Node"},
            "selector": {"matchExpressions": [{
                "key": ".status.conditions.[] | select( .type == \"Ready\" ) | .status",
                "operator": "NotIn", "values": ["True"],
            }]},
            "next": {"statusTemplate": template},
        });
        let stage = read(spec.clone()).unwrap();
        let node = json!({"metadata": {"name": "n", "creationTimestamp": "2019-01-01T00:00:00Z"}});
        assert!(stage.matches(&node));
        let status = status(spec, &node);
        assert_eq!(status["conditions"].as_array().unwrap().len(), 5);
        assert_eq!(
            status["conditions"][0],
            json!({
                "type": "Ready", "status": "True", "reason": "KubeletReady",
                "message": "kubelet is posting ready status",
                "lastHeartbeatTime": "2020-01-01T00:00:00Z", "lastTransitionTime": "2019-01-01T00:00:00Z",
            })
        );
        assert_eq!(status["addresses"], json!([{"type": "InternalIP", "address": "10.0.0.1"}]));
        assert!(!stage.matches(&json!({ "status": status })));
    }

    #[test]
    fn a_stage_of_pods_that_fail_reads_annotations_that_may_be_absent() {
        let template = "{{ $notes := or .metadata.annotations dict }}\n\
            {{ $code := or ( index $notes \"example.org/code\" ) 1 }}\n\
            {{ $only := or ( index $notes \"example.org/container\" ) \"\" }}\ncontainerStatuses:\n\
            {{ range $at, $it := .spec.containers }}\n- name: {{ $it.name | Quote }}\n  state:\n\
            {{ if or ( not $only ) ( eq $it.name $only ) }}\n    terminated: {exitCode: {{ $code }}}\n\
            {{ else }}\n    running: {}\n{{ end }}\n{{ end }}\nphase: Failed\n";
        let spec = json!({"resourceRef": {"kind": "Pod"}, "next": {"statusTemplate": template}});
        let pod = |annotations: Value| json!({"metadata": {"annotations": annotations}, "spec": {"containers": [{"name": "a"}, {"name": "b"}]}});
        let failed = |code: i32| json!({"terminated": {"exitCode": code}});
        let states = |annotations: Value| {
            let status = status(spec.clone(), &pod(annotations));
            [0, 1].map(|at: usize| status["containerStatuses"][at]["state"].clone())
        };
        assert_eq!(states(Value::Null), [failed(1), failed(1)]);
        let annotations = json!({"example.org/code": "3", "example.org/container": "b"});
        assert_eq!(states(annotations), [json!({"running": {}}), failed(3)]);
    }

    #[test]
    fn finalizers_come_and_go() {
        let finalizers = read(valid()).unwrap().next.finalizers.unwrap();
        let current = ["x".to_owned(), "z".to_owned()];
        assert_eq!(finalizers.apply(&current), ["z", "y"]);
        let emptied = Finalizers { is_emptied: true, ..Finalizers::default() };
        assert!(emptied.apply(&current).is_empty());
    }

    #[test]
    fn stages_that_are_not_understood_are_refused() {
        let errors = |pointer: &str, value: Value| {
            let mut spec = valid();
            *spec.pointer_mut(pointer).unwrap() = value;
            read(spec).unwrap_err().join("\n")
        };
        for (pointer, value, expected) in [
            (
                "/resourceRef/kind",
                json!("Deployment"),
                "Stage \"s\".spec.resourceRef: must be Pod or Node of v1",
            ),
            ("/weight", json!("x"), "Stage \"s\".spec.weight: must be a number from 0 on"),
            (
                "/next/statusTemplate",
                json!("{{ if"),
                "Stage \"s\".spec.next.statusTemplate: an action has no end",
            ),
            ("/next/statusTemplate", json!("a: {{ Env \"x\" }}"), "the function \"Env\" is not understood"),
            ("/next/delete", json!("no"), "Stage \"s\".spec.next.delete: must be true or false"),
            ("/next", json!({"patches": []}), "Stage \"s\".spec.next.patches: is not understood"),
            (
                "/selector/matchExpressions/0/key",
                json!("len(.a)"),
                "spec.selector.matchExpressions[0].key: \"len(.a)\" is not",
            ),
            (
                "/selector/matchExpressions/0/operator",
                json!("Gt"),
                "matchExpressions[0].operator: must be In",
            ),
            ("/delay", json!({"seconds": 1}), "Stage \"s\".spec.delay.seconds: is not understood"),
        ] {
            let found = errors(pointer, value);
            assert!(found.contains(expected), "{expected}\n{found}");
        }
    }
}
