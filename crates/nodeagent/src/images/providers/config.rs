//! The configuration of credential providers: `CredentialProviderConfig`.

use crate::configuration::object_text;
use crate::images::image_match;
use names::node::{CONFIGURATION_GROUP, CREDENTIAL_PROVIDER_GROUP};
use schema::table::{Field, Flags, ListKind, ListShape, Scalar, Shape, Type};
use schema::time::{format_duration, parse_duration};
use schema::{Value, decode};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The scheme of this kind, as upstream's errors name it.
const SCHEME: &str = "pkg/credentialprovider/plugin/plugin.go:58";
const KIND: &str = "CredentialProviderConfig";
const VERSIONS: [&str; 3] = ["v1", "v1alpha1", "v1beta1"];

/// A program that returns credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderConfig {
    pub name: String,
    pub program: PathBuf,
    pub match_images: Vec<String>,
    pub default_cache: Duration,
    pub api_version: String,
    pub args: Vec<String>,
    pub env: Vec<(String, String)>,
}

/// Reads and checks the file, and looks for the programs. Error texts are upstream's.
pub fn load(file: &Path, bin_dir: &Path) -> Result<Vec<ProviderConfig>, String> {
    if !bin_dir.exists() {
        return Err(format!("plugin binary directory {} did not exist", bin_dir.display()));
    }
    if file.as_os_str().is_empty() {
        return Err("credential provider config path is empty".to_owned());
    }
    let text = std::fs::read(file).map_err(|error| {
        let error = outbound::io_text(&error);
        let shown = file.display();
        format!(
            "unable to read external registry credential provider configuration from {shown:?}: open {shown}: {error}",
            shown = shown.to_string()
        )
    })?;
    let tree = parse(&text).map_err(|error| format!("error decoding config {}: {error}", file.display()))?;
    let providers: Vec<&Value> =
        tree.at(&["providers"]).and_then(Value::as_list).into_iter().flatten().collect();
    let problems = validate(&providers);
    match &*problems {
        [] => {}
        [one] => return Err(format!("failed to validate credential provider config: {one}")),
        all => return Err(format!("failed to validate credential provider config: [{}]", all.join(", "))),
    }
    let configs: Vec<ProviderConfig> = providers.into_iter().map(|it| provider(it, bin_dir)).collect();
    match configs.iter().find(|it| !it.program.exists()) {
        Some(absent) => Err(format!("plugin binary executable {} did not exist", absent.program.display())),
        None => Ok(configs),
    }
}

fn parse(text: &[u8]) -> Result<Value, String> {
    let tree = object_text::read(text)?;
    let (kind, version) = (tree.text(&["kind"]), tree.text(&["apiVersion"]));
    let known = version.split_once('/').filter(|(group, version)| {
        kind == KIND && is_group(group, CONFIGURATION_GROUP) && VERSIONS.contains(version)
    });
    let Some((_, short)) = known else {
        return Err(format!("no kind {kind:?} is registered for version {version:?} in scheme {SCHEME:?}"));
    };
    let table = table(short.to_owned());
    decode::tree(tree, &table).map(|it| it.value).map_err(|why| why.to_string())
}

/// The type of the file. Errors name the version.
fn table(version: String) -> Type {
    let text = |name: &'static str| Field::new(name, Shape::Scalar(Scalar::String));
    let list = |item| Shape::List(ListShape { item, kind: ListKind::Atomic, default: None }.into());
    let texts = |name: &'static str| Field::new(name, list(Shape::Scalar(Scalar::String)));
    let structure =
        |name: &'static str, fields| Shape::Struct(Type::new(name, version.clone(), fields).into());
    let cache = Field::new("defaultCacheDuration", Shape::Scalar(Scalar::Duration));
    let variable = structure("ExecEnvVar", vec![text("name"), text("value")]);
    let provider = structure(
        "CredentialProvider",
        vec![
            text("name"),
            texts("matchImages"),
            Field { flags: Flags::NILABLE, ..cache },
            text("apiVersion"),
            texts("args"),
            Field::new("env", list(variable)),
        ],
    );
    let fields = vec![text("kind"), text("apiVersion"), Field::new("providers", list(provider))];
    Type::new(KIND, version.clone(), fields)
}

/// Whether a group is the well-known one, in either spelling of the agent.
fn is_group(group: &str, known: &str) -> bool {
    group == known || group == known.replace("kubelet", "nodeagent")
}

/// A version of the protocol in the spelling of this agent; `None` if it is unknown.
fn protocol_version(version: &str) -> Option<String> {
    let (group, short) = version.split_once('/')?;
    let is_known = is_group(group, CREDENTIAL_PROVIDER_GROUP) && VERSIONS.contains(&short);
    is_known.then(|| version.to_owned())
}

