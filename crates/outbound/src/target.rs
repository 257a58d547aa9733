//! The server to call: its URL, the certificates on both sides, and the caller's credentials.

use crate::client_identity::ClientIdentity;
use crate::egress::Dialer;
use crate::error::CallError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::HeaderValue;
use std::path::PathBuf;
use std::time::Duration;

/// A server, how to verify it, and how to authenticate to it.
#[derive(Debug, Clone, Default)]
pub struct Target {
    /// Scheme, host, port, and the base path.
    pub url: String,
    /// CA certificates in PEM; without them, those of the operating system.
    pub authorities: Option<Vec<u8>>,
    /// The file of these: each new connection is verified with its current contents.
    pub authority_file: Option<PathBuf>,
    /// Accept any certificate, also of keys and versions that are refused elsewhere.
    pub insecure: bool,
    /// The name in the server's certificate, if it is not the URL's host.
    pub server_name: Option<String>,
    /// Client certificate and key, in PEM.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// The files of the client certificate and key: each new connection presents their current contents. Connections
    /// for requests end soon after a change.
    pub identity_files: Option<(PathBuf, PathBuf)>,
    /// A client certificate that is replaced while connections are open, instead of the two above.
    pub client_identity: Option<ClientIdentity>,
    pub credentials: Credentials,
    pub way: Dialer,
    /// Timeout of connecting, if it is not the usual one.
    pub connect_timeout: Option<Duration>,
}

/// The credentials of a request.
#[derive(Clone, Default)]
pub enum Credentials {
    #[default]
    None,
    Bearer(String),
    /// A token file, read for every call, because other processes renew it.
    BearerFile(PathBuf),
    Basic {
        user: String,
        password: String,
    },
}

impl Credentials {
    /// The `Authorization` header.
    pub(crate) async fn header(&self) -> Result<Option<HeaderValue>, CallError> {
        let text = match self {
            Credentials::None => return Ok(None),
            Credentials::Bearer(token) => format!("Bearer {token}"),
            Credentials::BearerFile(path) => {
                let token = tokio::fs::read_to_string(path).await;
                let token = token.map_err(|why| CallError::Credentials(why.to_string()))?;
                format!("Bearer {}", token.trim())
            }
            Credentials::Basic { user, password } => {
                format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
            }
        };
        let mut value = HeaderValue::try_from(text).map_err(|_| {
            CallError::Credentials("they contain a character that is invalid in a header".to_owned())
        })?;
        value.set_sensitive(true);
        Ok(Some(value))
    }
}

/// Keeps secrets out of logs.
impl std::fmt::Debug for Credentials {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Credentials::None => "None",
            Credentials::Bearer(_) => "Bearer(..)",
            Credentials::BearerFile(_) => "BearerFile(..)",
            Credentials::Basic { .. } => "Basic(..)",
        })
    }
}
