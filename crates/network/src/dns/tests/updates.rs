//! Changes of services and slices: the records follow, and are those of a server that starts with the last state.

use super::fixture::{ask, cluster, data, empty, put, put_slice, service, slice};
use crate::dns::ForwardOptions;
use crate::dns::records::{Records, SliceSource};
use client::Key;
use env::World;
use hickory_proto::rr::{Name, RecordType};
use std::collections::BTreeMap;

#[tokio::test]
async fn a_change_of_a_slice_changes_its_service_only() {
    let cluster = cluster();
    let before = cluster.records.load().clone();
    put_slice(&cluster.records, ("shop", "db"), "db-a", &slice(&[("10.244.0.10", "db-0", None)], &[]));
    let after = cluster.records.load().clone();
    let same = |key: &str| std::sync::Arc::ptr_eq(before.service(key).unwrap(), after.service(key).unwrap());
    assert!(!same("db.shop") && same("web.shop") && same("early.shop") && same("kube-dns.kube-system"));
    let message = ask(&cluster.handler, "db-0.db.shop.svc.cluster.local", RecordType::A).await;
    assert_eq!(message.answers.iter().map(data).collect::<Vec<_>>(), ["10.244.0.10"]);
    assert_eq!(after.names_of(&"10.244.0.7".parse().unwrap()).count(), 0);
    // a slice of a service with an address changes nothing
    put_slice(&cluster.records, ("shop", "web"), "web-a", &slice(&[("10.244.0.11", "", None)], &[]));
    assert_eq!(cluster.records.load().serial, after.serial);
    cluster.records.set_service(&Key::new("shop", "db"), None);
    let message = ask(&cluster.handler, "db.shop.svc.cluster.local", RecordType::A).await;
    assert_eq!(message.metadata.response_code, hickory_proto::op::ResponseCode::NXDomain);
}

/// The records as text, for comparison.
fn dump(records: &Records, keys: &[String]) -> String {
    let snapshot = records.load();
    let services = keys.iter().map(|key| format!("{key}: {:?}\n", snapshot.service(key)));
    let names = (0..8).map(|at| {
        let address = std::net::Ipv4Addr::new(10, 0, 0, at).into();
        let mut names: Vec<_> = snapshot.names_of(&address).map(Name::to_ascii).collect();
        names.sort();
        format!("{address}: {names:?}\n")
    });
    services.chain(names).collect()
}

#[test]
fn random_changes_end_where_a_fresh_start_begins() {
    for seed in 0..50 {
        let world: World = env::Seeded::new(0, seed);
        let random = |below: u64| env::random_u64(&world) % below;
        let changed = empty(ForwardOptions::default()).records;
        let (mut services, mut slices) = (BTreeMap::new(), BTreeMap::new());
        let keys: Vec<_> = (0..3).map(|it| format!("s{it}.n")).collect();
        for _ in 0..100 {
            let name = format!("s{}", random(3));
            let slice_name = format!("e{}", random(2));
            match random(5) {
                0 => {
                    services.remove(&name);
                    changed.set_service(&Key::new("n", &*name), None);
                }
                1 | 2 => {
                    let address = format!("10.0.0.{}", random(8));
                    let addresses: &[&str] = if random(3) == 0 { &[&address] } else { &[] };
                    let mut object = service("n", &name, addresses, &[("p", "TCP", 80)]);
                    object.spec.publish_not_ready_addresses = random(2) == 0;
                    put(&changed, &object);
                    services.insert(name, object);
                }
                3 => {
                    changed.set_slice(&Key::new("n", &*name), &slice_name, None);
                    slices.remove(&(name, slice_name));
                }
                _ => {
                    let (one, two) = (format!("10.0.0.{}", random(8)), format!("10.0.0.{}", random(8)));
                    let host = if random(2) == 0 { "h" } else { "" };
                    let ready = [None, Some(true), Some(false)][random(3) as usize];
                    let object = slice(&[(&one, host, ready), (&two, "", None)], &[("p", "TCP", 80)]);
                    changed.set_slice(&Key::new("n", &*name), &slice_name, Some(SliceSource::new(&object)));
                    slices.insert((name, slice_name), object);
                }
            }
        }
        let fresh = empty(ForwardOptions::default()).records;
        for ((service, name), object) in &slices {
            put_slice(&fresh, ("n", service), name, object);
        }
        services.values().for_each(|it| put(&fresh, it));
        assert_eq!(dump(&changed, &keys), dump(&fresh, &keys), "seed {seed}");
    }
}
