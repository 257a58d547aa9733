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
    Gate { name: "CSIMigration", is_open: true, stage: "ga", is_locked: true },
    Gate { name: "WindowsHostProcessContainers", is_open: true, stage: "ga", is_locked: true },
];

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
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().display().to_string();
        for (file, text) in case["files"].as_object().unwrap() {
            let path = folder.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text.as_str().unwrap().replace("$D", &at)).unwrap();
        }
        let words: Vec<String> = case["args"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it.as_str().unwrap().replace("$D", &at))
            .collect();
        let result = Flags::parse(&words).and_then(|flags| load(&flags, GATES, &Names::kubernetes()));
        let got = result.err().map(|why| why.message.replace(&at, "$D")).unwrap_or_default();
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
