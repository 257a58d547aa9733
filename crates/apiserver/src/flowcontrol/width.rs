//! Estimates the seats of a request: one, or more where it touches many objects or watchers.

use crate::request::RequestInfo;
use flowcontrol::Width;
use rest::{Api, Resource};
use std::time::Duration;

/// So many objects of a list are worth a seat.
const OBJECTS: u64 = 100;
/// So many watchers of a change are worth a seat for a while.
const WATCHERS: u64 = 100;
/// How long that while is.
const TELLING: Duration = Duration::from_millis(5);
/// Nothing takes more seats than this.
const MOST: u32 = 10;

/// The width of a request, given the seats of its level: one request never takes more than a part of them. Of a
/// write also how many watchers are to be told of it.
pub(super) fn of(asked: &RequestInfo, api: &Api, seats: u32) -> (Width, Option<u64>) {
    let most = MOST.min((seats * 15).div_ceil(100)).max(1);
    let plain = (Width::default(), None);
    let Some(target) = &asked.target else { return plain };
    let resources = api.resources();
    let Some(resource) = resources.get(&target.group_version, &target.resource) else { return plain };
    match asked.verb {
        "list" => {
            let seats = objects(asked, resource, &target.namespace).clamp(1, most);
            (Width { seats, ..Width::default() }, None)
        }
        "create" | "update" | "patch" | "delete" | "deletecollection" if target.subresource != "token" => {
            let watchers = resource.collection.cache.watchers() as u64;
            let after_seats = u32::try_from(watchers / WATCHERS).unwrap_or(u32::MAX).min(most);
            (Width { seats: 1, after_seats, after: TELLING }, Some(watchers))
        }
        _ => plain,
    }
}

/// Seats for the objects that a list goes through.
fn objects(asked: &RequestInfo, resource: &Resource, _: &str) -> u32 {
    let stored = resource.collection.cache.snapshot().len() as u64;
    let limit = asked.query.get("limit").and_then(|text| text.parse::<u64>().ok()).filter(|limit| *limit > 0);
    let selects = ["labelSelector", "fieldSelector"].iter().any(|key| asked.query.get(key).is_some());
    // selectors go through everything to find a page
    let touched = if selects { stored } else { limit.unwrap_or(stored).min(stored) };
    u32::try_from(touched.div_ceil(OBJECTS)).unwrap_or(u32::MAX)
}
