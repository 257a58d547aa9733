//! The parameters of a call: environment variables of the CNI specification.

use super::super::namespace::Namespace;
use super::error::{CniError, code};
use std::path::{Path, PathBuf};

/// The longest name of an interface.
const INTERFACE_LENGTH: usize = 15;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    Add,
    Delete,
    Check,
    Version,
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameters {
    pub container: String,
    pub interface: String,
    /// The path of the container's network namespace. DEL may come without.
    pub namespace: Option<PathBuf>,
    /// `namespace/name` of the pod, if the runtime names it.
    pub pod: String,
}

pub fn command(variable: impl Fn(&str) -> Option<String>) -> Result<Command, CniError> {
    match variable("CNI_COMMAND").as_deref() {
        Some("ADD") => Ok(Command::Add),
        Some("DEL") => Ok(Command::Delete),
        Some("CHECK") => Ok(Command::Check),
        Some("VERSION") => Ok(Command::Version),
        None | Some("") => Err(missing(&["CNI_COMMAND"])),
        Some(other) => Err(CniError::new(code::INVALID_ENVIRONMENT, format!("unknown CNI_COMMAND: {other}"))),
    }
}

impl Parameters {
    pub fn read(command: Command, variable: impl Fn(&str) -> Option<String>) -> Result<Self, CniError> {
        let given = |name: &str| variable(name).filter(|value| !value.is_empty());
        let mut required = vec!["CNI_CONTAINERID", "CNI_IFNAME"];
        if command != Command::Delete {
            required.push("CNI_NETNS");
        }
        let absent: Vec<_> = required.into_iter().filter(|name| given(name).is_none()).collect();
        if !absent.is_empty() {
            return Err(missing(&absent));
        }
        let container = given("CNI_CONTAINERID").unwrap_or_default();
        let interface = given("CNI_IFNAME").unwrap_or_default();
        let invalid = |message: String| Err(CniError::new(code::INVALID_ENVIRONMENT, message));
        if !is_container_id(&container) {
            return invalid(format!("invalid characters in CNI_CONTAINERID: {container:?}"));
        }
        if !is_interface_name(&interface) {
            return invalid(format!("CNI_IFNAME is no name of an interface: {interface:?}"));
        }
        let pod = pod_of(&given("CNI_ARGS").unwrap_or_default())?;
        Ok(Parameters { container, interface, namespace: given("CNI_NETNS").map(PathBuf::from), pod })
    }
}

impl Parameters {
    /// Opens the namespace of the container, which is not that of the node.
    pub fn open_namespace(&self) -> Result<Namespace, CniError> {
        let path = self.namespace.as_deref().unwrap_or(Path::new(""));
        let invalid = |message: String| CniError::new(code::INVALID_ENVIRONMENT, message);
        let failed = |why: std::io::Error| {
            invalid(format!("cannot open CNI_NETNS {}", path.display())).with_details(why.to_string())
        };
        let namespace = Namespace::open(path).map_err(failed)?;
        match Namespace::current().and_then(|own| own.is_same(&namespace)).map_err(failed)? {
            true => Err(invalid("CNI_NETNS is the network namespace of the node".to_owned())),
            false => Ok(namespace),
        }
    }
}

fn missing(names: &[&str]) -> CniError {
    let message = format!("required environment variables are missing: {}", names.join(", "));
    CniError::new(code::INVALID_ENVIRONMENT, message)
}

/// Letters, digits, and after the first character also `_`, `.` and `-`.
fn is_container_id(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c))
}

fn is_interface_name(text: &str) -> bool {
    text.len() <= INTERFACE_LENGTH
        && ![".", ".."].contains(&text)
        && text.chars().all(|c| !c.is_whitespace() && !c.is_control() && !"/:".contains(c))
}

