//! Names, labels and buckets of the scheduler's metrics, as upstream 1.26 has them.

use metrics::{Descriptor, counts};

/// Bounds in seconds that grow by a factor, as nanoseconds.
const fn exponential<const N: usize>(first: f64, factor: f64) -> [u64; N] {
    let mut out = [0; N];
    let (mut at, mut bound) = (0, first);
    while at < N {
        out[at] = (bound * 1e9 + 0.5) as u64;
        bound *= factor;
        at += 1;
    }
    out
}

const ATTEMPT_BOUNDS: &[u64] = &exponential::<15>(0.001, 2.0);
const POD_BOUNDS: &[u64] = &exponential::<20>(0.01, 2.0);
const POINT_BOUNDS: &[u64] = &exponential::<12>(0.0001, 2.0);
const PLUGIN_BOUNDS: &[u64] = &exponential::<20>(0.00001, 1.5);

const RESULT: &[&str] = &["result", "profile"];

pub const ATTEMPTS: Descriptor =
    Descriptor::stable("scheduler_schedule_attempts_total", "Attempts to schedule pods, by result.")
        .by(RESULT);
pub const ATTEMPT_DURATION: Descriptor = Descriptor::stable(
    "scheduler_scheduling_attempt_duration_seconds",
    "How long attempts took, with their bindings.",
)
.by(RESULT)
.seconds(ATTEMPT_BOUNDS);
pub const ALGORITHM_DURATION: Descriptor = Descriptor::alpha(
    "scheduler_scheduling_algorithm_duration_seconds",
    "How long the search of a node took that was found.",
)
.seconds(ATTEMPT_BOUNDS);
pub const POD_DURATION: Descriptor = Descriptor::stable(
    "scheduler_pod_scheduling_duration_seconds",
    "How long pods waited until they were bound, over all attempts.",
)
.by(&["attempts"])
.seconds(POD_BOUNDS);
pub const POD_ATTEMPTS: Descriptor =
    Descriptor::stable("scheduler_pod_scheduling_attempts", "Attempts until a pod was bound.")
        .sizes(&counts::<5>(1, 2));
pub const POINT_DURATION: Descriptor = Descriptor::stable(
    "scheduler_framework_extension_point_duration_seconds",
    "How long all plugins of an extension point took.",
)
.by(&["extension_point", "status", "profile"])
.seconds(POINT_BOUNDS);
pub const PLUGIN_DURATION: Descriptor = Descriptor::alpha(
    "scheduler_plugin_execution_duration_seconds",
    "How long a plugin took at an extension point; one cycle or binding of ten is measured.",
)
.by(&["plugin", "extension_point", "status"])
.seconds(PLUGIN_BOUNDS);
pub const PREEMPTION_ATTEMPTS: Descriptor =
    Descriptor::stable("scheduler_preemption_attempts_total", "Attempts to preempt pods.");
pub const PREEMPTION_VICTIMS: Descriptor =
    Descriptor::stable("scheduler_preemption_victims", "Pods that a preemption deletes.")
        .sizes(&counts::<7>(1, 2));
pub const PENDING_PODS: Descriptor =
    Descriptor::stable("scheduler_pending_pods", "Pods that wait, by queue.").by(&["queue"]);
pub const INCOMING_PODS: Descriptor = Descriptor::stable(
    "scheduler_queue_incoming_pods_total",
    "Pods that came into a queue, by the event that moved them.",
)
.by(&["queue", "event"]);
pub const UNSCHEDULABLE_PODS: Descriptor = Descriptor::alpha(
    "scheduler_unschedulable_pods",
    "Pods that wait, by a plugin that rejected them; a pod counts for each of its plugins.",
)
.by(&["plugin", "profile"]);
pub const CACHE_SIZE: Descriptor = Descriptor::alpha(
    "scheduler_scheduler_cache_size",
    "Nodes, pods and assumed pods that the scheduler knows.",
)
.by(&["type"]);
pub const GOROUTINES: Descriptor =
    Descriptor::alpha("scheduler_goroutines", "Tasks that run, by operation.").by(&["operation"]);
pub const SCHEDULER_GOROUTINES: Descriptor = Descriptor::alpha(
    "scheduler_scheduler_goroutines",
    "(Deprecated since 1.26.0) Tasks that run, by work; see scheduler_goroutines.",
)
.by(&["work"]);
pub const PERMIT_WAIT: Descriptor = Descriptor::alpha(
    "scheduler_permit_wait_duration_seconds",
    "How long pods waited for plugins of the extension point permit.",
)
.by(&["result"])
.seconds(ATTEMPT_BOUNDS);

pub const VOLUME_STAGE_ERRORS: Descriptor = Descriptor::alpha(
    "scheduler_volume_scheduling_stage_error_total",
    "Errors of the volumes of pods, by the step of scheduling.",
)
.by(&["operation"]);

const POD_LABELS: &[&str] = &["namespace", "pod", "node", "scheduler", "priority", "resource", "unit"];

pub const POD_REQUEST: Descriptor =
    Descriptor::alpha("kube_pod_resource_request", "Resources that a pod requests.").by(POD_LABELS);
pub const POD_LIMIT: Descriptor =
    Descriptor::alpha("kube_pod_resource_limit", "Limits of a pod's resources.").by(POD_LABELS);
