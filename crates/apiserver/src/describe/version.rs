//! `/version`: what this server is, and which API it is compatible with.

use bytes::Bytes;

/// The version of the API that is served.
pub const MAJOR: &str = "1";
pub const MINOR: &str = "26";

pub fn json() -> Bytes {
    let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
    let arch = match arch {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!(
        "{{\"major\":\"{MAJOR}\",\"minor\":\"{MINOR}\",\"gitVersion\":\"v{MAJOR}.{MINOR}.4+pintle-{}\",\"gitCommit\":\"\",\
         \"gitTreeState\":\"clean\",\"buildDate\":\"1970-01-01T00:00:00Z\",\"goVersion\":\"none\",\"compiler\":\"rustc\",\
         \"platform\":\"{os}/{arch}\"}}",
        env!("CARGO_PKG_VERSION")
    )
    .into()
}
