//! Budgeted delete: a deletion that is charged to the budget of another object, such as an eviction.
//!
//! The budget is charged before the object is deleted, so that no two deletions spend the same allowance: the charge
//! is a compare-and-set, and the loser of a race starts again. A deletion that fails after the charge is not paid
//! back; the controller of the budget corrects that.

use crate::model::error::ApiError;
use crate::model::hooks::{BudgetCharge, BudgetDecision, BudgetedDelete};
use crate::model::options::{DeleteOptions, Query};
use crate::pipeline::api::Api;
use crate::pipeline::commit::store_error;
use crate::pipeline::request::{ATTEMPTS, WriteRequest};
use schema::Value;
use store::{Expect, Revision, StoreError};

impl Api {
    pub(crate) async fn budgeted_delete(
        &self,
        request: &WriteRequest<'_>,
        deletion: &BudgetedDelete,
        body: &Value,
    ) -> Result<(), ApiError> {
        let resource = request.resource;
        let given = body.at(&[deletion.options]).filter(|it| !it.is_null()).cloned();
        let given = given.unwrap_or_else(Value::map);
        let is_dry_run = is_dry_run(request, &given)?;
        for _ in 0..ATTEMPTS {
            let current = resource.collection.cache.get(request.namespace, request.name);
            let current = current.ok_or_else(|| ApiError::not_found(resource.subject(request.name)))?;
            let object = resource.tree(&current)?;
            let decision = self.with_context(request.user, |context| (deletion.decide)(&object, context))?;
            if let BudgetDecision::Charge(charge) = &decision
                && !self.charge(request, charge, &object, is_dry_run).await?
            {
                continue;
            }
            // a deletion that no budget allows is refused whatever its options are
            let mut options = DeleteOptions::parse(&Query::default(), &given, &self.names)?;
            options.dry_run |= is_dry_run;
            let mut pinned = false;
            if let BudgetDecision::FreeWhileUnchanged = decision {
                pinned = options.resource_version.is_none();
                options.resource_version.get_or_insert(current.revision.to_string());
            }
            let (namespace, name) = (request.namespace, request.name);
            let deleted =
                self.delete_marked(resource, namespace, name, &options, request.user, Some(deletion.mark));
            match deleted.await {
                Ok(_) => return Ok(()),
                Err(error) => {
                    let now = resource.collection.cache.get(namespace, name).map(|object| object.revision);
                    // the version was pinned here, and the object has changed since
                    if !pinned || now == Some(current.revision) {
                        return Err(error);
                    }
                }
            }
        }
        Err(ApiError::modified(resource.subject(request.name)))
    }

    /// Charges the budget; false when another write changed it first.
    async fn charge(
        &self,
        request: &WriteRequest<'_>,
        charge: &BudgetCharge,
        object: &Value,
        dry_run: bool,
    ) -> Result<bool, ApiError> {
        let resources = self.resources();
        let Some(budgets) = resources.named(charge.plural) else {
            return Ok(false);
        };
        let Some(current) = budgets.collection.cache.get(&charge.namespace, &charge.name) else {
            return Ok(false);
        };
        let old = budgets.tree(&current)?;
        let mut next = old.clone();
        self.with_context(request.user, |context| (charge.charge)(&mut next, object, context))?;
        if dry_run {
            return Ok(true);
        }
        let manager = format!("{}-apiserver", self.names.prefix);
        let status_write = WriteRequest {
            resource: budgets,
            namespace: &charge.namespace,
            name: &charge.name,
            subresource: "status",
            options: request.options,
            user: request.user,
            manager: &manager,
            owned: false,
            warnings: Vec::new(),
        };
        self.track(&status_write, Some(&old), &mut next);
        match self.commit(&status_write, next, None, Expect::Revision(Revision(current.revision))).await {
            Ok(_) => Ok(true),
            Err(StoreError::Conflict { .. }) => Ok(false),
            Err(why) => Err(store_error(why)),
        }
    }
}

/// Whether the request or the options in its body make it a dry run.
fn is_dry_run(request: &WriteRequest<'_>, given: &Value) -> Result<bool, ApiError> {
    let runs: Vec<_> = given.items(&["dryRun"]).iter().filter_map(Value::as_str).collect();
    if request.options.dry_run && !runs.is_empty() && runs != ["All"] {
        return Err(ApiError::bad_request(format!(
            "Non-matching dry-run options in request and content: [All] and [{}]",
            runs.join(" ")
        )));
    }
    Ok(request.options.dry_run || !runs.is_empty())
}
