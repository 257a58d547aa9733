//! The environment variables of a container.
//!
//! `envFrom` comes first, `env` replaces it entry by entry, and may refer to earlier variables and to those of
//! services. Variables of services fill the rest.

use super::error::ContainerConfigError;
use super::expansion::{expand, lookup};
use super::service_env::service_variables;
use crate::downward::{self, Addresses};
use crate::objects::{ObjectError, ObjectSource};
use crate::pod_facts::{ResourceList, is_static};
use api::core::v1::{ConfigMap, Container, EnvFromSource, EnvVarSource, Pod, Secret};
use client::Note;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The variables of a container, sorted by name, and events about its pod.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Environment {
    pub variables: Vec<(String, String)>,
    pub notes: Vec<Note>,
}

/// Inputs besides the pod itself.
#[derive(Clone, Copy)]
pub struct EnvironmentSources<'a> {
    pub objects: &'a dyn ObjectSource,
    pub addresses: Addresses<'a>,
    pub allocatable: &'a ResourceList,
    /// The namespace of the API server's service.
    pub master_namespace: &'a str,
}

/// Makes the environment of a container.
pub async fn environment(
    pod: &Pod,
    container: &Container,
    sources: EnvironmentSources<'_>,
) -> Result<Environment, ContainerConfigError> {
    let Some(has_links) = pod.spec.enable_service_links else {
        let message = "nil pod.spec.enableServiceLinks encountered, cannot construct envvars";
        return Err(ContainerConfigError::new(message));
    };
    let services = match sources.objects.services() {
        Some(services) => services,
        None if is_static(pod) => Vec::new(),
        None => {
            let message = "services have not yet been read at least once, cannot construct envvars";
            return Err(ContainerConfigError::new(message));
        }
    };
    let services = services.iter().map(Arc::as_ref);
    let (namespace, master) = (&pod.metadata.namespace, sources.master_namespace);
    let of_services = service_variables(services, namespace, master, has_links);
    let mut builder = Builder { pod, container, sources, maps: Maps::default(), variables: BTreeMap::new() };
    let mut notes = Vec::new();
    for source in &container.env_from {
        builder.add_source(source, &mut notes).await?;
    }
    for variable in &container.env {
        let value = match (&*variable.value, &variable.value_from) {
            ("", Some(from)) => match builder.value_from(from).await? {
                Some(value) => value,
                None => continue,
            },
            (text, _) => expand(text, |name| lookup(name, &[&builder.variables, &of_services])),
        };
        builder.variables.insert(variable.name.clone(), value);
    }
    let mut variables = of_services;
    variables.extend(builder.variables);
    Ok(Environment { variables: variables.into_iter().collect(), notes })
}

struct Builder<'a> {
    pod: &'a Pod,
    container: &'a Container,
    sources: EnvironmentSources<'a>,
    maps: Maps,
    variables: BTreeMap<String, String>,
}

/// Objects that were read, by name.
#[derive(Default)]
struct Maps {
    config_maps: BTreeMap<String, Arc<ConfigMap>>,
    secrets: BTreeMap<String, Arc<Secret>>,
}

/// `None` for an optional object that does not exist.
fn unless_absent<T>(
    read: Result<T, ObjectError>,
    optional: Option<bool>,
) -> Result<Option<T>, ContainerConfigError> {
    match read {
        Ok(object) => Ok(Some(object)),
        Err(error) if error.is_not_found() && optional == Some(true) => Ok(None),
        Err(error) => Err(ContainerConfigError::new(error.to_string())),
    }
}

