//! The built-in API: tables in `api/`, and beside them one file for each kind that has behaviour of its own.
//!
//! A kind's file says what the table cannot: defaults that depend on other fields, rules that need more than
//! one field, what may change, what deleting means, and its row in a table of objects. Always true: a kind
//! without such a file works by its table alone. Nothing in here does I/O or reads a clock.

mod check;
pub mod clustercidr;
pub mod configmap;
pub mod csr;
pub mod endpoints;
pub mod endpointslice;
pub mod event;
pub mod ingress;
pub mod lease;
mod metadata;
pub mod namespace;
pub mod networkpolicy;
pub mod node;
mod pem;
pub mod pod;
mod quantities;
mod read;
pub mod runtimeclass;
mod scheduling;
pub mod secret;
pub mod service;
pub mod serviceaccount;
pub mod tables;

#[cfg(test)]
mod recorded;
#[cfg(test)]
mod testing;

use rest::hooks::Hooks;
use schema::table::{Kind, Ref};

/// What an operator may decide about the built-in kinds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// Containers may run as if they were the host.
    pub allow_privileged: bool,
    pub services: ServiceOptions,
}

/// What services are given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceOptions {
    /// Where the addresses come from of services that name no family.
    pub network: service::Network,
    /// One of the other family, where services may have both.
    pub second_network: Option<service::Network>,
    pub node_ports: service::PortRange,
}

impl Default for ServiceOptions {
    fn default() -> Self {
        ServiceOptions {
            network: service::Network::DEFAULT,
            second_network: None,
            node_ports: service::PortRange::DEFAULT,
        }
    }
}

/// All kinds with their behaviour, as they are without any decision by an operator.
pub fn builtin() -> Vec<(Ref<Kind>, Hooks)> {
    builtin_with(Options::default())
}

/// All kinds with their behaviour.
pub fn builtin_with(options: Options) -> Vec<(Ref<Kind>, Hooks)> {
    let served = tables::KINDS.iter().filter(|kind| kind.on && !kind.unstored);
    served.map(|kind| (Ref::Static(*kind), hooks(kind, options))).collect()
}

fn hooks(kind: &Kind, options: Options) -> Hooks {
    match (&*kind.group.stem, &*kind.version, &*kind.name) {
        ("", "v1", "ConfigMap") => configmap::hooks(),
        ("", "v1", "Endpoints") => endpoints::hooks(),
        ("", "v1", "Event") => event::hooks(),
        ("", "v1", "Namespace") => namespace::hooks(),
        ("", "v1", "Node") => node::hooks(),
        ("", "v1", "Pod") => pod::hooks(options),
        ("", "v1", "Secret") => secret::hooks(),
        ("", "v1", "Service") => service::hooks(options.services),
        ("", "v1", "ServiceAccount") => serviceaccount::hooks(),
        ("certificates", "v1", "CertificateSigningRequest") => csr::hooks(),
        ("coordination", "v1", "Lease") => lease::hooks(),
        ("discovery", "v1", "EndpointSlice") => endpointslice::hooks(),
        ("events", "v1", "Event") => event::own_group_hooks(),
        ("networking", "v1", "Ingress") => ingress::hooks(),
        ("networking", "v1", "IngressClass") => ingress::class_hooks(),
        ("networking", "v1", "NetworkPolicy") => networkpolicy::hooks(),
        ("networking", "v1alpha1", "ClusterCIDR") => clustercidr::hooks(),
        ("node", "v1", "RuntimeClass") => runtimeclass::hooks(),
        _ => Hooks::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_with_rows_of_their_own_fill_every_column() {
        let mut with_cells = 0;
        for (kind, hooks) in builtin() {
            if let Some(cells) = hooks.cells {
                with_cells += 1;
                let row = cells(&schema::Value::map(), std::time::Duration::ZERO);
                assert_eq!(row.len(), kind.columns.len(), "{}", kind.name);
            }
        }
        assert_eq!(with_cells, 17);
    }

    #[test]
    fn subresources_with_behaviour_are_declared() {
        for (kind, hooks) in builtin() {
            for one in hooks.subresources {
                assert!(kind.subresources.iter().any(|it| it.name == one.name), "{} {}", kind.name, one.name);
            }
        }
    }
}
