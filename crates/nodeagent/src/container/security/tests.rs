use super::*;
use crate::container::testing;
use crate::objects::testing::object;
use crate::runtime::{NamespaceMode, SecurityProfile};
use api::core::v1::Pod;

fn pod(spec: &str) -> Pod {
    object(&format!(r#"{{"metadata":{{"name":"p","namespace":"n","uid":"u"}},"spec":{spec}}}"#))
}

fn security(spec: &str) -> crate::runtime::LinuxSecurity {
    let (pod, image) = (pod(spec), ImageUser::new(None, ""));
    container_security(&pod, &pod.spec.containers[0], &image, None, &testing::node()).unwrap()
}

#[test]
fn a_container_overrides_its_pod() {
    let made = security(
        r#"{"securityContext":{"runAsUser":1000,"runAsGroup":3000,"fsGroup":1234,"supplementalGroups":[7]},
            "containers":[{"securityContext":{"runAsUser":1001,"allowPrivilegeEscalation":false}}]}"#,
    );
    assert_eq!((made.run_as_user, made.run_as_group), (Some(1001), Some(3000)));
    assert_eq!(made.supplemental_groups, [1234, 7]);
    assert!(made.no_new_privs && !made.is_privileged && !made.readonly_rootfs);
}

#[test]
fn without_a_context_the_image_decides() {
    let pod = pod(r#"{"containers":[{}]}"#);
    let made = |image| {
        let made = container_security(&pod, &pod.spec.containers[0], &image, None, &testing::node()).unwrap();
        (made.run_as_user, made.run_as_username)
    };
    assert_eq!(made(ImageUser::new(None, "")), (Some(0), String::new()));
    assert_eq!(made(ImageUser::new(Some(1234), "")), (Some(1234), String::new()));
    assert_eq!(made(ImageUser::new(None, "appuser")), (None, "appuser".to_owned()));
}

#[test]
fn root_is_refused_in_upstreams_words() {
    let check = |context: &str, image: ImageUser, expected: &str| {
        let pod = pod(&format!(r#"{{"securityContext":{context},"containers":[{{"name":"c"}}]}}"#));
        let verdict = verify_non_root(&pod, &pod.spec.containers[0], &image);
        assert_eq!(verdict.map_or_else(|error| error.message, |()| String::new()), expected);
    };
    let non_root = r#"{"runAsNonRoot":true}"#;
    check(
        non_root,
        ImageUser::new(None, ""),
        "container has runAsNonRoot and image will run as root (pod: \"p_n(u)\", container: c)",
    );
    check(
        non_root,
        ImageUser::new(None, "appuser"),
        "container has runAsNonRoot and image has non-numeric user (appuser), cannot verify user is non-root (pod: \"p_n(u)\", container: c)",
    );
    check(non_root, ImageUser::new(Some(1234), ""), "");
    check(
        r#"{"runAsNonRoot":true,"runAsUser":0}"#,
        ImageUser::new(Some(5), ""),
        "container's runAsUser breaks non-root policy (pod: \"p_n(u)\", container: c)",
    );
    check(r#"{"runAsNonRoot":true,"runAsUser":5}"#, ImageUser::new(None, ""), "");
    check("{}", ImageUser::new(None, ""), "");
}

#[test]
fn profiles_of_system_calls() {
    let check =
        |spec: &str, expected: SecurityProfile| assert_eq!(security(spec).seccomp, Some(expected), "{spec}");
    check(r#"{"containers":[{}]}"#, SecurityProfile::Unconfined);
    let default = r#"{"seccompProfile":{"type":"RuntimeDefault"}}"#;
    check(
        &format!(r#"{{"securityContext":{default},"containers":[{{}}]}}"#),
        SecurityProfile::RuntimeDefault,
    );
    check(
        &format!(
            r#"{{"securityContext":{default},"containers":[{{"securityContext":{{"seccompProfile":{{"type":"Unconfined"}}}}}}]}}"#
        ),
        SecurityProfile::Unconfined,
    );
    check(
        r#"{"containers":[{"securityContext":{"seccompProfile":{"type":"Localhost","localhostProfile":"x.json"}}}]}"#,
        SecurityProfile::Localhost("/var/lib/agent/seccomp/x.json".to_owned()),
    );
    let node = NodeFacts { has_seccomp_default: true, ..testing::node() };
    let pod = pod(r#"{"containers":[{}]}"#);
    let made = container_security(&pod, &pod.spec.containers[0], &ImageUser::default(), None, &node).unwrap();
    assert_eq!(made.seccomp, Some(SecurityProfile::RuntimeDefault));
}

#[test]
fn namespaces_follow_the_host_flags() {
    let made = namespaces(&pod(r#"{"hostNetwork":true,"hostIPC":true,"hostPID":true}"#));
    assert_eq!([made.network, made.ipc, made.pid], [NamespaceMode::Node; 3]);
    let made = namespaces(&pod("{}"));
    assert_eq!(
        [made.network, made.ipc, made.pid],
        [NamespaceMode::Pod, NamespaceMode::Pod, NamespaceMode::Container]
    );
    assert_eq!(namespaces(&pod(r#"{"shareProcessNamespace":true}"#)).pid, NamespaceMode::Pod);
    let pod = pod(r#"{"containers":[{}]}"#);
    let (container, image) = (&pod.spec.containers[0], ImageUser::default());
    let made = container_security(&pod, container, &image, Some("id"), &testing::node()).unwrap();
    assert_eq!((made.namespaces.pid, &*made.namespaces.target_id), (NamespaceMode::Target, "id"));
}

#[test]
fn sandboxes_run_with_the_default_profile() {
    let made =
        sandbox_security(&pod(r#"{"securityContext":{"runAsUser":5,"seccompProfile":{"type":"Unconfined"}},
            "containers":[{},{"securityContext":{"privileged":true}}]}"#));
    assert_eq!(made.seccomp, Some(SecurityProfile::RuntimeDefault));
    assert_eq!((made.run_as_user, made.is_privileged), (Some(5), true));
}

#[test]
fn names_of_kernel_parameters_have_two_spellings() {
    assert_eq!(dotted_sysctl("kernel/shm_rmid_forced"), "kernel.shm_rmid_forced");
    assert_eq!(dotted_sysctl("net/ipv4/conf/eno2.100/rp_filter"), "net.ipv4.conf.eno2/100.rp_filter");
    assert_eq!(dotted_sysctl("net.ipv4.conf.eno2/100.rp_filter"), "net.ipv4.conf.eno2/100.rp_filter");
}

#[test]
fn apparmor_profiles_are_annotations() {
    let mut pod = pod(r#"{"containers":[{"name":"c"}]}"#);
    let key = format!("{}c", names::node::APPARMOR_ANNOTATION);
    pod.metadata.annotations.insert(key.clone(), "unconfined".to_owned());
    assert_eq!((apparmor(&pod, "c"), needs_apparmor(&pod)), (Some(SecurityProfile::Unconfined), false));
    pod.metadata.annotations.insert(key, "localhost/zz".to_owned());
    let expected = Some(SecurityProfile::Localhost("zz".to_owned()));
    assert_eq!((apparmor(&pod, "c"), apparmor(&pod, "d"), needs_apparmor(&pod)), (expected, None, true));
}