/// Every problem, with the path of its field.
fn validate(providers: &[&Value]) -> Vec<String> {
    let mut problems = Vec::new();
    if providers.is_empty() {
        problems.push("providers: Required value: at least 1 item in plugins is required".to_owned());
    }
    for provider in providers {
        let mut add = |field: &str, problem: String| problems.push(format!("providers.{field}: {problem}"));
        let name = provider.text(&["name"]);
        let invalid = |message: &str| format!("Invalid value: {name:?}: {message}");
        if name.contains('/') {
            add("name", invalid("provider name cannot contain '/'"));
        }
        if name.contains(' ') {
            add("name", invalid("provider name cannot contain spaces"));
        }
        if name == "." || name == ".." {
            add("name", invalid(&format!("provider name cannot be '{name}'")));
        }
        match provider.text(&["apiVersion"]) {
            "" => add("apiVersion", "Required value: apiVersion is required".to_owned()),
            version if protocol_version(version).is_none() => {
                let supported = VERSIONS.map(|it| format!("\"{CREDENTIAL_PROVIDER_GROUP}/{it}\"")).join(", ");
                add("apiVersion", format!("Unsupported value: {version:?}: supported values: {supported}"));
            }
            _ => {}
        }
        let images = texts(provider, "matchImages");
        if images.is_empty() {
            add("matchImages", "Required value: at least 1 item in matchImages is required".to_owned());
        }
        for image in &images {
            if let Err(error) = image_match::parse(image) {
                add("matchImages", format!("Invalid value: {image:?}: match image is invalid: {error}"));
            }
        }
        match cache_nanos(provider) {
            None => {
                add("defaultCacheDuration", "Required value: defaultCacheDuration is required".to_owned())
            }
            Some(nanos) if nanos < 0 => {
                let shown = format_duration(nanos);
                let message = "defaultCacheDuration must be greater than or equal to 0";
                add("defaultCacheDuration", format!("Invalid value: {shown}: {message}"));
            }
            Some(_) => {}
        }
    }
    problems
}

fn cache_nanos(provider: &Value) -> Option<i64> {
    parse_duration(provider.at(&["defaultCacheDuration"])?.as_str()?).ok()
}

fn texts(provider: &Value, field: &str) -> Vec<String> {
    let list = provider.at(&[field]).and_then(Value::as_list).unwrap_or_default();
    list.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn provider(tree: &Value, bin_dir: &Path) -> ProviderConfig {
    let name = tree.text(&["name"]).to_owned();
    let env = tree.at(&["env"]).and_then(Value::as_list).unwrap_or_default();
    ProviderConfig {
        program: bin_dir.join(&name),
        name,
        match_images: texts(tree, "matchImages"),
        default_cache: Duration::from_nanos(u64::try_from(cache_nanos(tree).unwrap_or(0)).unwrap_or(0)),
        api_version: tree.text(&["apiVersion"]).to_owned(),
        args: texts(tree, "args"),
        env: env.iter().map(|it| (it.text(&["name"]).to_owned(), it.text(&["value"]).to_owned())).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The recorder sorts supported values; so does this.
    fn sorted_values(text: &str) -> String {
        let Some((before, after)) = text.split_once("supported values: ") else { return text.to_owned() };
        let mut values: Vec<&str> = after.split(", ").collect();
        values.sort_unstable();
        format!("{before}supported values: {}", values.join(", "))
    }

    #[test]
    fn recorded_files_have_these_errors() {
        let Some(path) = testdata::find("recorded-node/config/credential-provider.json") else { return };
        let text = std::fs::read_to_string(path).unwrap();
        let cases: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
        assert!(cases.len() > 20);
        for case in cases {
            let name = case["name"].as_str().unwrap();
            // the recorder garbles the order of a list within a list
            if name == "cred-many-bad" {
                continue;
            }
            let dir = tempfile::tempdir().unwrap();
            for (file, text) in case["files"].as_object().unwrap() {
                let path = dir.path().join(file);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, text.as_str().unwrap()).unwrap();
            }
            let made = load(&dir.path().join("c.yaml"), &dir.path().join("bin")).err().unwrap_or_default();
            let made = made.replace(dir.path().to_str().unwrap(), "$D");
            let expected = case["expect"]["error"].as_str().unwrap();
            let expected =
                expected.strip_prefix("\"Failed to register CRI auth plugins\" err=\"").unwrap_or_default();
            let expected = expected.strip_suffix('"').unwrap_or_default().replace("\\\"", "\"");
            assert_eq!(sorted_values(&made), sorted_values(&expected), "{name}");
        }
    }

    #[test]
    fn all_versions_of_the_file_and_of_the_protocol_are_read() {
        for (file, protocol) in
            [("v1alpha1", "v1alpha1"), ("v1beta1", "v1beta1"), ("v1", "v1"), ("v1", "v1alpha1")]
        {
            let dir = tempfile::tempdir().unwrap();
            let (path, bin_dir) = (dir.path().join("c.yaml"), dir.path().join("bin"));
            std::fs::create_dir(&bin_dir).unwrap();
            std::fs::write(bin_dir.join("p"), "").unwrap();
            let text = format!(
                "kind: CredentialProviderConfig\napiVersion: {CONFIGURATION_GROUP}/{file}\nproviders:\n- name: p\n  \
                 matchImages: [a.test]\n  defaultCacheDuration: 5m\n  \
                 apiVersion: {CREDENTIAL_PROVIDER_GROUP}/{protocol}\n"
            );
            std::fs::write(&path, text).unwrap();
            let configs = load(&path, &bin_dir).unwrap();
            assert_eq!(configs[0].api_version, format!("{CREDENTIAL_PROVIDER_GROUP}/{protocol}"), "{file}");
            assert_eq!(configs[0].default_cache, Duration::from_secs(300));
        }
    }
}
