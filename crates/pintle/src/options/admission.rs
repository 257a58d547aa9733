//! What writes must pass.

use super::{ConfigErrors, manifest};
use crate::server_config::DeploymentMode;
use apiserver::admission::{self, Plugin, Tolerated};
use clap::Args;
use names::Names;
use schema::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// On besides those that are on anywhere: an agent of a node keeps to its node.
const ALSO_ON: &[&str] = &["NodeRestriction"];
/// Off although it is on anywhere, where no component makes the accounts of namespaces: nobody could make a pod
/// with this on.
const NEEDS_ACCOUNTS: &[&str] = &["ServiceAccount"];

const ENABLE: &str = "--enable-admission-plugins";
const DISABLE: &str = "--disable-admission-plugins";
const EXACTLY: &str = "--admission-control";
const FILE: &str = "--admission-control-config-file";

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "What writes must pass")]
pub struct Admission {
    /// Admission plugins to switch on besides those that are on anyway, with commas between; the order in which
    /// they are asked is always the same
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub enable_admission_plugins: Vec<String>,

    /// Admission plugins to switch off, with commas between
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub disable_admission_plugins: Vec<String>,

    /// The admission plugins to have, these and no others. Deprecated: --enable-admission-plugins and
    /// --disable-admission-plugins say the same
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub admission_control: Vec<String>,

    /// A file that tells admission plugins more: an AdmissionConfiguration, whose `plugins` have a name and
    /// either a `configuration` or a `path` to one, from the folder of the file
    #[arg(long, value_name = "FILE")]
    pub admission_control_config_file: Option<PathBuf>,

    /// How long pods stay on a node that is not ready, unless they say for how long
    #[arg(long, value_name = "SECONDS", default_value_t = 300, allow_negative_numbers = true)]
    pub default_not_ready_toleration_seconds: i64,

    /// How long pods stay on a node that cannot be reached, unless they say for how long
    #[arg(long, value_name = "SECONDS", default_value_t = 300, allow_negative_numbers = true)]
    pub default_unreachable_toleration_seconds: i64,
}

impl Admission {
    /// The company decides what is on unless told otherwise.
    pub fn read(
        &self,
        company: DeploymentMode,
        names: &Names,
        wrong: &mut ConfigErrors,
    ) -> admission::Options {
        let (enable, disable) = self.switched(company, wrong);
        let file = self.admission_control_config_file.as_deref();
        let configuration = file.and_then(|file| wrong.take(FILE, configuration(file, names)));
        admission::Options {
            enable,
            disable,
            configuration: configuration.unwrap_or_default(),
            tolerated: Tolerated {
                not_ready: self.default_not_ready_toleration_seconds,
                unreachable: self.default_unreachable_toleration_seconds,
            },
        }
    }

    /// What is switched on and off.
    fn switched(&self, company: DeploymentMode, wrong: &mut ConfigErrors) -> (Vec<String>, Vec<String>) {
        let (mut enable, mut disable) =
            (self.enable_admission_plugins.clone(), self.disable_admission_plugins.clone());
        let exactly = &self.admission_control;
        for (option, names) in [(ENABLE, &enable), (DISABLE, &disable), (EXACTLY, exactly)] {
            for name in names.iter().filter(|name| Plugin::named(name).is_none()) {
                wrong.add(option, format!("plugin {name:?} is unknown"));
            }
        }
        if !exactly.is_empty() {
            if !(enable.is_empty() && disable.is_empty()) {
                wrong.add(EXACTLY, format!("cannot be given together with {ENABLE} or {DISABLE}"));
            }
            let others = Plugin::all().filter(|name| !exactly.iter().any(|it| it == name));
            return (exactly.clone(), others.map(str::to_owned).collect());
        }
        let both: Vec<_> = enable.iter().filter(|name| disable.contains(name)).cloned().collect();
        if !both.is_empty() {
            wrong.add(ENABLE, format!("[{}] stand in {DISABLE} as well", both.join(" ")));
        }
        let asked = |names: &[String], name: &str| names.iter().any(|it| it == name);
        if company == DeploymentMode::Alone {
            return (enable, disable);
        }
        let has_accounts = company == DeploymentMode::SingleFlight { accounts: true };
        let off = NEEDS_ACCOUNTS
            .iter()
            .filter(|name| !has_accounts && !asked(&enable, name) && !asked(&disable, name));
        let off: Vec<_> = off.map(|name| (*name).to_owned()).collect();
        let on = ALSO_ON.iter().filter(|name| !asked(&disable, name) && !asked(&enable, name));
        let on: Vec<_> = on.map(|name| (*name).to_owned()).collect();
        enable.extend(on);
        disable.extend(off);
        (enable, disable)
    }
}

/// What a file tells plugins, by name.
fn configuration(file: &Path, names: &Names) -> Result<BTreeMap<String, Value>, String> {
    let of_file = |why: String| format!("{}: {why}", file.display());
    let versions =
        [format!("{}/v1", names.group("apiserver.config")), format!("{}/v1alpha1", names.group("apiserver"))];
    let whole = manifest::read(file, "AdmissionConfiguration", &versions)?;
    let plugins = match whole.at(&["plugins"]) {
        None | Some(Value::Null) => &[][..],
        Some(plugins) => plugins.as_list().ok_or_else(|| of_file("plugins must be a list".to_owned()))?,
    };
    let mut told = BTreeMap::new();
    for (at, plugin) in plugins.iter().enumerate() {
        let name = plugin.text(&["name"]);
        let of_plugin = |why: String| of_file(format!("plugins[{at}], {name:?}: {why}"));
        if let Some(field) = unknown_field(plugin) {
            return Err(of_plugin(format!("there is no field {field:?}")));
        }
        if Plugin::named(name).is_none() {
            tracing::warn!(file = %file.display(), name, "there is no admission plugin of this name to configure");
        }
        if told.contains_key(name) {
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
        told.insert(name.to_owned(), value);
    }
    Ok(told)
}

fn unknown_field(plugin: &Value) -> Option<&str> {
    let mut fields = plugin.as_map()?.keys();
    fields.find(|field| !["name", "path", "configuration"].contains(field))
}

#[cfg(test)]
mod tests;
