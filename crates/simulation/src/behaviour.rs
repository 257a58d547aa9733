//! How a pod behaves.
//!
//! A setting is one of [`SETTINGS`]. It comes from the rules of the profile, in order, and then from the annotations of
//! the pod: `simulation.pintle.io/exit-code` for all containers but those that initialize the pod,
//! `simulation.pintle.io/exit-code.web` for one of any kind.

use api::Quantity;
use api::core::v1::Pod;
use names::simulation::{KWOK_USAGE_CPU, KWOK_USAGE_MEMORY, PREFIX};
use nodeagent::runtime::simulated::{Behaviour, Pull};
use schema::time::parse_duration;
use std::collections::BTreeMap;
use std::time::Duration;

/// The time that containers of Jobs run, unless a setting says otherwise: a Job is there to end.
const JOB_RUNS_FOR: Duration = Duration::from_millis(100);

/// The behaviour of one container, and the pull of its image.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContainerBehaviour {
    pub life: Behaviour,
    pub pull: Pull,
    /// Whether a setting is about readiness.
    pub has_readiness: bool,
    pub usage: Usage,
}

/// CPU and memory that a running container uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    pub cpu_milli: i64,
    pub memory_bytes: i64,
}

/// Annotations of kwok that are settings.
const KWOK_USAGE: [(&str, &str); 2] = [(KWOK_USAGE_CPU, "usage-cpu"), (KWOK_USAGE_MEMORY, "usage-memory")];

/// Applies the value of a setting. The error says what is wrong with it.
pub type Apply = fn(&mut ContainerBehaviour, &str) -> Result<(), String>;

/// Names of settings, and their effect.
pub const SETTINGS: &[(&str, Apply)] = &[
    ("pull-delay", |it, text| set(&mut it.pull.delay, duration(text))),
    ("pull-error", |it, text| set(&mut it.pull.error, Ok(Some(text.to_owned())))),
    ("start-delay", |it, text| set(&mut it.life.start_delay, duration(text))),
    ("start-error", |it, text| set(&mut it.life.start_error, Ok(Some(text.to_owned())))),
    ("run-for", |it, text| set(&mut it.life.runs_for, duration(text).map(Some))),
    ("exit-code", |it, text| {
        // a code is that of an end
        it.life.runs_for.get_or_insert_default();
        set(&mut it.life.exit_code, exit_code(text))
    }),
    ("out-of-memory-after", |it, text| {
        it.life.is_out_of_memory = true;
        set(&mut it.life.runs_for, duration(text).map(Some))
    }),
    ("ignore-stop", |it, text| set(&mut it.life.ignores_stop, boolean(text))),
    ("started-after", |it, text| set(&mut it.life.probes.started_after, duration(text))),
    ("ready-after", |it, text| {
        it.has_readiness = true;
        set(&mut it.life.probes.ready_after, duration(text))
    }),
    ("unready-after", |it, text| {
        it.has_readiness = true;
        set(&mut it.life.probes.unready_after, duration(text).map(Some))
    }),
    ("unhealthy-after", |it, text| set(&mut it.life.probes.unhealthy_after, duration(text).map(Some))),
    ("log", |it, text| set(&mut it.life.log.text, Ok(text.to_owned()))),
    ("log-every", |it, text| match duration(text) {
        Ok(Duration::ZERO) => Err("must be more than zero".to_owned()),
        every => set(&mut it.life.log.every, every.map(Some)),
    }),
    ("exec-output", |it, text| set(&mut it.life.exec.output, Ok(Some(text.to_owned())))),
    ("exec-exit-code", |it, text| set(&mut it.life.exec.exit_code, exit_code(text))),
    ("usage-cpu", |it, text| set(&mut it.usage.cpu_milli, quantity(text).map(|it| it.milli()))),
    ("usage-memory", |it, text| set(&mut it.usage.memory_bytes, quantity(text).map(|it| it.whole()))),
];

fn set<T>(field: &mut T, value: Result<T, String>) -> Result<(), String> {
    *field = value?;
    Ok(())
}

