//! All feature gates of Kubernetes 1.26, and what stands behind those behind which something stands.
//!
//! All names are known (`gates/gates.txt`), so that a command line that works there works here.

use apiserver::Gates;
use controllers::loops;

/// A gate as upstream knows it.
pub struct Gate {
    pub name: &'static str,
    /// Whether it is open where nobody decides.
    pub open: bool,
    /// `alpha`, `beta` or `ga`.
    pub stage: &'static str,
    /// Whether nobody can decide.
    pub locked: bool,
}

pub fn all() -> impl Iterator<Item = Gate> {
    include_str!("gates/gates.txt").lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let mut words = line.split(' ');
        let (name, open, stage) = (words.next()?, words.next()? == "open", words.next()?);
        Some(Gate { name, open, stage, locked: words.next().is_some() })
    })
}

/// Gates that stand for others: the name and the stage of those.
pub const GROUPS: [(&str, &str); 2] = [("AllAlpha", "alpha"), ("AllBeta", "beta")];

/// What a gate changes, and where that is decided.
type Behind = (&'static str, &'static str, fn(&mut Gates) -> &mut bool);

/// What the server itself does or leaves, by gate.
pub const BEHIND: &[Behind] = &[
    ("APIListChunking", "lists come in chunks (`limit`, `continue`)", |gates| &mut gates.chunks),
    (
        "APIPriorityAndFairness",
        "requests wait for their turn (with `--enable-priority-and-fairness`)",
        |gates| &mut gates.turns,
    ),
    ("APIResponseCompression", "answers are compressed for those who can read that", |gates| {
        &mut gates.compression
    }),
    ("APIServerTracing", "spans of requests are sent to a collector (`--tracing-config-file`)", |gates| {
        &mut gates.tracing
    }),
    ("AdvancedAuditing", "requests are recorded (`--audit-*`)", |gates| &mut gates.record),
    ("OpenAPIV3", "`/openapi/v3` is served", |gates| &mut gates.openapi_v3),
    ("RemainingItemCount", "chunks of lists say how much is left", |gates| &mut gates.remaining),
    (
        "ServerSideFieldValidation",
        "unknown and repeated fields are warned of or refused (`fieldValidation`)",
        |gates| &mut gates.field_validation,
    ),
    ("StorageVersionHash", "discovery says by a hash in which version objects are kept", |gates| {
        &mut gates.storage_hash
    }),
];

/// What the control loops do or leave, by gate.
pub const BEHIND_LOOPS: &[(&str, &str, fn(&mut loops::Options) -> &mut bool)] = &[
    (
        "NodeOutOfServiceVolumeDetach",
        "volumes are detached from nodes that are out of service, whatever they say",
        |options| &mut options.attach_detach.from_out_of_service,
    ),
    (
        "RetroactiveDefaultStorageClass",
        "claims without a class get the default one when there comes to be one",
        |options| &mut options.persistent_volumes.late_default_class,
    ),
];

/// Whether a kind is served, or a field kept, only where a gate is open.
pub fn guards_kinds(name: &str) -> bool {
    kinds::tables::KINDS.iter().any(|kind| kind.gate == name) || of_fields(name).is_some()
}

fn of_fields(name: &str) -> Option<&'static str> {
    kinds::gates::OF_FIELDS.iter().find(|(gate, _)| *gate == name).map(|(_, what)| *what)
}

/// What a gate changes, if anything.
pub fn behind(name: &str) -> Option<&'static str> {
    if GROUPS.iter().any(|(group, _)| *group == name) {
        return Some("all gates of this stage that are not named");
    }
    let kinds = of_fields(name)
        .or_else(|| guards_kinds(name).then_some("kinds that need it are served, if their version is"));
    let of_loops = || BEHIND_LOOPS.iter().find(|(gate, ..)| *gate == name).map(|(_, what, _)| *what);
    kinds
        .or_else(|| BEHIND.iter().find(|(gate, ..)| *gate == name).map(|(_, what, _)| *what))
        .or_else(of_loops)
}