impl<'a> Builder<'a> {
    fn namespace(&self) -> &'a str {
        &self.pod.metadata.namespace
    }

    async fn config_map(
        &mut self,
        name: &str,
        optional: Option<bool>,
    ) -> Result<Option<Arc<ConfigMap>>, ContainerConfigError> {
        if let Some(map) = self.maps.config_maps.get(name) {
            return Ok(Some(map.clone()));
        }
        let read = self.sources.objects.config_map(self.namespace(), name).await;
        let map = unless_absent(read, optional)?;
        if let Some(map) = &map {
            self.maps.config_maps.insert(name.to_owned(), map.clone());
        }
        Ok(map)
    }

    async fn secret(
        &mut self,
        name: &str,
        optional: Option<bool>,
    ) -> Result<Option<Arc<Secret>>, ContainerConfigError> {
        if let Some(secret) = self.maps.secrets.get(name) {
            return Ok(Some(secret.clone()));
        }
        let read = self.sources.objects.secret(self.namespace(), name).await;
        let secret = unless_absent(read, optional)?;
        if let Some(secret) = &secret {
            self.maps.secrets.insert(name.to_owned(), secret.clone());
        }
        Ok(secret)
    }

    async fn add_source(
        &mut self,
        source: &EnvFromSource,
        notes: &mut Vec<Note>,
    ) -> Result<(), ContainerConfigError> {
        let mut invalid = Vec::new();
        let origin = if let Some(reference) = &source.config_map_ref {
            let Some(map) = self.config_map(&reference.name, reference.optional).await? else {
                return Ok(());
            };
            for (key, value) in &map.data {
                self.add(&source.prefix, key, value.clone(), &mut invalid);
            }
            format!("configMap {}/{}", self.namespace(), reference.name)
        } else if let Some(reference) = &source.secret_ref {
            let Some(secret) = self.secret(&reference.name, reference.optional).await? else { return Ok(()) };
            for (key, value) in &secret.data {
                self.add(&source.prefix, key, text(&value.0)?, &mut invalid);
            }
            format!("secret {}/{}", self.namespace(), reference.name)
        } else {
            return Ok(());
        };
        if !invalid.is_empty() {
            invalid.sort();
            let message = format!(
                "Keys [{}] from the EnvFrom {origin} were skipped since they are considered invalid \
                 environment variable names.",
                invalid.join(", ")
            );
            notes.push(Note::warning("InvalidEnvironmentVariableNames", message));
        }
        Ok(())
    }

    fn add(&mut self, prefix: &str, key: &str, value: String, invalid: &mut Vec<String>) {
        let name = format!("{prefix}{key}");
        match is_variable_name(&name) {
            true => drop(self.variables.insert(name, value)),
            false => invalid.push(name),
        }
    }

    /// The value of a variable, or `None` if its optional source does not exist.
    async fn value_from(&mut self, from: &EnvVarSource) -> Result<Option<String>, ContainerConfigError> {
        if let Some(selector) = &from.field_ref {
            let value = downward::env_field(self.pod, &selector.field_path, self.sources.addresses);
            return value.map(Some).map_err(ContainerConfigError::new);
        }
        if let Some(selector) = &from.resource_field_ref {
            let value =
                downward::resource(self.pod, selector, Some(self.container), self.sources.allocatable);
            return value.map(Some).map_err(ContainerConfigError::new);
        }
        if let Some(selector) = &from.config_map_key_ref {
            let map = self.config_map(&selector.name, selector.optional).await?;
            let value = map.as_ref().and_then(|map| map.data.get(&selector.key)).cloned();
            return self.require(value, "ConfigMap", (&selector.name, &selector.key), selector.optional);
        }
        if let Some(selector) = &from.secret_key_ref {
            let secret = self.secret(&selector.name, selector.optional).await?;
            let value = secret.as_ref().and_then(|secret| secret.data.get(&selector.key));
            let value = value.map(|bytes| text(&bytes.0)).transpose()?;
            return self.require(value, "Secret", (&selector.name, &selector.key), selector.optional);
        }
        Ok(Some(String::new()))
    }

    fn require(
        &self,
        value: Option<String>,
        kind: &str,
        (name, key): (&str, &str),
        optional: Option<bool>,
    ) -> Result<Option<String>, ContainerConfigError> {
        match value {
            None if optional != Some(true) => {
                let message = format!("couldn't find key {key} in {kind} {}/{name}", self.namespace());
                Err(ContainerConfigError::new(message))
            }
            value => Ok(value),
        }
    }
}

/// Bytes of a secret as a variable: runtimes take text only.
fn text(bytes: &[u8]) -> Result<String, ContainerConfigError> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(text.to_owned()),
        Err(_) => Err(ContainerConfigError::of_create(
            "rpc error: code = Internal desc = grpc: error while marshaling: string field contains invalid UTF-8",
        )),
    }
}

