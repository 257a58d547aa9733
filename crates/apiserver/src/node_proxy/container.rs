//! The container that a request names, or the only one of its pod.

use rest::ApiError;
use schema::Value;

/// Containers of a pod in the order of their start.
fn names(pod: &Value) -> Vec<&str> {
    let lists = ["initContainers", "containers", "ephemeralContainers"];
    let all = lists.iter().flat_map(|list| pod.items(&["spec", list]));
    all.map(|container| container.text(&["name"])).collect()
}

/// The requested container, which must exist.
pub fn resolve<'a>(requested: &'a str, pod: &'a Value) -> Result<&'a str, ApiError> {
    let name = pod.text(&["metadata", "name"]);
    if !requested.is_empty() {
        return match names(pod).contains(&requested) {
            true => Ok(requested),
            false => Err(ApiError::bad_request(format!("container {requested} is not valid for pod {name}"))),
        };
    }
    match pod.items(&["spec", "containers"]) {
        [only] => Ok(only.text(&["name"])),
        [] => Err(ApiError::bad_request(format!("a container name must be specified for pod {name}"))),
        _ => {
            let names = names(pod).join(" ");
            let message =
                format!("a container name must be specified for pod {name}, choose one of: [{names}]");
            Err(ApiError::bad_request(message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_are_found_or_listed() {
        let pod = |text: &str| schema::decode::json_untyped(text.as_bytes()).unwrap().value;
        let one = pod(r#"{"metadata":{"name":"p"},"spec":{"containers":[{"name":"a"}]}}"#);
        assert_eq!(resolve("", &one).unwrap(), "a");
        assert_eq!(resolve("x", &one).unwrap_err().message, "container x is not valid for pod p");
        let two = pod(
            r#"{"metadata":{"name":"p"},"spec":{"containers":[{"name":"a"},{"name":"b"}],"initContainers":[{"name":"i"}],
               "ephemeralContainers":[{"name":"e"}]}}"#,
        );
        assert_eq!(resolve("e", &two).unwrap(), "e");
        assert_eq!(
            resolve("", &two).unwrap_err().message,
            "a container name must be specified for pod p, choose one of: [i a b e]"
        );
    }
}
