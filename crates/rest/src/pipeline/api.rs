//! The API: the resource registry with the admission plugins that its writes pass.
//!
//! A write passes the plugins twice: first each may change or reject it (`mutate`), then, after validation, each may
//! reject it (`validate`). The plugins that handle a resource are chosen once, when the resource is registered: a
//! write calls no others.
//!
//! A plugin that calls a webhook may request a second round of mutation, since the plugins before it have seen another
//! object. There is no third.

use crate::model::context::Requester;
use crate::model::error::ApiError;
use crate::model::form::Form;
use crate::model::hooks::Hooks;
use crate::model::metrics::{Outcome, Phase, Steps};
use crate::model::operation::{Interest, Operation};
use crate::model::options::{DeleteOptions, WriteOptions};
use crate::model::request_record::Step;
use crate::storage::registry::{ResourceRegistry, Scheme};
use crate::storage::resource::Resource;
use crate::storage::{Storage, UnreadableObject};
use env::{MaybeReady, World};
use metrics::Registry;
use names::Names;
use parking_lot::Mutex;
use schema::Value;
use schema::table::{Kind, Ref};
use std::any::Any;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The API: reads go to the registry alone, writes pass the admission plugins as well.
pub struct Api {
    registry: ResourceRegistry,
    /// All plugins, in order; a resource knows the positions of those that handle it.
    admission: Vec<Box<dyn Admission>>,
    steps: OnceLock<Steps>,
}

/// An admission plugin.
pub trait Admission: Send + Sync {
    /// The operations of a resource that it handles. Called once for each resource.
    fn interest(&self, _: &Resource) -> Interest {
        Interest::ALL
    }

    /// May change the object, or reject it. `old` is absent for creations; `object` is absent for deletions.
    fn mutate<'a>(
        &'a self,
        _: &'a AdmissionAttributes<'a>,
        _object: Option<&'a mut Value>,
        _old: Option<&'a Value>,
    ) -> MaybeReady<'a, Result<(), ApiError>> {
        Ok(()).into()
    }

    /// May reject a valid object before it is stored, or its deletion, where `object` is null. May write to other
    /// objects.
    fn validate<'a>(
        &'a self,
        _: &'a AdmissionAttributes<'a>,
        _object: &'a Value,
        _old: Option<&'a Value>,
    ) -> MaybeReady<'a, Result<(), ApiError>> {
        Ok(()).into()
    }
}

/// The attributes of a request that admission plugins see.
pub struct AdmissionAttributes<'a> {
    pub resource: &'a Resource,
    pub operation: Operation,
    pub namespace: &'a str,
    pub name: &'a str,
    /// The name in the URL; empty where only the object has one.
    pub request_name: &'a str,
    pub subresource: &'a str,
    pub user: &'a Requester,
    pub dry_run: bool,
    pub api: &'a Api,
    /// The form of the object, where it is not of the resource's own kind.
    pub other: Option<Form<'a>>,
    pub options: RequestOptions<'a>,
    pub reinvocation: ReinvocationContext,
}

/// The options of a request that admission plugins see.
#[derive(Clone, Copy)]
pub enum RequestOptions<'a> {
    None,
    Write(&'a WriteOptions),
    Delete(&'a DeleteOptions),
}

/// The reinvocation of mutating plugins: whether a second round runs, and the state that a plugin keeps for it.
#[derive(Default)]
pub struct ReinvocationContext {
    is_reinvoke: AtomicBool,
    should_reinvoke: AtomicBool,
    value: Mutex<Option<Box<dyn Any + Send>>>,
}

impl ReinvocationContext {
    /// Whether this is the second round.
    pub fn is_reinvoke(&self) -> bool {
        self.is_reinvoke.load(Ordering::Relaxed)
    }

    /// Requests a second round: a webhook has changed the object.
    pub fn set_should_reinvoke(&self) {
        self.should_reinvoke.store(true, Ordering::Relaxed);
    }

    pub(crate) fn should_reinvoke(&self) -> bool {
        self.should_reinvoke.load(Ordering::Relaxed)
    }

    /// Keeps a value until the next round.
    pub fn set_value<T: Any + Send>(&self, value: T) {
        *self.value.lock() = Some(Box::new(value));
    }

    /// Takes the value that was kept.
    pub fn take_value<T: Any + Send>(&self) -> Option<T> {
        let value = self.value.lock().take()?;
        value.downcast().ok().map(|it| *it)
    }
}

impl<'a> AdmissionAttributes<'a> {
    pub fn form(&self) -> Form<'a> {
        self.other.unwrap_or(self.resource.form())
    }

    /// The options as clients write them; absent where there are none.
    pub fn options_object(&self, names: &Names) -> Option<Value> {
        let (kind, mut options) = match (self.options, self.operation) {
            (RequestOptions::None, _) => return None,
            (RequestOptions::Delete(options), _) => ("DeleteOptions", options.to_value()),
            (RequestOptions::Write(options), Operation::Create) => ("CreateOptions", options.to_value()),
            (RequestOptions::Write(options), _) => ("UpdateOptions", options.to_value()),
        };
        options.set(&["kind"], kind);
        options.set(&["apiVersion"], format!("{}/v1", names.meta_group()));
        Some(options)
    }

    /// The error of a rejected write. An object without a name is called by the prefix of its generated one.
    pub fn forbidden(&self, object: Option<&Value>, why: &str) -> ApiError {
        let of_object = |field| object.map_or("", |object| object.text(&["metadata", field]));
        let names = [self.name, of_object("name"), of_object("generateName")];
        let name = names.into_iter().find(|name| !name.is_empty()).unwrap_or("Unknown");
        ApiError::object_forbidden(self.resource.subject(name), why)
    }
}

