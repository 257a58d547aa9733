use super::*;
use crate::tests::RULES;

const HEAD: &str = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n";

fn read_with(text: &str, rules: Rules) -> Result<Configuration, String> {
    Configuration::read(format!("{HEAD}{text}").as_bytes(), &Names::kubernetes(), rules)
}

fn wrong(providers: &str, expected: &str) {
    let text = format!("resources:\n- resources: [secrets]\n  providers: {providers}\n");
    assert_eq!(read_with(&text, RULES).unwrap_err(), expected, "{providers}");
}

#[test]
fn all_fields_are_parsed() {
    let text = "resources:
- resources: [secrets, configmaps, pandas.awesome.bears.example, deployments.apps]
  providers:
  - aescbc: {keys: [{name: key1, secret: c2VjcmV0IGlzIHNlY3VyZQ==}]}
  - kms: {name: one, endpoint: 'unix:///tmp/one.sock'}
  - kms: {apiVersion: v2, name: two, endpoint: 'unix:///@two', cachesize: -1, timeout: 1m}
  - identity: {}
- resources: [events]
  providers: [identity: {}]
";
    let read = read_with(text, RULES).unwrap();
    assert!(!read.is_plaintext());
    let named: Vec<_> = read.resources().collect();
    let expected = [
        ("secrets", ""),
        ("configmaps", ""),
        ("pandas", "awesome.bears.example"),
        ("deployments", "apps"),
        ("events", ""),
    ];
    assert_eq!(named, expected);
    let ProviderSettings::Server(one) = &read.entries[0].providers[1] else { panic!() };
    assert_eq!((one.timeout, one.cache, one.version), (Duration::from_secs(3), 1000, kms::Version::V1));
    let ProviderSettings::Server(two) = &read.entries[0].providers[2] else { panic!() };
    assert_eq!((two.timeout, two.cache, two.version), (Duration::from_secs(60), 0, kms::Version::V2));
    assert_eq!(two.endpoint, Endpoint::Unix("\0two".into()));
    assert!(!format!("{read:?}").contains("secret is secure"));
    assert!(
        read_with("resources: [{resources: [a], providers: [{identity: {}}]}]", RULES)
            .unwrap()
            .is_plaintext()
    );
}

#[test]
fn invalid_keys_are_reported_with_their_paths() {
    let at = "resources[0].providers[0]";
    wrong(
        "[aescbc: {keys: []}]",
        &format!("{at}.aescbc.keys: Required value: at least one keys is required"),
    );
    let many = "[aesgcm: {keys: [{secret: x}, {name: a}, {name: b, secret: 'c2VjcmV0'}]}]";
    wrong(
        many,
        &format!(
            "[{at}.aesgcm.keys[0].name: Required value: name is a mandatory field for a key, \
             {at}.aesgcm.keys[0].secret: Invalid value: \"REDACTED\": secrets must be base64 encoded, \
             {at}.aesgcm.keys[1].secret: Required value: secret is a mandatory field for a key, \
             {at}.aesgcm.keys[2].secret: Invalid value: \"REDACTED\": secret is not of the expected length, got 6, \
             expected one of [16 24 32]]"
        ),
    );
    let short = "[secretbox: {keys: [{name: a, secret: c2VjcmV0IGlzIHNlY3VyZQ==}]}]";
    let message = "secret is not of the expected length, got 16, expected one of [32]";
    wrong(short, &format!("{at}.secretbox.keys[0].secret: Invalid value: \"REDACTED\": {message}"));
}

