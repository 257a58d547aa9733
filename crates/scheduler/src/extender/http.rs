//! The HTTP client of one extender: a call ends within the extender's timeout, and a response has a bounded size.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use outbound::{HttpClient, Limits, Target};
use serde_json::{Value, json};

use super::wire;
use crate::config::{ConfigError, Extender, ExtenderTlsConfig};
use crate::pod_info::PodInfo;

/// The timeout of an extender that sets none.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);
/// The largest response of an extender that returns nodes.
const MAX_NODES_RESPONSE: usize = 64 << 20;
/// The largest response of an extender that returns names of nodes.
const MAX_NAMES_RESPONSE: usize = 8 << 20;

/// See [the module](self).
pub struct HttpExtender {
    config: Extender,
    client: HttpClient,
}

impl std::fmt::Debug for HttpExtender {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("HttpExtender").field("config", &self.config).finish_non_exhaustive()
    }
}

impl HttpExtender {
    /// Fails for a URL or TLS settings that cannot be used.
    pub fn new(config: Extender) -> Result<Self, ConfigError> {
        let invalid = |why: String| ConfigError::Extender { url: config.url_prefix.clone(), why };
        let timeout = match u64::try_from(config.http_timeout_nanos) {
            Ok(0) | Err(_) => DEFAULT_TIMEOUT,
            Ok(nanos) => Duration::from_nanos(nanos),
        };
        let answer = if config.node_cache_capable { MAX_NAMES_RESPONSE } else { MAX_NODES_RESPONSE };
        let target = target(&config).map_err(invalid)?;
        let client = HttpClient::new(&target, Limits { time: timeout, answer });
        let client = client.map_err(|why| invalid(why.to_string()))?;
        Ok(HttpExtender { client, config })
    }

    /// The extenders of a configuration, in the order of their calls.
    pub fn all(extenders: &[Extender]) -> Result<Vec<Arc<HttpExtender>>, ConfigError> {
        let ordered = crate::config::extender_order(extenders).into_iter();
        ordered.map(|extender| HttpExtender::new(extender.clone()).map(Arc::new)).collect()
    }

    pub fn config(&self) -> &Extender {
        &self.config
    }

    pub fn is_binder(&self) -> bool {
        !self.config.bind_verb.is_empty()
    }

    /// Whether it manages a resource that a container of the pod requests or limits; one without resources takes all
    /// pods.
    pub fn is_interested(&self, pod: &PodInfo) -> bool {
        let managed = &self.config.managed_resources;
        let is_managed = |name: &String| managed.iter().any(|resource| resource.name == *name);
        let spec = &pod.pod.spec;
        managed.is_empty()
            || spec.containers.iter().chain(&spec.init_containers).any(|container| {
                let resources = &container.resources;
                resources.requests.keys().chain(resources.limits.keys()).any(is_managed)
            })
    }

    /// Binds a pod to a node in place of the scheduler.
    pub async fn bind(&self, pod: &PodInfo, node: &str) -> Result<(), String> {
        let args = json!({
            "PodName": pod.name(),
            "PodNamespace": pod.namespace(),
            "PodUID": pod.uid(),
            "Node": node,
        });
        let answer = self.post(&self.config.bind_verb, args.to_string().into_bytes()).await?;
        wire::check_error(&answer)
    }

    /// Posts a request to the URL of a verb and reads the JSON of the response.
    pub(super) async fn post(&self, verb: &str, body: Vec<u8>) -> Result<Value, String> {
        let url = format!("{}/{verb}", self.config.url_prefix.trim_end_matches('/'));
        let answer = self.client.post(&format!("/{verb}"), body.into()).await;
        let answer = answer.map_err(|why| format!("Post {url:?}: {why}"))?;
        if answer.status != 200 {
            let code = answer.status.as_u16();
            return Err(format!("failed {verb} with extender at URL {url}, code {code}"));
        }
        serde_json::from_slice(&answer.body)
            .map_err(|why| format!("cannot read the response of extender at URL {url}: {why}"))
    }
}

/// The server of an extender, and how to verify it. Without an authority every certificate is accepted, as upstream
/// does.
fn target(config: &Extender) -> Result<Target, String> {
    let url = config.url_prefix.clone();
    let default = ExtenderTlsConfig::default();
    let tls = config.tls_config.as_ref().unwrap_or(&default);
    let (authorities, authority_file) = material(&tls.ca_data, &tls.ca_file, "caData")?;
    let has_authority = authorities.is_some();
    if tls.insecure && has_authority {
        return Err("specifying a root certificates file with the insecure flag is not allowed".to_owned());
    }
    let (certificate, certificate_file) = material(&tls.cert_data, &tls.cert_file, "certData")?;
    let (key, key_file) = material(&tls.key_data, &tls.key_file, "keyData")?;
    if certificate.is_some() != key.is_some() {
        return Err("a client certificate and its key must be given together".to_owned());
    }
    Ok(Target {
        url,
        authorities,
        authority_file,
        insecure: tls.insecure || config.enable_https && !has_authority,
        server_name: Some(tls.server_name.clone()).filter(|name| !name.is_empty()),
        identity: certificate.zip(key),
        identity_files: certificate_file.zip(key_file),
        ..Target::default()
    })
}

type Material = (Option<Vec<u8>>, Option<std::path::PathBuf>);

/// PEM from the configuration, or from a file, which is then named too.
fn material(data: &str, file: &str, field: &str) -> Result<Material, String> {
    if !data.is_empty() {
        let pem = STANDARD.decode(data).map_err(|why| format!("{field} is not base64: {why}"))?;
        return Ok((Some(pem), None));
    }
    if file.is_empty() {
        return Ok((None, None));
    }
    let pem = std::fs::read(file).map_err(|why| format!("cannot read {file}: {why}"))?;
    Ok((Some(pem), Some(file.into())))
}
