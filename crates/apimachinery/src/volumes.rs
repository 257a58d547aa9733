//! Claims and volumes: their storage class.

use crate::unstructured as read;
use names::Names;
use schema::Value;

/// The annotation that held the class before the field existed.
pub fn storage_class_annotation(names: &Names) -> String {
    names.well_known_under("volume.beta", "storage-class")
}

/// The class of a claim or volume; an old annotation wins over the field.
pub fn storage_class<'v>(object: &'v Value, names: &Names) -> &'v str {
    match read::map(object, &["metadata", "annotations"]).get(&storage_class_annotation(names)) {
        Some(class) => read::text(class),
        None => object.text(&["spec", "storageClassName"]),
    }
}