#[test]
fn each_entry_has_one_provider() {
    let at = "resources[0].providers[0]: Invalid value";
    wrong("[{}]", &format!("{at}: \"\": {EXPECTED}"));
    wrong("[{rot13: {}}]", &format!("{at}: \"\": {EXPECTED}"));
    let two = "[{identity: {}, aescbc: {keys: [{name: a, secret: c2VjcmV0IGlzIHNlY3VyZQ==}]}}]";
    wrong(two, &format!("{at}: \"aescbc, identity\": {SEVERAL}"));
    wrong("[]", "resources[0].providers: Required value: at least one resources[0].providers is required");
    let none = "resources: [{resources: [], providers: [{identity: {}}]}]";
    assert_eq!(
        read_with(none, RULES).unwrap_err(),
        "resources[0].resources: Required value: at least one resources[0].resources is required"
    );
    assert_eq!(
        read_with("resources: []", RULES).unwrap_err(),
        "resources: Required value: at least one resources is required"
    );
    wrong("[{aescbc: 5}]", "resources[0].providers[0].aescbc: must be an object");
    wrong(
        "7",
        "[resources[0].providers: must be a list, resources[0].providers: Required value: at least one resources[0].providers is required]",
    );
}

#[test]
fn invalid_kms_providers_are_reported() {
    let at = "resources[0].providers[0].kms";
    let kms = |text: &str, path: &str, expected: &str| {
        wrong(&format!("[kms: {{{text}}}]"), &format!("{at}.{path}: {expected}"));
    };
    let end = "endpoint: 'unix:///x'";
    kms(end, "name", "Required value: name is a mandatory field for a provider");
    kms("name: a", "endpoint", "Invalid value: \"\": endpoint is a mandatory field for a kms");
    let scheme = "unsupported scheme \"http\" for KMS provider, only unix is supported";
    kms("name: a, endpoint: 'http://x'", "endpoint", &format!("Invalid value: \"http://x\": {scheme}"));
    kms(
        "name: a, endpoint: \"unix:///x\\n\"",
        "endpoint",
        "Invalid value: \"unix:///x\\n\": invalid endpoint for kms provider, error: parse \"unix:///x\\n\": net/url: invalid control character in URL",
    );
    let positive = "cachesize should be a positive value, or negative to disable";
    kms(&format!("name: a, {end}, cachesize: 0"), "cachesize", &format!("Invalid value: 0: {positive}"));
    let timeout = "timeout should be a positive value";
    kms(&format!("name: a, {end}, timeout: 0s"), "timeout", &format!("Invalid value: 0s: {timeout}"));
    kms(&format!("name: a, {end}, timeout: -1m"), "timeout", &format!("Invalid value: -1m0s: {timeout}"));
    let version = "unsupported apiVersion apiVersion for KMS provider, only v1 and v2 are supported";
    kms(
        &format!("name: a, {end}, apiVersion: v3"),
        "apiVersion",
        &format!("Invalid value: \"v3\": {version}"),
    );
    let colon = "invalid KMS provider name a:b, must not contain ':'";
    kms(&format!("name: 'a:b', {end}, apiVersion: v2"), "name", &format!("Invalid value: \"a:b\": {colon}"));
}

#[test]
fn kms_provider_names_are_unique_if_required() {
    let text = |version: &str| {
        let one = format!("{{kms: {{name: a, endpoint: 'unix:///x', apiVersion: {version}}}}}");
        format!("resources: [{{resources: [a], providers: [{one}, {one}]}}]")
    };
    let message = "resources[0].providers[1].kms.name: Invalid value: \"a\": duplicate KMS provider name a, names must be unique";
    let stays = Rules { reloads: false, ..RULES };
    assert_eq!(read_with(&text("v1"), RULES).unwrap_err(), message);
    assert_eq!(read_with(&text("v2"), stays).unwrap_err(), message);
    assert!(read_with(&text("v1"), stays).is_ok());
    let closed = read_with(&text("v2"), Rules { second_version: false, ..stays }).unwrap_err();
    assert!(
        closed.contains("could not configure KMSv2 plugin \"a\", KMSv2 feature is not enabled"),
        "{closed}"
    );
}

#[test]
fn other_files_are_refused() {
    let read = |text: &str| Configuration::read(text.as_bytes(), &Names::kubernetes(), RULES).unwrap_err();
    assert!(read("").contains("EncryptionConfiguration"));
    assert!(read("kind: EncryptionConfig\napiVersion: v1\n").contains("apiserver.config.k8s.io/v1"));
    assert!(read("kind: A\nkind: B\n").contains("twice"));
    read("{");
}
