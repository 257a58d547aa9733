//! `EncryptionConfiguration`: which providers encrypt which resources.
//!
//! All problems are reported at once, with their field paths and in upstream's words.

use crate::chain::Family;
use crate::kms;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use names::Names;
use outbound::Endpoint;
use schema::Value;
use schema::time::{format_duration, parse_duration};
use schema::yaml::{self, Limits};
use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;
use zeroize::Zeroizing;

const TIMEOUT_NANOS: i64 = 3_000_000_000;
const CACHE: i64 = 1000;
const EXPECTED: &str =
    "provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity";
const SEVERAL: &str =
    "more than one provider specified in a single element, should split into different list elements";

/// Server settings that decide what a configuration may contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Whether the configuration may be replaced while the server runs.
    pub reloads: bool,
    /// Whether KMS v2 is enabled.
    pub second_version: bool,
}

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Configuration {
    pub(crate) entries: Vec<Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Resource names with their groups.
    pub resources: Vec<(String, String)>,
    pub providers: Vec<ProviderSettings>,
}

#[derive(Clone, PartialEq, Eq)]
pub(crate) enum ProviderSettings {
    Identity,
    Keys(Family, Vec<(String, Zeroizing<Vec<u8>>)>),
    Server(kms::Settings),
}

/// Keeps secrets out of logs.
impl fmt::Debug for ProviderSettings {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProviderSettings::Identity => out.write_str("Identity"),
            ProviderSettings::Keys(family, keys) => {
                let names: Vec<_> = keys.iter().map(|(name, _)| name).collect();
                write!(out, "{family:?}({names:?})")
            }
            ProviderSettings::Server(settings) => settings.fmt(out),
        }
    }
}

impl Configuration {
    /// Parses a file, or reports all its problems.
    pub fn read(text: &[u8], names: &Names, rules: Rules) -> Result<Self, String> {
        let parsed = yaml::parse(text, Limits::default()).map_err(|why| why.to_string())?;
        if let Some(field) = parsed.repeated.first() {
            return Err(format!("{field:?} stands there twice"));
        }
        let whole = parsed.value;
        let (kind, version) = ("EncryptionConfiguration", format!("{}/v1", names.group("apiserver.config")));
        let type_meta = (whole.text(&["kind"]), whole.text(&["apiVersion"]));
        if type_meta != (kind, version.as_str()) {
            return Err(format!(
                "{:?} of {:?} is not of the kind {kind} of {version}",
                type_meta.0, type_meta.1
            ));
        }
        let mut reading = Parser { rules, wrong: Vec::new(), servers: BTreeSet::new() };
        let configuration = reading.whole(&whole);
        match &reading.wrong[..] {
            [] => Ok(configuration),
            [one] => Err(one.clone()),
            more => Err(format!("[{}]", more.join(", "))),
        }
    }

    /// Whether every value is stored as plaintext.
    pub fn is_plaintext(&self) -> bool {
        let mut providers = self.entries.iter().flat_map(|entry| &entry.providers);
        providers.all(|provider| *provider == ProviderSettings::Identity)
    }

    /// The resources that it names, with their groups.
    pub fn resources(&self) -> impl Iterator<Item = (&str, &str)> {
        let named = self.entries.iter().flat_map(|entry| &entry.resources);
        named.map(|(resource, group)| (resource.as_str(), group.as_str()))
    }
}

struct Parser {
    rules: Rules,
    wrong: Vec<String>,
    /// Names of KMS providers so far.
    servers: BTreeSet<String>,
}

impl Parser {
    fn required(&mut self, path: &str, what: impl fmt::Display) {
        self.wrong.push(format!("{path}: Required value: {what}"));
    }

    fn invalid(&mut self, path: &str, value: impl fmt::Display, what: impl fmt::Display) {
        self.wrong.push(format!("{path}: Invalid value: {value}: {what}"));
    }

    /// The items of a list; another type is reported.
    fn items<'v>(&mut self, value: &'v Value, field: &'static str, path: &str) -> &'v [Value] {
        match value.at(&[field]) {
            None | Some(Value::Null) => &[],
            Some(Value::List(items)) => items,
            Some(_) => {
                self.wrong.push(format!("{path}: must be a list"));
                &[]
            }
        }
    }

