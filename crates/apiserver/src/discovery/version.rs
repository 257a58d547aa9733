//! `/version`: version of this server, and the API version that it is compatible with.

use bytes::Bytes;

/// The version of the API that is served.
pub const MAJOR: &str = "1";
pub const MINOR: &str = "26";

/// The commit of the build, as release builds name it. Clients expect hexadecimal digits, so an unknown commit is zeros.
const COMMIT: &str = match option_env!("PINTLE_COMMIT") {
    Some(commit) => commit,
    None => "0000000000000000000000000000000000000000",
};

/// The version of Kubernetes that the server is compatible with.
pub fn compatible() -> String {
    format!("v{MAJOR}.{MINOR}.4")
}

/// The fields: metric label, JSON name, and value.
pub fn parts() -> [(&'static str, &'static str, String); 9] {
    let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
    let arch = match arch {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let own = concat!("+pintle-", env!("CARGO_PKG_VERSION"));
    [
        ("major", "major", MAJOR.to_owned()),
        ("minor", "minor", MINOR.to_owned()),
        ("git_version", "gitVersion", compatible() + own),
        ("git_commit", "gitCommit", COMMIT.to_owned()),
        ("git_tree_state", "gitTreeState", "clean".to_owned()),
        ("build_date", "buildDate", "1970-01-01T00:00:00Z".to_owned()),
        ("go_version", "goVersion", "none".to_owned()),
        ("compiler", "compiler", "rustc".to_owned()),
        ("platform", "platform", format!("{os}/{arch}")),
    ]
}

pub fn json() -> Bytes {
    // no value needs escapes
    let fields = parts().map(|(_, name, value)| format!("\"{name}\":\"{value}\""));
    format!("{{{}}}", fields.join(",")).into()
}
