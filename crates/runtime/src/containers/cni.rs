//! The network of sandboxes, by CNI plugins.
//!
//! The first configuration of the folder counts, by name. Its plugins are called one after another, each with the result
//! of the one before; at the end of the sandbox in the opposite order. A plugin is a program, or a part of this one.

use super::cni_call::{call_built_in, call_program};
use crate::{PortMapping, RuntimeCode, RuntimeError};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

pub use super::cni_call::{BuiltInPlugin, PluginCall, PluginOutput};

const INTERFACE: &str = "eth0";

/// The folders of configurations and plugins.
#[derive(Debug, Clone)]
pub struct CniFolders {
    pub configurations: PathBuf,
    pub plugins: Vec<PathBuf>,
    /// The plugin of this program, which is called without a process of its own.
    pub built_in: Option<BuiltInPlugin>,
}

/// The configuration and the result by which the network of a sandbox is released.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NetworkRecord {
    /// The configuration that was used.
    pub configuration: Value,
    /// Of the last plugin that was called; null before.
    pub result: Value,
}

/// The sandbox, in the words of plugins.
#[derive(Debug, Clone, Default)]
pub struct SandboxNetwork {
    pub id: String,
    /// None once the processes of the sandbox are gone.
    pub namespace: Option<PathBuf>,
    pub pod_namespace: String,
    pub pod_name: String,
    pub pod_uid: String,
    pub port_mappings: Vec<PortMapping>,
}

fn failed(message: String) -> RuntimeError {
    RuntimeError::new(RuntimeCode::Unknown, message)
}

impl CniFolders {
    /// The list of plugins, if there is one.
    pub fn configuration(&self) -> Option<Value> {
        let entries = std::fs::read_dir(&self.configurations).ok()?;
        let is_configuration =
            |it: &PathBuf| it.extension().is_some_and(|it| it == "conflist" || it == "conf" || it == "json");
        let mut files: Vec<_> = entries.flatten().map(|it| it.path()).filter(is_configuration).collect();
        files.sort();
        files.iter().find_map(|file| read_configuration(file))
    }

    /// The record by which a connection is undone, also one that was never completed.
    pub fn prepare(&self) -> Result<NetworkRecord, RuntimeError> {
        let configuration = self
            .configuration()
            .ok_or_else(|| failed("cni plugin not initialized: there is no configuration".to_owned()))?;
        Ok(NetworkRecord { configuration, result: Value::Null })
    }

    /// Connects a sandbox. Returns its addresses.
    pub async fn add(
        &self,
        sandbox: &SandboxNetwork,
        record: &mut NetworkRecord,
    ) -> Result<Vec<String>, RuntimeError> {
        let configuration = record.configuration.clone();
        for plugin in plugins(&configuration) {
            record.result = self.call("ADD", sandbox, &configuration, plugin, &record.result).await?;
        }
        Ok(addresses(&record.result))
    }

    /// Disconnects a sandbox; plugins take a second call.
    pub async fn remove(&self, sandbox: &SandboxNetwork, record: &NetworkRecord) -> Result<(), RuntimeError> {
        let list: Vec<_> = plugins(&record.configuration).collect();
        for plugin in list.into_iter().rev() {
            self.call("DEL", sandbox, &record.configuration, plugin, &record.result).await?;
        }
        Ok(())
    }

