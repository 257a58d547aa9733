//! The built-in API: tables in `api/`, and beside them one file for each kind that has behaviour of its own.
//!
//! A kind's file says what the table cannot: defaults that depend on other fields, rules that need more than
//! one field, what may change, what deleting means, and its row in a table of objects. Always true: a kind
//! without such a file works by its table alone. Nothing in here does I/O or reads a clock.

pub mod admission_policy;
pub mod apiservice;
mod check;
pub mod configmap;
pub mod crd;
pub mod csr;
pub mod event;
pub mod lease;
mod metadata;
pub mod namespace;
pub mod node;
mod pem;
pub mod pod;
mod quantities;
mod read;
pub mod runtimeclass;
mod scheduling;
pub mod secret;
pub mod serviceaccount;
pub mod tables;
mod url;
pub mod webhook;
mod webhook_client;

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
        ("", "v1", "Event") => event::hooks(),
        ("", "v1", "Namespace") => namespace::hooks(),
        ("", "v1", "Node") => node::hooks(),
        ("", "v1", "Pod") => pod::hooks(options),
        ("", "v1", "Secret") => secret::hooks(),
        ("", "v1", "ServiceAccount") => serviceaccount::hooks(),
        ("admissionregistration", "v1", _) => webhook::hooks(),
        ("admissionregistration", "v1alpha1", "ValidatingAdmissionPolicy") => admission_policy::hooks(),
        ("admissionregistration", "v1alpha1", "ValidatingAdmissionPolicyBinding") => {
            admission_policy::binding_hooks()
        }
        ("apiextensions", "v1", "CustomResourceDefinition") => crd::hooks(),
        ("apiregistration", "v1", "APIService") => apiservice::hooks(),
        ("certificates", "v1", "CertificateSigningRequest") => csr::hooks(),
        ("coordination", "v1", "Lease") => lease::hooks(),
        ("events", "v1", "Event") => event::own_group_hooks(),
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
        assert_eq!(with_cells, 14);
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
