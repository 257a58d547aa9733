//! Probes of containers.
//!
//! | module | what it is |
//! |---|---|
//! | [`verdicts`] | results by container |
//! | [`action`] | one run: command, HTTP, TCP, gRPC |
//! | [`http`] | HTTP requests with upstream's headers and texts |
//! | [`worker`] | the task of one probe |

pub mod action;
pub mod http;
pub mod verdicts;
pub mod worker;