    async fn call(
        &self,
        command: &str,
        sandbox: &SandboxNetwork,
        list: &Value,
        plugin: &Value,
        previous: &Value,
    ) -> Result<Value, RuntimeError> {
        let kind = plugin["type"].as_str().filter(|it| !it.is_empty() && !it.contains('/'));
        let kind = kind.ok_or_else(|| failed("a CNI configuration names no plugin".to_owned()))?;
        let arguments = format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE={};K8S_POD_NAME={};K8S_POD_INFRA_CONTAINER_ID={};K8S_POD_UID={}",
            sandbox.pod_namespace, sandbox.pod_name, sandbox.id, sandbox.pod_uid
        );
        // a namespace that is gone has nothing to be taken from
        let namespace = sandbox.namespace.clone().unwrap_or_default();
        let variables: [(&str, OsString); 6] = [
            ("CNI_COMMAND", command.into()),
            ("CNI_CONTAINERID", (&sandbox.id).into()),
            ("CNI_NETNS", namespace.into()),
            ("CNI_IFNAME", INTERFACE.into()),
            ("CNI_ARGS", arguments.into()),
            ("CNI_PATH", std::env::join_paths(&self.plugins).unwrap_or_default()),
        ];
        let input = plugin_input(list, plugin, previous, sandbox).to_string().into_bytes();
        let call = PluginCall { variables: variables.into(), input };
        let output = match self.built_in.filter(|it| it.kind == kind) {
            Some(plugin) => call_built_in(plugin, call).await,
            None => {
                let program = self.plugins.iter().map(|it| it.join(kind)).find(|it| it.exists());
                let program = program
                    .ok_or_else(|| failed(format!("failed to find plugin {kind:?} in {:?}", self.plugins)))?;
                call_program(&program, call).await
            }
        };
        let output = output.map_err(|why| failed(format!("call the CNI plugin {kind}: {why}")))?;
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        match output.is_success {
            true => Ok(answer),
            false => {
                let message = answer["msg"].as_str().map(|it| match answer["details"].as_str() {
                    Some(details) if !details.is_empty() => format!("{it}: {details}"),
                    _ => it.to_owned(),
                });
                let errors = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                Err(failed(format!(
                    "plugin type={kind:?} failed ({}): {}",
                    command.to_lowercase(),
                    message.unwrap_or(errors)
                )))
            }
        }
    }
}

/// A list of plugins; a file with one plugin becomes a list.
fn read_configuration(file: &Path) -> Option<Value> {
    let value: Value = serde_json::from_slice(&std::fs::read(file).ok()?).ok()?;
    match (value["plugins"].is_array(), value["type"].is_string()) {
        (true, _) => Some(value),
        (false, true) => {
            Some(json!({"cniVersion": value["cniVersion"], "name": value["name"], "plugins": [value]}))
        }
        _ => None,
    }
}

fn plugins(configuration: &Value) -> impl Iterator<Item = &Value> {
    configuration["plugins"].as_array().into_iter().flatten()
}

fn plugin_input(list: &Value, plugin: &Value, previous: &Value, sandbox: &SandboxNetwork) -> Value {
    let mut input = plugin.clone();
    input["cniVersion"] = list["cniVersion"].clone();
    input["name"] = list["name"].clone();
    if !previous.is_null() {
        input["prevResult"] = previous.clone();
    }
    if plugin["capabilities"]["portMappings"] == true {
        let mapping = |it: &PortMapping| {
            json!({"hostPort": it.host_port, "containerPort": it.container_port,
                "protocol": it.protocol.to_lowercase(), "hostIP": it.host_ip})
        };
        let mapped: Vec<_> =
            sandbox.port_mappings.iter().filter(|it| it.host_port > 0).map(mapping).collect();
        input["runtimeConfig"] = json!({"portMappings": mapped});
    }
    input
}

