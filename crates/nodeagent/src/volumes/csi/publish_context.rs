//! Secrets and attributes that a driver gets with a volume.

use super::csi_volumes::CsiVolumes;
use super::volume::CsiVolume;
use api::authentication::v1::{BoundObjectReference, TokenRequestSpec};
use api::core::v1::{Pod, SecretReference};
use api::storage::v1::CSIDriver;
use names::node::{CSI_ATTRIBUTES, CSI_PLUGIN};
use schema::time::format_time;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

impl CsiVolumes {
    /// The entries of a secret.
    pub(super) async fn secrets(
        &self,
        reference: Option<SecretReference>,
    ) -> Result<BTreeMap<String, String>, String> {
        let Some(SecretReference { name, namespace, .. }) = reference else { return Ok(BTreeMap::new()) };
        let secret = self.options.objects.secret(&namespace, &name).await.map_err(|why| {
            format!("{CSI_PLUGIN}: failed to find the secret {name} in the namespace {namespace} with error: {why}")
        })?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(secret.data.iter().map(|(key, value)| (key.clone(), text(&value.0))).collect())
    }

    /// The attributes of a volume for a pod: its own, and facts about the pod if the CSIDriver requests them.
    pub(super) async fn volume_context(
        &self,
        pod: &Pod,
        volume: &CsiVolume,
        driver: Option<&CSIDriver>,
    ) -> Result<BTreeMap<String, String>, String> {
        let mut attributes = volume.attributes();
        let Some(driver) = driver else { return Ok(attributes) };
        if driver.spec.pod_info_on_mount == Some(true) {
            attributes.extend(pod_info(pod, volume));
        }
        // block volumes get no tokens
        if !driver.spec.token_requests.is_empty() && !volume.is_block() {
            let tokens = self.token_attribute(pod, driver).await?;
            attributes.insert(format!("{CSI_ATTRIBUTES}serviceAccount.tokens"), tokens);
        }
        Ok(attributes)
    }

    /// Tokens of the pod's account by audience, as JSON.
    async fn token_attribute(&self, pod: &Pod, driver: &CSIDriver) -> Result<String, String> {
        let mut tokens = Map::new();
        for request in &driver.spec.token_requests {
            let reference = BoundObjectReference {
                api_version: "v1".to_owned(),
                kind: "Pod".to_owned(),
                name: pod.metadata.name.clone(),
                uid: pod.metadata.uid.clone(),
                ..BoundObjectReference::default()
            };
            let audience = &request.audience;
            let spec = TokenRequestSpec {
                audiences: Some(audience.clone()).into_iter().filter(|it| !it.is_empty()).collect(),
                expiration_seconds: request.expiration_seconds,
                bound_object_ref: Some(Box::new(reference)),
                ..TokenRequestSpec::default()
            };
            let (namespace, account) = (&pod.metadata.namespace, &pod.spec.service_account_name);
            let objects = &*self.options.objects;
            let issued = self.tokens.issue(objects, namespace, account, spec).await?;
            let expires = format_time(issued.expires);
            tokens.insert(audience.clone(), json!({"token": issued.text, "expirationTimestamp": expires}));
        }
        Ok(Value::Object(tokens).to_string())
    }
}

fn pod_info(pod: &Pod, volume: &CsiVolume) -> impl Iterator<Item = (String, String)> {
    let is_ephemeral = volume.persistent().is_none();
    let entries = [
        ("pod.name", pod.metadata.name.clone()),
        ("pod.namespace", pod.metadata.namespace.clone()),
        ("pod.uid", pod.metadata.uid.clone()),
        ("serviceAccount.name", pod.spec.service_account_name.clone()),
        ("ephemeral", is_ephemeral.to_string()),
    ];
    entries.into_iter().map(|(key, value)| (format!("{CSI_ATTRIBUTES}{key}"), value))
}
