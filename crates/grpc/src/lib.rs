//! Messages and clients of the gRPC protocols that Pintle speaks, generated from `proto/*.proto`.
//!
//! | module | protocol |
//! |---|---|
//! | [`containerd_events`] | events of containerd, about the ends of tasks |
//! | [`cri`] | container runtimes: the client of a node agent, the server of the embedded runtime |
//! | [`csi`] | storage drivers on a node |
//! | [`device_plugin`] | plugins that offer devices of a node |
//! | [`etcd`] | the etcd v3 API, of which the store is a client and `etcd-server` the server |
//! | [`health`] | health checks of gRPC servers |
//! | [`kms_v1beta1`], [`kms_v2alpha1`] | plugins that encrypt data encryption keys |
//! | [`konnectivity`] | tunnels through a konnectivity proxy |
//! | [`plugin_registration`] | plugins that register with a node agent |
//! | [`pod_resources_v1`], [`pod_resources_v1alpha1`] | devices, CPUs and memory of a node's pods |
//! | [`otlp`] | spans for an OpenTelemetry collector |
//!
//! The generated code is checked in, so that a build needs no protobuf compiler; after a change of a `.proto` file,
//! `cargo run --manifest-path crates/grpc/generate/Cargo.toml` writes it again. The feature `server` adds the servers
//! that the node agent, the etcd server and tests implement. Transport is not in this
//! crate: a client is generic over it (`outbound::Channel`). [`lenient_authority`] is for the connections of servers.

#[cfg(feature = "server")]
pub mod lenient_authority;

#[rustfmt::skip]
#[allow(clippy::all, rust_2018_idioms)]
#[path = "generated/containerd_events.rs"]
pub mod containerd_events;

#[rustfmt::skip]
#[allow(clippy::all, rust_2018_idioms)]
#[path = "generated/cri.rs"]
pub mod cri;

#[rustfmt::skip]
#[allow(clippy::all, rust_2018_idioms)]
#[path = "generated/csi.rs"]
pub mod csi;

#[rustfmt::skip]
#[allow(clippy::all, rust_2018_idioms)]
#[path = "generated/device_plugin.rs"]
pub mod device_plugin;

#[rustfmt::skip]
#[allow(clippy::all, rust_2018_idioms)]
#[path = "generated/etcd.rs"]
pub mod etcd;

#[rustfmt::skip]
#[allow(clippy::all, rust_2018_idioms)]
#[path = "generated/health.rs"]
pub mod health;

#[rustfmt::skip]
#[allow(clippy::all, rust_2018_idioms)]
#[path = "generated/kms_v1beta1.rs"]
pub mod kms_v1beta1;

#[rustfmt::skip]
#[allow(clippy::all, rust_2018_idioms)]
#[path = "generated/kms_v2alpha1.rs"]
pub mod kms_v2alpha1;

#[rustfmt::skip]
#[allow(clippy::all, rust_2018_idioms)]
#[path = "generated/konnectivity.rs"]
pub mod konnectivity;

#[rustfmt::skip]
#[allow(clippy::all, rust_2018_idioms)]
#[path = "generated/otlp_trace.rs"]
pub mod otlp;

#[rustfmt::skip]
#[allow(clippy::all, rust_2018_idioms)]
#[path = "generated/plugin_registration.rs"]
pub mod plugin_registration;

#[rustfmt::skip]
#[allow(clippy::all, rust_2018_idioms)]
#[path = "generated/pod_resources_v1.rs"]
pub mod pod_resources_v1;

#[rustfmt::skip]
#[allow(clippy::all, rust_2018_idioms)]
#[path = "generated/pod_resources_v1alpha1.rs"]
pub mod pod_resources_v1alpha1;

pub use prost::Message;
pub use tonic;
