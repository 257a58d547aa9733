//! Checks that writes pass before they are stored, one after the other.
//!
//! First all of them may change an object or refuse it, then it is validated, then all of them have the last
//! word. Which of them a resource's writes concern at all is found out once, when the resource is registered:
//! a write visits no others.
//!
//! Who has another server change an object may ask for a second round, since what the others said was about
//! another object. There is no third.

use crate::model::error::ApiError;
use crate::model::hooks::Requester;
use crate::model::metrics::{Outcome, Phase};
use crate::model::options::{DeleteOptions, WriteOptions};
use crate::model::request_record::Step;
use crate::pipeline::api::Api;
use crate::storage::resource::Resource;
use env::MaybeReady;
use names::Names;
use parking_lot::Mutex;
use schema::Value;
use schema::table::Type;
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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
        _: &'a AdmissionAttributes<'a>,
        _object: Option<&'a mut Value>,
        _old: Option<&'a Value>,
    ) -> MaybeReady<'a, Result<(), ApiError>> {
        Ok(()).into()
    }

    /// The last word before an object that is in order is stored, or goes; it is null when it goes. May write to
    /// other objects.
    fn settle<'a>(
        &'a self,
        _: &'a AdmissionAttributes<'a>,
        _object: &'a Value,
        _old: Option<&'a Value>,
    ) -> MaybeReady<'a, Result<(), ApiError>> {
        Ok(()).into()
    }
}

/// What admission may know about a write.
pub struct AdmissionAttributes<'a> {
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
    /// What the object is, where it is not of the resource's own kind.
    pub other: Option<Form<'a>>,
    pub given: Given<'a>,
    pub rounds: Rounds,
}

/// What an object is: its kind and version, and the type of its table.
#[derive(Clone, Copy)]
pub struct Form<'a> {
    pub kind: &'a str,
    pub api_version: &'a str,
    pub ty: &'a Type,
}

/// The options of a write.
#[derive(Clone, Copy)]
pub enum Given<'a> {
    Nothing,
    Write(&'a WriteOptions),
    Delete(&'a DeleteOptions),
}

/// The rounds of a write, and what a check remembers from the first to the second.
#[derive(Default)]
pub struct Rounds {
    second: AtomicBool,
    again: AtomicBool,
    memory: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Rounds {
    /// Whether all have been asked before.
    pub fn is_second(&self) -> bool {
        self.second.load(Ordering::Relaxed)
    }

    /// Somebody else than a check has changed the object: all should look at it again.
    pub fn changed(&self) {
        self.again.store(true, Ordering::Relaxed);
    }

    pub(crate) fn was_changed(&self) -> bool {
        self.again.load(Ordering::Relaxed)
    }

    /// Keeps something until the next round.
    pub fn remember<T: Any + Send>(&self, what: T) {
        *self.memory.lock() = Some(Box::new(what));
    }

    /// Gives what was kept.
    pub fn recall<T: Any + Send>(&self) -> Option<T> {
        let kept = self.memory.lock().take()?;
        kept.downcast().ok().map(|it| *it)
    }
}

impl<'a> AdmissionAttributes<'a> {
    pub fn form(&self) -> Form<'a> {
        self.other.unwrap_or(self.resource.form())
    }

    /// The options as clients write them; absent where there are none.
    pub fn options(&self, names: &Names) -> Option<Value> {
        let (kind, mut options) = match (self.given, self.operation) {
            (Given::Nothing, _) => return None,
            (Given::Delete(options), _) => ("DeleteOptions", options.shown()),
            (Given::Write(options), Operation::Create) => ("CreateOptions", options.shown()),
            (Given::Write(options), _) => ("UpdateOptions", options.shown()),
        };
        options.set(&["kind"], kind);
        options.set(&["apiVersion"], format!("{}/v1", names.meta_group()));
        Some(options)
    }

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
    /// Something is done with an object that is neither read nor written: a shell, a port.
    Connect,
}

impl Operation {
    pub const ALL: [Operation; 4] =
        [Operation::Create, Operation::Update, Operation::Delete, Operation::Connect];

    /// As rules and reviews spell it.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
            Operation::Connect => "CONNECT",
        }
    }
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
    pub const CONNECT: Interest = Interest(16);
    pub const ALL: Interest = Interest(31);

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
            Operation::Connect => Interest::CONNECT,
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

    fn of_write<'a>(&'a self, write: &AdmissionAttributes<'_>) -> impl Iterator<Item = &'a dyn Admission> {
        let (operation, subresource) = (write.operation, write.subresource);
        let concerned = self.0.iter().filter(move |(_, interest)| interest.has(operation, subresource));
        concerned.map(|(check, _)| &**check)
    }
}

impl Api {
    pub(crate) async fn admit(
        &self,
        write: &AdmissionAttributes<'_>,
        mut object: Option<&mut Value>,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        // decoding and merging are behind it
        write.user.notes.check_awaited()?;
        let began = self.world.elapsed();
        let mut answer = self.admit_round(write, object.as_deref_mut(), old).await;
        if answer.is_ok() && write.rounds.was_changed() {
            write.rounds.second.store(true, Ordering::Relaxed);
            answer = self.admit_round(write, object, old).await;
        }
        self.step_ended(write, Phase::Admit, began, answer.is_err());
        answer
    }

    async fn admit_round(
        &self,
        write: &AdmissionAttributes<'_>,
        mut object: Option<&mut Value>,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        for check in write.resource.checks.of_write(write) {
            check.admit(write, object.as_deref_mut(), old).get().await?;
        }
        Ok(())
    }

    fn step_ended(&self, write: &AdmissionAttributes<'_>, phase: Phase, began: Duration, rejected: bool) {
        let now = self.world.elapsed();
        write.user.notes.reached(Step::AdmissionAttributes, now);
        if let Some(steps) = self.steps.get() {
            let outcome = Outcome { phase, operation: write.operation, rejected };
            steps.took(outcome, now.saturating_sub(began));
        }
    }

    /// The last words, one after the other.
    pub(crate) async fn settle_admission(
        &self,
        write: &AdmissionAttributes<'_>,
        object: &Value,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        // validation is behind it, and only the store is to come
        write.user.notes.check_awaited()?;
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
