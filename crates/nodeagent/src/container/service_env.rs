//! The environment variables that name the services of a cluster.

use api::core::v1::Service;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The variables for a pod in `namespace`: those of the API server's service in `master_namespace`, and of all services
/// of the namespace with `enableServiceLinks`.
pub fn service_variables<'a>(
    services: impl IntoIterator<Item = &'a Service>,
    namespace: &str,
    master_namespace: &str,
    has_links: bool,
) -> BTreeMap<String, String> {
    let master = names::Names::kubernetes().vendor;
    let mut chosen: BTreeMap<&str, &Service> = BTreeMap::new();
    for service in services.into_iter().filter(|it| has_address(it)) {
        let meta = &service.metadata;
        if meta.namespace == master_namespace && meta.name == master {
            chosen.entry(&meta.name).or_insert(service);
        } else if meta.namespace == namespace && has_links {
            chosen.insert(&meta.name, service);
        }
    }
    let mut variables = BTreeMap::new();
    chosen.into_values().for_each(|service| add_variables(service, &mut variables));
    variables
}

fn has_address(service: &Service) -> bool {
    !["", "None"].contains(&&*service.spec.cluster_ip)
}

fn upper(name: &str) -> String {
    name.replace('-', "_").to_uppercase()
}

fn add_variables(service: &Service, variables: &mut BTreeMap<String, String>) {
    let (name, ip) = (upper(&service.metadata.name), &service.spec.cluster_ip);
    let mut add =
        |suffix: &str, value: &str| drop(variables.insert(format!("{name}_{suffix}"), value.to_owned()));
    add("SERVICE_HOST", ip);
    for (index, port) in service.spec.ports.iter().enumerate() {
        let number = port.port.to_string();
        if index == 0 {
            add("SERVICE_PORT", &number);
        }
        if !port.name.is_empty() {
            add(&format!("SERVICE_PORT_{}", upper(&port.name)), &number);
        }
        let protocol = if port.protocol.is_empty() { "TCP" } else { &*port.protocol };
        let lower = protocol.to_lowercase();
        let host = match ip.parse::<IpAddr>() {
            Ok(IpAddr::V6(_)) => format!("[{ip}]"),
            _ => ip.clone(),
        };
        let url = format!("{lower}://{host}:{number}");
        if index == 0 {
            add("PORT", &url);
        }
        let prefix = format!("PORT_{number}_{}", protocol.to_uppercase());
        add(&prefix, &url);
        add(&format!("{prefix}_PROTO"), &lower);
        add(&format!("{prefix}_PORT"), &number);
        add(&format!("{prefix}_ADDR"), ip);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_of_the_namespace_and_the_api_server_have_variables() {
        let services: Vec<Service> = [
            r#"{"metadata":{"name":"kubernetes","namespace":"default"},
                "spec":{"clusterIP":"10.96.0.1","ports":[{"name":"https","port":443,"protocol":"TCP"}]}}"#,
            r#"{"metadata":{"name":"my-svc","namespace":"n"},"spec":{"clusterIP":"fd00::1",
                "ports":[{"name":"http","port":80},{"name":"dns-udp","port":53,"protocol":"UDP"}]}}"#,
            r#"{"metadata":{"name":"head","namespace":"n"},"spec":{"clusterIP":"None","ports":[{"port":81}]}}"#,
            r#"{"metadata":{"name":"ext","namespace":"n"},"spec":{"type":"ExternalName","ports":[{"port":7}]}}"#,
            r#"{"metadata":{"name":"other","namespace":"m"},"spec":{"clusterIP":"10.96.0.9","ports":[{"port":7}]}}"#,
        ]
        .map(|json| api::from_json(json.as_bytes()).unwrap())
        .to_vec();
        let lines = |has_links| {
            let all = service_variables(&services, "n", "default", has_links);
            all.into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>()
        };
        let master = [
            "KUBERNETES_PORT=tcp://10.96.0.1:443",
            "KUBERNETES_PORT_443_TCP=tcp://10.96.0.1:443",
            "KUBERNETES_PORT_443_TCP_ADDR=10.96.0.1",
            "KUBERNETES_PORT_443_TCP_PORT=443",
            "KUBERNETES_PORT_443_TCP_PROTO=tcp",
            "KUBERNETES_SERVICE_HOST=10.96.0.1",
            "KUBERNETES_SERVICE_PORT=443",
            "KUBERNETES_SERVICE_PORT_HTTPS=443",
        ];
        assert_eq!(lines(false), master);
        let linked = [
            "MY_SVC_PORT=tcp://[fd00::1]:80",
            "MY_SVC_PORT_53_UDP=udp://[fd00::1]:53",
            "MY_SVC_PORT_53_UDP_ADDR=fd00::1",
            "MY_SVC_PORT_53_UDP_PORT=53",
            "MY_SVC_PORT_53_UDP_PROTO=udp",
            "MY_SVC_PORT_80_TCP=tcp://[fd00::1]:80",
            "MY_SVC_PORT_80_TCP_ADDR=fd00::1",
            "MY_SVC_PORT_80_TCP_PORT=80",
            "MY_SVC_PORT_80_TCP_PROTO=tcp",
            "MY_SVC_SERVICE_HOST=fd00::1",
            "MY_SVC_SERVICE_PORT=80",
            "MY_SVC_SERVICE_PORT_DNS_UDP=53",
            "MY_SVC_SERVICE_PORT_HTTP=80",
        ];
        assert_eq!(lines(true), [&master[..], &linked[..]].concat());
    }
}
