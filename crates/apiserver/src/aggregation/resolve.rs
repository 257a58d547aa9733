//! Resolves the Service of an APIService to addresses, or to the reason of its condition.

use crate::outgoing::service_resolver::{ServiceReference, endpoint_addresses};
use schema::Value;
use schema::problem::quoted;

/// The reason if no address responds, or none is known.
pub(super) const FAILED: &str = "FailedDiscoveryCheck";

/// Why the Service cannot be resolved: reason and message of the condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ResolveError {
    pub reason: &'static str,
    pub message: String,
}

/// All addresses of the server, as `host:port`.
pub(super) fn addresses(
    reference: &ServiceReference,
    service: Option<&Value>,
    endpoints: Option<&Value>,
    to_endpoints: bool,
) -> Result<Vec<String>, ResolveError> {
    let (name, namespace, port) = (&reference.name, quoted(&reference.namespace), reference.port);
    let resolve_error = |reason, message| ResolveError { reason, message };
    let Some(service) = service else {
        let message = format!("service/{name} in {namespace} is not present");
        return Err(resolve_error("ServiceNotFound", message));
    };
    if service.text(&["spec", "type"]) == "ClusterIP" {
        let Some(found) = reference.port_of(service) else {
            let message = format!("service/{name} in {namespace} is not listening on port {port}");
            return Err(resolve_error("ServicePortError", message));
        };
        let Some(endpoints) = endpoints else {
            let message = format!("cannot find endpoints for service/{name} in {namespace}");
            return Err(resolve_error("EndpointsNotFound", message));
        };
        let port_name = found.text(&["name"]);
        if endpoint_addresses(endpoints, port_name).next().is_none() {
            let port_name = quoted(port_name);
            let message = format!(
                "endpoints for service/{name} in {namespace} have no addresses with port name {port_name}"
            );
            return Err(resolve_error("MissingEndpoints", message));
        }
    }
    reference.addresses(service, endpoints, to_endpoints).map_err(|message| resolve_error(FAILED, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Value {
        schema::decode::json_untyped(text.as_bytes()).unwrap().value
    }

    fn check(service: Option<&str>, endpoints: Option<&str>, to_endpoints: bool, expect: Result<&str, &str>) {
        let reference = ServiceReference { namespace: "n".to_owned(), name: "s".to_owned(), port: 443 };
        let (service, endpoints) = (service.map(json), endpoints.map(json));
        let resolved = addresses(&reference, service.as_ref(), endpoints.as_ref(), to_endpoints);
        let resolved =
            resolved.map(|all| all.join(" ")).map_err(|it| format!("{}: {}", it.reason, it.message));
        assert_eq!(resolved.as_deref().map_err(String::as_str), expect);
    }

    const SERVICE: &str = r#"{"spec": {"type": "ClusterIP", "clusterIP": "10.0.0.9",
        "ports": [{"name": "a", "port": 80}, {"name": "https", "port": 443}]}}"#;
    const ENDPOINTS: &str = r#"{"subsets": [{"addresses": [{"ip": "192.0.2.7"}], "ports": [{"name": "a", "port": 1}]},
        {"addresses": [{"ip": "192.0.2.8"}, {"ip": "2001:db8::1"}],
         "ports": [{"name": "a", "port": 1}, {"name": "https", "port": 8443}]}]}"#;

    #[test]
    fn services_resolve_to_cluster_ip_or_endpoints() {
        check(Some(SERVICE), Some(ENDPOINTS), false, Ok("10.0.0.9:443"));
        check(Some(SERVICE), Some(ENDPOINTS), true, Ok("192.0.2.8:8443 [2001:db8::1]:8443"));
        let headless = SERVICE.replace("10.0.0.9", "None");
        check(Some(&headless), Some(ENDPOINTS), true, Ok("192.0.2.8:8443 [2001:db8::1]:8443"));
        let why = "FailedDiscoveryCheck: cannot route to service with ClusterIP \"None\"";
        check(Some(&headless), Some(ENDPOINTS), false, Err(why));
        let outside = r#"{"spec": {"type": "ExternalName", "externalName": "a.example.com"}}"#;
        check(Some(outside), None, false, Ok("a.example.com:443"));
        let why = "FailedDiscoveryCheck: unsupported service type \"ExternalName\"";
        check(Some(outside), None, true, Err(why));
        let node = SERVICE.replace("\"ClusterIP\"", "\"NodePort\"");
        check(Some(&node), None, false, Ok("10.0.0.9:443"));
        let why = "FailedDiscoveryCheck: endpoints \"s\" not found";
        check(Some(&node), None, true, Err(why));
        let why = "FailedDiscoveryCheck: no endpoints available for service \"s\"";
        check(Some(&node), Some("{}"), true, Err(why));
        let why = "FailedDiscoveryCheck: no service port 443 found for service \"s\"";
        check(Some(&node.replace("443", "444")), None, false, Err(why));
    }

    #[test]
    fn missing_objects_are_reported() {
        check(None, None, false, Err("ServiceNotFound: service/s in \"n\" is not present"));
        let other = SERVICE.replace("443", "444");
        let why = "ServicePortError: service/s in \"n\" is not listening on port 443";
        check(Some(&other), Some(ENDPOINTS), false, Err(why));
        let why = "EndpointsNotFound: cannot find endpoints for service/s in \"n\"";
        check(Some(SERVICE), None, false, Err(why));
        let why =
            "MissingEndpoints: endpoints for service/s in \"n\" have no addresses with port name \"https\"";
        check(Some(SERVICE), Some("{}"), false, Err(why));
        let waiting = ENDPOINTS.replace("\"addresses\"", "\"notReadyAddresses\"");
        check(Some(SERVICE), Some(&waiting), true, Err(why));
    }
}
