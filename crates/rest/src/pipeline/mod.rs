//! The write pipeline: one list of stages, from the new or next state of an object to the store.
//!
//! Create, update, patch and apply run all of it ([`Api::write`]). Actions, connects and virtual resources run the
//! stages that they need: [`decode`], [`own`] and admission.

pub mod api;
pub mod commit;
pub mod decode;
pub(crate) mod decode_custom;
pub mod decode_options;
mod default;
mod mutate;
pub mod own;
mod prepare;
pub mod request;
pub mod validate;
pub mod view;

use api::Api;
use request::{Base, Write, WriteError, WriteOutcome, WriteRequest};
use schema::Value;

impl Api {
    /// Carries an object through all stages. `object` is the submitted state; a patch or an apply has been merged
    /// into the current state already. `base` is the stored object, absent for a creation.
    pub(crate) async fn write(
        &self,
        request: &mut WriteRequest<'_>,
        base: Option<&Base>,
        object: Value,
    ) -> Result<WriteOutcome, WriteError> {
        let mut write = Write::new(request, base, object);

        // 1. version: the client may name the version that it has seen. Compared here, since admission may change the
        //    object; reported in stage 5.
        let version = validate::version(&write);

        // 2. default: the namespace of the request, declared defaults, then those of the kind. First, so that all
        //    later stages see a complete object.
        default::complete(&mut write, &self.names)?;

        // 3. own: restores the fields that this write cannot change, and records the field manager. Before admission:
        //    plugins see the managed fields, and changes by plugins belong to no manager.
        let sent = own::record(self, &mut write)?;

        // 4. mutate: mutating admission. A write through a view has been mutated in the form of the view.
        mutate::admit(self, &mut write, sent).await?;

        // 5. version: a rejection by admission comes before a conflict.
        version?;

        let user = write.request.user;
        let reservation = self.with_context(user, |context| {
            // 6. prepare: the fields that the server decides, the kind's own preparation, and reservations. After
            //    admission, so that no plugin can change them.
            let reservation = prepare::before_validation(self, &mut write, context)?;

            // 7. validate: metadata, declared rules, the kind's own rules, rules of a custom kind. All problems are
            //    reported at once.
            validate::check(self, &mut write, context)?;
            Ok::<_, WriteError>(reservation)
        })?;

        // 8. complete: pruning, the kind's completion, warnings. Only a valid object gets this far.
        prepare::after_validation(&mut write);

        // 9. validate: validating admission. Last before the commit, because plugins may charge for the write, such as
        //    a quota. An object that cannot be stored is not charged for.
        let obstacle = commit::obstacle(&write);
        validate::admit(self, &write, obstacle.is_some()).await?;

        // 10. commit: compare-and-set at the store, unless it is a dry run or nothing has changed.
        match base {
            None => commit::create(self, write, obstacle, reservation).await,
            Some(base) => commit::update(self, write, base, reservation).await,
        }
    }
}
