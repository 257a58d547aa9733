//! The record of attached pods: which container has which addresses and host ports.
//!
//! It is one file, replaced at once under a lock, in a folder that does not survive a restart of the machine, as the
//! network namespaces of pods do not. Every process that attaches or detaches a pod reads and writes it:
//!
//! - attach: record the addresses, then make the link;
//! - detach: remove the link, then its host ports, then forget both.
//!
//! So a process may be killed at any step: an address of a link is always recorded, and a repeated call finds what the
//! first one recorded. An attachment whose namespace is gone is forgotten when addresses run out, and by the node's
//! regular collection.
//!
//! Addresses are handed out in turn: one that was freed comes last.

use super::namespace::NamespaceId;
use crate::netfilter::Protocol;
use apimachinery::net::Network;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// An interface of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    pub container: String,
    pub interface: String,
    /// `namespace/name` of the pod, if the runtime names it; for people who read the file.
    pub pod: String,
    pub namespace: NamespaceId,
    pub addresses: Vec<IpAddr>,
    pub host_ports: Vec<HostPort>,
}

impl Attachment {
    pub fn is_of(&self, container: &str, interface: &str) -> bool {
        self.container == container && self.interface == interface
    }
}

/// A port of the node that leads to a port of the pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostPort {
    pub protocol: Protocol,
    /// The address of the node; all of them if there is none.
    pub host_ip: Option<IpAddr>,
    pub host_port: u16,
    pub container_port: u16,
}

/// A range without a free address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no address of {0} is free")]
pub struct RangeExhausted(pub Network);

/// The content of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attachments {
    pub attachments: Vec<Attachment>,
    /// The addresses that were handed out last, at most one of a range.
    last: Vec<IpAddr>,
}

impl Attachments {
    pub fn find(&self, container: &str, interface: &str) -> Option<&Attachment> {
        self.attachments.iter().find(|it| it.is_of(container, interface))
    }

    /// Takes a free address of each range. `in_use` are addresses that the kernel has routes for: they are taken,
    /// recorded or not.
    pub fn allocate(&mut self, ranges: &[Network], in_use: &[IpAddr]) -> Result<Vec<IpAddr>, RangeExhausted> {
        let recorded = self.attachments.iter().flat_map(|it| &it.addresses);
        let taken: HashSet<IpAddr> = recorded.chain(in_use).copied().collect();
        let mut addresses = Vec::new();
        for range in ranges {
            let last = self.last.iter().find_map(|address| range.offset(address));
            let address = next_free(range, last, &taken).ok_or(RangeExhausted(*range))?;
            self.last.retain(|it| range.offset(it).is_none());
            self.last.push(address);
            addresses.push(address);
        }
        Ok(addresses)
    }

    /// Records an attachment, in place of one of the same container and interface.
    pub fn insert(&mut self, attachment: Attachment) {
        self.remove(&attachment.container, &attachment.interface);
        self.attachments.push(attachment);
    }

    pub fn remove(&mut self, container: &str, interface: &str) -> Option<Attachment> {
        let at = self.attachments.iter().position(|it| it.is_of(container, interface))?;
        Some(self.attachments.remove(at))
    }

    /// Forgets attachments whose namespace is gone, and with it their link. Returns them.
    pub fn collect_garbage(&mut self) -> Vec<Attachment> {
        let (present, gone) =
            std::mem::take(&mut self.attachments).into_iter().partition(|it| it.namespace.is_present());
        self.attachments = present;
        gone
    }

    fn encode(&self) -> Vec<u8> {
        let texts = |addresses: &[IpAddr]| addresses.iter().map(IpAddr::to_string).collect::<Vec<_>>();
        let ports = |attachment: &Attachment| {
            let ports = attachment.host_ports.iter().map(|port| {
                json!({
                    "protocol": port.protocol.0,
                    "hostIP": port.host_ip.map(|it| it.to_string()),
                    "hostPort": port.host_port,
                    "containerPort": port.container_port,
                })
            });
            ports.collect::<Vec<_>>()
        };
        let attachments = self.attachments.iter().map(|it| {
            json!({
                "container": it.container,
                "interface": it.interface,
                "pod": it.pod,
                "namespace": {
                    "path": it.namespace.path.to_string_lossy(),
                    "device": it.namespace.device,
                    "inode": it.namespace.inode,
                },
                "addresses": texts(&it.addresses),
                "hostPorts": ports(it),
            })
        });
        // each pod writes all of it: a line for each attachment is enough for readers
        let lines: Vec<_> = attachments.map(|it| it.to_string()).collect();
        let last = json!(texts(&self.last));
        format!("{{\"attachments\": [\n{}\n], \"last\": {last}}}\n", lines.join(",\n")).into_bytes()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let content: Value = serde_json::from_slice(bytes).ok()?;
        let attachments = content["attachments"].as_array()?.iter().map(decode_attachment);
        Some(Attachments {
            attachments: attachments.collect::<Option<_>>()?,
            last: addresses(&content["last"])?,
        })
    }
}

