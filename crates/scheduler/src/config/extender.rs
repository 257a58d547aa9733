//! Extenders: HTTP services that take part in filtering, scoring, preemption and binding.

/// One extender.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Extender {
    pub url_prefix: String,
    /// Verbs are appended to the prefix; an empty one is not supported by the extender.
    pub filter_verb: String,
    pub preempt_verb: String,
    pub prioritize_verb: String,
    /// Factor of its scores.
    pub weight: i64,
    pub bind_verb: String,
    pub enable_https: bool,
    pub tls_config: Option<ExtenderTlsConfig>,
    /// 0 is upstream's default of 5 seconds.
    pub http_timeout_nanos: i64,
    /// Whether node names are enough for it.
    pub node_cache_capable: bool,
    /// Only pods that request one of these are sent; none: every pod is.
    pub managed_resources: Vec<ManagedResource>,
    /// Whether a failure of the extender leaves scheduling unchanged.
    pub ignorable: bool,
}

/// A resource that an extender manages.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ManagedResource {
    pub name: String,
    /// Whether NodeResourcesFit ignores it.
    pub ignored_by_scheduler: bool,
}

/// TLS of the connection to an extender.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct ExtenderTlsConfig {
    pub insecure: bool,
    pub server_name: String,
    pub cert_file: String,
    pub key_file: String,
    pub ca_file: String,
    /// PEM in base64, as in the file.
    pub cert_data: String,
    pub key_data: String,
    pub ca_data: String,
}

/// Keeps the key out of logs.
impl std::fmt::Debug for ExtenderTlsConfig {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("ExtenderTlsConfig")
            .field("insecure", &self.insecure)
            .field("server_name", &self.server_name)
            .field("cert_file", &self.cert_file)
            .field("key_file", &self.key_file)
            .field("ca_file", &self.ca_file)
            .finish_non_exhaustive()
    }
}
