//! The current flow schemas and priority levels: classifies requests.

use super::metrics::{Counters, Flow, Lent};
use super::priority_level::PriorityLevel;
use super::rules::{Schema, uid};
use auth::Attributes;
use env::World;
use flowcontrol::limits::{self, LevelDemand, Share};
use flowcontrol::{Level, Shape};
use schema::Value;
use std::sync::Arc;

/// The level for requests that no other takes.
pub(super) const CATCH_ALL: &str = "catch-all";

/// Where requests go that a schema takes.
pub(super) struct Course {
    pub schema: Schema,
    pub placed: Arc<PriorityLevel>,
    pub counted: Arc<Flow>,
}

#[derive(Default)]
pub(super) struct Plan {
    /// In the order in which they are tried.
    pub courses: Vec<Arc<Course>>,
    pub levels: Vec<Arc<PriorityLevel>>,
}

impl Plan {
    /// Reads all objects. Levels that stay as they are keep those who run and wait in them.
    pub fn read(
        schemas: &[Value],
        levels: &[Value],
        server: u32,
        (before, counters): (&Plan, &Arc<Counters>),
        world: &World,
    ) -> Self {
        let read: Vec<(&Value, Shape, Share)> =
            levels.iter().map(|object| (object, shape(object), share(object))).collect();
        let shares: Vec<Share> = read.iter().map(|(_, _, share)| share.clone()).collect();
        let bounds = limits::bounds(&shares, server);
        let placed = read.into_iter().zip(bounds).map(|((object, shape, _), bounds)| {
            let name = object.text(&["metadata", "name"]);
            let kept = before.levels.iter().find(|it| it.name == name && it.level.shape() == shape);
            let level = match kept {
                Some(kept) => {
                    if kept.bounds != bounds {
                        kept.level.set_nominal(bounds.nominal);
                    }
                    kept.level.clone()
                }
                None => Level::new(shape, bounds.nominal, world.clone()),
            };
            Arc::new(PriorityLevel { name: name.to_owned(), header: uid(object), level, bounds })
        });
        let levels: Vec<_> = placed.collect();
        let mut schemas: Vec<_> = schemas.iter().map(Schema::read).collect();
        schemas.sort_by(|a, b| (a.precedence, &a.name).cmp(&(b.precedence, &b.name)));
        let course = |schema: Schema| {
            let placed = levels.iter().find(|it| it.name == schema.level)?.clone();
            let kept = before
                .courses
                .iter()
                .find(|it| it.schema.name == schema.name && it.placed.name == placed.name)
                .map(|it| it.counted.clone());
            let counted = kept.unwrap_or_else(|| Arc::new(Flow::new(counters, &placed.name, &schema.name)));
            Some(Arc::new(Course { schema, placed, counted }))
        };
        Plan { courses: schemas.into_iter().filter_map(course).collect(), levels }
    }

    /// Where a request belongs: to the first schema that takes it, or to the last one.
    pub fn place(&self, asked: &Attributes<'_>) -> Option<&Arc<Course>> {
        let found = self.courses.iter().find(|course| course.schema.matches(asked));
        found.or_else(|| self.courses.iter().find(|course| course.schema.name == CATCH_ALL))
    }

    /// Gives every level the seats that it should have now, given what all wanted of late. Tells the part of its
    /// target that each got, and what that follows from.
    pub fn lend(&self, server: u32) -> (f64, Vec<Lent>) {
        let limited: Vec<_> = self.levels.iter().filter(|placed| !placed.is_exempt()).collect();
        let demands: Vec<_> = limited.iter().map(|placed| placed.level.look_at_demand()).collect();
        let wanted: Vec<LevelDemand> = limited
            .iter()
            .zip(&demands)
            .map(|(placed, demand)| LevelDemand {
                bounds: placed.bounds,
                most: demand.most,
                smooth: demand.smooth,
            })
            .collect();
        let (fraction, limits) = limits::lend(&wanted, server);
        for (placed, limit) in limited.iter().zip(limits) {
            if placed.level.limit() != limit {
                placed.level.set_limit(limit);
            }
        }
        let lent =
            |((placed, demand), wanted): ((&&Arc<PriorityLevel>, flowcontrol::DemandStats), &LevelDemand)| {
                Lent { level: placed.name.clone(), demand, target: wanted.target() }
            };
        (fraction, limited.iter().zip(demands).zip(&wanted).map(lent).collect())
    }
}

fn number(object: &Value, path: &[&str]) -> Option<u32> {
    object.at(path).and_then(Value::as_int).and_then(|number| u32::try_from(number).ok())
}

fn shape(object: &Value) -> Shape {
    let queuing = |field| {
        let path = ["spec", "limited", "limitResponse", "queuing", field];
        number(object, &path).and_then(|number| u16::try_from(number).ok())
    };
    match (object.text(&["spec", "type"]), object.text(&["spec", "limited", "limitResponse", "type"])) {
        ("Exempt", _) => Shape::Exempt,
        (_, "Queue") => Shape::Queue {
            queues: queuing("queues").unwrap_or(64),
            hand: queuing("handSize").unwrap_or(8),
            longest: queuing("queueLengthLimit").unwrap_or(50),
        },
        _ => Shape::Refuse,
    }
}

fn share(object: &Value) -> Share {
    let limited = |field| number(object, &["spec", "limited", field]);
    if object.text(&["spec", "type"]) == "Exempt" {
        return Share { shares: 0, lendable_percent: 0, borrowing_percent: None };
    }
    Share {
        shares: limited("nominalConcurrencyShares").unwrap_or(30),
        lendable_percent: limited("lendablePercent").unwrap_or(0),
        borrowing_percent: limited("borrowingLimitPercent"),
    }
}
