//! ComponentStatuses: the row of a component.

use rest::hooks::{Hooks, ReadHooks};
use schema::Value;

pub fn hooks() -> Hooks {
    Hooks {
        read: ReadHooks { cells: Some(|object, _| cells(object)), ..ReadHooks::default() },
        ..Hooks::default()
    }
}

fn cells(object: &Value) -> Vec<Value> {
    let conditions = match object.at(&["conditions"]) {
        Some(Value::List(conditions)) => &conditions[..],
        _ => &[],
    };
    let healthy = conditions.iter().find(|one| one.text(&["type"]) == "Healthy");
    let text = |field: &str| Value::from(healthy.map_or("", |one| one.text(&[field])));
    let status = match healthy.map(|one| one.text(&["status"])) {
        Some("True") => "Healthy",
        Some("False") => "Unhealthy",
        _ => "Unknown",
    };
    vec![object.text(&["metadata", "name"]).into(), status.into(), text("message"), text("error")]
}

#[cfg(test)]
mod tests {
    use super::*;
    use schema::decode::json_untyped;

    #[test]
    fn rows_tell_health_in_a_word() {
        let row = |status: &str| {
            let json = format!(
                r#"{{"metadata":{{"name":"s"}},"conditions":[{{"type":"Healthy","status":"{status}","message":"m","error":"e"}}]}}"#
            );
            cells(&json_untyped(json.as_bytes()).unwrap().value)
        };
        for (status, word) in [("True", "Healthy"), ("False", "Unhealthy"), ("", "Unknown")] {
            assert_eq!(row(status), ["s", word, "m", "e"].map(Value::from));
        }
    }
}