fn addresses(value: &Value) -> Option<Vec<IpAddr>> {
    value.as_array()?.iter().map(|it| it.as_str()?.parse().ok()).collect()
}

fn decode_attachment(value: &Value) -> Option<Attachment> {
    let text = |name: &str| Some(value[name].as_str()?.to_owned());
    let namespace = &value["namespace"];
    let port = |value: &Value| {
        let number = |name: &str| u16::try_from(value[name].as_u64()?).ok();
        let host_ip = match &value["hostIP"] {
            Value::Null => None,
            address => Some(address.as_str()?.parse().ok()?),
        };
        Some(HostPort {
            protocol: Protocol(u8::try_from(value["protocol"].as_u64()?).ok()?),
            host_ip,
            host_port: number("hostPort")?,
            container_port: number("containerPort")?,
        })
    };
    Some(Attachment {
        container: text("container")?,
        interface: text("interface")?,
        pod: text("pod")?,
        namespace: NamespaceId {
            path: namespace["path"].as_str()?.into(),
            device: namespace["device"].as_u64()?,
            inode: namespace["inode"].as_u64()?,
        },
        addresses: addresses(&value["addresses"])?,
        host_ports: value["hostPorts"].as_array()?.iter().map(port).collect::<Option<_>>()?,
    })
}

/// The first free address behind the last one, then from the beginning.
fn next_free(range: &Network, last: Option<u32>, taken: &HashSet<IpAddr>) -> Option<IpAddr> {
    let begin = last.map_or(0, |last| last + 1);
    let offsets = (begin..range.size()).chain(0..begin.min(range.size()));
    offsets.map(|offset| range.address(offset)).find(|address| !taken.contains(address))
}

/// The file, locked. Other processes wait until it is dropped.
pub struct AttachmentsFile {
    path: PathBuf,
    pub content: Attachments,
    _lock: OwnedFd,
}

impl AttachmentsFile {
    /// Waits for the lock and reads the file. A file that cannot be read as one counts as empty: the routes of the
    /// kernel still keep addresses from being handed out twice.
    pub fn lock(directory: &Path) -> io::Result<Self> {
        durable_file::directory(directory, 0o700)?;
        let lock = open(
            directory.join("lock"),
            OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC,
            Mode::RUSR | Mode::WUSR,
        )?;
        while let Err(why) = flock(&lock, FlockOperation::LockExclusive) {
            if why != rustix::io::Errno::INTR {
                return Err(why.into());
            }
        }
        let path = directory.join("attachments.json");
        let content = match std::fs::read(&path) {
            Ok(bytes) => Attachments::decode(&bytes).unwrap_or_default(),
            Err(why) if why.kind() == io::ErrorKind::NotFound => Attachments::default(),
            Err(why) => return Err(why),
        };
        Ok(AttachmentsFile { path, content, _lock: lock })
    }

