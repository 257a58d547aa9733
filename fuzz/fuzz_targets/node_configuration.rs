//! Files of a node: configurations of the agent and of credential providers, static pods, credentials of registries.

#![no_main]

use fuzz::objects::NAMES;
use fuzz::temporary::{FOLDER, file, folder};
use libfuzzer_sys::fuzz_target;
use nodeagent::configuration::{AGENT_GATES, Flags, Gate, cpuset, load};
use nodeagent::images::docker_config::DockerConfig;
use nodeagent::images::keyring::Keyring;
use nodeagent::images::{image_match, providers};
use nodeagent::sources::static_pods::{StaticPlace, StaticSource, read};
use std::sync::LazyLock;

static GATES: LazyLock<Vec<Gate>> = LazyLock::new(|| {
    let gate =
        |(name, _): &(&'static str, &str)| Gate { name, is_open: true, stage: "beta", is_locked: false };
    AGENT_GATES.iter().map(gate).collect()
});

fuzz_target!(
    init: fuzz::forgive_panics_in("saphyr-parser"),
    |data: &[u8]| {
        let Some((choice, rest)) = fuzz::choice(data) else { return };
        match choice % 8 {
            0 | 1 => configuration(rest),
            2 => {
                let bin = FOLDER.join("bin");
                let _ = std::fs::create_dir_all(&bin);
                let _ = std::fs::write(bin.join("a"), "");
                let _ = providers::config::load(&file("providers", rest), &bin);
            }
            3 | 4 => static_pods(rest),
            5 => credentials(rest),
            6 => {
                let Some(text) = fuzz::text(rest) else { return };
                if let Ok(set) = cpuset::parse(text) {
                    assert_eq!(cpuset::parse(&cpuset::format(&set)), Ok(set), "{text}");
                }
                let [pattern, image, _] = fuzz::texts(rest).unwrap_or_default();
                let _ = image_match::is_match(pattern, image);
            }
            _ => {
                let Some(text) = fuzz::text(rest) else { return };
                let arguments: Vec<String> = text.split('\0').map(str::to_owned).collect();
                // a configuration is a file of the machine
                if !text.contains("config")
                    && let Ok(flags) = Flags::parse(&arguments)
                {
                    let _ = load(&flags, &GATES, &NAMES);
                }
            }
        }
    }
);

fn configuration(text: &[u8]) {
    let loaded = |text: &[u8]| {
        let arguments = [format!("--config={}", file("configuration", text).display())];
        let flags = Flags::parse(&arguments).expect("a flag");
        load(&flags, &GATES, &NAMES).map(|it| it.configuration)
    };
    let Ok(configuration) = loaded(text) else { return };
    let shown = configuration.to_yaml(&NAMES);
    let again = loaded(shown.as_bytes()).unwrap_or_else(|why| panic!("{why:?}: {shown}"));
    assert_eq!(again.to_yaml(&NAMES), shown);
}

fn static_pods(text: &[u8]) {
    let place = StaticPlace {
        node: "N1".into(),
        source: StaticSource::File,
        origin: "/a".into(),
        seen: "2026-01-01T00:00:00Z".into(),
    };
    for pod in read(text, &place).into_iter().flatten() {
        assert!(pod.metadata.name.ends_with("-n1") && !pod.metadata.uid.is_empty(), "{:?}", pod.metadata);
    }
}

fn credentials(text: &[u8]) {
    let root = folder("agent");
    std::fs::write(root.join("config.json"), text).expect("a file");
    let mut keyring = Keyring::default();
    DockerConfig::new(&root, None).add_to(&mut keyring);
    for image in ["a", "a/b:c", "r.example.com:5000/a/b@sha256:00", "a.b.c/d"] {
        keyring.lookup(image);
    }
}
