//! Checks that writes pass before they are stored, one after the other.
//!
//! First all of them may change an object or refuse it, then it is validated, then all of them have the last
//! word. Which of them a resource's writes concern at all is found out once, when the resource is registered:
//! a write visits no others.

use crate::api::Api;
use crate::error::ApiError;
use crate::hooks::Requester;
use crate::measure::{Outcome, Phase};
use crate::notes::Step;
use crate::resource::Resource;
use ambient::Soon;
use schema::Value;
use std::sync::Arc;
use std::time::Duration;

/// A check that writes pass before they are stored.
pub trait Admission: Send + Sync {
    /// Which writes of a resource it wants to see. Asked once for each resource.
    fn interest(&self, _: &Resource) -> Interest {
        Interest::ALL
    }

    /// May change the object, or refuse it. `old` is absent for creations; `object` is absent for deletions.
    fn admit<'a>(
        &'a self,
        _: &'a Admitted<'a>,
        _object: Option<&'a mut Value>,
        _old: Option<&'a Value>,
    ) -> Soon<'a, Result<(), ApiError>> {
        Ok(()).into()
    }

    /// The last word before an object that is in order is stored. May write to other objects.
    fn settle<'a>(
        &'a self,
        _: &'a Admitted<'a>,
        _object: &'a Value,
        _old: Option<&'a Value>,
    ) -> Soon<'a, Result<(), ApiError>> {
        Ok(()).into()
    }
}

/// What admission may know about a write.
pub struct Admitted<'a> {
    pub resource: &'a Resource,
    pub operation: Operation,
    pub namespace: &'a str,
    pub name: &'a str,
    /// The name that the request itself has: none for those that leave it to the object.
    pub asked_name: &'a str,
    pub subresource: &'a str,
    pub user: &'a Requester,
    pub dry_run: bool,
    pub api: &'a Api,
}

impl Admitted<'_> {
    /// Refuses the write. An object that has no name yet is called by what its name will be made from.
    pub fn forbidden(&self, object: Option<&Value>, why: &str) -> ApiError {
        let of_object = |field| object.map_or("", |object| object.text(&["metadata", field]));
        let names = [self.name, of_object("name"), of_object("generateName")];
        let name = names.into_iter().find(|name| !name.is_empty()).unwrap_or("Unknown");
        ApiError::object_forbidden(self.resource.subject(name), why)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Create,
    Update,
    Delete,
}

/// A set of writes: operations, of objects alone or of their subresources as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interest(u8);

impl Interest {
    pub const NONE: Interest = Interest(0);
    pub const CREATE: Interest = Interest(1);
    pub const UPDATE: Interest = Interest(2);
    pub const DELETE: Interest = Interest(4);
    /// Subresources, too; without this only writes of whole objects are meant.
    pub const PARTS: Interest = Interest(8);
    pub const ALL: Interest = Interest(15);

    pub const fn and(self, other: Interest) -> Interest {
        Interest(self.0 | other.0)
    }

    /// These writes where something holds, and none elsewhere.
    pub fn when(self, holds: bool) -> Interest {
        if holds { self } else { Interest::NONE }
    }

    fn has(self, operation: Operation, subresource: &str) -> bool {
        let operation = match operation {
            Operation::Create => Interest::CREATE,
            Operation::Update => Interest::UPDATE,
            Operation::Delete => Interest::DELETE,
        };
        self.0 & operation.0 != 0 && (subresource.is_empty() || self.0 & Interest::PARTS.0 != 0)
    }
}

/// The checks that a resource's writes concern, in order.
#[derive(Default)]
pub(crate) struct Checks(Vec<(Arc<dyn Admission>, Interest)>);

impl Checks {
    pub fn of(all: &[Arc<dyn Admission>], resource: &Resource) -> Self {
        let asked = all.iter().map(|check| (check.clone(), check.interest(resource)));
        Checks(asked.filter(|(_, interest)| *interest != Interest::NONE).collect())
    }

    fn of_write<'a>(&'a self, write: &Admitted<'_>) -> impl Iterator<Item = &'a dyn Admission> {
        let (operation, subresource) = (write.operation, write.subresource);
        let concerned = self.0.iter().filter(move |(_, interest)| interest.has(operation, subresource));
        concerned.map(|(check, _)| &**check)
    }
}

impl Api {
    pub(crate) async fn admit(
        &self,
        write: &Admitted<'_>,
        mut object: Option<&mut Value>,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        let began = self.world.elapsed();
        let mut answer = Ok(());
        for check in write.resource.checks.of_write(write) {
            answer = check.admit(write, object.as_deref_mut(), old).get().await;
            if answer.is_err() {
                break;
            }
        }
        self.step_ended(write, Phase::Admit, began, answer.is_err());
        answer
    }

    fn step_ended(&self, write: &Admitted<'_>, phase: Phase, began: Duration, rejected: bool) {
        let now = self.world.elapsed();
        write.user.notes.reached(Step::Admitted, now);
        if let Some(steps) = self.steps.get() {
            let outcome = Outcome { phase, operation: write.operation, rejected };
            steps.took(outcome, now.saturating_sub(began));
        }
    }

    /// The last words, one after the other.
    pub(crate) async fn settle_admission(
        &self,
        write: &Admitted<'_>,
        object: &Value,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        let began = self.world.elapsed();
        let mut answer = Ok(());
        for check in write.resource.checks.of_write(write) {
            answer = check.settle(write, object, old).get().await;
            if answer.is_err() {
                break;
            }
        }
        self.step_ended(write, Phase::Settle, began, answer.is_err());
        answer
    }
}