pub fn duration(text: &str) -> Result<Duration, String> {
    let nanoseconds = parse_duration(text).map_err(|why| why.to_string())?;
    u64::try_from(nanoseconds).map(Duration::from_nanos).map_err(|_| "is negative".to_owned())
}

pub fn boolean(text: &str) -> Result<bool, String> {
    text.parse().map_err(|_| "neither true nor false".to_owned())
}

fn exit_code(text: &str) -> Result<i32, String> {
    text.parse::<u8>().map(i32::from).map_err(|_| "not a number from 0 to 255".to_owned())
}

fn quantity(text: &str) -> Result<Quantity, String> {
    text.parse().map_err(|_| "not a quantity".to_owned())
}

/// A setting by name.
pub fn setting(name: &str) -> Option<Apply> {
    SETTINGS.iter().find(|it| it.0 == name).map(|it| it.1)
}

/// Settings for some pods.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rule {
    /// The namespace of the pods; all if empty.
    pub namespace: String,
    /// Labels that the pods have.
    pub labels: BTreeMap<String, String>,
    /// The kind of the pods' controller; any if empty.
    pub owner_kind: String,
    /// The container; all but those that initialize the pod if empty.
    pub container: String,
    /// Values by the name of the setting.
    pub set: BTreeMap<String, String>,
}

impl Rule {
    fn matches(&self, pod: &Pod) -> bool {
        let meta = &pod.metadata;
        (self.namespace.is_empty() || self.namespace == meta.namespace)
            && (self.owner_kind.is_empty() || controller_kind(pod) == Some(&*self.owner_kind))
            && self.labels.iter().all(|(key, value)| meta.labels.get(key) == Some(value))
    }
}

fn controller_kind(pod: &Pod) -> Option<&str> {
    let owner = pod.metadata.owner_references.iter().find(|it| it.controller == Some(true));
    owner.map(|it| &*it.kind)
}

