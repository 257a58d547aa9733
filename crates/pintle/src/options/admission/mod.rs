//! Admission options.

use super::{ConfigErrors, manifest};
use crate::deployment_mode::DeploymentMode;
use apiserver::admission::{self, Plugin, TolerationSeconds};
use clap::Args;
use names::Names;
use schema::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Plugins that are on by default, besides upstream's.
const ALSO_ON: &[&str] = &["NodeRestriction"];
/// Plugins that are off by default without the controller manager, which creates the service accounts of namespaces: no
/// pod could be created.
const NEEDS_ACCOUNTS: &[&str] = &["ServiceAccount"];

const ENABLE: &str = "--enable-admission-plugins";
const DISABLE: &str = "--disable-admission-plugins";
const EXACTLY: &str = "--admission-control";
const FILE: &str = "--admission-control-config-file";

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Admission")]
pub struct Admission {
    /// Admission plugins to enable besides the default ones, comma-separated; their order has no effect
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub enable_admission_plugins: Vec<String>,

    /// Admission plugins to disable, comma-separated
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub disable_admission_plugins: Vec<String>,

    /// The exact set of admission plugins. Deprecated: --enable-admission-plugins and --disable-admission-plugins say
    /// the same
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub admission_control: Vec<String>,

    /// The AdmissionConfiguration file of the admission plugins; each of its `plugins` has a name and either a
    /// `configuration` or a `path`, relative to the file
    #[arg(long, value_name = "FILE")]
    pub admission_control_config_file: Option<PathBuf>,

    /// The default toleration of pods for nodes that are not ready
    #[arg(long, value_name = "SECONDS", default_value_t = 300, allow_negative_numbers = true)]
    pub default_not_ready_toleration_seconds: i64,

    /// The default toleration of pods for unreachable nodes
    #[arg(long, value_name = "SECONDS", default_value_t = 300, allow_negative_numbers = true)]
    pub default_unreachable_toleration_seconds: i64,
}

impl Admission {
    /// The deployment mode decides the default plugins.
    pub fn read(&self, mode: DeploymentMode, names: &Names, errors: &mut ConfigErrors) -> admission::Options {
        let (enable, disable) = self.switched(mode, errors);
        let file = self.admission_control_config_file.as_deref();
        let configuration = file.and_then(|file| errors.take(FILE, configuration(file, names)));
        admission::Options {
            enable,
            disable,
            configuration: configuration.unwrap_or_default(),
            toleration_seconds: TolerationSeconds {
                not_ready: self.default_not_ready_toleration_seconds,
                unreachable: self.default_unreachable_toleration_seconds,
            },
        }
    }

    /// The enabled and the disabled plugins.
    fn switched(&self, mode: DeploymentMode, errors: &mut ConfigErrors) -> (Vec<String>, Vec<String>) {
        let (mut enable, mut disable) =
            (self.enable_admission_plugins.clone(), self.disable_admission_plugins.clone());
        let exactly = &self.admission_control;
        for (option, names) in [(ENABLE, &enable), (DISABLE, &disable), (EXACTLY, exactly)] {
            for name in names.iter().filter(|name| Plugin::named(name).is_none()) {
                errors.add(option, format!("plugin {name:?} is unknown"));
            }
        }
        if !exactly.is_empty() {
            if !(enable.is_empty() && disable.is_empty()) {
                errors.add(EXACTLY, format!("cannot be given together with {ENABLE} or {DISABLE}"));
            }
            let others = Plugin::all().filter(|name| !exactly.iter().any(|it| it == name));
            return (exactly.clone(), others.map(str::to_owned).collect());
        }
        let both: Vec<_> = enable.iter().filter(|name| disable.contains(name)).cloned().collect();
        if !both.is_empty() {
            errors.add(ENABLE, format!("[{}] are also in {DISABLE}", both.join(" ")));
        }
        let lists = |names: &[String], name: &str| names.iter().any(|it| it == name);
        if mode == DeploymentMode::Standalone {
            return (enable, disable);
        }
        let has_accounts = mode == DeploymentMode::AllInOne { runs_controllers: true };
        let off = NEEDS_ACCOUNTS
            .iter()
            .filter(|name| !has_accounts && !lists(&enable, name) && !lists(&disable, name));
        let off: Vec<_> = off.map(|name| (*name).to_owned()).collect();
        let on = ALSO_ON.iter().filter(|name| !lists(&disable, name) && !lists(&enable, name));
        let on: Vec<_> = on.map(|name| (*name).to_owned()).collect();
        enable.extend(on);
        disable.extend(off);
        (enable, disable)
    }
}

/// The plugin configurations in a file, by plugin name.
fn configuration(file: &Path, names: &Names) -> Result<BTreeMap<String, Value>, String> {
    let of_file = |why: String| format!("{}: {why}", file.display());
    let versions =
        [format!("{}/v1", names.group("apiserver.config")), format!("{}/v1alpha1", names.group("apiserver"))];
    let whole = manifest::read(file, "AdmissionConfiguration", &versions)?;
    let plugins = match whole.at(&["plugins"]) {
        None | Some(Value::Null) => &[][..],
        Some(plugins) => plugins.as_list().ok_or_else(|| of_file("plugins must be a list".to_owned()))?,
    };
    let mut configurations = BTreeMap::new();
    for (at, plugin) in plugins.iter().enumerate() {
        let name = plugin.text(&["name"]);
        let of_plugin = |why: String| of_file(format!("plugins[{at}], {name:?}: {why}"));
        if let Some(field) = unknown_field(plugin) {
            return Err(of_plugin(format!("there is no field {field:?}")));
        }
        if Plugin::named(name).is_none() {
            tracing::warn!(file = %file.display(), name, "the admission configuration names an unknown plugin; it is ignored");
        }
        if configurations.contains_key(name) {
            return Err(of_plugin("is configured twice".to_owned()));
        }
        let value = match (plugin.at(&["configuration"]), plugin.text(&["path"])) {
            (Some(inline), _) if !inline.is_null() => inline.clone(),
            (_, "") => continue,
            (_, path) => {
                let base = file.parent().unwrap_or(Path::new(""));
                manifest::any(&base.join(path)).map_err(of_plugin)?
            }
        };
        configurations.insert(name.to_owned(), value);
    }
    Ok(configurations)
}

fn unknown_field(plugin: &Value) -> Option<&str> {
    let mut fields = plugin.as_map()?.keys();
    fields.find(|field| !["name", "path", "configuration"].contains(field))
}

#[cfg(test)]
mod tests;
