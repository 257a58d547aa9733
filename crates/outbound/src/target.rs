//! The server to call: its URL, the certificates on both sides, and the caller's credentials.

use crate::egress::Dialer;
use crate::error::CallError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::HeaderValue;
use std::path::PathBuf;

/// Whom to call, and what is shown to whom.
#[derive(Debug, Clone, Default)]
pub struct Target {
    /// Scheme, host and port, and the path below which everything lies.
    pub url: String,
    /// Who vouches for the server, in PEM; without it, those whom this machine trusts.
    pub authorities: Option<Vec<u8>>,
    /// The file of these: each new connection is verified by what it holds then.
    pub authority_file: Option<PathBuf>,
    /// Believe any certificate.
    pub insecure: bool,
    /// The name that the server's certificate must have, when it is not that of the URL.
    pub server_name: Option<String>,
    /// Certificate and key, in PEM, by which the server knows who calls.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// The files of that certificate and key: each new connection shows what they hold then.
    pub identity_files: Option<(PathBuf, PathBuf)>,
    pub credentials: Credentials,
    pub way: Dialer,
}

/// What a request carries to say who calls.
#[derive(Clone, Default)]
pub enum Credentials {
    #[default]
    None,
    Bearer(String),
    /// A token that is read anew for every call, since others renew it.
    BearerFile(PathBuf),
    Basic {
        user: String,
        password: String,
    },
}

impl Credentials {
    /// The header that carries them.
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
        let mut value = HeaderValue::try_from(text)
            .map_err(|_| CallError::Credentials("it holds what a header cannot".to_owned()))?;
        value.set_sensitive(true);
        Ok(Some(value))
    }
}

/// Secrets are not for logs.
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
