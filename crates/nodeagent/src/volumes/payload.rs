//! The files of config map, secret, downward API and projected volumes.

use super::tokens::TokenCache;
use crate::container::security::effective;
use crate::downward;
use crate::objects::{ObjectError, ObjectSource};
use crate::pod_facts::ResourceList;
use api::authentication::v1::{BoundObjectReference, TokenRequestSpec};
use api::core::v1::{
    ConfigMap, DownwardAPIVolumeFile, KeyToPath, Pod, ProjectedVolumeSource, Secret,
    ServiceAccountTokenProjection, VolumeProjection,
};
use std::collections::BTreeMap;

/// The mode of files without one.
const DEFAULT_MODE: i32 = 0o644;
/// The mode of tokens that only a user or group of the pod may read.
const PRIVATE_MODE: u32 = 0o600;

/// A file of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PayloadFile {
    pub data: Vec<u8>,
    pub mode: u32,
    /// The owner, if it is not root.
    pub user: Option<u32>,
}

/// Files by path inside the volume.
pub type Payload = BTreeMap<String, PayloadFile>;

/// The sources of payloads.
pub struct PayloadSources<'a> {
    pub objects: &'a dyn ObjectSource,
    pub tokens: &'a TokenCache,
    pub allocatable: &'a ResourceList,
}

fn mode(mode: Option<i32>, default: Option<i32>) -> u32 {
    u32::try_from(mode.or(default).unwrap_or(DEFAULT_MODE)).unwrap_or(0)
}

/// The files of a map of keys: all of them, or the listed ones. `absent` is the error of a key that does not exist.
fn select<'a>(
    find: impl Fn(&str) -> Option<&'a [u8]>,
    keys: impl Iterator<Item = &'a String>,
    items: &[KeyToPath],
    default: Option<i32>,
    is_optional: bool,
    absent: &str,
) -> Result<Payload, String> {
    let file = |data: &[u8], mode: u32| PayloadFile { data: data.to_vec(), mode, user: None };
    if items.is_empty() {
        let found = keys.filter_map(|key| Some((key.clone(), file(find(key)?, mode(None, default)))));
        return Ok(found.collect());
    }
    let mut payload = Payload::new();
    for item in items {
        match find(&item.key) {
            Some(data) => drop(payload.insert(item.path.clone(), file(data, mode(item.mode, default)))),
            None if is_optional => {}
            None => return Err(format!("{absent}: {}", item.key)),
        }
    }
    Ok(payload)
}

fn config_map_files(
    map: &ConfigMap,
    items: &[KeyToPath],
    default: Option<i32>,
    is_optional: bool,
) -> Result<Payload, String> {
    let find = |key: &str| {
        let text = map.data.get(key).map(String::as_bytes);
        text.or_else(|| map.binary_data.get(key).map(|bytes| &*bytes.0))
    };
    let keys = map.data.keys().chain(map.binary_data.keys());
    select(find, keys, items, default, is_optional, "configmap references non-existent config key")
}

fn secret_files(
    secret: &Secret,
    items: &[KeyToPath],
    default: Option<i32>,
    is_optional: bool,
) -> Result<Payload, String> {
    let find = |key: &str| secret.data.get(key).map(|bytes| &*bytes.0);
    select(find, secret.data.keys(), items, default, is_optional, "references non-existent secret key")
}

/// An optional object that does not exist is an empty one.
fn or_empty<T: Default>(read: Result<T, ObjectError>, is_optional: bool) -> Result<T, String> {
    match read {
        Err(error) if error.is_not_found() && is_optional => Ok(T::default()),
        read => read.map_err(|error| error.to_string()),
    }
}

/// The files of a config map volume or of a config map in a projected volume.
pub async fn config_map(
    sources: &PayloadSources<'_>,
    namespace: &str,
    (name, items): (&str, &[KeyToPath]),
    default: Option<i32>,
    optional: Option<bool>,
) -> Result<Payload, String> {
    let is_optional = optional == Some(true);
    let map = or_empty(sources.objects.config_map(namespace, name).await, is_optional)?;
    config_map_files(&map, items, default, is_optional)
}

/// The files of a secret, like [`config_map`].
pub async fn secret(
    sources: &PayloadSources<'_>,
    namespace: &str,
    (name, items): (&str, &[KeyToPath]),
    default: Option<i32>,
    optional: Option<bool>,
) -> Result<Payload, String> {
    let is_optional = optional == Some(true);
    let secret = or_empty(sources.objects.secret(namespace, name).await, is_optional)?;
    secret_files(&secret, items, default, is_optional)
}