/// The pod that the arguments name. Unknown arguments are an error unless `IgnoreUnknown` is set.
fn pod_of(arguments: &str) -> Result<String, CniError> {
    let invalid = |message: String| Err(CniError::new(code::INVALID_ENVIRONMENT, message));
    let (mut namespace, mut name) = ("", "");
    let (mut is_lenient, mut unknown) = (false, Vec::new());
    for pair in arguments.split(';').filter(|pair| !pair.is_empty()) {
        let Some((key, value)) = pair.split_once('=') else {
            return invalid(format!("CNI_ARGS: invalid pair {pair:?}"));
        };
        match key {
            "IgnoreUnknown" => is_lenient = matches!(value, "1" | "true" | "True" | "TRUE"),
            "K8S_POD_NAMESPACE" => namespace = value,
            "K8S_POD_NAME" => name = value,
            "K8S_POD_INFRA_CONTAINER_ID" | "K8S_POD_UID" => (),
            other => unknown.push(other),
        }
    }
    if !is_lenient && !unknown.is_empty() {
        return invalid(format!("CNI_ARGS: unknown arguments {unknown:?}"));
    }
    Ok(if name.is_empty() { String::new() } else { format!("{namespace}/{name}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(command: Command, variables: &[(&str, &str)]) -> Result<Parameters, String> {
        let find = |name: &str| variables.iter().find(|(it, _)| *it == name).map(|(_, it)| (*it).to_owned());
        Parameters::read(command, find).map_err(|why| {
            assert_eq!(why.code, code::INVALID_ENVIRONMENT);
            why.message
        })
    }

    #[test]
    fn variables_are_read_and_checked() {
        let base = [("CNI_CONTAINERID", "a.b-c_1"), ("CNI_IFNAME", "eth0")];
        let with = |more: &[(&'static str, &'static str)]| [&base, more].concat();
        let arguments = "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;OTHER=x";
        let parameters =
            read(Command::Add, &with(&[("CNI_NETNS", "/run/netns/a"), ("CNI_ARGS", arguments)])).unwrap();
        assert_eq!(parameters.pod, "shop/web-0");
        assert_eq!(parameters.namespace, Some("/run/netns/a".into()));
        assert_eq!(read(Command::Delete, &base).unwrap().namespace, None);
        let error = |command, variables: &[(&str, &str)]| read(command, variables).unwrap_err();
        assert_eq!(error(Command::Add, &base), "required environment variables are missing: CNI_NETNS");
        assert_eq!(
            error(Command::Check, &[]),
            "required environment variables are missing: CNI_CONTAINERID, CNI_IFNAME, CNI_NETNS"
        );
        for (container, interface, part) in [
            ("../x", "eth0", "CNI_CONTAINERID"),
            ("-x", "eth0", "CNI_CONTAINERID"),
            ("x", "a/b", "CNI_IFNAME"),
            ("x", "..", "CNI_IFNAME"),
            ("x", "sixteen-letters-", "CNI_IFNAME"),
            ("x", "a b", "CNI_IFNAME"),
        ] {
            let message =
                error(Command::Delete, &[("CNI_CONTAINERID", container), ("CNI_IFNAME", interface)]);
            assert!(message.contains(part), "{message}");
        }
        let message = error(Command::Delete, &with(&[("CNI_ARGS", "IP=10.0.0.1")]));
        assert!(message.contains("unknown arguments [\"IP\"]"), "{message}");
        let message = error(Command::Delete, &with(&[("CNI_ARGS", "IgnoreUnknown")]));
        assert!(message.contains("invalid pair"), "{message}");
    }

    #[test]
    fn commands_are_known() {
        let of = |value: Option<&str>| {
            let value = value.map(str::to_owned);
            command(move |_| value.clone())
        };
        assert_eq!(of(Some("DEL")), Ok(Command::Delete));
        assert_eq!(of(Some("VERSION")), Ok(Command::Version));
        assert_eq!(of(Some("add")).unwrap_err().code, code::INVALID_ENVIRONMENT);
        assert!(of(None).unwrap_err().message.contains("CNI_COMMAND"));
    }
}