/// Whether a key may be the name of a variable.
fn is_variable_name(name: &str) -> bool {
    let is_start = |c: char| c.is_ascii_alphabetic() || "-._".contains(c);
    let is_plain = name.starts_with(is_start) && name.chars().all(|c| is_start(c) || c.is_ascii_digit());
    is_plain && name != "." && !name.starts_with("..")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::testing::{FixedObjects, object};
    use api::Quantity;

    async fn make(objects: &FixedObjects, container: &str) -> Result<Environment, ContainerConfigError> {
        let pod: Pod = object(&format!(
            r#"{{"metadata":{{"name":"p","namespace":"n","uid":"u"}},
                "spec":{{"enableServiceLinks":false,"nodeName":"node","containers":[{container}]}}}}"#
        ));
        let allocatable = ResourceList::from([("cpu".to_owned(), Quantity::new(2))]);
        let ips = ["10.0.0.5".to_owned()];
        let addresses = Addresses { host_ip: "192.0.2.1", pod_ips: &ips };
        let sources =
            EnvironmentSources { objects, addresses, allocatable: &allocatable, master_namespace: "default" };
        environment(&pod, &pod.spec.containers[0], sources).await
    }

    fn objects() -> FixedObjects {
        let objects = FixedObjects::default();
        objects
            .config_map(r#"{"metadata":{"name":"m","namespace":"n"},"data":{"k":"v","a-b":"1","1bad":"2"}}"#);
        objects.secret(r#"{"metadata":{"name":"s","namespace":"n"},"data":{"ok":"MQ==","1bad":"Mg==","2-worse":"eA=="}}"#);
        objects
    }

    #[tokio::test]
    async fn variables_come_from_all_sources() {
        let objects = objects();
        let check = async |container: &str, expected: &[&str]| {
            let made = make(&objects, container).await.unwrap();
            let lines: Vec<_> =
                made.variables.iter().map(|(name, value)| format!("{name}={value}")).collect();
            assert_eq!(lines, expected, "{container}");
        };
        check(r#"{"env":[{"name":"A","value":"1"},{"name":"A","value":"2"}]}"#, &["A=2"]).await;
        check(r#"{"env":[{"name":"A","value":"one"},{"name":"A","value":"$(A)two"}]}"#, &["A=onetwo"]).await;
        check(r#"{"env":[{"name":"A","value":""},{"name":"B"}]}"#, &["A=", "B="]).await;
        check(r#"{"env":[{"name":"G","value":"$(L)"},{"name":"L","value":"x"}]}"#, &["G=$(L)", "L=x"]).await;
        check(
            r#"{"env":[{"name":"A","valueFrom":{"configMapKeyRef":{"name":"m","key":"k"}}},
                {"name":"B","valueFrom":{"configMapKeyRef":{"name":"m","key":"no","optional":true}}},
                {"name":"C","valueFrom":{"configMapKeyRef":{"name":"none","key":"k","optional":true}}},
                {"name":"D","valueFrom":{"secretKeyRef":{"name":"s","key":"ok"}}}]}"#,
            &["A=v", "D=1"],
        )
        .await;
        check(
            r#"{"envFrom":[{"prefix":"p_","configMapRef":{"name":"m"}},{"secretRef":{"name":"no","optional":true}}],
                "env":[{"name":"p_k","value":"mine $(p_a-b)"}]}"#,
            &["p_1bad=2", "p_a-b=1", "p_k=mine 1"],
        )
        .await;
        check(
            r#"{"name":"c","env":[{"name":"IP","valueFrom":{"fieldRef":{"fieldPath":"status.podIP"}}},
                {"name":"N","valueFrom":{"fieldRef":{"fieldPath":"spec.nodeName"}}},
                {"name":"LC","valueFrom":{"resourceFieldRef":{"resource":"limits.cpu"}}}]}"#,
            &["IP=10.0.0.5", "LC=2", "N=node"],
        )
        .await;
    }

    #[tokio::test]
    async fn keys_that_are_no_names_are_skipped_with_an_event() {
        let made = make(&objects(), r#"{"envFrom":[{"secretRef":{"name":"s"}}]}"#).await.unwrap();
        assert_eq!(made.variables, [("ok".to_owned(), "1".to_owned())]);
        let message = "Keys [1bad, 2-worse] from the EnvFrom secret n/s were skipped since they are considered invalid environment variable names.";
        assert_eq!(made.notes, [Note::warning("InvalidEnvironmentVariableNames", message)]);
    }

    #[tokio::test]
    async fn absent_sources_are_errors_in_upstreams_words() {
        let objects = objects();
        let check = async |container: &str, expected: &str| {
            assert_eq!(make(&objects, container).await.unwrap_err().message, expected, "{container}");
        };
        check(r#"{"envFrom":[{"configMapRef":{"name":"x"}}]}"#, "configmap \"x\" not found").await;
        check(r#"{"envFrom":[{"secretRef":{"name":"x"}}]}"#, "secret \"x\" not found").await;
        let key = |kind: &str, name: &str| {
            format!(
                r#"{{"env":[{{"name":"A","valueFrom":{{"{kind}":{{"name":"{name}","key":"zz","optional":false}}}}}}]}}"#
            )
        };
        check(&key("configMapKeyRef", "m"), "couldn't find key zz in ConfigMap n/m").await;
        check(&key("secretKeyRef", "s"), "couldn't find key zz in Secret n/s").await;
        check(&key("secretKeyRef", "x"), "secret \"x\" not found").await;
    }
}
