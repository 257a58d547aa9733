//! The CNI plugin: one short process for each call of the container runtime.
//!
//! Versions 0.3.0 to 1.0.0 of the specification: parameters in environment variables, the configuration on standard
//! input, the result or the error on standard output. Two programs: [`PLUGIN`] attaches pods, and [`LOOPBACK`] sets
//! the loopback link of a pod up, which some runtimes expect from a plugin of that name.
//!
//! A call can be killed at any step and repeated: see [`super::attachments`].

mod config;
mod error;
#[cfg(test)]
mod interruption_tests;
mod link;
mod loopback;
mod parameters;
mod result;

use super::attachments::{Attachment, AttachmentsFile};
use super::host_ports;
use super::namespace::Namespace;
use super::netlink::Netlink;
use config::NetworkConfig;
use error::{CniError, code};
use link::PodLink;
use parameters::{Command, Parameters};
use result::CniResult;
use serde_json::{Value, json};
use std::net::IpAddr;

/// The program that attaches pods.
pub const PLUGIN: &str = "pintle-cni";
/// The program that sets the loopback link up.
pub const LOOPBACK: &str = "loopback";

/// The answer to a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// For standard output.
    pub text: String,
    /// Whether the exit status is zero.
    pub is_success: bool,
}

/// Whether a program of this name is a plugin.
pub fn is_plugin(program: &str) -> bool {
    [PLUGIN, LOOPBACK].contains(&program)
}

/// Answers a call. `variable` reads the environment.
pub async fn run(program: &str, variable: impl Fn(&str) -> Option<String>, input: &[u8]) -> Answer {
    // an error names the version of the call, if it has a known one
    let version = config::version_of(input).ok().filter(|it| config::check_version(it).is_ok());
    let version = version.as_deref().or(config::VERSIONS.last().copied()).unwrap_or_default();
    match call(program, variable, input).await {
        Ok(Value::Null) => Answer { text: String::new(), is_success: true },
        Ok(result) => Answer { text: result.to_string(), is_success: true },
        Err(why) => Answer { text: why.encode(version).to_string(), is_success: false },
    }
}

async fn call(
    program: &str,
    variable: impl Fn(&str) -> Option<String>,
    input: &[u8],
) -> Result<Value, CniError> {
    let command = parameters::command(&variable)?;
    let version = config::version_of(input)?;
    if command == Command::Version {
        return Ok(json!({"cniVersion": version, "supportedVersions": config::VERSIONS}));
    }
    config::check_version(&version)?;
    if command == Command::Check && version.starts_with("0.3.") {
        let message = format!("version {version} of the specification has no CHECK");
        return Err(CniError::new(code::INCOMPATIBLE_VERSION, message));
    }
    let parameters = Parameters::read(command, &variable)?;
    if program == LOOPBACK {
        return loopback::run(command, &parameters, input, &version).await;
    }
    let config = NetworkConfig::read(input)?;
    match command {
        Command::Add => Ok(add(&parameters, &config).await?.encode(&version)),
        Command::Delete => delete(&parameters, &config).await.map(|()| Value::Null),
        Command::Check => check(&parameters, &config).await.map(|()| Value::Null),
        Command::Version => Ok(Value::Null),
    }
}

fn lock(config: &NetworkConfig) -> Result<AttachmentsFile, CniError> {
    AttachmentsFile::lock(&config.state_directory)
        .map_err(|why| CniError::io(format!("cannot lock {}", config.state_directory.display()), &why))
}

fn save(file: &AttachmentsFile) -> Result<(), CniError> {
    file.save().map_err(|why| CniError::io("cannot record the addresses of the container", &why))
}

/// Writes the host ports of all containers.
fn write_host_ports(file: &AttachmentsFile) -> Result<(), CniError> {
    let written = host_ports::write(&file.content.attachments);
    written.map_err(|why| CniError::new(code::NETWORK_FAILURE, format!("cannot write host ports: {why}")))
}

async fn add(parameters: &Parameters, config: &NetworkConfig) -> Result<CniResult, CniError> {
    let namespace = parameters.open_namespace()?;
    let (node, pod) = (Netlink::open()?, namespace.netlink()?);
    let attachment = reserve(parameters, config, &namespace, &node).await?;
    let link = PodLink::new(parameters, &attachment.addresses, config.mtu);
    let attached = async {
        link.attach(&node, &pod, &namespace).await?;
        if !attachment.host_ports.is_empty() {
            write_host_ports(&lock(config)?)?;
            link.allow_loopback_clients()?;
        }
        Ok(())
    };
    if let Err(why) = attached.await {
        // what cannot be undone now is undone by the runtime's DEL
        let _ = detach(parameters, config, &node).await;
        return Err(why);
    }
    let mut result = config.previous.clone().unwrap_or_default();
    link.describe(parameters, &mut result);
    Ok(result)
}

/// Records addresses for the container. A repeated call gets those of the first one.
async fn reserve(
    parameters: &Parameters,
    config: &NetworkConfig,
    namespace: &Namespace,
    node: &Netlink,
) -> Result<Attachment, CniError> {
    let Parameters { container, interface, pod, .. } = parameters;
    let path = parameters.namespace.clone().unwrap_or_default();
    let id = namespace.id(&path).map_err(|why| CniError::io("cannot identify CNI_NETNS", &why))?;
    let mut file = lock(config)?;
    let has_range = |address: &IpAddr| config.ranges.iter().any(|range| range.offset(address).is_some());
    let recorded = file.content.find(container, interface).map(|it| it.addresses.clone());
    let recorded = recorded.filter(|it| it.len() == config.ranges.len() && it.iter().all(has_range));
    let addresses = match recorded {
        Some(addresses) => addresses,
        None => {
            file.content.remove(container, interface);
            let in_use = link::addresses_in_use(node).await?;
            match file.content.allocate(&config.ranges, &in_use) {
                Ok(addresses) => addresses,
                Err(_) => {
                    file.content.collect_garbage();
                    file.content.allocate(&config.ranges, &in_use)?
                }
            }
        }
    };
    let attachment = Attachment {
        container: container.clone(),
        interface: interface.clone(),
        pod: pod.clone(),
        namespace: id,
        addresses,
        host_ports: config.host_ports.clone(),
    };
    file.content.insert(attachment.clone());
    save(&file)?;
    Ok(attachment)
}

