//! The scheduling queue: pods that wait for a node, and the events that wake them.
//!
//! A pod that has no node yet is in exactly one place:
//!
//! ```text
//!            add                       pop                 bound: the pod leaves for good
//!   new pod ─────► active ────────────────────► attempt ──┬─► assume, bind
//!      │             ▲  ▲                                 │
//!      │ gated       │  │ backoff is over          failed │ add_unschedulable
//!      ▼             │  │                                 ▼
//!    gated ──────────┘  └── backoff ◄──── an event ◄── unschedulable
//!         gates removed         ▲         that helps      (at most 5 minutes)
//!                               └──── failed while something moved
//! ```
//!
//! Always true: the queue has no threads, timers or clock. Time is a `Duration` since any fixed moment, passed to each
//! call; [`SchedulingQueue::next_wakeup`] names the time at which [`SchedulingQueue::flush`] has work.
//!
//! A pod that was popped is not in the queue. Its owner either binds it or hands it back.

mod backoff;
mod event;
mod metrics;
mod node_changes;
mod nominator;
mod plugin_events;
mod plugin_set;
mod pod;
mod pod_changes;
mod scheduling_queue;
mod slots;
mod unschedulable;

#[cfg(test)]
mod tests;

pub use backoff::Backoff;
pub use event::{Actions, ClusterEvent, EventResource};
pub use metrics::{Pending, QueueName};
pub use node_changes::node_scheduling_properties_changed;
pub use nominator::{Nomination, Nominator};
pub use plugin_events::PluginEvents;
pub use plugin_set::PluginSet;
pub use pod::{QueuePod, QueuedPod};
pub use pod_changes::is_pod_updated;
pub use scheduling_queue::{AlreadyQueued, Options, SchedulingQueue};
