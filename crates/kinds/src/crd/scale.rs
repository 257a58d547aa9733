//! The scale of a custom kind: where in its objects the numbers are.

use crate::check::Problems;
use crate::{read, scale};
use rest::view::View;
use schema::Value;
use schema::jsonpath::JsonPath;
use schema::problem::{Problem, Reason};
use schema::table::Text;

/// The paths to the numbers, as a definition names them.
#[derive(Clone)]
pub(super) struct Paths {
    spec: Vec<Text>,
    status: Vec<Text>,
    selector: Option<Vec<Text>>,
}

impl Paths {
    /// Those of a version that has a scale.
    pub fn of(version: &Value) -> Option<Self> {
        let scale = version.at(&["subresources", "scale"]).filter(|it| !it.is_null())?;
        let steps = |field: &str| -> Option<Vec<Text>> {
            let path = JsonPath::parse(scale.text(&[field])).ok()?;
            Some(path.fields()?.into_iter().map(|it| Text::Owned(it.to_owned())).collect())
        };
        Some(Paths {
            spec: steps("specReplicasPath")?,
            status: steps("statusReplicasPath")?,
            selector: read::opt_text(scale, &["labelSelectorPath"]).and_then(|_| steps("labelSelectorPath")),
        })
    }

    pub fn views(&self) -> Vec<View> {
        let paths = self.clone();
        scale::view_of(self.spec.clone(), move |object| {
            let number = |path: &[Text]| at(object, path).and_then(Value::as_int).unwrap_or(0);
            let selector = paths.selector.as_ref().and_then(|path| at(object, path)?.as_str());
            scale::shown(number(&paths.spec), number(&paths.status), selector.unwrap_or(""))
        })
    }

    /// What is wrong with the numbers in an object.
    pub fn check(&self, object: &Value, out: &mut Problems) {
        for path in [&self.spec, &self.status] {
            let Some(value) = at(object, path) else { continue };
            let Some(number) = value.as_int() else { continue };
            let field = path.join(".");
            let mut wrong = |why: &str| {
                let message = format!("Invalid value: {number}: {why}");
                out.push(Problem { reason: Reason::Invalid, field: field.clone(), message });
            };
            if number < 0 {
                wrong("should be a non-negative integer");
            } else if number > i64::from(i32::MAX) {
                wrong(&format!("should be less than or equal to {}", i32::MAX));
            }
        }
        let selector = self.selector.as_ref().and_then(|path| Some((path, at(object, path)?)));
        if let Some((path, value)) = selector.filter(|(_, value)| value.as_str().is_none()) {
            let shown = super::value::go_shown(value);
            let message = format!("Invalid value: {shown}: should be a string");
            out.push(Problem { reason: Reason::Invalid, field: path.join("."), message });
        }
    }
}

fn at<'v>(value: &'v Value, path: &[Text]) -> Option<&'v Value> {
    path.iter().try_fold(value, |value, step| value.as_map()?.get(step)).filter(|it| !it.is_null())
}
