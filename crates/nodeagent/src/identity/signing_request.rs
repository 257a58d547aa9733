//! Requests for certificates: made, sent to the API server, and awaited until they are decided.

use super::certificate::{CertificateFacts, PemPair};
use api::ByteString;
use api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestCondition, CertificateSigningRequestSpec,
};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use client::{Api, Client, Error, Informer, InformerFactory, Key};
use env::World;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PublicKeyData as _};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The prefix of the users of nodes, and their group.
const NODE_USER: &str = "system:node:";
const NODE_GROUP: &str = "system:nodes";

/// Makes new keys.
pub type KeySource = Arc<dyn Fn() -> Result<KeyPair, rcgen::Error> + Send + Sync>;

/// What a certificate is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    Client,
    Serving,
}

impl Purpose {
    fn usages(self) -> [&'static str; 3] {
        let purpose = match self {
            Purpose::Client => "client auth",
            Purpose::Serving => "server auth",
        };
        ["digital signature", "key encipherment", purpose]
    }

    /// The signer, as the dialect spells it.
    pub fn signer(self, names: &names::Names) -> String {
        match self {
            Purpose::Client => names.agent_client_signer(),
            Purpose::Serving => names.agent_serving_signer(),
        }
    }
}

/// What a certificate is to say.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CertificateTemplate {
    pub common_name: String,
    pub names: BTreeSet<String>,
    pub addresses: BTreeSet<IpAddr>,
}

impl CertificateTemplate {
    /// The client certificate of a node.
    pub fn of_node(name: &str) -> Self {
        CertificateTemplate { common_name: format!("{NODE_USER}{name}"), ..CertificateTemplate::default() }
    }

    /// Whether a certificate says all of it. It may say more.
    pub fn is_satisfied_by(&self, facts: &CertificateFacts) -> bool {
        self.common_name == facts.common_name
            && facts.organizations.contains(NODE_GROUP)
            && self.names.is_subset(&facts.names)
            && self.addresses.is_subset(&facts.addresses)
    }

    fn request(&self, key: &KeyPair) -> Result<String, rcgen::Error> {
        let hosts = self.names.iter().cloned().chain(self.addresses.iter().map(IpAddr::to_string));
        let mut params = CertificateParams::new(hosts.collect::<Vec<_>>())?;
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, NODE_GROUP);
        params.distinguished_name.push(DnType::CommonName, &*self.common_name);
        params.serialize_request(key)?.pem()
    }
}

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum SigningError {
    #[error("the certificate request cannot be made: {0}")]
    Request(#[from] rcgen::Error),
    #[error("the certificate request was not accepted: {0}")]
    Api(#[from] Error),
    #[error("certificate signing request is denied, reason: {reason}, message: {message}")]
    Denied { reason: String, message: String },
    #[error("certificate signing request failed, reason: {reason}, message: {message}")]
    Failed { reason: String, message: String },
    #[error("the certificate request {0} was deleted")]
    Deleted(String),
    #[error("the certificate request {0} was not decided in time")]
    Timeout(String),
}

impl SigningError {
    /// Whether the API server itself has answered, so that it is the certificate that is missing.
    pub fn has_server_answered(&self) -> bool {
        match self {
            SigningError::Request(_) => false,
            SigningError::Api(error) => [401, 403, 404].into_iter().any(|code| error.is(code)),
            _ => true,
        }
    }
}

/// A request for a certificate.
pub struct SigningRequest<'a> {
    pub client: &'a Client,
    pub world: &'a World,
    pub keys: &'a KeySource,
    pub signer: String,
    pub purpose: Purpose,
    pub template: &'a CertificateTemplate,
    /// How long the decision may take.
    pub timeout: Duration,
}

impl SigningRequest<'_> {
    /// Requests a certificate for a new key, under a name of the server's choice.
    pub async fn run(&self) -> Result<PemPair, SigningError> {
        let key = (self.keys)()?;
        let mut object = self.object(&key)?;
        object.metadata.generate_name = "csr-".to_owned();
        let created = Api::all(self.client).create(&object).await?;
        self.wait(&created, &key).await
    }

    /// Requests a certificate for a key under a name that follows from the request: an agent that starts again waits for
    /// the decision about its former request.
    pub async fn run_for(&self, key: &KeyPair) -> Result<PemPair, SigningError> {
        let mut object = self.object(key)?;
        object.metadata.name = self.name(key);
        let requests = Api::all(self.client);
        let created = match requests.create(&object).await {
            Err(error) if error.is_already_exists() => requests.get(&object.metadata.name).await?,
            created => created?,
        };
        self.wait(&created, key).await
    }

    fn object(&self, key: &KeyPair) -> Result<CertificateSigningRequest, SigningError> {
        Ok(CertificateSigningRequest {
            spec: CertificateSigningRequestSpec {
                request: ByteString(self.template.request(key)?.into_bytes()),
                signer_name: self.signer.clone(),
                usages: self.purpose.usages().map(str::to_owned).to_vec(),
                ..CertificateSigningRequestSpec::default()
            },
            ..CertificateSigningRequest::default()
        })
    }

    fn name(&self, key: &KeyPair) -> String {
        let mut digest = Sha256::new();
        digest.update(key.subject_public_key_info());
        for part in [&*self.template.common_name, NODE_GROUP].into_iter().chain(self.purpose.usages()) {
            digest.update(b"|");
            digest.update(part);
        }
        format!("node-csr-{}", URL_SAFE_NO_PAD.encode(digest.finalize()))
    }

    async fn wait(
        &self,
        created: &CertificateSigningRequest,
        key: &KeyPair,
    ) -> Result<PemPair, SigningError> {
        let name = &created.metadata.name;
        tracing::info!(request = name, "waiting for the decision about a certificate request");
        let factory = InformerFactory::new(self.client.clone());
        let requests = factory.informer_of::<CertificateSigningRequest>("", &format!("metadata.name={name}"));
        let waiting = decision(&requests, name, &created.metadata.uid);
        let certificate = match env::timeout(self.world, self.timeout, waiting).await {
            Ok(decided) => decided?,
            Err(_) => return Err(SigningError::Timeout(name.clone())),
        };
        Ok(PemPair { certificate, key: key.serialize_pem().into_bytes() })
    }
}