impl Deref for Api {
    type Target = ResourceRegistry;

    fn deref(&self) -> &ResourceRegistry {
        &self.registry
    }
}

impl Api {
    pub fn new(names: Names, storage: Storage, world: World, admission: Vec<Box<dyn Admission>>) -> Self {
        Api { registry: ResourceRegistry::new(names, storage, world), admission, steps: OnceLock::new() }
    }

    /// Enables metrics, of kinds that are registered from now on.
    pub fn measure(&self, registry: &Registry) {
        self.registry.measure(registry);
        self.steps.get_or_init(|| Steps::new(registry));
    }

    /// Sets the feature gates that differ from their defaults.
    pub fn set_gates(&mut self, opened: Vec<String>, closed: Vec<String>) {
        (self.registry.opened, self.registry.closed) = (opened, closed);
    }

    /// Sets the lookup of kinds that a body may name although they are not served.
    pub fn set_scheme(&mut self, scheme: Scheme) {
        self.registry.scheme = Some(scheme);
    }

    /// Serves a kind from now on, stored as itself or as another kind that is served already.
    pub fn register(&self, kind: Ref<Kind>, hooks: Hooks) -> Result<Arc<Resource>, UnreadableObject> {
        let stored = self.registry.stored_kind(&kind);
        self.register_as(kind, stored, hooks)
    }

    /// Serves a kind from now on, stored as a kind that need not be served itself.
    pub fn register_as(
        &self,
        kind: Ref<Kind>,
        stored: Ref<Kind>,
        hooks: Hooks,
    ) -> Result<Arc<Resource>, UnreadableObject> {
        let resource = self.make(kind, stored, hooks)?;
        self.exchange(&[], std::slice::from_ref(&resource));
        Ok(resource)
    }

    /// Makes a resource that is not served yet.
    pub fn make(
        &self,
        kind: Ref<Kind>,
        stored: Ref<Kind>,
        hooks: Hooks,
    ) -> Result<Arc<Resource>, UnreadableObject> {
        let mut resource = self.registry.build(kind, stored, hooks)?;
        let interests = self.admission.iter().map(|plugin| plugin.interest(&resource)).enumerate();
        resource.plugins = interests.filter(|(_, interest)| *interest != Interest::NONE).collect();
        Ok(Arc::new(resource))
    }

    /// The plugins that handle a request, in order.
    fn plugins<'a>(&'a self, write: &AdmissionAttributes<'a>) -> impl Iterator<Item = &'a dyn Admission> {
        let (operation, subresource) = (write.operation, write.subresource);
        let handling = write.resource.plugins.iter();
        let handling = handling.filter(move |(_, interest)| interest.has(operation, subresource));
        handling.filter_map(|(at, _)| self.admission.get(*at)).map(|plugin| &**plugin)
    }

    /// Mutating admission.
    pub(crate) async fn mutate(
        &self,
        write: &AdmissionAttributes<'_>,
        mut object: Option<&mut Value>,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        // decoding and merging may have taken long
        write.user.record.check_awaited()?;
        let began = self.world.elapsed();
        let mut result = self.mutate_once(write, object.as_deref_mut(), old).await;
        if result.is_ok() && write.reinvocation.should_reinvoke() {
            write.reinvocation.is_reinvoke.store(true, Ordering::Relaxed);
            result = self.mutate_once(write, object, old).await;
        }
        self.end_step(write, Phase::Mutate, began, result.is_err());
        result
    }

    async fn mutate_once(
        &self,
        write: &AdmissionAttributes<'_>,
        mut object: Option<&mut Value>,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        for plugin in self.plugins(write) {
            plugin.mutate(write, object.as_deref_mut(), old).get().await?;
        }
        Ok(())
    }

    /// Validating admission.
    pub(crate) async fn validate(
        &self,
        write: &AdmissionAttributes<'_>,
        object: &Value,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        // validation may have taken long, and only the commit follows
        write.user.record.check_awaited()?;
        let began = self.world.elapsed();
        let mut result = Ok(());
        for plugin in self.plugins(write) {
            result = plugin.validate(write, object, old).get().await;
            if result.is_err() {
                break;
            }
        }
        self.end_step(write, Phase::Validate, began, result.is_err());
        result
    }

    fn end_step(&self, write: &AdmissionAttributes<'_>, phase: Phase, began: Duration, rejected: bool) {
        let now = self.world.elapsed();
        write.user.record.reached(Step::Admitted, now);
        if let Some(steps) = self.steps.get() {
            let outcome = Outcome { phase, operation: write.operation, rejected };
            steps.took(outcome, now.saturating_sub(began));
        }
    }
}
