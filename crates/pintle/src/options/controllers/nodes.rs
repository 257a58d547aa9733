//! Node lifecycle and node CIDR options.

use super::super::ConfigErrors;
use crate::flags::any_duration;
use apimachinery::net::{Family, Network};
use clap::{ArgAction, Args, builder::PossibleValuesParser};
use controllers::nodeipam::Pool;
use controllers::nodelifecycle::{self, Rates};
use controllers::registry::Options;
use std::time::Duration;

/// The supported allocator and the cloud allocators.
const OWN: &str = "RangeAllocator";
const ALLOCATORS: [&str; 4] = [OWN, "CloudAllocator", "IPAMFromCluster", "IPAMFromCloud"];

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Nodes")]
pub struct Nodes {
    /// How often node status is checked
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "5s")]
    pub node_monitor_period: Duration,

    /// How long a node may send no heartbeat before its status becomes Unknown
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "40s")]
    pub node_monitor_grace_period: Duration,

    /// How long a new node may send no heartbeat before its status becomes Unknown
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "1m0s")]
    pub node_startup_grace_period: Duration,

    /// The eviction rate: nodes per second of a zone from which pods are evicted when the nodes are not ready
    #[arg(long, value_name = "NUMBER", default_value_t = 0.1, allow_negative_numbers = true)]
    pub node_eviction_rate: f64,

    /// The eviction rate in a large zone of which most nodes are not ready; in a small one it is then 0
    #[arg(long, value_name = "NUMBER", default_value_t = 0.01, allow_negative_numbers = true)]
    pub secondary_node_eviction_rate: f64,

    /// The number of nodes above which a zone is large
    #[arg(long, value_name = "NUMBER", default_value_t = 50, allow_negative_numbers = true)]
    pub large_cluster_size_threshold: i32,

    /// The fraction of nodes that are not ready, at least three, from which a zone counts as unhealthy
    #[arg(long, value_name = "NUMBER", default_value_t = 0.55, allow_negative_numbers = true)]
    pub unhealthy_zone_threshold: f64,

    /// Allocate a CIDR for the pods of each node
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true")]
    pub allocate_node_cidrs: bool,

    /// The CIDR of all pods; with a comma one of each address family
    #[arg(long, value_name = "CIDRS", default_value = "", hide_default_value = true)]
    pub cluster_cidr: String,

    /// The mask size of node CIDRs in a cluster with one network [default: 24 for IPv4, 64 for IPv6]
    #[arg(
        long,
        value_name = "BITS",
        default_value_t = 0,
        hide_default_value = true,
        allow_negative_numbers = true
    )]
    pub node_cidr_mask_size: i32,

    /// The mask size of IPv4 node CIDRs [default: 24]
    #[arg(
        long,
        value_name = "BITS",
        default_value_t = 0,
        hide_default_value = true,
        allow_negative_numbers = true
    )]
    pub node_cidr_mask_size_ipv4: i32,

    /// The mask size of IPv6 node CIDRs [default: 64]
    #[arg(
        long,
        value_name = "BITS",
        default_value_t = 0,
        hide_default_value = true,
        allow_negative_numbers = true
    )]
    pub node_cidr_mask_size_ipv6: i32,

    /// The allocator of node CIDRs; cloud allocators are not there yet
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(ALLOCATORS), hide_possible_values = true, default_value = OWN)]
    pub cidr_allocator_type: String,
}

impl Nodes {
    /// Applies the flags to the defaults.
    pub fn apply_to(&self, options: &mut Options, errors: &mut ConfigErrors) {
        options.node_lifecycle = nodelifecycle::Options {
            period: self.node_monitor_period,
            grace_period: self.node_monitor_grace_period,
            startup_grace_period: self.node_startup_grace_period,
            rates: Rates {
                usual: self.node_eviction_rate,
                reduced: self.secondary_node_eviction_rate,
                large: usize::try_from(self.large_cluster_size_threshold).unwrap_or(0),
                most: self.unhealthy_zone_threshold,
            },
        };
        if self.allocate_node_cidrs {
            options.node_ipam.pools = self.pools(errors);
        }
    }

    fn pools(&self, errors: &mut ConfigErrors) -> Vec<Pool> {
        const OPTION: &str = "--cluster-cidr";
        if self.cidr_allocator_type != OWN {
            let why = format!("{} needs a cloud provider, which is not supported", self.cidr_allocator_type);
            errors.add("--cidr-allocator-type", why);
        }
        let networks = match networks(&self.cluster_cidr) {
            Ok(networks) => networks,
            Err(why) => {
                errors.add(OPTION, why);
                return Vec::new();
            }
        };
        if networks.is_empty() {
            errors.add(OPTION, "required with --allocate-node-cidrs");
        }
        self.check_sizes(&networks, errors);
        let pools = networks.into_iter().map(|network| {
            let size =
                [self.node_cidr_mask_size, self.size_of(network.family())].into_iter().find(|it| *it != 0);
            let prefix = match size {
                Some(size) => u8::try_from(size).unwrap_or(u8::MAX),
                None if network.family() == Family::V4 => 24,
                None => 64,
            };
            Pool::new(network, prefix)
        });
        pools.filter_map(|pool| errors.take(OPTION, pool)).collect()
    }