/// Waits until a request is signed or refused.
async fn decision(
    requests: &Informer<CertificateSigningRequest>,
    name: &str,
    uid: &str,
) -> Result<Vec<u8>, SigningError> {
    let (changed, mut changes) = watch::channel(());
    requests.listen(move |_| changed.send_replace(()));
    requests.synced().await;
    loop {
        changes.mark_unchanged();
        let current = requests.get(&Key::new("", name)).filter(|it| it.metadata.uid == uid);
        let current = current.ok_or_else(|| SigningError::Deleted(name.to_owned()))?;
        if let Some(certificate) = certificate(&current)? {
            return Ok(certificate);
        }
        if changes.changed().await.is_err() {
            return Err(SigningError::Deleted(name.to_owned()));
        }
    }
}

/// The certificate of a request, if it has one.
fn certificate(request: &CertificateSigningRequest) -> Result<Option<Vec<u8>>, SigningError> {
    let find = |kind: &str| {
        let all = request.status.conditions.iter();
        all.filter(|it| it.status == "True" || it.status.is_empty()).find(|it| it.type_ == kind)
    };
    let text = |it: &CertificateSigningRequestCondition| (it.reason.clone(), it.message.clone());
    if let Some((reason, message)) = find("Denied").map(text) {
        return Err(SigningError::Denied { reason, message });
    }
    if let Some((reason, message)) = find("Failed").map(text) {
        return Err(SigningError::Failed { reason, message });
    }
    let certificate = &request.status.certificate.0;
    Ok((find("Approved").is_some() && !certificate.is_empty()).then(|| certificate.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_satisfies_a_template_that_says_less() {
        let mut template = CertificateTemplate::of_node("n");
        let mut facts = CertificateFacts {
            common_name: "system:node:n".to_owned(),
            organizations: ["system:nodes".to_owned()].into(),
            names: ["n".to_owned()].into(),
            addresses: ["10.0.0.1".parse().unwrap()].into(),
            ..CertificateFacts::default()
        };
        assert!(template.is_satisfied_by(&facts));
        template.names = ["n".to_owned()].into();
        template.addresses = ["10.0.0.1".parse().unwrap()].into();
        assert!(template.is_satisfied_by(&facts));
        template.addresses.insert("10.0.0.2".parse().unwrap());
        assert!(!template.is_satisfied_by(&facts));
        facts.addresses.extend(template.addresses.clone());
        facts.common_name = "system:node:m".to_owned();
        assert!(!template.is_satisfied_by(&facts));
    }

    #[test]
    fn decisions_are_read() {
        let read = |status: &str| {
            let request: CertificateSigningRequest =
                api::from_json(format!(r#"{{"status":{status}}}"#).as_bytes()).unwrap();
            certificate(&request).map_err(|why| why.to_string())
        };
        let condition = |kind: &str| {
            format!(r#""conditions":[{{"type":"{kind}","status":"True","reason":"r","message":"m"}}]"#)
        };
        assert_eq!(read("{}"), Ok(None));
        assert_eq!(read(&format!("{{{}}}", condition("Approved"))), Ok(None));
        assert_eq!(read(r#"{"certificate":"QQ=="}"#), Ok(None), "an approval is needed");
        let both = format!(r#"{{"certificate":"QQ==",{}}}"#, condition("Approved"));
        assert_eq!(read(&both), Ok(Some(b"A".to_vec())));
        let denied = "certificate signing request is denied, reason: r, message: m";
        assert_eq!(read(&format!("{{{}}}", condition("Denied"))), Err(denied.to_owned()));
        assert!(read(&format!("{{{}}}", condition("Failed"))).is_err());
    }
}
