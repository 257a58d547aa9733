//! The choice of devices for a container. Pure: the call to the plugin for its preference is between two steps.

use super::device::DeviceIds;
use super::device_state::DeviceState;
use crate::resource_managers::topology::NumaMask;

/// Devices that are chosen, and those that the rest may come from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Choice {
    pub chosen: DeviceIds,
    pub required: usize,
    /// Devices that the plugin may prefer.
    pub pool: DeviceIds,
    /// Where the rest comes from without a preference, in this order.
    sources: Vec<DeviceIds>,
}

impl Choice {
    /// Takes devices until there are enough.
    fn take(&mut self, from: &DeviceIds) {
        let missing = self.missing();
        let more: Vec<String> = from.difference(&self.chosen).take(missing).cloned().collect();
        self.chosen.extend(more);
    }

    pub fn missing(&self) -> usize {
        self.required.saturating_sub(self.chosen.len())
    }

    /// Completes the choice with the devices that the plugin prefers.
    pub fn finish(mut self, preferred: &DeviceIds) -> Result<DeviceIds, String> {
        let preferred: DeviceIds = preferred.intersection(&self.pool).cloned().collect();
        self.take(&preferred);
        for source in std::mem::take(&mut self.sources) {
            self.take(&source);
        }
        match self.missing() {
            0 => Ok(self.chosen),
            _ => Err(format!(
                "unexpectedly allocated less resources than required. Requested: {}, Got: {}",
                self.required,
                self.chosen.len()
            )),
        }
    }
}

/// Begins the choice of devices of a resource: `None` if the container has them already.
pub fn begin(
    state: &DeviceState,
    uid: &str,
    container: &str,
    resource: &str,
    required: usize,
    affinity: Option<NumaMask>,
) -> Result<Option<Choice>, String> {
    if let Some(own) = state.of_container(uid, container, resource) {
        return match own.len() == required {
            true => Ok(None),
            false => Err(format!(
                "pod {uid:?} container {container:?} changed request for resource {resource:?} from {} to {required}",
                own.len()
            )),
        };
    }
    if required == 0 {
        return Ok(None);
    }
    let Some(devices) = state.resources.get(resource) else {
        return Err(format!("can't allocate unregistered device {resource}"));
    };
    let mut choice = Choice { required, ..Choice::default() };
    choice.take(&state.reusable(uid, resource));
    if choice.missing() == 0 {
        return Ok(Some(choice));
    }
    let available = state.available(resource);
    if available.len() < choice.missing() {
        return Err(format!(
            "requested number of devices unavailable for {resource}. Requested: {}, Available: {}",
            choice.missing(),
            available.len()
        ));
    }
    let (mut aligned, mut unaligned, mut elsewhere) = (DeviceIds::new(), DeviceIds::new(), DeviceIds::new());
    for id in &available {
        let place = match (affinity, devices.get(id)) {
            (Some(mask), Some(device)) if device.is_within(mask) => &mut aligned,
            (Some(_), Some(device)) if device.has_topology() => &mut unaligned,
            _ => &mut elsewhere,
        };
        place.insert(id.clone());
    }
    if choice.missing() < aligned.len() {
        choice.pool = aligned.clone();
        choice.sources = vec![aligned];
    } else {
        choice.take(&aligned);
        choice.pool = available;
        choice.sources = vec![unaligned, elsewhere];
    }
    Ok(Some(choice))
}

#[cfg(test)]
mod tests {
    use super::super::device::Device;
    use super::*;
    use std::collections::BTreeMap;

    fn ids(text: &str) -> DeviceIds {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn state() -> DeviceState {
        let mut state = DeviceState::default();
        let devices: BTreeMap<String, Device> = [("a", 0), ("b", 0), ("c", 1), ("d", -1), ("x", 1)]
            .into_iter()
            .map(|(id, node)| {
                let nodes = if node < 0 { Vec::new() } else { vec![node] };
                (id.to_owned(), Device { nodes, is_healthy: id != "x" })
            })
            .collect();
        state.set_devices("r/d", devices);
        state
    }

    #[test]
    fn aligned_devices_come_first() {
        let check = |required, nodes: Option<&[u32]>, preferred: &str, expected: &str| {
            let mask = nodes.map(|nodes| nodes.iter().copied().collect());
            let choice = begin(&state(), "u", "c", "r/d", required, mask).unwrap().unwrap();
            assert_eq!(
                choice.finish(&ids(preferred)).unwrap(),
                ids(expected),
                "{required} {nodes:?} {preferred}"
            );
        };
        check(1, None, "", "a");
        check(1, None, "d", "d");
        // what does not exist, is not healthy or is not aligned is not taken
        check(1, None, "x nothing", "a");
        check(1, Some(&[0]), "c", "a");
        check(1, Some(&[0]), "b", "b");
        check(2, Some(&[0]), "c d", "a b");
        check(3, Some(&[0]), "d", "a b d");
        check(3, Some(&[0]), "", "a b c");
        check(3, Some(&[1]), "", "a b c");
        check(4, Some(&[1]), "", "a b c d");
    }

    #[test]
    fn requests_that_cannot_be_met_say_why() {
        let error =
            |resource: &str, required| begin(&state(), "u", "c", resource, required, None).unwrap_err();
        assert_eq!(
            error("r/d", 5),
            "requested number of devices unavailable for r/d. Requested: 5, Available: 4"
        );
        assert_eq!(error("r/none", 1), "can't allocate unregistered device r/none");
        assert_eq!(begin(&state(), "u", "c", "r/none", 0, None), Ok(None));
        let short = Choice { required: 2, ..Choice::default() };
        assert_eq!(
            short.finish(&ids("")).unwrap_err(),
            "unexpectedly allocated less resources than required. Requested: 2, Got: 0"
        );
    }
}
