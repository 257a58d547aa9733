//! The service proxy: addresses and ports of services, translated to those of their endpoints by nf_tables.
//!
//! | module | what it is |
//! |---|---|
//! | [`service`], [`endpoint`] | services and endpoint slices as the rules need them, and the endpoints that a node uses |
//! | [`rules`] | the table: sets, chains that all services share, chains by number of endpoints |
//! | [`fragment`] | the elements and chains of one service |
//! | [`state`] | all services; what changes becomes a batch of elements |
//! | [`proxy_writer`] | writes batches, and ends connections that they have left behind |
//! | [`run`] | the informers around them |
//! | [`health`], [`health_check`] | whether the proxy keeps up; the ports on which load balancers look for local endpoints |
//! | [`configuration`], [`flag_table`], [`kernel_settings`] | the configuration file and flags, and the settings of the kernel |
//! | [`metrics`], [`proxy_events`] | metrics under upstream's names, events with its reasons |
//!
//! An address of a service is an element of a verdict map whose chain depends on the number of endpoints alone:
//!
//! ```text
//! map services  { 10.96.0.10 . udp . 53 : goto cluster-2 }
//! map endpoints { 10.96.0.10 . udp . 53 . 0 : 10.1.0.5 . 53, 10.96.0.10 . udp . 53 . 1 : 10.1.1.7 . 53 }
//! chain cluster-2 { dnat to ip daddr . meta l4proto . th dport . numgen random mod 2 map @endpoints }
//! ```
//!
//! So one more endpoint is one more element, and another verdict for the address; rules do not change. Only services
//! with session affinity have chains of their own, and a set of clients for each endpoint.
//!
//! Rules stay when the process ends, and the next process continues with them.

pub mod configuration;
pub mod endpoint;
pub mod flag_table;
pub mod fragment;
pub mod health;
pub mod health_check;
pub mod kernel_settings;
pub mod metrics;
pub mod proxy_events;
pub mod proxy_writer;
pub mod rules;
pub mod run;
pub mod service;
pub mod state;

#[cfg(test)]
mod protocol_tests;
#[cfg(test)]
mod sctp_peer;
#[cfg(test)]
mod state_tests;
#[cfg(test)]
mod testing;
#[cfg(test)]
pub(crate) mod traffic_tests;
