use super::*;
use clap::Parser;

#[derive(Parser)]
struct ParsedLine {
    #[command(flatten)]
    admission: Admission,
}

/// The options and their errors.
fn given(line: &str) -> (admission::Options, String) {
    let line = ParsedLine::try_parse_from(std::iter::once("pintle").chain(line.split_whitespace()));
    let mut errors = ConfigErrors::default();
    let options = line.expect("options that can be parsed").admission.read(
        DeploymentMode::AllInOne { runs_controllers: false },
        &Names::kubernetes(),
        &mut errors,
    );
    (options, errors.check().err().map(|why| why.to_string()).unwrap_or_default())
}

#[test]
fn switches_are_checked_against_each_other() {
    let (options, errors) = given("");
    assert_eq!(
        (options.enable, options.disable),
        (vec!["NodeRestriction".into()], vec!["ServiceAccount".into()])
    );
    assert_eq!((errors, options.toleration_seconds), (String::new(), TolerationSeconds::default()));
    // explicit flags win
    let (options, _) = given(
        "--enable-admission-plugins ServiceAccount,AlwaysPullImages --disable-admission-plugins NodeRestriction",
    );
    assert_eq!(options.enable, ["ServiceAccount", "AlwaysPullImages"]);
    assert_eq!(options.disable, ["NodeRestriction"]);
    let (options, errors) = given("--admission-control LimitRanger,AlwaysAdmit");
    assert_eq!((options.enable.len(), errors.as_str()), (2, ""));
    assert!(options.disable.contains(&"NamespaceLifecycle".to_owned()));
    for (line, message) in [
        (
            "--enable-admission-plugins Nope,Priority",
            "--enable-admission-plugins: plugin \"Nope\" is unknown",
        ),
        ("--disable-admission-plugins Nope", "--disable-admission-plugins: plugin \"Nope\" is unknown"),
        ("--admission-control Nope", "--admission-control: plugin \"Nope\" is unknown"),
        (
            "--enable-admission-plugins Priority --disable-admission-plugins Priority",
            "[Priority] are also in",
        ),
        ("--enable-admission-plugins Priority --admission-control AlwaysAdmit", "together"),
    ] {
        let (_, errors) = given(line);
        assert!(errors.contains(message), "{line}: {errors}");
    }
}

#[test]
fn configurations_are_named_by_file_and_plugin() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let read = |text: &str| {
        let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n";
        write("main.yaml", &if text.contains("kind:") { text.to_owned() } else { format!("{head}{text}") });
        configuration(&folder.path().join("main.yaml"), &Names::kubernetes())
    };
    write("quota.yaml", "kind: Quota");
    let message = read(
        "- name: ResourceQuota\n  path: quota.yaml\n- {name: PodSecurity, configuration: {a: b}}\n- {name: X, path: ''}\n",
    );
    let message = message.unwrap();
    assert_eq!(message.keys().collect::<Vec<_>>(), ["PodSecurity", "ResourceQuota"]);
    assert_eq!(message["ResourceQuota"].text(&["kind"]), "Quota");
    write("bad.yaml", "a: [");
    for (text, parts) in [
        ("- {name: ResourceQuota, path: none.yaml}", &["main.yaml", "ResourceQuota", "none.yaml"][..]),
        ("- {name: ResourceQuota, path: bad.yaml}", &["main.yaml", "ResourceQuota", "bad.yaml", "line 1"]),
        ("- {name: Priority, pth: x}", &["main.yaml", "Priority", "pth"]),
        ("- {name: Priority, configuration: {}}\n- {name: Priority, path: x}", &["plugins[1]", "twice"]),
        ("  a: b", &["plugins must be a list"]),
        ("kind: Pod\napiVersion: v1", &["main.yaml", "Pod", "AdmissionConfiguration"]),
        ("kind: [", &["main.yaml", "line 1"]),
    ] {
        let why = read(text).unwrap_err();
        for part in parts {
            assert!(why.contains(part), "{text}: {why}");
        }
    }
}
