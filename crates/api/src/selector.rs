//! Label selectors of objects, as they are matched.

use apimachinery::labels::{Operator, ParseError, Requirement, Selector};

use crate::meta::v1::LabelSelector;

/// An unknown operator is an error.
impl TryFrom<&LabelSelector> for Selector {
    type Error = ParseError;

    fn try_from(selector: &LabelSelector) -> Result<Self, ParseError> {
        let labels = selector.match_labels.iter();
        let mut requirements: Vec<Requirement> =
            labels.map(|(key, value)| Requirement::new(key, Operator::Equals, vec![value.clone()])).collect();
        for expression in &selector.match_expressions {
            let operator = match &*expression.operator {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => return Err(ParseError(format!("{other:?} is not a valid label selector operator"))),
            };
            requirements.push(Requirement::new(&expression.key, operator, expression.values.clone()));
        }
        Ok(Selector::new(requirements))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::from_json;

    fn selector(json: &str) -> Result<Selector, ParseError> {
        Selector::try_from(&from_json::<LabelSelector>(json.as_bytes()).unwrap())
    }

    #[test]
    fn labels_and_expressions_are_requirements() {
        let json = r#"{"matchLabels":{"b":"x","a":"y"},"matchExpressions":[
            {"key":"c","operator":"In","values":["2","1"]},{"key":"d","operator":"NotIn","values":["z"]},
            {"key":"e","operator":"Exists"},{"key":"f","operator":"DoesNotExist"}]}"#;
        assert_eq!(selector(json).unwrap().to_string(), "a=y,b=x,c in (1,2),d notin (z),e,!f");
        assert!(selector("{}").unwrap().is_empty());
        assert!(selector(r#"{"matchExpressions":[{"key":"a","operator":"Like"}]}"#).is_err());
    }
}
