//! Names of definitions: which requested names are accepted, and the status conditions about them.
//!
//! Names are unique within a group: a definition keeps its names, and a request for a taken name gets none of the names
//! of that kind until it is free. A definition is served once all its names are accepted; it stays served under those
//! names while a request for others fails.

use crate::check::TextSet;
use crate::read;
use names::Names;
use schema::Value;
use std::collections::{HashMap, HashSet};

/// The names of the definitions of a group, and their holders.
#[derive(Default)]
pub struct NameIndex {
    by: HashMap<(NameKind, String), HashSet<String>>,
}

/// The kind of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum NameKind {
    Resource,
    Kind,
}

impl NameIndex {
    /// A definition has been given other names than before.
    pub fn change(&mut self, definition: &str, before: &Value, accepted: &Value) {
        for name in all(before) {
            if let Some(owners) = self.by.get_mut(&name) {
                owners.remove(definition);
                if owners.is_empty() {
                    self.by.remove(&name);
                }
            }
        }
        for name in all(accepted) {
            self.by.entry(name).or_default().insert(definition.to_owned());
        }
    }

    pub fn is_empty(&self) -> bool {
        self.by.is_empty()
    }

    /// Whether another definition has a name.
    fn by_another(&self, sort: NameKind, name: &str, definition: &str) -> bool {
        let owners = self.by.get(&(sort, name.to_owned()));
        owners.is_some_and(|owners| owners.iter().any(|owner| owner != definition))
    }
}

/// The names that were given.
fn all(accepted: &Value) -> impl Iterator<Item = (NameKind, String)> {
    let given = |sort: NameKind, name: &str| (sort, accepted.text(&[name]).to_owned());
    let short =
        accepted.items(&["shortNames"]).iter().map(|it| (NameKind::Resource, read::text(it).to_owned()));
    let own = [
        given(NameKind::Resource, "plural"),
        given(NameKind::Resource, "singular"),
        given(NameKind::Kind, "kind"),
        given(NameKind::Kind, "listKind"),
    ];
    own.into_iter().chain(short).filter(|(_, name)| !name.is_empty())
}

/// The status that a definition should have; the same as it has when there is nothing to change.
pub fn status(definition: &Value, taken: &NameIndex, names: &Names, now: &str) -> Value {
    let mut status = definition.at(&["status"]).cloned().unwrap_or_else(Value::map);
    let (accepted, conflict) = accept(definition, taken);
    status.set(&["acceptedNames"], accepted);
    let named = match &conflict {
        None => ("NamesAccepted", "True", "NoConflicts", "no conflicts found"),
        Some((reason, message)) => ("NamesAccepted", "False", *reason, &**message),
    };
    set_condition(&mut status, named, now);
    if !is_true(definition, "Established") {
        let established = match conflict {
            None => ("True", "InitialNamesAccepted", "the initial names have been accepted"),
            Some(_) => ("False", "NotAccepted", "not all names are accepted"),
        };
        set_condition(&mut status, ("Established", established.0, established.1, established.2), now);
    }
    if let Some((truth, reason, message)) = super::spec::approval_condition(definition, names) {
        let condition = ("KubernetesAPIApprovalPolicyConformant", truth, reason, &*message);
        set_condition(&mut status, condition, now);
    }
    status
}

/// Whether a condition of a definition is true.
pub fn is_true(definition: &Value, condition: &str) -> bool {
    let conditions = definition.items(&["status", "conditions"]);
    conditions.iter().any(|it| it.text(&["type"]) == condition && it.text(&["status"]) == "True")
}

/// Sets a condition of a status; the time is that of the last change from true to false or back.
pub fn set_condition(
    status: &mut Value,
    (kind, truth, reason, message): (&str, &str, &str, &str),
    now: &str,
) {
    let mut conditions = status.items(&["conditions"]).to_vec();
    let known = conditions.iter_mut().find(|it| it.text(&["type"]) == kind);
    let mut condition = Value::map();
    condition.set(&["type"], kind);
    condition.set(&["status"], truth);
    condition.set(&["reason"], reason);
    condition.set(&["message"], message);
    match known {
        Some(known) => {
            let same = known.text(&["status"]) == truth;
            let since = if same { known.text(&["lastTransitionTime"]) } else { now };
            condition.set(&["lastTransitionTime"], since);
            *known = condition;
        }
        None => {
            condition.set(&["lastTransitionTime"], now);
            conditions.push(condition);
        }
    }
    status.set(&["conditions"], conditions);
}

