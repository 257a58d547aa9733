//! From text to a [`Configuration`].

use super::args::{Args, ArgsKind, set_defaults};
use super::defaults;
use super::error::ConfigError;
use super::gates::Gates;
use super::tables;
use super::types::Configuration;
use super::version::{Version, group};
use names::Names;
use schema::decode::{self, Decoded};
use schema::yaml::{self, Limits};
use schema::{Map, Value};

const KIND: &str = "KubeSchedulerConfiguration";
/// The scheme of these kinds, as upstream's errors name it.
const SCHEME: &str = "pkg/scheduler/apis/config/scheme/scheme.go:31";

impl Configuration {
    /// Reads a configuration from YAML or JSON, and fills in its defaults. Its values are not validated yet.
    pub fn read(text: &[u8], names: &Names, gates: Gates) -> Result<Self, ConfigError> {
        read(text, names, gates).map_err(ConfigError::Decode)
    }

    /// The default configuration.
    pub fn with_defaults(names: &Names, gates: Gates) -> Self {
        defaults::build(&Value::map(), Vec::new(), Version::V1, names, gates)
    }
}

fn read(text: &[u8], names: &Names, gates: Gates) -> Result<Configuration, String> {
    let (value, mut oddities) = parse(text)?;
    let version = version_of(&value, text, names)?;
    let decoded = decode::tree(value, tables::configuration(version));
    let decoded =
        decoded.map_err(|why| why.to_string().replace("qps of type float64", "qps of type float32"))?;
    oddities.extend(decoded.strict_errors.iter().map(ToString::to_string));
    let mut reader = ArgsReader { version, names, gates, oddities };
    let args = reader.read_all(&decoded.value)?;
    if !reader.oddities.is_empty() {
        return Err(strict_error(&reader.oddities));
    }
    Ok(defaults::build(&decoded.value, args, version, names, gates))
}

fn strict_error(oddities: &[String]) -> String {
    format!("strict decoding error: {}", oddities.join(", "))
}

/// A tree, and the duplicate fields of its text.
fn parse(text: &[u8]) -> Result<(Value, Vec<String>), String> {
    let is_json = text.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    if is_json {
        let decoded = decode::json_untyped(text)
            .map_err(|why| format!("couldn't get version/kind; json parse error: {why}"))?;
        return Ok((decoded.value, decoded.strict_errors.iter().map(ToString::to_string).collect()));
    }
    let document = yaml::parse(text, Limits::default()).map_err(|why| why.cause().to_owned())?;
    let mut repeated = document.repeated;
    if !repeated.is_empty() {
        repeated = vec![format!("yaml: unmarshal errors:\n  {}", repeated.join("\n  "))];
    }
    Ok((document.value, repeated))
}

/// Checks that a value is an object whose `kind` and `apiVersion` are texts.
fn check_type_meta(value: &Value) -> Result<(), String> {
    let wrong = |why: String| Err(format!("couldn't get version/kind; json parse error: {why}"));
    if !matches!(value, Value::Null | Value::Map(_) | Value::Json(_)) {
        let (found, wanted) = (
            value.json_type(),
            "struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }",
        );
        return wrong(format!("json: cannot unmarshal {found} into Go value of type {wanted}"));
    }
    for field in ["apiVersion", "kind"] {
        if let Some(other) = value.at(&[field]).filter(|it| !matches!(it, Value::String(_) | Value::Null)) {
            let found = other.json_type();
            return wrong(format!(
                "json: cannot unmarshal {found} into Go struct field .{field} of type string"
            ));
        }
    }
    Ok(())
}

fn version_of(value: &Value, text: &[u8], names: &Names) -> Result<Version, String> {
    check_type_meta(value)?;
    let (kind, version) = (value.text(&["kind"]), value.text(&["apiVersion"]));
    let shown = || String::from_utf8_lossy(text);
    if kind.is_empty() {
        return Err(format!("Object 'Kind' is missing in '{}'", shown()));
    }
    if version.is_empty() {
        return Err(format!("Object 'apiVersion' is missing in '{}'", shown()));
    }
    match Version::from_api_version(version, names) {
        Some(version) if kind == KIND => Ok(version),
        Some(_) if ArgsKind::of_kind(kind).is_some() => {
            let (group, version) = version.rsplit_once('/').unwrap_or_default();
            Err(format!(
                "couldn't decode as KubeSchedulerConfiguration, got {group}/{version}, Kind={kind}: "
            ))
        }
        _ => Err(not_registered(kind, version)),
    }
}

fn not_registered(kind: &str, version: &str) -> String {
    format!("no kind {kind:?} is registered for version {version:?} in scheme {SCHEME:?}")
}

/// Reads the arguments of plugins.
struct ArgsReader<'a> {
    version: Version,
    names: &'a Names,
    gates: Gates,
    /// Unknown and duplicate fields so far.
    oddities: Vec<String>,
}

