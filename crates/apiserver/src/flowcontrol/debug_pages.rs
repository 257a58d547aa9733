//! Debug dumps of priority levels, queues and requests.

use super::plan::Plan;
use super::priority_level::PriorityLevel;
use super::rules::Schema;
use auth::Attributes;
use flowcontrol::{QueueView, RequestView};
use std::fmt::Write;

/// A page by its name; `None` if there is none.
pub(super) fn page(name: &str, details: bool, plan: &Plan) -> Option<String> {
    let rows = match name {
        "dump_priority_levels" => levels(plan),
        "dump_queues" => queues(plan),
        "dump_requests" => requests(plan, details),
        _ => return None,
    };
    Some(align(&rows))
}

type Row = Vec<String>;

fn row(texts: &[&str]) -> Row {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

/// A row of a level without requests.
fn without(level: &PriorityLevel, columns: usize) -> Row {
    let none = std::iter::repeat_n("<none>".to_owned(), columns - 1);
    std::iter::once(level.name.clone()).chain(none).collect()
}

fn levels(plan: &Plan) -> Vec<Row> {
    let head = [
        "PriorityLevelName",
        "ActiveQueues",
        "IsIdle",
        "IsQuiescing",
        "WaitingRequests",
        "ExecutingRequests",
    ];
    let of = |level: &PriorityLevel| {
        if level.is_exempt() {
            return without(level, head.len());
        }
        let (standing, _) = level.level.standing();
        let idle = standing.waiting == 0 && standing.running == 0;
        let numbers = [standing.active_queues, standing.waiting, standing.running].map(|it| it.to_string());
        let [active, waiting, running] = numbers;
        vec![level.name.clone(), active, idle.to_string(), "false".to_owned(), waiting, running]
    };
    std::iter::once(row(&head)).chain(plan.levels.iter().map(|level| of(level))).collect()
}

fn queues(plan: &Plan) -> Vec<Row> {
    let head = [
        "PriorityLevelName",
        "Index",
        "PendingRequests",
        "ExecutingRequests",
        "SeatsInUse",
        "NextDispatchR",
        "InitialSeatsSum",
        "MaxSeatsSum",
        "TotalWorkSum",
    ];
    let mut rows = vec![row(&head)];
    for level in &plan.levels {
        if level.is_exempt() {
            rows.push(without(level, head.len()));
        }
        for (index, queue) in level.level.queues().iter().enumerate() {
            rows.push(queue_row(&level.name, index, queue));
        }
    }
    rows
}

fn queue_row(level: &str, index: usize, queue: &QueueView) -> Row {
    let sum = |of: fn(&RequestView) -> u32| queue.waiting.iter().map(of).sum::<u32>();
    let after: f64 =
        queue.waiting.iter().map(|it| it.width.after.as_secs_f64() * f64::from(it.width.after_seats)).sum();
    vec![
        level.to_owned(),
        index.to_string(),
        queue.waiting.len().to_string(),
        queue.running.to_string(),
        queue.running_seats.to_string(),
        format!("{:.8}ss", queue.served),
        sum(|it| it.width.seats).to_string(),
        sum(|it| it.width.most()).to_string(),
        format!("{after:.8}ss"),
    ]
}

/// The columns that describe a waiting request.
pub(super) fn description(schema: &Schema, attributes: &Attributes<'_>) -> Vec<String> {
    let (group, version) = (attributes.api_group, attributes.version);
    let version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let mut columns = row(&[
        &schema.name,
        schema.distinguisher(attributes),
        &attributes.user.name,
        attributes.verb,
        attributes.path,
    ]);
    columns.extend(row(&[
        attributes.namespace,
        attributes.name,
        &version,
        attributes.resource,
        attributes.subresource,
    ]));
    columns
}

/// Number of columns without details.
const BRIEF: usize = 2;

fn requests(plan: &Plan, details: bool) -> Vec<Row> {
    let mut head = row(&[
        "PriorityLevelName",
        "FlowSchemaName",
        "QueueIndex",
        "RequestIndexInQueue",
        "FlowDistingsher",
        "ArriveTime",
        "InitialSeats",
        "FinalSeats",
        "AdditionalLatency",
    ]);
    if details {
        head.extend(row(&["UserName", "Verb", "APIPath", "Namespace", "Name"]));
        head.extend(row(&["APIVersion", "Resource", "SubResource"]));
    }
    let mut rows = vec![head];
    for level in &plan.levels {
        if level.is_exempt() {
            rows.push(without(level, rows[0].len()));
        }
        for (queue, view) in level.level.queues().iter().enumerate() {
            for (at, request) in view.waiting.iter().enumerate() {
                rows.push(request_row(&level.name, (queue, at), request, details));
            }
        }
    }
    rows
}

fn request_row(level: &str, (queue, at): (usize, usize), request: &RequestView, details: bool) -> Row {
    let column = |at: usize| request.about.get(at).cloned().unwrap_or_default();
    let width = &request.width;
    let mut out = vec![level.to_owned(), column(0), queue.to_string(), at.to_string(), column(1)];
    out.push(format!("{:?}", request.came));
    out.extend([width.seats.to_string(), width.after_seats.to_string(), format!("{:?}", width.after)]);
    if details {
        out.extend(request.about.iter().skip(BRIEF).cloned());
    }
    out
}

/// Comma-separated, aligned columns.
fn align(rows: &[Row]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |at: usize| rows.iter().filter_map(|row| row.get(at)).map(|text| text.len() + 1).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for row in rows {
        for (at, text) in row.iter().enumerate() {
            // writing to a string cannot fail
            let _ = if at + 1 == row.len() {
                writeln!(out, "{text}")
            } else {
                write!(out, "{:<width$} ", format!("{text},"), width = widths[at])
            };
        }
    }
    out
}
