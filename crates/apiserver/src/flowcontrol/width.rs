//! Estimates the seats of a request: one, or more where it touches many objects or watchers.

use crate::request::RequestInfo;
use flowcontrol::Width;
use rest::{Api, Resource};
use std::time::Duration;

/// Objects of a list per seat.
const OBJECTS: u64 = 100;
/// Watchers of a change per additional seat.
const WATCHERS: u64 = 100;
/// How long the additional seats are held.
const NOTIFY_TIME: Duration = Duration::from_millis(5);
/// Maximum number of seats of a request.
const MAX_SEATS: u32 = 10;

/// The width of a request, given the seats of its level: one request never takes more than a share of them.
/// For a write also the number of watchers.
pub(super) fn of(info: &RequestInfo, api: &Api, seats: u32) -> (Width, Option<u64>) {
    let most = MAX_SEATS.min((seats * 15).div_ceil(100)).max(1);
    let plain = (Width::default(), None);
    let Some(target) = &info.target else { return plain };
    let resources = api.resources();
    let Some(resource) = resources.get(&target.group_version, &target.resource) else { return plain };
    match info.verb {
        "list" => {
            let seats = objects(info, resource, &target.namespace).clamp(1, most);
            (Width { seats, ..Width::default() }, None)
        }
        "create" | "update" | "patch" | "delete" | "deletecollection" if target.subresource != "token" => {
            let watchers = resource.collection.cache.watchers() as u64;
            let after_seats = u32::try_from(watchers / WATCHERS).unwrap_or(u32::MAX).min(most);
            (Width { seats: 1, after_seats, after: NOTIFY_TIME }, Some(watchers))
        }
        _ => plain,
    }
}

/// Seats for the objects that a list scans.
fn objects(info: &RequestInfo, resource: &Resource, _: &str) -> u32 {
    let stored = resource.collection.cache.snapshot().len() as u64;
    let limit = info.query.get("limit").and_then(|text| text.parse::<u64>().ok()).filter(|limit| *limit > 0);
    let selects = ["labelSelector", "fieldSelector"].iter().any(|key| info.query.get(key).is_some());
    // with selectors a page scans everything
    let touched = if selects { stored } else { limit.unwrap_or(stored).min(stored) };
    u32::try_from(touched.div_ceil(OBJECTS)).unwrap_or(u32::MAX)
}
