//! The settings of a scheduler from its configuration.

use crate::host::host_name;
use crate::options::{ConfigErrors, SchedulerGates};
use names::Names;
use scheduler::config::{self, ConfigError, Configuration};
use scheduler::driver;

/// Reads and validates a configuration. Every mistake becomes an error of `option`.
pub fn read(
    option: &str,
    options: &config::Options,
    names: &Names,
    gates: SchedulerGates,
    errors: &mut ConfigErrors,
) -> Option<(Configuration, driver::Options)> {
    let read = options.configuration(names, gates.config).and_then(|configuration| {
        let machine = host_name().unwrap_or_else(|| "localhost".to_owned());
        let mut driver = driver::Options::from_configuration(&configuration, gates.config, machine)?;
        driver.features = gates.features;
        let max_disks = max_disks(std::env::var("KUBE_MAX_PD_VOLS").ok().as_deref());
        driver.profiles.iter_mut().for_each(|profile| profile.args.volume_limits.max_disks = max_disks);
        driver.queue.max_in_unschedulable = options.max_in_unschedulable();
        Ok((configuration, driver))
    });
    match read {
        Ok(read) => Some(read),
        Err(ConfigError::Invalid(mistakes)) => {
            let mut known = std::collections::HashSet::new();
            for mistake in mistakes.iter().filter(|mistake| known.insert(*mistake)) {
                errors.add(option, mistake);
            }
            None
        }
        Err(why) => {
            errors.add(option, why);
            None
        }
    }
}

/// The limit of disks per node that the environment sets, if it is a positive number.
fn max_disks(text: Option<&str>) -> Option<i64> {
    let text = text.filter(|text| !text.is_empty())?;
    let limit = text.parse().ok().filter(|limit| *limit > 0);
    if limit.is_none() {
        tracing::error!("KUBE_MAX_PD_VOLS is not a positive number: {text:?}; the defaults apply");
    }
    limit
}

/// Warns of a version that upstream will remove.
pub fn warn_of_version(configuration: &Configuration) {
    if let Some(notice) = configuration.version.deprecation() {
        tracing::warn!("{notice}");
    }
}

#[cfg(test)]
mod tests {
    use super::max_disks;

    #[test]
    fn only_a_positive_number_limits_disks() {
        for (text, limit) in
            [(None, None), (Some(""), None), (Some("x"), None), (Some("0"), None), (Some("7"), Some(7))]
        {
            assert_eq!(max_disks(text), limit, "{text:?}");
        }
    }
}