    /// Replaces the file with the content.
    pub fn save(&self) -> io::Result<()> {
        durable_file::replace(&self.path, self.content.encode(), durable_file::READABLE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::{Simulated, World};
    use std::collections::HashMap;

    fn namespace() -> NamespaceId {
        let own = super::super::namespace::Namespace::current().unwrap();
        own.id(Path::new("/proc/thread-self/ns/net")).unwrap()
    }

    fn attachment(container: &str, addresses: Vec<IpAddr>) -> Attachment {
        Attachment {
            container: container.to_owned(),
            interface: "eth0".to_owned(),
            pod: "default/web".to_owned(),
            namespace: namespace(),
            addresses,
            host_ports: Vec::new(),
        }
    }

    fn ranges(texts: &[&str]) -> Vec<Network> {
        texts.iter().map(|it| Network::parse(it).unwrap()).collect()
    }

    #[test]
    fn content_survives_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = AttachmentsFile::lock(folder.path()).unwrap();
        assert_eq!(file.content, Attachments::default());
        let addresses = file.content.allocate(&ranges(&["10.1.0.0/24", "fd00:1::/64"]), &[]).unwrap();
        assert_eq!(addresses, ["10.1.0.1", "fd00:1::1"].map(|it| it.parse::<IpAddr>().unwrap()));
        let port = HostPort {
            protocol: Protocol::SCTP,
            host_ip: Some("::1".parse().unwrap()),
            host_port: 8080,
            container_port: 80,
        };
        let host_ports = vec![port, HostPort { protocol: Protocol::UDP, host_ip: None, ..port }];
        file.content.insert(Attachment { host_ports, ..attachment("a", addresses) });
        file.save().unwrap();
        let saved = file.content.clone();
        drop(file);
        assert_eq!(AttachmentsFile::lock(folder.path()).unwrap().content, saved);
        // a file of another program
        std::fs::write(folder.path().join("attachments.json"), "{\"attachments\": [{}]}").unwrap();
        assert_eq!(AttachmentsFile::lock(folder.path()).unwrap().content, Attachments::default());
    }

    #[test]
    fn attachments_without_a_namespace_are_collected() {
        let mut content = Attachments::default();
        content.insert(attachment("present", Vec::new()));
        let gone = NamespaceId { path: "/run/netns/gone".into(), device: 4, inode: 7 };
        content.insert(Attachment { namespace: gone, ..attachment("gone", Vec::new()) });
        // another namespace has the path now
        let other = NamespaceId { inode: 1, ..namespace() };
        content.insert(Attachment { namespace: other, ..attachment("replaced", Vec::new()) });
        let collected: Vec<_> = content.collect_garbage().into_iter().map(|it| it.container).collect();
        assert_eq!(collected, ["gone", "replaced"]);
        assert_eq!(content.attachments.len(), 1);
        assert!(content.find("present", "eth0").is_some() && content.find("present", "eth1").is_none());
    }

    #[test]
    fn addresses_are_handed_out_in_turn_and_never_twice() {
        let seed = 20_261_117;
        println!("seed {seed}");
        let world: World = Simulated::new(0, seed);
        let next = |limit: usize| usize::try_from(env::random_u64(&world) % limit as u64).unwrap();
        let ranges = ranges(&["10.1.0.0/28", "fd00:1::/124"]);
        let mut content = Attachments::default();
        let mut held: HashMap<String, Vec<IpAddr>> = HashMap::new();
        let mut used = HashSet::new();
        let mut exhausted = 0;
        for step in 0..20_000 {
            if next(2) == 0 {
                let name = format!("c{step}");
                match content.allocate(&ranges, &[]) {
                    Ok(addresses) => {
                        assert!(held.values().flatten().all(|it| !addresses.contains(it)), "step {step}");
                        assert!(addresses.iter().zip(&ranges).all(|(it, range)| range.offset(it).is_some()));
                        // while there are addresses that were never used, no freed one comes
                        assert!(used.len() == 14 || used.insert(addresses[0]), "step {step}: {addresses:?}");
                        content.insert(attachment(&name, addresses.clone()));
                        held.insert(name, addresses);
                    }
                    Err(why) => {
                        exhausted += 1;
                        assert_eq!((why.0, held.len()), (ranges[0], 14), "step {step}");
                    }
                }
            } else if !held.is_empty() {
                let name = held.keys().nth(next(held.len())).unwrap().clone();
                let addresses = held.remove(&name).unwrap();
                assert_eq!(content.remove(&name, "eth0").unwrap().addresses, addresses);
            }
        }
        assert!(exhausted > 0);
    }

    #[test]
    fn a_freed_address_comes_last() {
        let range = ranges(&["10.1.0.0/29"]);
        let mut content = Attachments::default();
        let take = |content: &mut Attachments| content.allocate(&range, &[]).unwrap()[0].to_string();
        assert_eq!([take(&mut content), take(&mut content)], ["10.1.0.1", "10.1.0.2"]);
        // both are free, as no attachment was recorded
        let rest: Vec<_> = (0..5).map(|_| take(&mut content)).collect();
        assert_eq!(rest, ["10.1.0.3", "10.1.0.4", "10.1.0.5", "10.1.0.6", "10.1.0.1"]);
    }

    #[test]
    fn addresses_of_unrecorded_routes_are_not_handed_out() {
        let mut content = Attachments::default();
        let routes = ["10.1.0.1", "10.1.0.2"].map(|it| it.parse().unwrap());
        let addresses = content.allocate(&ranges(&["10.1.0.0/29"]), &routes).unwrap();
        assert_eq!(addresses[0].to_string(), "10.1.0.3");
    }
}
