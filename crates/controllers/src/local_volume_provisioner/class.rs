//! The storage class that every cluster has at first, and the driver object of its capacities.

use crate::volumes::default_class;
use api::meta::v1::ObjectMeta;
use api::storage::v1::{CSIDriver, CSIDriverSpec, StorageClass};
use names::Names;
use names::local_volumes::{CLASS, PROVISIONER};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The class, which is the default one unless there is another.
pub fn class(others: &[Arc<StorageClass>], names: &Names) -> StorageClass {
    let mut annotations = BTreeMap::new();
    if default_class(others, names).is_none() {
        annotations.insert(names.well_known_under("storageclass", "is-default-class"), "true".to_owned());
    }
    StorageClass {
        metadata: ObjectMeta { name: CLASS.to_owned(), annotations, ..ObjectMeta::default() },
        provisioner: PROVISIONER.to_owned(),
        reclaim_policy: Some("Delete".to_owned()),
        volume_binding_mode: Some("WaitForFirstConsumer".to_owned()),
        ..StorageClass::default()
    }
}

/// With this object the scheduler reads the capacities of the provisioner.
pub fn driver() -> CSIDriver {
    CSIDriver {
        metadata: ObjectMeta { name: PROVISIONER.to_owned(), ..ObjectMeta::default() },
        spec: CSIDriverSpec {
            attach_required: Some(false),
            storage_capacity: Some(true),
            ..CSIDriverSpec::default()
        },
        ..CSIDriver::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;
    use serde_json::json;

    #[test]
    fn the_class_is_the_default_where_there_is_no_other() {
        let names = Names::kubernetes();
        let key = "storageclass.kubernetes.io/is-default-class";
        let other = |value: &str| -> Arc<StorageClass> {
            Arc::new(object(
                json!({"metadata": {"name": "x", "annotations": {key: value}}, "provisioner": "p"}),
            ))
        };
        assert_eq!(class(&[other("false")], &names).metadata.annotations[key], "true");
        assert!(class(&[other("true")], &names).metadata.annotations.is_empty());
    }
}