/// The accepted names of a definition, and the last conflict of its requested names.
fn accept(definition: &Value, taken: &NameIndex) -> (Value, Option<(&'static str, String)>) {
    let nothing = Value::map();
    let wanted = definition.at(&["spec", "names"]).unwrap_or(&nothing);
    let mut accepted = definition.at(&["status", "acceptedNames"]).cloned().unwrap_or_else(Value::map);
    let mut conflict = None;
    let own_name = definition.text(&["metadata", "name"]);
    let in_use = |name: &str| format!("{} is already in use", schema::problem::quoted(name));
    for (field, reason, sort) in [
        ("plural", "PluralConflict", NameKind::Resource),
        ("singular", "SingularConflict", NameKind::Resource),
        ("kind", "KindConflict", NameKind::Kind),
        ("listKind", "ListKindConflict", NameKind::Kind),
    ] {
        let name = wanted.text(&[field]);
        if name != accepted.text(&[field]) && taken.by_another(sort, name, own_name) {
            conflict = Some((reason, in_use(name)));
        } else {
            accepted.set(&[field], name);
        }
        if field != "singular" {
            continue;
        }
        let own: TextSet<'_> = accepted.items(&["shortNames"]).iter().map(read::text).collect();
        let short = wanted.items(&["shortNames"]).iter().map(read::text);
        let lost = short.filter(|it| !own.contains(it) && taken.by_another(NameKind::Resource, it, own_name));
        let lost: Vec<String> = lost.map(in_use).collect();
        match lost.as_slice() {
            [] => copy(wanted, &mut accepted, "shortNames"),
            [one] => conflict = Some(("ShortNamesConflict", one.clone())),
            several => conflict = Some(("ShortNamesConflict", format!("[{}]", several.join(", ")))),
        }
    }
    copy(wanted, &mut accepted, "categories");
    (accepted, conflict)
}

fn copy(from: &Value, to: &mut Value, field: &'static str) {
    match from.at(&[field]) {
        Some(value) => to.set(&[field], value.clone()),
        None => drop(to.unset(&[field])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::json;

    const NOW: &str = "2020-01-01T00:00:00Z";

    fn definition(status: &str) -> Value {
        json(&format!(
            r#"{{"spec":{{"group":"example.com","names":{{"plural":"things","singular":"thing","kind":"Thing",
                "listKind":"ThingList","shortNames":["th"]}}}},"status":{status}}}"#
        ))
    }

    fn conditions(status: &Value) -> Vec<String> {
        let line = |it: &Value| {
            let part = |field| it.text(&[field]);
            format!("{} {} {}: {}", part("type"), part("status"), part("reason"), part("message"))
        };
        status.items(&["conditions"]).iter().map(line).collect()
    }

    #[test]
    fn free_names_are_accepted() {
        let found = status(&definition("{}"), &NameIndex::default(), &Names::default(), NOW);
        assert_eq!(found.text(&["acceptedNames", "plural"]), "things");
        assert_eq!(
            conditions(&found),
            [
                "NamesAccepted True NoConflicts: no conflicts found",
                "Established True InitialNamesAccepted: the initial names have been accepted"
            ]
        );
        // and nothing changes from there
        let mut again = definition("{}");
        again.set(&["status"], found.clone());
        assert_eq!(status(&again, &NameIndex::default(), &Names::default(), "later"), found);
    }

    #[test]
    fn taken_names_are_rejected() {
        let mut taken = NameIndex::default();
        taken.change(
            "other",
            &Value::Null,
            &json(r#"{"plural":"others","singular":"th","kind":"Other","listKind":"Thing"}"#),
        );
        let found = status(&definition("{}"), &taken, &Names::default(), NOW);
        assert_eq!(found.text(&["acceptedNames", "plural"]), "things");
        assert_eq!(
            (found.text(&["acceptedNames", "kind"]), found.items(&["acceptedNames", "shortNames"]).len()),
            ("", 0)
        );
        assert_eq!(
            conditions(&found),
            [
                r#"NamesAccepted False KindConflict: "Thing" is already in use"#,
                "Established False NotAccepted: not all names are accepted"
            ]
        );
    }

    #[test]
    fn accepted_names_stay_with_their_definition() {
        let accepted = r#"{"acceptedNames":{"plural":"things","singular":"thing","kind":"Thing","listKind":"ThingList"},
            "conditions":[{"type":"NamesAccepted","status":"True","lastTransitionTime":"before"},
            {"type":"Established","status":"True"}]}"#;
        let mut taken = NameIndex::default();
        taken.change("other", &Value::Null, &json(r#"{"plural":"th"}"#));
        let found = status(&definition(accepted), &taken, &Names::default(), NOW);
        assert!(is_true(
            &{
                let mut it = Value::map();
                it.set(&["status"], found.clone());
                it
            },
            "Established"
        ));
        assert_eq!(
            conditions(&found)[0],
            r#"NamesAccepted False ShortNamesConflict: "th" is already in use"#
        );
        assert_eq!(found.items(&["conditions"])[0].text(&["lastTransitionTime"]), NOW);
    }
}