    fn size_of(&self, family: Family) -> i32 {
        match family {
            Family::V4 => self.node_cidr_mask_size_ipv4,
            Family::V6 => self.node_cidr_mask_size_ipv6,
        }
    }

    /// Checks that the mask sizes match the address families of the cluster CIDR.
    fn check_sizes(&self, networks: &[Network], errors: &mut ConfigErrors) {
        if self.node_cidr_mask_size != 0 && networks.len() > 1 {
            errors.add(
                "--node-cidr-mask-size",
                "cannot be given with two networks: set the size of each address family",
            );
        }
        for (option, family) in
            [("--node-cidr-mask-size-ipv4", Family::V4), ("--node-cidr-mask-size-ipv6", Family::V6)]
        {
            if self.size_of(family) == 0 {
                continue;
            }
            if self.node_cidr_mask_size != 0 {
                errors.add(option, "cannot be given together with --node-cidr-mask-size");
            } else if !networks.is_empty() && networks.iter().all(|it| it.family() != family) {
                errors.add(option, format!("--cluster-cidr has no {} network", family.name()));
            }
        }
    }
}

/// Parses one network, or one of each family; an empty text is none.
pub fn networks(text: &str) -> Result<Vec<Network>, String> {
    let texts = text.split(',').map(str::trim).filter(|_| !text.is_empty());
    let read = texts
        .map(|it| Network::parse(it).ok_or_else(|| format!("{it:?} is not a CIDR, such as 10.244.0.0/16")));
    let all: Vec<Network> = read.collect::<Result<_, _>>()?;
    match &*all {
        [one, two] if one.family() == two.family() => {
            Err("two networks must be of different address families".to_owned())
        }
        [] | [_] | [_, _] => Ok(all),
        _ => Err("must be one network, or one of each address family".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct ParsedLine {
        #[command(flatten)]
        nodes: Nodes,
    }

    fn read(line: &str) -> Result<Options, String> {
        let line = ParsedLine::try_parse_from(format!("x {line}").split_whitespace())
            .map_err(|it| it.to_string())?;
        let (mut options, mut errors) = (Options::default(), ConfigErrors::default());
        line.nodes.apply_to(&mut options, &mut errors);
        errors.check().map(|()| options).map_err(|why| why.to_string())
    }

    #[test]
    fn absent_options_have_defaults() {
        let (read, usual) = (read("").unwrap(), Options::default());
        assert_eq!((read.node_ipam, read.node_lifecycle), (usual.node_ipam, usual.node_lifecycle));
    }

    #[test]
    fn networks_and_sizes() {
        let pools = |line: &str| read(&format!("--allocate-node-cidrs {line}")).unwrap().node_ipam.pools;
        let pool = |text: &str, prefix| Pool::new(Network::parse(text).unwrap(), prefix).unwrap();
        assert_eq!(pools("--cluster-cidr 10.244.0.0/16"), [pool("10.244.0.0/16", 24)]);
        assert_eq!(
            pools("--cluster-cidr 10.0.0.0/8,fd00::/56 --node-cidr-mask-size-ipv4 26"),
            [pool("10.0.0.0/8", 26), pool("fd00::/56", 64)]
        );
        assert_eq!(pools("--cluster-cidr fd00::/100 --node-cidr-mask-size 112"), [pool("fd00::/100", 112)]);
        // without allocation the ranges are not checked
        assert_eq!(
            read("--cluster-cidr x --cidr-allocator-type CloudAllocator").unwrap().node_ipam.pools,
            []
        );
    }

    #[test]
    fn contradictory_options_are_reported() {
        for (line, part) in [
            ("", "required with --allocate-node-cidrs"),
            ("--cluster-cidr 10.0.0.0", "is not a CIDR"),
            ("--cluster-cidr 10.0.0.0/8,11.0.0.0/8", "different address families"),
            ("--cluster-cidr 10.0.0.0/8,fd00::/56,fd01::/56", "one of each"),
            ("--cluster-cidr 10.0.0.0/8 --cidr-allocator-type IPAMFromCloud", "needs a cloud provider"),
            (
                "--cluster-cidr 10.0.0.0/8,fd00::/56 --node-cidr-mask-size 24",
                "cannot be given with two networks",
            ),
            (
                "--cluster-cidr 10.0.0.0/8 --node-cidr-mask-size 24 --node-cidr-mask-size-ipv4 24",
                "cannot be given together with --node-cidr-mask-size",
            ),
            ("--cluster-cidr 10.0.0.0/8 --node-cidr-mask-size-ipv6 64", "has no IPv6 network"),
            ("--cluster-cidr 10.0.0.0/25", "smaller than a range"),
            ("--cluster-cidr 10.0.0.0/8 --node-cidr-mask-size 33", "between 0 and 32"),
            ("--cluster-cidr 10.0.0.0/8 --node-cidr-mask-size -4", "between 0 and 32"),
            ("--cluster-cidr fd00::/32", "too many ranges"),
        ] {
            let message = read(&format!("--allocate-node-cidrs {line}")).unwrap_err();
            assert!(message.contains(part), "{line}: {message}");
        }
        assert!(read("--cidr-allocator-type Mine").is_err());
    }
}
