//! Advice about servers that cannot be reached.

/// What to do about an error of a connection, by its text.
pub fn connection_advice(error: &str) -> &'static str {
    let text = error.to_lowercase();
    if ["expired", "not valid yet", "not yet valid"].iter().any(|it| text.contains(it)) {
        "check the clocks of this machine and of the server"
    } else if text.contains("not valid for") {
        "the certificate of the server does not name this address: start the server with --tls-san"
    } else if text.contains("certificate") || text.contains("x509") {
        "another server answers there, or the cluster has another authority by now: check the address"
    } else {
        "check the address, and that the server listens on it (pintle up --bind-address 0.0.0.0)"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_advice() {
        for (error, part) in [
            (
                "client error (Connect): invalid peer certificate: certificate expired: verification time 1",
                "clocks",
            ),
            ("invalid peer certificate: certificate not valid yet: verification time 1", "clocks"),
            ("invalid peer certificate: certificate not valid for name \"10.0.0.9\"", "--tls-san"),
            ("invalid peer certificate: UnknownIssuer", "another server"),
            ("dial tcp 10.0.0.1:6443: connect: connection refused", "--bind-address"),
        ] {
            assert!(connection_advice(error).contains(part), "{error}");
        }
    }
}
