//! Remove: a deletion that has its price, which another object pays.
//!
//! The price is paid before the object goes, so that no two removals spend the same allowance: the payer is
//! changed only if nobody else changed it in between, and whoever was slower looks at everything again. A
//! removal that fails after the payment is not paid back; whoever keeps the payer's books corrects that.

use crate::model::error::ApiError;
use crate::model::hooks::{Charge, Price, Removal};
use crate::model::options::{DeleteOptions, Query};
use crate::pipeline::api::Api;
use crate::pipeline::write::{ATTEMPTS, WriteRequest, store_error};
use schema::Value;
use store::{Expect, Revision, StoreError};

impl Api {
    pub(crate) async fn remove_for(
        &self,
        writing: &WriteRequest<'_>,
        removal: &Removal,
        body: &Value,
    ) -> Result<(), ApiError> {
        let resource = writing.resource;
        let asked = self.removal_options(writing, body.at(&[removal.options]))?;
        for _ in 0..ATTEMPTS {
            let current = resource.collection.cache.get(writing.namespace, writing.name);
            let current = current.ok_or_else(|| ApiError::not_found(resource.subject(writing.name)))?;
            let object = self.tree(resource, &current)?;
            let price = self.with_context(writing.user, |context| (removal.decide)(&object, context))?;
            let mut options = asked.clone();
            let mut pinned = false;
            match price {
                Price::Nothing => {}
                Price::NothingNow => {
                    pinned = options.resource_version.is_none();
                    options.resource_version.get_or_insert(current.revision.to_string());
                }
                Price::Charged(charge) => {
                    if !self.charge(writing, &charge, &object, options.dry_run).await? {
                        continue;
                    }
                }
            }
            let (namespace, name) = (writing.namespace, writing.name);
            let deleted =
                self.delete_marked(resource, namespace, name, &options, writing.user, Some(removal.mark));
            match deleted.await {
                Ok(_) => return Ok(()),
                Err(error) => {
                    let now = resource.collection.cache.get(namespace, name).map(|object| object.revision);
                    // it was pinned here, and is no longer what was looked at
                    if !pinned || now == Some(current.revision) {
                        return Err(error);
                    }
                }
            }
        }
        Err(ApiError::modified(resource.subject(writing.name)))
    }

    /// The options of the deletion; a dry run may be asked for in either place.
    fn removal_options(
        &self,
        writing: &WriteRequest<'_>,
        given: Option<&Value>,
    ) -> Result<DeleteOptions, ApiError> {
        let given = given.filter(|it| !it.is_null()).cloned().unwrap_or_else(Value::map);
        let runs: Vec<_> = given.items(&["dryRun"]).iter().filter_map(Value::as_str).collect();
        if writing.options.dry_run && !runs.is_empty() && runs != ["All"] {
            return Err(ApiError::bad_request(format!(
                "Non-matching dry-run options in request and content: [All] and [{}]",
                runs.join(" ")
            )));
        }
        let mut options = DeleteOptions::parse(&Query::default(), &given, &self.names)?;
        options.dry_run |= writing.options.dry_run;
        Ok(options)
    }

    /// Makes the payer pay; false when somebody else changed it first.
    async fn charge(
        &self,
        writing: &WriteRequest<'_>,
        charge: &Charge,
        object: &Value,
        dry_run: bool,
    ) -> Result<bool, ApiError> {
        let resources = self.resources();
        let Some(payers) = resources.named(charge.plural) else {
            return Ok(false);
        };
        let Some(current) = payers.collection.cache.get(&charge.namespace, &charge.name) else {
            return Ok(false);
        };
        let old = self.tree(payers, &current)?;
        let mut next = old.clone();
        self.with_context(writing.user, |context| (charge.pay)(&mut next, object, context))?;
        if dry_run {
            return Ok(true);
        }
        let manager = format!("{}-apiserver", self.names.prefix);
        let payment = WriteRequest {
            resource: payers,
            namespace: &charge.namespace,
            name: &charge.name,
            subresource: "status",
            options: writing.options,
            user: writing.user,
            manager: &manager,
            owned: false,
            warnings: Vec::new(),
        };
        self.track(&payment, Some(&old), &mut next);
        match self.commit(&payment, next, None, Expect::Revision(Revision(current.revision))).await {
            Ok(_) => Ok(true),
            Err(StoreError::Conflict { .. }) => Ok(false),
            Err(why) => Err(store_error(why)),
        }
    }
}