/// The addresses of a result, without the lengths of their prefixes.
fn addresses(result: &Value) -> Vec<String> {
    let list = result["ips"].as_array().into_iter().flatten();
    let address = |it: &Value| it["address"].as_str()?.split('/').next().map(str::to_owned);
    list.filter_map(address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn folders() -> (tempfile::TempDir, CniFolders) {
        let folder = tempfile::tempdir().unwrap();
        let plugins = folder.path().join("bin");
        std::fs::create_dir(&plugins).unwrap();
        let script = format!(
            "#!/bin/sh\necho \"$CNI_COMMAND $(cat)\" >> {}/calls\n\
             if [ -e {0}/fail ] && [ $CNI_COMMAND = ADD ]; then echo '{{\"msg\": \"no addresses\", \"details\": \"left\"}}'; exit 1; fi\n\
             echo '{{\"ips\": [{{\"address\": \"10.1.2.3/24\"}}, {{\"address\": \"fd00::3/64\"}}]}}'\n",
            folder.path().display()
        );
        for name in ["one", "two"] {
            std::fs::write(plugins.join(name), &script).unwrap();
            std::fs::set_permissions(plugins.join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        let configurations = folder.path().join("net.d");
        std::fs::create_dir(&configurations).unwrap();
        (folder, CniFolders { configurations, plugins: vec![plugins], built_in: None })
    }

    #[tokio::test]
    async fn plugins_are_called_in_order_and_back() {
        let (folder, cni) = folders();
        let sandbox = SandboxNetwork {
            id: "s".to_owned(),
            port_mappings: vec![PortMapping {
                host_port: 80,
                container_port: 8080,
                protocol: "TCP".into(),
                host_ip: String::new(),
            }],
            ..SandboxNetwork::default()
        };
        assert!(cni.prepare().unwrap_err().message.contains("no configuration"));
        let list = r#"{"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "one"},
            {"type": "two", "capabilities": {"portMappings": true}}]}"#;
        std::fs::write(cni.configurations.join("10-a.conflist"), list).unwrap();
        std::fs::write(cni.configurations.join("05-broken.conflist"), "{").unwrap();
        let mut record = cni.prepare().unwrap();
        let addresses = cni.add(&sandbox, &mut record).await.unwrap();
        assert_eq!(addresses, ["10.1.2.3", "fd00::3"]);
        cni.remove(&sandbox, &record).await.unwrap();
        let calls = std::fs::read_to_string(folder.path().join("calls")).unwrap();
        let calls: Vec<_> = calls.lines().map(|it| it.split_once(' ').unwrap()).collect();
        let seen: Vec<_> = calls
            .iter()
            .map(|(command, input)| (*command, serde_json::from_str::<Value>(input).unwrap()["type"].clone()))
            .collect();
        assert_eq!(
            seen,
            [("ADD", json!("one")), ("ADD", json!("two")), ("DEL", json!("two")), ("DEL", json!("one"))]
        );
        let second: Value = serde_json::from_str(calls[1].1).unwrap();
        assert_eq!(second["runtimeConfig"]["portMappings"][0]["hostPort"], 80);
        assert_eq!(second["prevResult"]["ips"][0]["address"], "10.1.2.3/24");
        std::fs::write(folder.path().join("fail"), "").unwrap();
        let refused = cni.add(&sandbox, &mut cni.prepare().unwrap()).await.unwrap_err();
        assert!(refused.message.contains("no addresses: left"), "{refused}");
    }

    #[tokio::test]
    async fn the_plugin_of_this_program_is_called_without_a_process() {
        let (folder, cni) = folders();
        let built_in = BuiltInPlugin {
            kind: "one",
            call: |call| {
                let is_add = call.variable("CNI_COMMAND").as_deref() == Some("ADD");
                let stdout = match is_add {
                    true => r#"{"ips": [{"address": "10.9.9.9/32"}]}"#,
                    false => r#"{"msg": "not now", "details": ""}"#,
                };
                Ok(PluginOutput { is_success: is_add, stdout: stdout.into(), stderr: Vec::new() })
            },
        };
        let cni = CniFolders { built_in: Some(built_in), ..cni };
        let list = r#"{"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "one"}]}"#;
        std::fs::write(cni.configurations.join("10-a.conflist"), list).unwrap();
        let sandbox = SandboxNetwork { id: "s".to_owned(), ..SandboxNetwork::default() };
        let mut record = cni.prepare().unwrap();
        assert_eq!(cni.add(&sandbox, &mut record).await.unwrap(), ["10.9.9.9"]);
        let refused = cni.remove(&sandbox, &record).await.unwrap_err();
        assert!(refused.message.contains("plugin type=\"one\" failed (del): not now"), "{refused}");
        assert!(!folder.path().join("calls").exists());
    }
}
