//! The verbs of the API, one file each.

pub mod action;
pub mod apply;
pub mod budgeted_delete;
pub mod connect;
pub mod create;
pub mod delete;
pub mod deletecollection;
pub mod get;
pub mod list;
pub mod patch;
pub mod update;
pub mod virtual_resource;
pub mod watch;
