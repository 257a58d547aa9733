//! Versions of stored objects: the storage version, the other served ones, and the retired ones.
//!
//! The tables list the retired versions and their forms (`RETIRED`). Most differ from a later version only by name; the
//! list below has the versions with other defaults or another form, whose functions are beside their kinds. Each
//! function converts to the form of the storage version.
//!
//! It leaves out kinds that no release serves in any version, such as pod security policies. Their keys stay in the
//! store, and only `pintle convert` reads them.

use crate::tables::RETIRED;
use crate::{
    Options, admissionregistration::webhook, apiextensions as crd, apps::daemonset, apps::deployment,
    apps::replicaset, apps::statefulset, autoscaling::horizontalpodautoscaler as hpa,
    certificates::certificatesigningrequest as csr, discovery::endpointslice, hooks::hooks,
    networking::ingress, node::runtimeclass, policy::poddisruptionbudget as budget, rbac, versions,
};
use rest::versions::{Change, StoredVersion, StoredVersions};
use schema::table::{Kind, RetiredVersion};

/// The readable versions of a stored kind.
pub(crate) fn stored_versions(stored: &Kind, options: Options) -> StoredVersions {
    let served = versions(stored).skip(1).map(|kind| {
        let hooks = hooks(kind, options);
        StoredVersion {
            group: kind.group.clone(),
            version: kind.version.clone(),
            root: kind.root.clone(),
            own_default: None,
            default: hooks.decode.default,
            convert: None,
            to_stored: hooks.storage.convert.map(|it| it.to_stored),
        }
    });
    let retired = RETIRED.iter().filter(|one| is_kept_as(one.form, stored));
    let retired = retired.map(|one| retired_version(one, stored, options));
    StoredVersions { default: hooks(stored, options).decode.default, others: served.chain(retired).collect() }
}

fn is_kept_as(form: &Kind, stored: &Kind) -> bool {
    let own = (form.group.clone(), form.version.clone());
    let (group, version) = form.stored_as.as_ref().unwrap_or(&own);
    form.name == stored.name && *group == stored.group && *version == stored.version
}

fn retired_version(retired: &RetiredVersion, stored: &Kind, options: Options) -> StoredVersion {
    // a retired table has no hooks: defaults across fields are those of the current version
    let is_served = !retired.form.plural.is_empty();
    let behaviour = hooks(if is_served { retired.form } else { stored }, options);
    let Differences { own_default, convert, skips_default } = differences(retired);
    StoredVersion {
        group: retired.group.clone(),
        version: retired.version.clone(),
        root: retired.form.root.clone(),
        own_default,
        default: behaviour.decode.default.filter(|_| !skips_default),
        convert,
        to_stored: behaviour.storage.convert.filter(|_| is_served).map(|it| it.to_stored),
    }
}

/// The differences of a retired version from the next one.
#[derive(Default)]
struct Differences {
    own_default: Option<Change>,
    convert: Option<Change>,
    /// Whether defaults that depend on other fields are not set.
    skips_default: bool,
}

fn differences(retired: &RetiredVersion) -> Differences {
    let defaults = |own_default: Change| Differences { own_default: Some(own_default), ..Default::default() };
    let converts = |convert: Change| Differences { convert: Some(convert), ..Default::default() };
    let both = |own_default: Change, convert: Change| Differences {
        convert: Some(convert),
        ..defaults(own_default)
    };
    match (&*retired.group.stem, &*retired.version, &*retired.form.name) {
        ("admissionregistration", "v1beta1", _) => defaults(webhook::default_v1beta1),
        ("apiextensions", "v1beta1", "CustomResourceDefinition") => {
            both(crd::v1beta1::default, crd::v1beta1::convert)
        }
        ("apps", "v1beta1", "Deployment") => {
            both(deployment::default_apps_v1beta1, deployment::convert_v1beta1)
        }
        ("apps", "v1beta1", "StatefulSet") => defaults(statefulset::default_v1beta1),
        ("autoscaling", "v2beta1", "HorizontalPodAutoscaler") => {
            Differences { skips_default: true, ..converts(hpa::convert_v2beta1) }
        }
        ("certificates", "v1beta1", "CertificateSigningRequest") => defaults(csr::default_v1beta1),
        ("discovery", _, "EndpointSlice") => converts(endpointslice::convert_v1beta1),
        ("extensions", "v1beta1", "DaemonSet") => {
            both(daemonset::default_v1beta1, daemonset::convert_v1beta1)
        }
        ("extensions", "v1beta1", "Deployment") => {
            both(deployment::default_extensions_v1beta1, deployment::convert_v1beta1)
        }
        ("extensions", "v1beta1", "ReplicaSet") => defaults(replicaset::default_v1beta1),
        ("extensions" | "networking", "v1beta1", "Ingress") => converts(ingress::convert_v1beta1),
        ("networking", "v1beta1", "IngressClass") => {
            Differences { skips_default: true, ..Differences::default() }
        }
        ("node", "v1alpha1", "RuntimeClass") => converts(runtimeclass::convert_v1alpha1),
        ("policy", "v1beta1", "PodDisruptionBudget") => converts(budget::convert_v1beta1),
        ("rbac.authorization", "v1alpha1", "RoleBinding" | "ClusterRoleBinding") => {
            converts(rbac::convert_v1alpha1)
        }
        _ => Differences::default(),
    }
}

#[cfg(test)]
mod tests;