impl ArgsReader<'_> {
    /// The arguments of all plugins of all profiles, with defaults.
    fn read_all(&mut self, value: &Value) -> Result<Vec<Vec<Args>>, String> {
        let mut profiles = Vec::new();
        for (at, profile) in value.items(&["profiles"]).iter().enumerate() {
            let configs = profile.items(&["pluginConfig"]).iter().enumerate();
            let args = configs.map(|(index, config)| {
                let place = format!("profiles[{at}].pluginConfig[{index}]");
                self.read(config, &place)
            });
            profiles.push(args.collect::<Result<Vec<Args>, String>>()?);
        }
        // upstream converts arguments after it has decoded all of them
        for (at, profile) in value.items(&["profiles"]).iter().enumerate() {
            for (index, config) in profile.items(&["pluginConfig"]).iter().enumerate() {
                self.check_version(config, at, index)?;
            }
        }
        Ok(profiles)
    }

    fn read(&mut self, config: &Value, place: &str) -> Result<Args, String> {
        let plugin = config.text(&["name"]);
        let args = config.at(&["args"]).cloned().unwrap_or_default();
        let mut found = self.take_duplicates(&format!("{place}.args."));
        let Some(kind) = ArgsKind::of_plugin(plugin) else { return Ok(Args::OutOfTree(args)) };
        // the normal form has no empty lists, but this one is an error of its own
        let has_empty_shape = kind == ArgsKind::VolumeBinding
            && args.at(&["shape"]).and_then(Value::as_list).is_some_and(<[Value]>::is_empty);
        let decoded = self.decode(kind, args).map_err(|why| format!("decoding .{place}: {why}"))?;
        found.extend(decoded.strict_errors.iter().map(ToString::to_string));
        if !found.is_empty() {
            let why = format!("decoding args for plugin {plugin}: {}", strict_error(&found));
            self.oddities.push(format!("decoding .{place}: {}", strict_error(&[why])));
        }
        let mut args = decoded.value;
        if has_empty_shape {
            args.set(&["shape"], Vec::new());
        }
        set_defaults(kind, &mut args, self.gates);
        Ok(Args::InTree(kind, args))
    }

    /// Takes the duplicate fields below a path: those of arguments are reported with the arguments.
    fn take_duplicates(&mut self, path: &str) -> Vec<String> {
        let start = format!("duplicate field \"{path}");
        let (inside, outside): (Vec<String>, Vec<String>) =
            std::mem::take(&mut self.oddities).into_iter().partition(|oddity| oddity.starts_with(&start));
        self.oddities = outside;
        inside.iter().map(|oddity| format!("duplicate field \"{}", &oddity[start.len()..])).collect()
    }

    /// Decodes the arguments of a plugin.
    fn decode(&self, kind: ArgsKind, mut args: Value) -> Result<Decoded, String> {
        let place = |why: String| format!("decoding args for plugin {}: {why}", kind.plugin());
        check_type_meta(&args).map_err(place)?;
        if args.is_null() {
            args = Map::new().into();
        }
        let text_or = |field: &str, default: &str| match args.text(&[field]) {
            "" => default.to_owned(),
            text => text.to_owned(),
        };
        let own_version = self.version.api_version(self.names);
        let (given, api_version) = (text_or("kind", kind.kind()), text_or("apiVersion", &own_version));
        let version = Version::from_api_version(&api_version, self.names);
        let known = ArgsKind::of_kind(&given).is_some() || given == KIND;
        let Some(version) = version.filter(|_| known) else {
            return Err(place(not_registered(&given, &api_version)));
        };
        if given != kind.kind() {
            let (plugin, wanted, group) = (kind.plugin(), kind.kind(), group(self.names));
            return Err(format!(
                "args for plugin {plugin} were not of type {wanted}.{group}, got {given}.{group}"
            ));
        }
        let mut decoded =
            decode::tree(args, tables::args(kind, version)).map_err(|why| place(why.to_string()))?;
        if let Some(map) = decoded.value.as_map_mut() {
            map.remove("kind");
            map.remove("apiVersion");
        }
        Ok(decoded)
    }

    /// Arguments have the version of their configuration.
    fn check_version(&self, config: &Value, at: usize, index: usize) -> Result<(), String> {
        let version = Version::from_api_version(config.text(&["args", "apiVersion"]), self.names);
        let (Some(kind), Some(version)) = (ArgsKind::of_plugin(config.text(&["name"])), version) else {
            return Ok(());
        };
        if version == self.version {
            return Ok(());
        }
        let place = format!("converting .Profiles[{at}].PluginConfig[{index}].Args into internal type");
        let ty = format!("{}.{}", version.name(), kind.kind());
        let scheme = format!("pkg/scheduler/apis/config/{}/conversion.go:41", self.version.name());
        Err(format!("{place}: no kind is registered for the type {ty} in scheme {scheme:?}"))
    }
}
