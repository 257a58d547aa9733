//! The current flow schemas and priority levels, which classify requests.

use super::metrics::{Borrowing, Counters, Flow};
use super::priority_level::PriorityLevel;
use super::rules::{Schema, uid};
use auth::Attributes;
use env::World;
use flowcontrol::limits::{self, LevelDemand, Share};
use flowcontrol::{Level, Shape};
use schema::Value;
use std::sync::Arc;

/// The level of last resort.
pub(super) const CATCH_ALL: &str = "catch-all";

/// The schema and level of a request.
pub(super) struct Classification {
    pub schema: Schema,
    pub level: Arc<PriorityLevel>,
    pub metrics: Arc<Flow>,
}

#[derive(Default)]
pub(super) struct Plan {
    /// In order of precedence.
    pub classifications: Vec<Arc<Classification>>,
    pub levels: Vec<Arc<PriorityLevel>>,
}

impl Plan {
    /// Reads all objects. Unchanged levels keep their executing and waiting requests.
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
        let priority_levels = read.into_iter().zip(bounds).map(|((object, shape, _), bounds)| {
            let name = object.text(&["metadata", "name"]);
            let previous = before.levels.iter().find(|it| it.name == name && it.level.shape() == shape);
            let level = match previous {
                Some(previous) => {
                    if previous.bounds != bounds {
                        previous.level.set_nominal(bounds.nominal);
                    }
                    previous.level.clone()
                }
                None => Level::new(shape, bounds.nominal, world.clone()),
            };
            Arc::new(PriorityLevel { name: name.to_owned(), header: uid(object), level, bounds })
        });
        let levels: Vec<_> = priority_levels.collect();
        let mut schemas: Vec<_> = schemas.iter().map(Schema::read).collect();
        schemas.sort_by(|a, b| (a.precedence, &a.name).cmp(&(b.precedence, &b.name)));
        let classification = |schema: Schema| {
            let level = levels.iter().find(|it| it.name == schema.level)?.clone();
            let previous = before
                .classifications
                .iter()
                .find(|it| it.schema.name == schema.name && it.level.name == level.name)
                .map(|it| it.metrics.clone());
            let metrics =
                previous.unwrap_or_else(|| Arc::new(Flow::new(counters, &level.name, &schema.name)));
            Some(Arc::new(Classification { schema, level, metrics }))
        };
        Plan { classifications: schemas.into_iter().filter_map(classification).collect(), levels }
    }

    /// The classification of a request: the first matching schema, or the last one.
    pub fn classify(&self, attributes: &Attributes<'_>) -> Option<&Arc<Classification>> {
        let schema =
            self.classifications.iter().find(|classification| classification.schema.matches(attributes));
        schema.or_else(|| {
            self.classifications.iter().find(|classification| classification.schema.name == CATCH_ALL)
        })
    }

    /// Redistributes seats by recent demand. Returns the fair fraction, and the result of each level.
    pub fn lend(&self, server: u32) -> (f64, Vec<Borrowing>) {
        let limited: Vec<_> = self.levels.iter().filter(|level| !level.is_exempt()).collect();
        let demands: Vec<_> = limited.iter().map(|level| level.level.look_at_demand()).collect();
        let demands_of_levels: Vec<LevelDemand> = limited
            .iter()
            .zip(&demands)
            .map(|(level, demand)| LevelDemand {
                bounds: level.bounds,
                most: demand.most,
                smooth: demand.smooth,
            })
            .collect();
        let (fraction, limits) = limits::lend(&demands_of_levels, server);
        for (level, limit) in limited.iter().zip(limits) {
            if level.level.limit() != limit {
                level.level.set_limit(limit);
            }
        }
        let borrowing =
            |((level, demand), level_demand): (
                (&&Arc<PriorityLevel>, flowcontrol::DemandStats),
                &LevelDemand,
            )| { Borrowing { level: level.name.clone(), demand, target: level_demand.target() } };
        (fraction, limited.iter().zip(demands).zip(&demands_of_levels).map(borrowing).collect())
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
