//! Feature gates of the server.
//!
//! What always holds: a gate is looked at where the feature begins, so that behind it nothing needs to know. What a
//! closed gate takes away from a request is taken away before anybody has looked at it.

use crate::request::RequestInfo;
use http::{HeaderMap, header};
use metrics::{About, Gauge, Registry};

/// The gates that something stands behind, and all of them as they are shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gates {
    /// Lists come in chunks.
    pub chunks: bool,
    /// Chunks say how much is left.
    pub remaining: bool,
    pub compression: bool,
    /// Unknown and repeated fields are warned of or refused.
    pub field_validation: bool,
    /// The server says in a lease that it is there.
    pub identity: bool,
    pub openapi_v3: bool,
    /// How health checks went is told.
    pub slis: bool,
    /// Discovery says in which version objects are kept.
    pub storage_hash: bool,
    /// The server says in objects in which versions it keeps others.
    pub storage_versions: bool,
    /// Requests wait for their turn.
    pub turns: bool,
    /// Requests are recorded.
    pub record: bool,
    /// Spans of requests are sent to a collector.
    pub tracing: bool,
    /// Writes must fulfil admission policies.
    pub policies: bool,
    /// Discovery tells everything in one document, if asked to.
    pub whole_discovery: bool,
    /// It is noted when tokens that secrets hold were last used.
    pub tracking: bool,
    /// Key servers of the second version may be asked.
    pub key_servers: bool,
    /// Every gate there is, for those who collect numbers.
    pub shown: Vec<Shown>,
}

/// A gate, its stage (`alpha`, `beta`, `ga`), and whether it is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shown {
    pub name: &'static str,
    pub stage: &'static str,
    pub open: bool,
}

impl Default for Gates {
    fn default() -> Self {
        Gates {
            chunks: true,
            remaining: true,
            compression: true,
            field_validation: true,
            identity: true,
            openapi_v3: true,
            slis: false,
            storage_hash: true,
            storage_versions: false,
            turns: true,
            record: true,
            tracing: false,
            policies: false,
            whole_discovery: false,
            tracking: false,
            key_servers: false,
            shown: Vec::new(),
        }
    }
}

const SHOWN: About =
    About::alpha("kubernetes_feature_enabled", "Feature gates with their stages, and whether they are open.")
        .by(&["name", "stage"]);

impl Gates {
    /// Takes out of a request what asks for something that is switched off.
    pub(crate) fn narrow(&self, asked: &mut RequestInfo, headers: &mut HeaderMap) {
        if !self.chunks {
            asked.query.pairs.retain(|(key, _)| key != "limit" && key != "continue");
        }
        if !self.field_validation {
            asked.query.pairs.retain(|(key, _)| key != "fieldValidation");
            asked.query.pairs.push(("fieldValidation".to_owned(), "Ignore".to_owned()));
        }
        if !self.compression {
            headers.remove(header::ACCEPT_ENCODING);
        }
    }

    /// The gates before what a role permits: those of kinds that are open, and the server's own.
    pub(crate) fn opened(&self, of_kinds: &[String]) -> Vec<String> {
        let own = (self.storage_versions && self.identity).then(|| "StorageVersionAPI".to_owned());
        of_kinds.iter().cloned().chain(own).collect()
    }

    /// Shows every gate among the metrics. A finished feature has no stage there.
    pub(crate) fn tell(&self, registry: &Registry) {
        let family = registry.family::<Gauge>(SHOWN);
        for gate in &self.shown {
            let stage = if gate.stage == "ga" { String::new() } else { gate.stage.to_uppercase() };
            family.of(&[gate.name, &stage]).set(i64::from(gate.open));
        }
    }
}
