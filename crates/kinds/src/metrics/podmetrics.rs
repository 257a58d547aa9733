//! PodMetrics: the row of a pod has the sum of its containers.

use rest::hooks::{Hooks, ReadHooks};
use schema::Value;
use schema::quantity::Quantity;

pub fn hooks() -> Hooks {
    Hooks {
        read: ReadHooks { cells: Some(|object, _| cells(object)), ..ReadHooks::default() },
        ..Hooks::default()
    }
}

fn cells(object: &Value) -> Vec<Value> {
    let sum = |resource: &str| {
        let amounts = object.items(&["containers"]).iter().map(|it| it.text(&["usage", resource]));
        let amounts = amounts.filter_map(|it| it.parse::<Quantity>().ok());
        amounts.reduce(|a, b| a.plus(&b)).map(|it| it.to_string()).unwrap_or_default()
    };
    let window = object.text(&["window"]);
    vec![object.text(&["metadata", "name"]).into(), sum("cpu").into(), sum("memory").into(), window.into()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_the_sum_of_all_containers() {
        let text = br#"{"metadata":{"name":"p"},"window":"15s","containers":[
            {"usage":{"cpu":"250m","memory":"1Mi"}},{"usage":{"cpu":"500001n","memory":"512Ki"}}]}"#;
        let object = schema::decode::json_untyped(text).unwrap().value;
        assert_eq!(cells(&object), ["p", "250500001n", "1536Ki", "15s"].map(Value::from));
    }
}