    /// A string; another type is reported.
    fn text<'v>(&mut self, value: &'v Value, field: &'static str, path: &str) -> &'v str {
        match value.at(&[field]) {
            None | Some(Value::Null) => "",
            Some(found) => found.as_str().unwrap_or_else(|| {
                self.wrong.push(format!("{path}.{field}: must be a string"));
                ""
            }),
        }
    }

    fn whole(&mut self, whole: &Value) -> Configuration {
        let entries = self.items(whole, "resources", "resources");
        if entries.is_empty() {
            self.required("resources", "at least one resources is required");
        }
        let entries = entries.iter().enumerate();
        let entries = entries.map(|(at, entry)| self.entry(entry, &format!("resources[{at}]")));
        Configuration { entries: entries.collect() }
    }

    fn entry(&mut self, entry: &Value, path: &str) -> Entry {
        let (r, p) = (format!("{path}.resources"), format!("{path}.providers"));
        let (resources, providers) = (self.items(entry, "resources", &r), self.items(entry, "providers", &p));
        for (path, list) in [(&r, resources), (&p, providers)] {
            if list.is_empty() {
                self.required(path, format_args!("at least one {path} is required"));
            }
        }
        let mut named = Vec::new();
        for (at, resource) in resources.iter().enumerate() {
            match resource.as_str() {
                Some(text) => {
                    let (resource, group) = text.split_once('.').unwrap_or((text, ""));
                    named.push((resource.to_owned(), group.to_owned()));
                }
                None => self.wrong.push(format!("{r}[{at}]: must be a string")),
            }
        }
        let providers = providers.iter().enumerate();
        let providers = providers.filter_map(|(at, provider)| self.provider(provider, &format!("{p}[{at}]")));
        Entry { providers: providers.collect(), resources: named }
    }

    fn provider(&mut self, provider: &Value, path: &str) -> Option<ProviderSettings> {
        const KNOWN: [&str; 5] = ["kms", "aesgcm", "aescbc", "secretbox", "identity"];
        let names: Vec<&str> =
            KNOWN.into_iter().filter(|name| provider.at(&[name]).is_some_and(|it| !it.is_null())).collect();
        let formatted = format!("{:?}", names.join(", "));
        match &names[..] {
            [] => {
                self.invalid(path, formatted, EXPECTED);
                return None;
            }
            [_] => {}
            _ => self.invalid(path, formatted, SEVERAL),
        }
        let name = *names.first()?;
        let inside = provider.at(&[name])?;
        let path = format!("{path}.{name}");
        if inside.as_map().is_none() {
            self.wrong.push(format!("{path}: must be an object"));
            return None;
        }
        match name {
            "kms" => self.server(inside, &path).map(ProviderSettings::Server),
            "aesgcm" => Some(self.keys(inside, &path, Family::Gcm)),
            "aescbc" => Some(self.keys(inside, &path, Family::Cbc)),
            "secretbox" => Some(self.keys(inside, &path, Family::SecretBox)),
            _ => Some(ProviderSettings::Identity),
        }
    }

    fn keys(&mut self, inside: &Value, path: &str, family: Family) -> ProviderSettings {
        let path = format!("{path}.keys");
        let keys = self.items(inside, "keys", &path);
        if keys.is_empty() {
            self.required(&path, "at least one keys is required");
        }
        let keys = keys.iter().enumerate();
        let keys = keys.filter_map(|(at, key)| self.key(key, &format!("{path}[{at}]"), family.key_sizes()));
        ProviderSettings::Keys(family, keys.collect())
    }

    fn key(&mut self, key: &Value, path: &str, sizes: &[usize]) -> Option<(String, Zeroizing<Vec<u8>>)> {
        let (name, secret) = (self.text(key, "name", path), self.text(key, "secret", path));
        if name.is_empty() {
            self.required(&format!("{path}.name"), "name is a mandatory field for a key");
        }
        let path = format!("{path}.secret");
        if secret.is_empty() {
            self.required(&path, "secret is a mandatory field for a key");
            return None;
        }
        // upstream's decoder skips line breaks
        let secret = Zeroizing::new(secret.replace(['\r', '\n'], ""));
        let Ok(secret) = STANDARD.decode(secret.as_bytes()) else {
            self.invalid(&path, "\"REDACTED\"", "secrets must be base64 encoded");
            return None;
        };
        let secret = Zeroizing::new(secret);
        if !sizes.contains(&secret.len()) {
            let sizes: Vec<_> = sizes.iter().map(usize::to_string).collect();
            let (got, sizes) = (secret.len(), sizes.join(" "));
            let what = format!("secret is not of the expected length, got {got}, expected one of [{sizes}]");
            self.invalid(&path, "\"REDACTED\"", what);
            return None;
        }
        Some((name.to_owned(), secret))
    }

