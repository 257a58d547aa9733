use super::*;

/// Gates that the recorded cases name.
const GATES: &[Gate] = &[
    Gate { name: "CustomCPUCFSQuotaPeriod", is_open: false, stage: "alpha", is_locked: false },
    Gate { name: "CPUManagerPolicyOptions", is_open: true, stage: "beta", is_locked: false },
    Gate { name: "CPUManagerPolicyBetaOptions", is_open: true, stage: "beta", is_locked: false },
    Gate { name: "TopologyManager", is_open: true, stage: "beta", is_locked: false },
    Gate { name: "GracefulNodeShutdown", is_open: true, stage: "beta", is_locked: false },
    Gate { name: "GracefulNodeShutdownBasedOnPodPriority", is_open: true, stage: "beta", is_locked: false },
    Gate { name: "NodeSwap", is_open: false, stage: "alpha", is_locked: false },
    Gate { name: "KubeletTracing", is_open: false, stage: "alpha", is_locked: false },
    Gate { name: "QOSReserved", is_open: false, stage: "alpha", is_locked: false },
    Gate { name: "LoggingBetaOptions", is_open: true, stage: "beta", is_locked: false },
    Gate { name: "LoggingAlphaOptions", is_open: false, stage: "alpha", is_locked: false },
    Gate { name: "SeccompDefault", is_open: true, stage: "beta", is_locked: false },
    Gate { name: "RotateKubeletServerCertificate", is_open: true, stage: "beta", is_locked: false },
    Gate { name: "TopologyManagerPolicyOptions", is_open: false, stage: "alpha", is_locked: false },
    Gate { name: "CSIMigration", is_open: true, stage: "ga", is_locked: true },
    Gate { name: "WindowsHostProcessContainers", is_open: true, stage: "ga", is_locked: true },
];

/// The error of a command line; paths in the directory of its files are shown as `$D`.
fn judge(files: &[(&str, &str)], words: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().display().to_string();
    for (file, text) in files {
        let path = folder.path().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text.replace("$D", &at)).unwrap();
    }
    let words: Vec<String> = words.iter().map(|it| it.replace("$D", &at)).collect();
    let result = Flags::parse(&words).and_then(|flags| load(&flags, GATES, &Names::kubernetes()));
    result.err().map(|why| why.message.replace(&at, "$D")).unwrap_or_default()
}

/// Every recorded file and command line that upstream refuses, and those that it accepts.
#[test]
fn recorded_configurations_are_judged_alike() {
    let Some(path) = testdata::find("recorded-node/config/kubelet-config.json") else { return };
    let cases: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let mut wrong = Vec::new();
    for case in cases.as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        // credential providers are checked by the images
        if name.starts_with("flag-cred") {
            continue;
        }
        let files: Vec<(&str, &str)> = case["files"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, it)| (&**name, it.as_str().unwrap()))
            .collect();
        let words: Vec<&str> =
            case["args"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
        let got = judge(&files, &words);
        let expected = match case["expect"]["rc"].as_str() {
            Some("running") => "",
            _ => case["expect"]["error"].as_str().unwrap(),
        };
        if got != expected {
            wrong.push(format!("{name}\n  expected {expected}\n  got      {got}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Others like them: flags, fields, and the text that upstream's code gives for them.
#[test]
fn mistakes_have_upstreams_words() {
    const HEAD: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
    const ALONE: &str = "authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}\n\
                         authorization: {mode: AlwaysAllow}\n";
    let cases: Vec<(Vec<String>, String, String)> =
        serde_json::from_str(include_str!("mistakes.json")).unwrap();
    let mut wrong = Vec::new();
    for (flags, fields, expected) in &cases {
        let alone =
            if fields.contains("authorization:") || fields.contains("authentication:") { "" } else { ALONE };
        let file = format!("{HEAD}{alone}{fields}");
        let mut words = vec![
            "--config",
            "$D/k.yaml",
            "--container-runtime-endpoint",
            "unix:///x",
            "--cert-dir",
            "$D/pki",
        ];
        words.extend(flags.iter().map(String::as_str));
        let got = judge(&[("k.yaml", &file)], &words);
        if got != *expected {
            wrong.push(format!("{flags:?} {fields:?}\n  expected {expected}\n  got      {got}"));
        }
    }
    assert!(wrong.is_empty() && cases.len() > 100, "{}", wrong.join("\n"));
}

/// The configuration that `--write-config` prints.
fn printed(words: &[&str]) -> Configuration {
    let words: Vec<String> = ["--write-config"].iter().chain(words).map(|&it| it.to_owned()).collect();
    let flags = Flags::parse(&words).unwrap();
    load(&flags, GATES, &Names::kubernetes()).unwrap_or_else(|why| panic!("{}", why.message)).configuration
}

#[test]
fn a_configuration_that_is_printed_has_the_defaults_of_a_file() {
    assert_eq!(printed(&[]), Configuration::default());
    // an agent without a file has upstream's old defaults of flags
    let old = load(&Flags::default(), GATES, &Names::kubernetes()).unwrap().configuration;
    assert_eq!((old.int("readOnlyPort"), old.text(&["authorization", "mode"])), (10255, "AlwaysAllow"));
    let given = printed(&["--anonymous-auth=true", "--read-only-port=10255", "--max-pods=7"]);
    assert!(given.flag(&["authentication", "anonymous", "enabled"]));
    assert_eq!((given.int("readOnlyPort"), given.int("maxPods")), (10255, 7));
    assert_eq!(given.text(&["authorization", "mode"]), "Webhook");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("k.yaml");
    std::fs::write(&file, printed(&["--max-pods=7"]).to_yaml(&Names::kubernetes())).unwrap();
    let read = printed(&["--config", &file.display().to_string()]);
    assert_eq!((read.int("readOnlyPort"), read.int("maxPods")), (0, 7));
    assert!(!read.flag(&["authentication", "anonymous", "enabled"]));
    assert_eq!(read.text(&["authorization", "mode"]), "Webhook");
}

#[test]
fn the_specification_spells_policies_and_a_gate_in_its_own_way() {
    let configuration = |kind: &str| {
        format!(
            "apiVersion: nodeagent.config.k8s.io/v1beta1\nkind: {kind}\ncpuManagerPolicy: None\n\
             memoryManagerPolicy: none\nfeatureGates: {{RotateServerCertificate: false}}\n\
             authentication: {{webhook: {{enabled: false}}}}\nauthorization: {{mode: AlwaysAllow}}\n"
        )
    };
    let words = ["--config", "$D/k.yaml", "--cert-dir", "$D/pki"];
    assert_eq!(judge(&[("k.yaml", &configuration("NodeAgentConfiguration"))], &words), "");
    let upstream = judge(&[("k.yaml", &configuration("KubeletConfiguration"))], &words);
    assert!(upstream.contains("unknown policy: \"None\""), "{upstream}");
    let gates = Gates::new(GATES, &[("RotateServerCertificate".to_owned(), false)]).unwrap();
    assert!(!gates.is_open("RotateKubeletServerCertificate"));
}
