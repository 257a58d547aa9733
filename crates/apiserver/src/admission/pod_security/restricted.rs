//! The additional checks of the level `restricted`.

use super::baseline;
use super::pod::{Pod, Violation, context};
use super::wording::{Texts, counted, plural, quotes, setters};
use schema::Value;

pub fn privilege_escalation(pod: &Pod<'_>) -> Option<Violation> {
    let containers =
        pod.named(|one| context(one, &["allowPrivilegeEscalation"]) != Some(&Value::Bool(false)));
    (!containers.is_empty()).then(|| {
        let subjects = counted("container", &containers);
        let detail = format!("{subjects} must set securityContext.allowPrivilegeEscalation=false");
        Violation::new("allowPrivilegeEscalation != false", detail)
    })
}

pub fn capabilities(pod: &Pod<'_>) -> Option<Violation> {
    let containers = pod.named(|one| {
        let dropped = context(one, &["capabilities", "drop"]).and_then(Value::as_list).unwrap_or(&[]);
        !dropped.iter().any(|it| it.as_str() == Some("ALL"))
    });
    let mut details = Vec::new();
    if !containers.is_empty() {
        let subjects = counted("container", &containers);
        details.push(format!("{subjects} must set securityContext.capabilities.drop=[\"ALL\"]"));
    }
    details.extend(baseline::added(pod, &["NET_BIND_SERVICE"]));
    (!details.is_empty()).then(|| Violation::new("unrestricted capabilities", details.join("; ")))
}

/// Allowed volume types.
const VOLUMES: [&str; 8] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

pub fn volumes(pod: &Pod<'_>) -> Option<Violation> {
    fn sources(volume: &Value) -> impl Iterator<Item = &str> {
        let fields = volume.as_map().into_iter().flat_map(|map| map.iter());
        fields.filter(|(field, value)| *field != "name" && !value.is_null()).map(|(field, _)| field)
    }
    let wrong = |volume| {
        let (mut any, mut allowed) = (None, false);
        for source in sources(volume) {
            allowed |= VOLUMES.contains(&source);
            any.get_or_insert(source);
        }
        if allowed { None } else { Some(any.unwrap_or("unknown")) }
    };
    let all = || pod.spec.items(&["volumes"]).iter();
    let volumes: Vec<_> = all().filter(|one| wrong(one).is_some()).map(|one| one.text(&["name"])).collect();
    let kinds: Texts<'_> = all().filter_map(wrong).collect();
    (!volumes.is_empty()).then(|| {
        let verb = if volumes.len() == 1 { "uses" } else { "use" };
        let noun = plural("restricted volume type", kinds.len());
        let detail = format!("{} {verb} {noun} {}", counted("volume", &volumes), quotes(kinds));
        Violation::new("restricted volume types", detail)
    })
}

pub fn run_as_non_root(pod: &Pod<'_>) -> Option<Violation> {
    const REASON: &str = "runAsNonRoot != true";
    let run_as_non_root_of = |of| context(of, &["runAsNonRoot"]).and_then(Value::as_bool);
    let subjects = setters(
        run_as_non_root_of(pod.spec) == Some(false),
        &pod.named(|one| run_as_non_root_of(one) == Some(false)),
    );
    if !subjects.is_empty() {
        return Some(Violation::new(
            REASON,
            format!("{subjects} must not set securityContext.runAsNonRoot=false"),
        ));
    }
    let silent = pod.named(|one| run_as_non_root_of(one).is_none());
    (run_as_non_root_of(pod.spec).is_none() && !silent.is_empty()).then(|| {
        let subjects = counted("container", &silent);
        Violation::new(REASON, format!("pod or {subjects} must set securityContext.runAsNonRoot=true"))
    })
}

pub fn run_as_user(pod: &Pod<'_>) -> Option<Violation> {
    let is_root = |of: &Value| context(of, &["runAsUser"]) == Some(&Value::Int(0));
    let subjects = setters(is_root(pod.spec), &pod.named(is_root));
    (!subjects.is_empty())
        .then(|| Violation::new("runAsUser=0", format!("{subjects} must not set runAsUser=0")))
}

pub fn seccomp(pod: &Pod<'_>) -> Option<Violation> {
    if let Some(set) = baseline::seccomp(pod) {
        return Some(set);
    }
    let silent = pod.named(|one| baseline::seccomp_type(one).is_none());
    (baseline::seccomp_type(pod.spec).is_none() && !silent.is_empty()).then(|| {
        let subjects = counted("container", &silent);
        let detail = format!(
            "pod or {subjects} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\""
        );
        Violation::new("seccompProfile", detail)
    })
}
