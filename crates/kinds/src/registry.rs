//! The list of built-in kinds with their hooks.

use crate::hooks::hooks;
use crate::options::Options;
use crate::serving::Serving;
use crate::versions::stored;
use crate::{retired, tables};
use rest::hooks::{Hooks, StorageHooks};
use schema::table::{Kind, Ref};

/// All kinds with their behaviour, as they are without any decision by an operator.
pub fn builtin() -> Vec<(Ref<Kind>, Hooks)> {
    builtin_with(Options::default())
}

/// All kinds with their behaviour.
pub fn builtin_with(options: Options) -> Vec<(Ref<Kind>, Hooks)> {
    builtin_serving(options, &Serving::default())
}

/// The kinds that are to be served, with their behaviour.
pub fn builtin_serving(options: Options, serving: &Serving) -> Vec<(Ref<Kind>, Hooks)> {
    let served = tables::KINDS.iter().filter(|kind| serving.serves(kind));
    let with_hooks = |kind: &&'static Kind| {
        let stored = stored(kind);
        let stored = stored.as_deref().unwrap_or(kind);
        let stored_versions = (!stored.unstored).then(|| retired::stored_versions(stored, options));
        (Ref::Static(*kind), {
            let base = hooks(kind, options);
            Hooks { storage: StorageHooks { versions: stored_versions, ..base.storage }, ..base }
        })
    };
    served.map(with_hooks).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_with_rows_of_their_own_fill_every_column() {
        let mut with_cells = 0;
        for (kind, hooks) in builtin() {
            if let Some(cells) = hooks.read.cells {
                with_cells += 1;
                let row = cells(&schema::Value::map(), std::time::Duration::ZERO);
                assert_eq!(row.len(), kind.columns.len(), "{}", kind.name);
            }
        }
        assert_eq!(with_cells, 47);
    }

    #[test]
    fn subresources_with_behaviour_are_declared() {
        for (kind, hooks) in builtin() {
            for one in hooks.subresources.parts {
                assert!(kind.subresources.iter().any(|it| it.name == one.name), "{} {}", kind.name, one.name);
            }
        }
    }
}
