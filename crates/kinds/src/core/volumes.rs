//! Fields that persistent volumes and their claims share: access modes, amounts and the storage class.

use crate::check::{self, Problems};
use crate::{gates, quantities, read};
use rest::hooks::Context;
use schema::problem::Problem;
use schema::{Path, Value};

/// The access modes, in order; the last one is behind a feature gate.
const ACCESS: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", ONE_POD];
const ONE_POD: &str = "ReadWriteOncePod";

/// Whether ReadWriteOncePod is allowed: its feature gate is open, or the old object uses it.
pub(crate) fn may_be_alone(old: Option<&Value>, context: &Context<'_>) -> bool {
    let alone = |old: &Value| old.items(&["spec", "accessModes"]).iter().any(|it| read::text(it) == ONE_POD);
    gates::ONE_POD.is_open(context) || old.is_some_and(alone)
}

/// Checks that each mode is supported, and that ReadWriteOncePod is the only one.
pub(crate) fn access_modes(spec: &Value, may_be_alone: bool, path: &Path<'_>, out: &mut Problems) {
    let known = if may_be_alone { &ACCESS[..] } else { &ACCESS[..3] };
    let modes = spec.items(&["accessModes"]);
    for mode in modes.iter().map(read::text).filter(|mode| !known.contains(mode)) {
        out.push(check::unsupported(path, mode, known));
    }
    let alone = modes.iter().filter(|it| read::text(it) == ONE_POD).count();
    if alone > 0 && alone < modes.len() {
        out.push(Problem::forbidden(path, "may not use ReadWriteOncePod with other access modes"));
    }
}

/// Checks that an amount is not negative; the error shows the number.
pub(crate) fn valid_amount(value: &Value, path: &Path<'_>, out: &mut Problems) {
    let number = quantities::parse(value).whole();
    if number < 0 {
        out.push(check::invalid_int(path, number, "must be a valid resource quantity"));
    }
}

/// Checks that an amount is positive.
pub(crate) fn positive(value: &Value, path: &Path<'_>, out: &mut Problems) {
    if quantities::parse(value).sign() <= 0 {
        out.push(Problem::invalid(path, value, "must be greater than zero"));
    }
}

/// The modes in short form, each once, in the order that people know.
pub(crate) fn short_modes(modes: &[Value]) -> String {
    const SHORT: &[(&str, &str)] = &[
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let given = SHORT.iter().filter(|(mode, _)| modes.iter().any(|it| read::text(it) == *mode));
    given.map(|(_, short)| *short).collect::<Vec<_>>().join(",")
}
