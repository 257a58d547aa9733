//! Evaluation of pods. The expected texts are those of upstream.

use super::evaluate::{describe, evaluate, reasons};
use super::pod::{AnnotationKeys, Pod};
use super::policy::{Labels, Level, Policy, Standard, Version};
use super::settings::Settings;
use env::{Simulated, World, random_u64};
use names::Names;
use schema::{Value, decode};

fn json(text: &str) -> Value {
    decode::json_untyped(text.as_bytes()).unwrap().value
}

fn standard(text: &str) -> Standard {
    let (level, version) = text.split_once(':').unwrap();
    Standard { level: Level::parse(level).unwrap(), version: Version::parse(version).unwrap() }
}

fn violations(pod: &Value, against: &str) -> String {
    let keys = AnnotationKeys::new(&Names::kubernetes());
    Pod::of(pod, &keys).map(|pod| describe(&evaluate(standard(against), &pod))).unwrap_or_default()
}

#[track_caller]
fn check(spec: &str, against: &str, expected: &str) {
    assert_eq!(violations(&json(&format!(r#"{{"spec":{spec}}}"#)), against), expected, "{spec} {against}");
}

const CONTEXT: &str = "securityContext";

#[test]
fn checks_of_baseline() {
    let one = |field: &str, expected: &str| {
        let spec = format!(r#"{{"containers":[{{"name":"a",{field}}}]}}"#);
        check(&spec, "baseline:latest", expected);
        check(&spec, "privileged:latest", "");
    };
    let context = |field: &str, expected: &str| one(&format!(r#""{CONTEXT}":{{{field}}}"#), expected);
    context(
        r#""privileged":true"#,
        "privileged (container \"a\" must not set securityContext.privileged=true)",
    );
    context(r#""privileged":false"#, "");
    context(
        r#""capabilities":{"add":["SYS_ADMIN","CHOWN","X"]}"#,
        "non-default capabilities (container \"a\" must not include \"SYS_ADMIN\", \"X\" in \
         securityContext.capabilities.add)",
    );
    context(
        r#""procMount":"Unmasked""#,
        "procMount (container \"a\" must not set securityContext.procMount to \"Unmasked\")",
    );
    context(
        r#""seLinuxOptions":{"type":"x_t","user":"u","role":"r","level":"s0"}"#,
        "seLinuxOptions (container \"a\" set forbidden securityContext.seLinuxOptions: type \"x_t\"; user may not be \
         set; role may not be set)",
    );
    context(r#""seLinuxOptions":{"type":"container_kvm_t","level":"s0"}"#, "");
    context(
        r#""seccompProfile":{"type":"Unconfined"}"#,
        "seccompProfile (container \"a\" must not set securityContext.seccompProfile.type to \"Unconfined\")",
    );
    context(
        r#""windowsOptions":{"hostProcess":true}"#,
        "hostProcess (container \"a\" must not set securityContext.windowsOptions.hostProcess=true)",
    );
    // sorted as text
    one(
        r#""ports":[{"hostPort":90},{"hostPort":1000},{"hostPort":0},{}]"#,
        "hostPort (container \"a\" uses hostPorts 1000, 90)",
    );
    check(
        r#"{"hostIPC":true,"hostNetwork":true,"hostPID":true}"#,
        "baseline:v1.0",
        "host namespaces (hostNetwork=true, hostPID=true, hostIPC=true)",
    );
    check(
        r#"{"volumes":[{"name":"v","hostPath":{"path":"/"}},{"name":"w","nfs":{}}]}"#,
        "baseline:latest",
        "hostPath volumes (volume \"v\")",
    );
    check(
        r#"{"securityContext":{"sysctls":[{"name":"kernel.msgmax"},{"name":"net.ipv4.tcp_syncookies"},{"name":"a.b"}]}}"#,
        "baseline:latest",
        "forbidden sysctls (kernel.msgmax, a.b)",
    );
}

#[test]
fn checks_of_restricted() {
    const PLAIN: &str = r#"{"initContainers":[{"name":"i"}],"containers":[{"name":"a"}]}"#;
    let escalation = "allowPrivilegeEscalation != false (containers \"i\", \"a\" must set \
                      securityContext.allowPrivilegeEscalation=false)";
    let drop = "unrestricted capabilities (containers \"i\", \"a\" must set securityContext.capabilities.drop=[\"ALL\"])";
    let root =
        "runAsNonRoot != true (pod or containers \"i\", \"a\" must set securityContext.runAsNonRoot=true)";
    let profile = "seccompProfile (pod or containers \"i\", \"a\" must set securityContext.seccompProfile.type to \
                   \"RuntimeDefault\" or \"Localhost\")";
    // one row of the table after the other takes effect
    check(PLAIN, "restricted:v1.7", root);
    check(PLAIN, "restricted:v1.8", &[escalation, root].join(", "));
    check(PLAIN, "restricted:v1.19", &[escalation, root, profile].join(", "));
    for version in ["v1.22", "v1.26", "v1.99", "latest"] {
        check(PLAIN, &format!("restricted:{version}"), &[escalation, drop, root, profile].join(", "));
    }
    // Windows pods are exempt since releases know of `os`
    let windows = r#"{"os":{"name":"windows"},"initContainers":[{"name":"i"}],"containers":[{"name":"a"}]}"#;
    check(windows, "restricted:v1.24", &[escalation, drop, root, profile].join(", "));
    check(windows, "restricted:v1.25", root);
    let good = r#"{"securityContext":{"runAsNonRoot":true,"seccompProfile":{"type":"Localhost"}},
                   "volumes":[{"name":"v","emptyDir":{}},{"name":"c","csi":{}}],
                   "containers":[{"name":"a","securityContext":{"allowPrivilegeEscalation":false,
                       "capabilities":{"drop":["ALL"],"add":["NET_BIND_SERVICE"]}}}]}"#;
    check(good, "restricted:latest", "");
}

#[test]
fn a_stricter_check_replaces_the_weaker_one() {
    let volumes =
        r#"{"containers":[],"volumes":[{"name":"v","hostPath":{}},{"name":"w","nfs":{}},{"name":"x"}]}"#;
    check(
        volumes,
        "restricted:latest",
        "restricted volume types (volumes \"v\", \"w\", \"x\" use restricted volume types \"hostPath\", \"nfs\", \
         \"unknown\")",
    );
    let added = r#"{"containers":[{"name":"a","securityContext":{"runAsNonRoot":true,"capabilities":{"add":["CHOWN"]}}}]}"#;
    check(added, "restricted:v1.7", "");
    assert!(violations(&json(&format!(r#"{{"spec":{added}}}"#)), "restricted:v1.22").contains("\"CHOWN\""));
    // an explicit false is reported, whatever else is unset
    check(
        r#"{"securityContext":{"runAsNonRoot":false,"runAsUser":0},"containers":[{"name":"a"},
            {"name":"b","securityContext":{"runAsNonRoot":false,"runAsUser":0,"allowPrivilegeEscalation":false}}]}"#,
        "restricted:v1.7",
        "runAsNonRoot != true (pod and container \"b\" must not set securityContext.runAsNonRoot=false)",
    );
    let root = r#"{"spec":{"securityContext":{"runAsUser":0},"containers":[]}}"#;
    assert_eq!(violations(&json(root), "restricted:v1.22"), "");
    assert_eq!(violations(&json(root), "restricted:v1.23"), "runAsUser=0 (pod must not set runAsUser=0)");
}

#[test]
fn annotations_count_as_long_as_there_were_no_fields() {
    let pod = json(
        r#"{"metadata":{"annotations":{
              "container.apparmor.security.beta.kubernetes.io/a":"unconfined",
              "container.apparmor.security.beta.kubernetes.io/b":"localhost/x",
              "seccomp.security.alpha.kubernetes.io/pod":"unconfined",
              "container.seccomp.security.alpha.kubernetes.io/b":"runtime/default"}},
            "spec":{"containers":[]}}"#,
    );
    let armor =
        "forbidden AppArmor profile (container.apparmor.security.beta.kubernetes.io/a=\"unconfined\")";
    let seccomp =
        "seccompProfile (forbidden annotation seccomp.security.alpha.kubernetes.io/pod=\"unconfined\")";
    assert_eq!(violations(&pod, "baseline:v1.18"), format!("{armor}, {seccomp}"));
    assert_eq!(violations(&pod, "baseline:v1.19"), armor);
}

#[test]
fn labels_define_the_policy() {
    let labels = Labels::new(&Names::kubernetes());
    let check = |text: &str, expected: [&str; 3], wrong: usize| {
        let map = json(text);
        let label = |key: &str| map.at(&[key.strip_prefix("pod-security.kubernetes.io/")?])?.as_str();
        let (policy, problems) = labels.policy(label, Policy::default());
        let found = [policy.enforce, policy.audit, policy.warn].map(|it| it.to_string());
        assert_eq!((&found[..], problems.len()), (&expected.map(str::to_owned)[..], wrong), "{text}");
    };
    const NONE: &str = "privileged:latest";
    check("{}", [NONE, NONE, NONE], 0);
    check(r#"{"enforce":"baseline","enforce-version":"v1.3"}"#, ["baseline:v1.3", NONE, "baseline:v1.3"], 0);
    check(
        r#"{"enforce":"restricted","warn":"baseline","audit-version":"v1.0"}"#,
        ["restricted:latest", "privileged:v1.0", "baseline:latest"],
        0,
    );
    // invalid labels get the strictest level
    check(r#"{"enforce":"all","warn":"x","audit-version":"v1.01"}"#, ["restricted:latest", NONE, NONE], 3);
    for version in ["v1", "v1.", "v1.-1", "v1.+1", "1.2", "v2.0", "v1.0 ", "Latest", ""] {
        check(&format!(r#"{{"enforce-version":{version:?}}}"#), [NONE, NONE, NONE], 1);
    }
}

#[test]
fn settings_that_cannot_be_are_named() {
    let names = Names::kubernetes();
    let head =
        r#""apiVersion":"pod-security.admission.config.k8s.io/v1beta1","kind":"PodSecurityConfiguration""#;
    let good = format!(
        r#"{{{head},"defaults":{{"enforce":"baseline","warn-version":"v1.5"}},
            "exemptions":{{"usernames":["system:x"],"namespaces":["a"],"runtimeClasses":["b.c"]}}}}"#
    );
    let read = Settings::read(&json(&good), &names).unwrap();
    assert_eq!(read.defaults.enforce, standard("baseline:latest"));
    assert!(read.users.contains("system:x") && read.namespaces.contains("a"));
    let bad = r#"{"apiVersion":"v1","kind":"Pod","defaults":{"enforce":"some","audit-version":"1","enforced":"x"},
                  "exemptions":{"usernames":[""],"namespaces":["a","a","B"],"runtimeClasses":[1]},"more":1}"#;
    let describe = Settings::read(&json(bad), &names).unwrap_err();
    for path in [
        "apiVersion: ",
        "kind: ",
        "more: ",
        "defaults.enforce: ",
        "defaults.audit-version: ",
        "defaults.enforced: ",
        "exemptions.usernames[0]: ",
        "exemptions.namespaces[1]: ",
        "exemptions.namespaces[2]: ",
        "exemptions.runtimeClasses: ",
    ] {
        assert!(describe.contains(path), "{path} is not in {describe}");
    }
}

/// A random value, with the fields of pods.
fn random_value(world: &World, depth: usize) -> Value {
    const FIELDS: [&str; 24] = [
        "metadata",
        "annotations",
        "spec",
        "containers",
        "initContainers",
        "name",
        CONTEXT,
        "privileged",
        "capabilities",
        "add",
        "drop",
        "ports",
        "hostPort",
        "volumes",
        "hostPath",
        "seLinuxOptions",
        "type",
        "seccompProfile",
        "windowsOptions",
        "hostProcess",
        "runAsNonRoot",
        "runAsUser",
        "sysctls",
        "os",
    ];
    let pick = |most: u64| random_u64(world) % most;
    match pick(if depth == 0 { 4 } else { 12 }) {
        0 => Value::Null,
        1 => Value::Bool(pick(2) == 0),
        2 => Value::Int(pick(3) as i64),
        3 => FIELDS[pick(24) as usize].into(),
        4 | 5 => Value::List((0..pick(4)).map(|_| random_value(world, depth - 1)).collect()),
        _ => {
            let mut map = schema::Map::new();
            for _ in 0..pick(8) {
                map.insert(FIELDS[pick(24) as usize], random_value(world, depth - 1));
            }
            Value::Map(map)
        }
    }
}

#[test]
fn levels_are_monotonic() {
    let seed = 20_261_115;
    let world: World = Simulated::new(0, seed);
    let keys = AnnotationKeys::new(&Names::kubernetes());
    for round in 0..4000 {
        let pod = random_value(&world, 7);
        let Some(pod) = Pod::of(&pod, &keys) else { continue };
        for version in [Version::Minor(0), Version::Minor(18), Version::Minor(22), Version::Latest] {
            let count = |level| evaluate(Standard { level, version }, &pod);
            assert!(count(Level::Privileged).is_empty(), "seed {seed} round {round}");
            let (baseline, restricted) = (count(Level::Baseline), count(Level::Restricted));
            let missed = !baseline.is_empty() && restricted.is_empty();
            assert!(!missed, "seed {seed} round {round}: {} {:?}", reasons(&baseline), pod.spec);
        }
    }
}
