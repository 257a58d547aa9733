//! The environment of a hook: the user of the request, the time, and reads of other objects.

use crate::model::request_record::RequestRecord;
use names::Names;
use schema::{Value, time};
use std::sync::Arc;

/// The arguments of a hook besides the object.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    pub names: &'a Names,
    /// Now, in Unix seconds.
    pub now: i64,
    /// The user of the request.
    pub user: &'a Requester,
    /// Looks up an object of another resource by plural, namespace and name.
    pub lookup: &'a dyn Fn(&str, &str, &str) -> Option<Value>,
    /// Lists another resource by plural, in one namespace or in all.
    pub list: &'a dyn Fn(&str, Option<&str>) -> Vec<Value>,
    /// Lists the objects of another resource whose JSON contains a text; only these are decoded.
    pub containing: &'a dyn Fn(&str, &str) -> Vec<Value>,
    /// Feature gates that are enabled although they are disabled by default.
    pub opened: &'a [String],
    /// Feature gates that are disabled although they are enabled by default.
    pub closed: &'a [String],
}

impl Context<'_> {
    /// Now, as the API writes times.
    pub fn timestamp(&self) -> String {
        time::format_time(self.now)
    }
}

/// The user of a request, as far as objects record it, with the record of the request.
#[derive(Debug, Clone, Default)]
pub struct Requester {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: Vec<(String, Vec<String>)>,
    pub record: Arc<RequestRecord>,
}