/// The files of a downward API volume.
pub fn downward_api(
    pod: &Pod,
    items: &[DownwardAPIVolumeFile],
    default: Option<i32>,
    allocatable: &ResourceList,
) -> Result<Payload, String> {
    let (mut payload, mut errors) = (Payload::new(), Vec::new());
    for item in items {
        let value = if let Some(selector) = &item.field_ref {
            downward::field(pod, &selector.field_path)
        } else if let Some(selector) = &item.resource_field_ref {
            downward::resource(pod, selector, None, allocatable)
        } else {
            Ok(String::new())
        };
        match value {
            Ok(text) => {
                let file =
                    PayloadFile { data: text.into_bytes(), mode: mode(item.mode, default), user: None };
                payload.insert(item.path.clone(), file);
            }
            Err(error) => errors.push(error),
        }
    }
    match errors.is_empty() {
        true => Ok(payload),
        false => Err(aggregate(errors)),
    }
}

/// The files of a projected volume; a later source replaces files of an earlier one.
pub async fn projected(
    sources: &PayloadSources<'_>,
    pod: &Pod,
    volume: &ProjectedVolumeSource,
) -> Result<Payload, String> {
    let (mut payload, mut errors) = (Payload::new(), Vec::new());
    for source in &volume.sources {
        match project(sources, pod, source, volume.default_mode).await {
            Ok(files) => payload.extend(files),
            Err(error) => errors.push(error),
        }
    }
    match errors.is_empty() {
        true => Ok(payload),
        false => Err(aggregate(errors)),
    }
}

async fn project(
    sources: &PayloadSources<'_>,
    pod: &Pod,
    source: &VolumeProjection,
    default: Option<i32>,
) -> Result<Payload, String> {
    let namespace = &pod.metadata.namespace;
    if let Some(it) = &source.config_map {
        config_map(sources, namespace, (&it.name, &it.items), default, it.optional).await
    } else if let Some(it) = &source.secret {
        secret(sources, namespace, (&it.name, &it.items), default, it.optional).await
    } else if let Some(it) = &source.downward_api {
        downward_api(pod, &it.items, default, sources.allocatable)
    } else if let Some(it) = &source.service_account_token {
        token(sources, pod, it, default).await
    } else {
        Ok(Payload::new())
    }
}

async fn token(
    sources: &PayloadSources<'_>,
    pod: &Pod,
    projection: &ServiceAccountTokenProjection,
    default: Option<i32>,
) -> Result<Payload, String> {
    let meta = &pod.metadata;
    let spec = TokenRequestSpec {
        audiences: Some(projection.audience.clone()).filter(|it| !it.is_empty()).into_iter().collect(),
        expiration_seconds: projection.expiration_seconds.or(Some(3600)),
        bound_object_ref: Some(Box::new(BoundObjectReference {
            kind: "Pod".to_owned(),
            api_version: "v1".to_owned(),
            name: meta.name.clone(),
            uid: meta.uid.clone(),
            ..BoundObjectReference::default()
        })),
        ..TokenRequestSpec::default()
    };
    let account = &pod.spec.service_account_name;
    let token = sources.tokens.token(sources.objects, &meta.namespace, account, spec).await?;
    let user = common_user(pod);
    let has_owner = user.is_some() || fs_group(pod).is_some();
    let file = PayloadFile {
        data: token.into_bytes(),
        mode: if has_owner { PRIVATE_MODE } else { mode(None, default) },
        user,
    };
    Ok(Payload::from([(projection.path.clone(), file)]))
}

/// The group of the pod's volumes.
pub fn fs_group(pod: &Pod) -> Option<u32> {
    pod.spec.security_context.as_ref()?.fs_group.and_then(|group| u32::try_from(group).ok())
}

/// The user of all containers, if it is the same one.
fn common_user(pod: &Pod) -> Option<u32> {
    let containers = pod.spec.init_containers.iter().chain(&pod.spec.containers);
    let mut users = containers.map(|container| effective(pod, container).run_as_user);
    let first = users.next()??;
    users.all(|user| user == Some(first)).then_some(first).and_then(|user| u32::try_from(user).ok())
}

/// Several errors as one text, each once.
pub fn aggregate(errors: Vec<String>) -> String {
    let mut unique: Vec<String> = Vec::new();
    for error in errors {
        if !unique.contains(&error) {
            unique.push(error);
        }
    }
    match &*unique {
        [one] => one.clone(),
        all => format!("[{}]", all.join(", ")),
    }
}
