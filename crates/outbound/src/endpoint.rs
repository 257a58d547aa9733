//! The address of a gRPC server: host and port, or a Unix socket.

use std::path::PathBuf;
use std::str::FromStr;

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// Host and port.
    Tcp(String),
    /// A path, or a zero byte and a name in the abstract namespace.
    Unix(PathBuf),
}

impl FromStr for Endpoint {
    type Err = String;

    /// `host:port`, `dns:host:port`, `dns:///host:port`, `unix:path` or `unix:///path`.
    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            // `/@name` denotes a socket in the abstract namespace
            return match path.strip_prefix("/@") {
                _ if path.is_empty() => Err("a path is missing".to_owned()),
                Some(name) => Ok(Endpoint::Unix(format!("\0{name}").into())),
                None => Ok(Endpoint::Unix(path.into())),
            };
        }
        let host = match text.strip_prefix("dns:") {
            Some(rest) => rest.rsplit('/').next().unwrap_or(""),
            None if text.contains("//") => {
                return Err(format!("{text:?} is none of host:port, dns:host:port and unix:path"));
            }
            None => text,
        };
        let port =
            host.rsplit_once(':').is_some_and(|(name, port)| !name.is_empty() && port.parse::<u16>().is_ok());
        if port { Ok(Endpoint::Tcp(host.to_owned())) } else { Err(format!("{host:?} is not host:port")) }
    }
}