    fn server(&mut self, inside: &Value, path: &str) -> Option<kms::Settings> {
        let version = match self.text(inside, "apiVersion", path) {
            "" => "v1",
            other => other,
        };
        let name = self.text(inside, "name", path);
        self.server_name(name, version, &format!("{path}.name"));
        let timeout = self.timeout(inside, &format!("{path}.timeout"));
        let endpoint = self.text(inside, "endpoint", path);
        let endpoint = self.endpoint(endpoint, &format!("{path}.endpoint"));
        let cache = self.cache(inside, &format!("{path}.cachesize"));
        let version = match version {
            "v1" => Some(kms::Version::V1),
            "v2" if self.rules.second_version => Some(kms::Version::V2),
            "v2" => {
                let why = "KMSv2 feature is not enabled";
                self.wrong.push(format!("could not configure KMSv2 plugin {name:?}, {why}"));
                None
            }
            other => {
                let what = "unsupported apiVersion apiVersion for KMS provider, only v1 and v2 are supported";
                self.invalid(&format!("{path}.apiVersion"), format_args!("{other:?}"), what);
                None
            }
        };
        self.servers.insert(name.to_owned());
        Some(kms::Settings { name: name.to_owned(), version: version?, endpoint: endpoint?, timeout, cache })
    }

    /// The name is part of the stored prefix; in KMS v2 it ends at a colon.
    fn server_name(&mut self, name: &str, version: &str, path: &str) {
        if name.is_empty() {
            self.required(path, "name is a mandatory field for a provider");
        }
        if version != "v1" && name.contains(':') {
            let what = format!("invalid KMS provider name {name}, must not contain ':'");
            self.invalid(path, format_args!("{name:?}"), what);
        }
        if (self.rules.reloads || version != "v1") && self.servers.contains(name) {
            let what = format!("duplicate KMS provider name {name}, names must be unique");
            self.invalid(path, format_args!("{name:?}"), what);
        }
    }

    fn timeout(&mut self, inside: &Value, path: &str) -> Duration {
        let nanos = match inside.at(&["timeout"]) {
            None | Some(Value::Null) => Ok(TIMEOUT_NANOS),
            Some(found) => match found.as_str() {
                Some(text) => parse_duration(text).map_err(|why| why.to_string()),
                None => Err("must be a string such as 3s".to_owned()),
            },
        };
        match nanos {
            Ok(nanos) if nanos > 0 => return Duration::from_nanos(nanos.unsigned_abs()),
            Ok(nanos) => self.invalid(path, format_duration(nanos), "timeout should be a positive value"),
            Err(why) => self.wrong.push(format!("{path}: {why}")),
        }
        Duration::ZERO
    }

    fn cache(&mut self, inside: &Value, path: &str) -> usize {
        let size = match inside.at(&["cachesize"]) {
            None | Some(Value::Null) => CACHE,
            Some(found) => match found.as_int().filter(|it| i32::try_from(*it).is_ok()) {
                Some(size) => size,
                None => {
                    self.wrong.push(format!("{path}: must be a number of 32 bits"));
                    return 0;
                }
            },
        };
        if size == 0 {
            self.invalid(path, 0, "cachesize should be a positive value, or negative to disable");
        }
        usize::try_from(size).unwrap_or(0)
    }

    fn endpoint(&mut self, text: &str, path: &str) -> Option<Endpoint> {
        if text.is_empty() {
            self.invalid(path, "\"\"", "endpoint is a mandatory field for a kms");
            return None;
        }
        if text.contains(|c: char| c.is_ascii_control()) {
            let why = format!("parse {text:?}: net/url: invalid control character in URL");
            let what = format!("invalid endpoint for kms provider, error: {why}");
            self.invalid(path, format_args!("{text:?}"), what);
            return None;
        }
        let scheme = text.split_once(':').map_or("", |(scheme, _)| scheme);
        if scheme != "unix" {
            let what = format!("unsupported scheme {scheme:?} for KMS provider, only unix is supported");
            self.invalid(path, format_args!("{text:?}"), what);
            return None;
        }
        match text.parse() {
            Ok(endpoint) => Some(endpoint),
            Err(why) => {
                self.invalid(path, format_args!("{text:?}"), why);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests;