/// The behaviour of a container of a pod, or what is wrong with a setting.
pub fn of_container(pod: &Pod, container: &str, rules: &[Rule]) -> Result<ContainerBehaviour, String> {
    let mut behaviour = ContainerBehaviour::default();
    let is_init = pod.spec.init_containers.iter().any(|it| it.name == container);
    if is_init {
        behaviour.life.runs_for = Some(Duration::ZERO);
    } else if controller_kind(pod) == Some("Job") {
        behaviour.life.runs_for = Some(JOB_RUNS_FOR);
    }
    let is_for = |of: &str| if of.is_empty() { !is_init } else { of == container };
    let rules = rules.iter().filter(|rule| is_for(&rule.container) && rule.matches(pod));
    let of_rules = rules.flat_map(|rule| rule.set.iter().map(|(name, value)| (&**name, &**value)));
    let annotations = pod.metadata.annotations.iter();
    let name = |key: &'_ str| KWOK_USAGE.iter().find(|it| it.0 == key).map(|it| it.1);
    let settings = annotations
        .filter_map(|(key, value)| Some((name(key).or_else(|| key.strip_prefix(PREFIX))?, &**value)));
    let settings = settings.map(|(name, value)| (name.split_once('.').unwrap_or((name, "")), value));
    // those of one container come after those of all
    let (of_all, of_one): (Vec<_>, Vec<_>) = settings.partition(|((_, of), _)| of.is_empty());
    let annotated = of_all.into_iter().chain(of_one);
    let annotated = annotated.filter(|((_, of), _)| is_for(of)).map(|((name, _), value)| (name, value));
    for (name, value) in of_rules.chain(annotated) {
        let apply = setting(name).ok_or_else(|| format!("{PREFIX}{name} is not a setting"))?;
        apply(&mut behaviour, value).map_err(|why| format!("{PREFIX}{name}: {value:?}: {why}"))?;
    }
    Ok(behaviour)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(text: &str) -> Pod {
        api::from_json(text.as_bytes()).unwrap()
    }

    #[test]
    fn annotations_of_one_container_follow_those_of_all_and_the_rules() {
        let rule = |container: &str, name: &str, value: &str| Rule {
            container: container.to_owned(),
            set: BTreeMap::from([(name.to_owned(), value.to_owned())]),
            ..Rule::default()
        };
        let rules = [rule("", "exit-code", "3"), rule("b", "run-for", "1m"), rule("", "ready-after", "2s")];
        let pod = pod(
            r#"{"metadata":{"annotations":{"simulation.pintle.io/run-for":"5s","simulation.pintle.io/run-for.b":"7s","other/x":"y"}}}"#,
        );
        let a = of_container(&pod, "a", &rules).unwrap().life;
        let b = of_container(&pod, "b", &rules).unwrap();
        assert_eq!((a.runs_for, a.exit_code), (Some(Duration::from_secs(5)), 3));
        assert_eq!((b.life.runs_for, b.has_readiness), (Some(Duration::from_secs(7)), true));
    }

    #[test]
    fn init_containers_end_and_have_settings_by_name_only() {
        let pod = pod(
            r#"{"metadata":{"annotations":{"simulation.pintle.io/exit-code":"1","simulation.pintle.io/exit-code.late":"2"}},
                "spec":{"initContainers":[{"name":"first"},{"name":"late"}],"containers":[{"name":"c"}]}}"#,
        );
        let life = |name: &str| {
            let life = of_container(&pod, name, &[]).unwrap().life;
            (life.runs_for, life.exit_code)
        };
        assert_eq!(life("first"), (Some(Duration::ZERO), 0));
        assert_eq!(life("late"), (Some(Duration::ZERO), 2));
        assert_eq!(life("c"), (Some(Duration::ZERO), 1));
    }

    #[test]
    fn rules_are_for_the_pods_that_they_match() {
        let rule = Rule {
            namespace: "n".to_owned(),
            labels: BTreeMap::from([("app".to_owned(), "web".to_owned())]),
            set: BTreeMap::from([("pull-error".to_owned(), "gone".to_owned())]),
            ..Rule::default()
        };
        let error =
            |text: &str| of_container(&pod(text), "c", std::slice::from_ref(&rule)).unwrap().pull.error;
        assert_eq!(
            error(r#"{"metadata":{"namespace":"n","labels":{"app":"web"}}}"#).as_deref(),
            Some("gone")
        );
        assert_eq!(error(r#"{"metadata":{"namespace":"m","labels":{"app":"web"}}}"#), None);
        assert_eq!(error(r#"{"metadata":{"namespace":"n"}}"#), None);
    }

    #[test]
    fn usage_is_a_setting_and_an_annotation_of_kwok() {
        let pod = pod(
            r#"{"metadata":{"annotations":{"kwok.x-k8s.io/usage-cpu":"250m","simulation.pintle.io/usage-memory":"1Ki"}}}"#,
        );
        let usage = of_container(&pod, "c", &[]).unwrap().usage;
        assert_eq!(usage, Usage { cpu_milli: 250, memory_bytes: 1024 });
    }

    #[test]
    fn pods_of_jobs_end() {
        let owned = |kind: &str| {
            format!(
                r#"{{"metadata":{{"ownerReferences":[{{"kind":"{kind}","name":"x","uid":"u","controller":true}}]}}}}"#
            )
        };
        let life = |kind: &str| of_container(&pod(&owned(kind)), "c", &[]).unwrap().life;
        assert_eq!((life("Job").runs_for, life("Job").exit_code), (Some(JOB_RUNS_FOR), 0));
        assert_eq!(life("ReplicaSet").runs_for, None);
    }

    #[test]
    fn a_wrong_setting_says_what_is_wrong() {
        let wrong = |name: &str, value: &str| {
            let text =
                format!(r#"{{"metadata":{{"annotations":{{"simulation.pintle.io/{name}":"{value}"}}}}}}"#);
            of_container(&pod(&text), "c", &[]).unwrap_err()
        };
        assert_eq!(wrong("runs", "1s"), "simulation.pintle.io/runs is not a setting");
        assert_eq!(
            wrong("exit-code", "256"),
            r#"simulation.pintle.io/exit-code: "256": not a number from 0 to 255"#
        );
        assert!(wrong("run-for", "-1s").ends_with("is negative"));
        assert!(wrong("log-every", "0s").ends_with("must be more than zero"));
    }
}