async fn delete(parameters: &Parameters, config: &NetworkConfig) -> Result<(), CniError> {
    detach(parameters, config, &Netlink::open()?).await
}

/// Removes the link, then host ports and addresses. What is not there needs no removal.
async fn detach(parameters: &Parameters, config: &NetworkConfig, node: &Netlink) -> Result<(), CniError> {
    let Parameters { container, interface, .. } = parameters;
    // the rules of host ports keep the pod from the node's loopback as long as it has a link
    link::detach(node, container, interface).await?;
    let mut file = lock(config)?;
    let Some(attachment) = file.content.remove(container, interface) else { return Ok(()) };
    if !attachment.host_ports.is_empty() {
        write_host_ports(&file)?;
    }
    save(&file)
}

/// Compares the container with the result of its ADD.
async fn check(parameters: &Parameters, config: &NetworkConfig) -> Result<(), CniError> {
    let Some(previous) = &config.previous else {
        return Err(CniError::new(code::INVALID_CONFIGURATION, "CHECK takes a prevResult"));
    };
    let differs = |message: String| CniError::new(code::NOT_ATTACHED, message);
    let namespace = parameters.open_namespace()?;
    let (node, pod) = (Netlink::open()?, namespace.netlink()?);
    let file = lock(config)?;
    let Some(attachment) = file.content.find(&parameters.container, &parameters.interface) else {
        return Err(differs(format!("container {} has no addresses", parameters.container)));
    };
    let promised = previous.addresses_of(&parameters.interface);
    if promised != attachment.addresses {
        let message =
            format!("the result has the addresses {promised:?}, recorded are {:?}", attachment.addresses);
        return Err(differs(message));
    }
    let link = PodLink::new(parameters, &attachment.addresses, config.mtu);
    link.check(&node, &pod).await?;
    match host_ports::missing(&attachment.addresses, &config.host_ports) {
        Ok(missing) if missing.is_empty() => Ok(()),
        Ok(missing) => Err(differs(format!("host ports lead nowhere: {}", missing.join(", ")))),
        Err(why) => Err(CniError::new(code::NETWORK_FAILURE, format!("cannot read host ports: {why}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn answer(program: &str, variables: &[(&str, &str)], input: &str) -> (Value, bool) {
        let find = |name: &str| variables.iter().find(|(it, _)| *it == name).map(|(_, it)| (*it).to_owned());
        let answer = run(program, find, input.as_bytes()).await;
        (serde_json::from_str(&answer.text).unwrap(), answer.is_success)
    }

    #[tokio::test]
    async fn versions_are_named() {
        let call = [("CNI_COMMAND", "VERSION")];
        let expected =
            json!({"cniVersion": "0.4.0", "supportedVersions": ["0.3.0", "0.3.1", "0.4.0", "1.0.0"]});
        for program in [PLUGIN, LOOPBACK] {
            assert_eq!(answer(program, &call, r#"{"cniVersion": "0.4.0"}"#).await, (expected.clone(), true));
        }
    }

    #[tokio::test]
    async fn errors_have_the_form_of_the_specification() {
        let ids = [
            ("CNI_COMMAND", "ADD"),
            ("CNI_CONTAINERID", "a"),
            ("CNI_IFNAME", "eth0"),
            ("CNI_NETNS", "/none"),
        ];
        let (error, is_success) = answer(PLUGIN, &ids, r#"{"cniVersion": "0.2.0"}"#).await;
        assert!(!is_success);
        assert_eq!((&error["cniVersion"], &error["code"]), (&json!("1.0.0"), &json!(1)));
        assert!(error["details"].as_str().unwrap().contains("0.2.0"));
        let config = r#"{"cniVersion": "0.4.0", "stateDir": "/run/none", "ranges": ["10.1.0.0/24"]}"#;
        let (error, _) = answer(PLUGIN, &ids, config).await;
        assert_eq!((&error["cniVersion"], &error["code"]), (&json!("0.4.0"), &json!(4)));
        let own = [&ids[..3], &[("CNI_NETNS", "/proc/self/ns/net")]].concat();
        let (error, _) = answer(PLUGIN, &own, config).await;
        assert_eq!(error["msg"], "CNI_NETNS is the network namespace of the node");
        let (error, _) = answer(PLUGIN, &[], "").await;
        assert_eq!(
            (&error["code"], error["msg"].as_str().unwrap().contains("CNI_COMMAND")),
            (&json!(4), true)
        );
        let check = [&[("CNI_COMMAND", "CHECK")], &ids[1..]].concat();
        let (error, _) = answer(PLUGIN, &check, config).await;
        assert_eq!((&error["code"], &error["msg"]), (&json!(7), &json!("CHECK takes a prevResult")));
        let (error, _) = answer(PLUGIN, &check, &config.replace("0.4.0", "0.3.1")).await;
        assert_eq!(error["code"], 1);
        let (error, _) = answer(PLUGIN, &ids, "{").await;
        assert_eq!(error["code"], 6);
    }
}
