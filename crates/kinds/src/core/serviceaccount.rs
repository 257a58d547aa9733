//! ServiceAccounts: only the names of secrets are kept.

use crate::{metadata, read};
use rest::hooks::{Context, CreateHooks, DeleteHooks, Hooks, ReadHooks, UpdateHooks};
use schema::Value;
use std::time::Duration;

pub fn hooks() -> Hooks {
    Hooks {
        create: CreateHooks { prepare: Some(|object, _| keep_names(object)), ..CreateHooks::default() },
        update: UpdateHooks { prepare: Some(prepare_update), ..UpdateHooks::default() },
        delete: DeleteHooks { returns_object: true, ..DeleteHooks::default() },
        read: ReadHooks { cells: Some(cells), ..ReadHooks::default() },
        ..Hooks::default()
    }
}

fn prepare_update(next: &mut Value, _: &Value, _: &Context<'_>) {
    keep_names(next);
}

/// Secrets are always in the account's namespace, so nothing but the name means anything.
fn keep_names(object: &mut Value) {
    read::each_mut(object, &["secrets"], |secret| {
        if let Some(fields) = secret.as_map_mut() {
            fields.retain(|field, _| field == "name");
        }
    });
}

fn cells(object: &Value, now: Duration) -> Vec<Value> {
    let count = Value::Int(object.items(&["secrets"]).len() as i64);
    vec![metadata::name(object), count, metadata::age(object, now)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::json;

    #[test]
    fn only_names_of_secrets_are_kept() {
        let mut object = json(r#"{"secrets":[{"name":"a","namespace":"b","uid":"c"},{}]}"#);
        keep_names(&mut object);
        assert_eq!(object, json(r#"{"secrets":[{"name":"a"},{}]}"#));
    }
}
