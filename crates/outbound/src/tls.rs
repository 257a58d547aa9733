//! TLS client configuration: which server certificates are accepted, and which client certificate is presented.

use crate::any_certificate::AnyCertificate;
use crate::client_certificate::ClientCertificate;
use crate::egress::{DialingConnector, IdentityChanges};
use crate::error::InvalidTarget;
use crate::pem::{CLIENT_CERTIFICATE, bad, certificates};
use crate::server_authorities::ServerAuthorities;
use crate::server_verifier::ConfiguredAuthorities;
use crate::target::Target;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use rustls::client::Resumption;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{PrivateKeyDer, ServerName};
use std::sync::Arc;

/// The use of the connections of a connector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Requests in any version of HTTP. When the files of the client certificate change, connections end, as those of
    /// upstream's clients do.
    Requests,
    /// Connections that are upgraded to streams. They stay open.
    Upgrades,
    /// Calls over HTTP/2 whose loss would leave their outcome unknown. Connections stay open.
    Calls,
}

/// Connects to a target through its dialer.
pub(crate) type Connector = HttpsConnector<DialingConnector>;

pub(crate) fn connector(target: &Target) -> Result<Connector, InvalidTarget> {
    connector_for(target, Purpose::Requests)
}

pub(crate) fn connector_for(target: &Target, purpose: Purpose) -> Result<Connector, InvalidTarget> {
    let files = followed_certificate(target)?;
    let tls = config_with(target, files.clone())?;
    let builder = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    let changes: Option<IdentityChanges> = match (target.client_identity.clone(), files) {
        (Some(identity), _) => Some(Arc::new(move || identity.change())),
        (None, Some(files)) if purpose == Purpose::Requests => Some(Arc::new(move || files.clone().change())),
        _ => None,
    };
    let dialer = DialingConnector::new(target.way.clone(), target.connect_timeout, changes);
    let name =
        target.server_name.clone().map(ServerName::try_from).transpose().map_err(bad("the server name"))?;
    let builder = match name {
        Some(name) => builder.with_server_name_resolver(FixedServerNameResolver::new(name)),
        None => builder,
    };
    Ok(match purpose {
        Purpose::Requests | Purpose::Calls => builder.enable_all_versions().wrap_connector(dialer),
        Purpose::Upgrades => builder.enable_http1().wrap_connector(dialer),
    })
}

/// The client certificate of a target whose files are read again.
fn followed_certificate(target: &Target) -> Result<Option<Arc<ClientCertificate>>, InvalidTarget> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    match (&target.client_identity, &target.identity, &target.identity_files) {
        (None, Some(pair), Some(files)) => {
            Ok(Some(Arc::new(ClientCertificate::new(pair.clone(), files.clone(), provider)?)))
        }
        _ => Ok(None),
    }
}

/// The TLS configuration of a target, without protocols of the application.
pub fn config(target: &Target) -> Result<ClientConfig, InvalidTarget> {
    config_with(target, followed_certificate(target)?)
}

fn config_with(
    target: &Target,
    files: Option<Arc<ClientCertificate>>,
) -> Result<ClientConfig, InvalidTarget> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(bad("TLS"))?;
    let builder = if target.insecure {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate))
    } else if let (Some(pem), Some(file)) = (&target.authorities, &target.authority_file) {
        let followed = ServerAuthorities::new(pem.clone(), file.clone(), provider.clone())?;
        builder.dangerous().with_custom_certificate_verifier(Arc::new(followed))
    } else if let Some(pem) = &target.authorities {
        builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(ConfiguredAuthorities::new(pem, provider.clone())?))
    } else if target.url.starts_with("http://") {
        // without TLS no certificate is verified
        builder.with_root_certificates(RootCertStore::empty())
    } else {
        let mut roots = RootCertStore::empty();
        // an unreadable certificate of the operating system is skipped
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        builder.with_root_certificates(roots)
    };
    let is_replaced = target.client_identity.is_some() || files.is_some();
    let mut config = match (&target.client_identity, files, &target.identity) {
        (Some(identity), ..) => builder.with_client_cert_resolver(Arc::new(identity.clone())),
        (None, Some(files), _) => builder.with_client_cert_resolver(files),
        (None, None, None) => builder.with_no_client_auth(),
        (None, None, Some((certificate, key))) => {
            let chain = certificates(CLIENT_CERTIFICATE, certificate)?;
            let key = PrivateKeyDer::from_pem_slice(key).map_err(bad("the client key"))?;
            builder.with_client_auth_cert(chain, key).map_err(bad(CLIENT_CERTIFICATE))?
        }
    };
    // a resumed session has the verification and the client certificate of its first handshake
    if target.authority_file.is_some() || is_replaced {
        config.resumption = Resumption::disabled();
    }
    Ok(config)
}
