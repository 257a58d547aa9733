//! Random changes: what they lead to, and how much work they are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use client::Key;

use super::objects::{Direction, PodInfo, PolicyInfo};
use super::rules::{PolicyRules, combined_chain, pod_map, pod_verdict, policy_chain_name, table_id};
use super::state::PolicyState;
use super::tests::{FAMILIES, NODE, labels, pod, policy};
use crate::netfilter::testing::in_namespace;
use crate::netfilter::{Connection, Data, Element, Family, Name, Ruleset, SyncKind, TableWriter};

/// Numbers by SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn pick<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u64) as usize].clone()
    }

    fn selector(&mut self) -> serde_json::Value {
        self.pick(&[
            serde_json::json!({}),
            serde_json::json!({"matchLabels": {"app": "a"}}),
            serde_json::json!({"matchLabels": {"app": "b"}}),
            serde_json::json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "c"]}]}),
            serde_json::json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["a"]}]}),
            serde_json::json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]}),
        ])
    }

    fn peer(&mut self) -> serde_json::Value {
        let pods = self.selector();
        let namespaces = self.pick(&[
            serde_json::json!({}),
            serde_json::json!({"matchLabels": {"team": "x"}}),
            serde_json::json!({"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}),
        ]);
        match self.below(4) {
            0 => serde_json::json!({"podSelector": pods}),
            1 => serde_json::json!({"namespaceSelector": namespaces}),
            2 => serde_json::json!({"podSelector": pods, "namespaceSelector": namespaces}),
            _ => serde_json::json!({"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/24"]}}),
        }
    }

    fn rules(&mut self, peers: &str) -> serde_json::Value {
        let rule = |random: &mut Self| {
            let from: Vec<_> = (0..random.below(3)).map(|_| random.peer()).collect();
            let ports = random.pick(&[
                serde_json::json!([]),
                serde_json::json!([{"port": 80}, {"port": "web"}]),
                serde_json::json!([{"port": "web"}]),
                serde_json::json!([{"protocol": "SCTP", "port": 7, "endPort": 9}]),
            ]);
            serde_json::json!({peers: from, "ports": ports})
        };
        let count = self.below(3);
        (0..count).map(|_| rule(self)).collect()
    }

    fn policy(&mut self, namespace: &str) -> PolicyInfo {
        let types = self.pick(&[vec!["Ingress"], vec!["Egress"], vec!["Ingress", "Egress"]]);
        let (pods, ingress, egress) = (self.selector(), self.rules("from"), self.rules("to"));
        let spec = serde_json::json!({"podSelector": pods, "policyTypes": types, "ingress": ingress, "egress": egress});
        policy(namespace, spec)
    }

    fn pod(&mut self, namespace: &str) -> PodInfo {
        // few addresses, so that some pods have the same
        let number = self.below(12);
        let (ipv4, ipv6) = (format!("10.1.0.{number}"), format!("fd01::{number}"));
        let node = self.pick(&[NODE, "other"]);
        let app = self.pick(&["a", "b", "c"]);
        let web = self.pick(&[0, 8080, 9090]);
        let mut info = pod(namespace, app, node, &[&ipv4, &ipv6], web);
        if self.below(8) == 0 {
            info.labels.clear();
        }
        info.created = self.below(3) as i64;
        info
    }
}

#[derive(Default)]
struct Cluster {
    namespaces: BTreeMap<String, BTreeMap<String, String>>,
    pods: BTreeMap<Key, PodInfo>,
    policies: BTreeMap<Key, PolicyInfo>,
}

impl Cluster {
    /// Makes a random change here and in a state.
    fn step(&mut self, random: &mut Random, state: &mut PolicyState) {
        let namespace = random.pick(&["n0", "n1", "n2"]);
        let is_deletion = random.below(4) == 0;
        match random.below(5) {
            0 => {
                let labels = random.pick(&[BTreeMap::new(), labels("team", "x"), labels("team", "y")]);
                let labels = (!is_deletion).then_some(labels);
                set(&mut self.namespaces, namespace.to_owned(), labels.clone());
                state.set_namespace(namespace, labels);
            }
            1 | 2 => {
                let key = Key::new(namespace, format!("pod-{}", random.below(6)));
                let info = (!is_deletion).then(|| random.pod(namespace));
                set(&mut self.pods, key.clone(), info.clone());
                state.set_pod(&Arc::new(key), info);
            }
            _ => {
                let key = Key::new(namespace, format!("policy-{}", random.below(3)));
                let info = (!is_deletion).then(|| random.policy(namespace));
                set(&mut self.policies, key.clone(), info.clone());
                state.set_policy(&key, info);
            }
        }
    }

    fn fresh_state(&self) -> PolicyState {
        let mut state = PolicyState::new(NODE, &FAMILIES);
        for (key, info) in &self.policies {
            state.set_policy(key, Some(info.clone()));
        }
        for (key, info) in &self.pods {
            state.set_pod(&Arc::new(key.clone()), Some(info.clone()));
        }
        for (name, labels) in &self.namespaces {
            state.set_namespace(name, Some(labels.clone()));
        }
        state.sync();
        state
    }

    /// The policies that isolate a pod of this node.
    fn policies_of<'a>(&'a self, pod: &'a PodInfo) -> impl Iterator<Item = (&'a Key, &'a PolicyInfo)> {
        let isolates = |info: &PolicyInfo| info.namespace == pod.namespace && info.pods.matches(&pod.labels);
        self.policies.iter().filter(move |(_, info)| pod.node == NODE && isolates(info))
    }

    /// Compares a table with what each object says, without any index: verdicts of pods, and elements of sets.
    fn check(&self, ruleset: &Ruleset, family: Family) {
        let written: BTreeSet<&Key> =
            self.pods.values().flat_map(|pod| self.policies_of(pod)).map(|(key, _)| key).collect();
        let Some(table) = ruleset.get(&table_id(family)) else {
            assert!(written.is_empty());
            return;
        };
        let mut expected: BTreeMap<Name, BTreeMap<Element, Option<Data>>> = BTreeMap::new();
        for direction in [Direction::Ingress, Direction::Egress] {
            let elements = expected.entry(pod_map(direction)).or_default();
            let mut owners: BTreeMap<_, (i64, &Key)> = BTreeMap::new();
            for (key, pod) in self.pods.iter().filter(|(_, pod)| pod.node == NODE) {
                for address in pod.addresses.iter().filter(|address| Family::of(**address) == family) {
                    let owner = owners.entry(*address).or_insert((pod.created, key));
                    *owner = (*owner).max((pod.created, key));
                }
            }
            for (address, (_, key)) in owners {
                let isolating = self.policies_of(&self.pods[key]);
                let isolating = isolating.filter(|(_, info)| info.directions.contains_key(&direction));
                let names: Vec<_> = isolating.map(|(key, _)| policy_chain_name(key, direction)).collect();
                if !names.is_empty() {
                    let verdict = pod_verdict(&combined_chain(direction, &names).0);
                    elements.insert(Element::value(address.into()), Some(verdict));
                }
            }
            for key in &written {
                let rules = PolicyRules::new(&self.policies[*key], direction, family, "");
                for (name, set) in rules.fixed_sets {
                    expected.insert(name, set.elements.into_iter().map(|element| (element, None)).collect());
                }
                for (name, set) in rules.pod_sets {
                    let is_member = |pod: &&PodInfo| self.is_member(pod, &set.selection);
                    let pods = self.pods.values().filter(is_member);
                    let elements = pods.flat_map(|pod| set.elements(pod, family));
                    expected.insert(name, elements.map(|element| (element, None)).collect());
                }
            }
        }
        let found: BTreeMap<_, _> =
            table.sets.iter().map(|(name, set)| (name.clone(), set.elements.clone())).collect();
        assert_eq!(found, expected);
    }

    fn is_member(&self, pod: &PodInfo, selection: &super::objects::PodSelection) -> bool {
        use super::objects::NamespaceSelection;
        let in_namespace = match &selection.namespaces {
            NamespaceSelection::Name(name) => pod.namespace == *name,
            NamespaceSelection::Labels(selector) => {
                self.namespaces.get(&pod.namespace).is_some_and(|labels| selector.matches(labels))
            }
        };
        in_namespace && selection.pods.matches(&pod.labels)
    }
}

fn set<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, value: Option<V>) {
    match value {
        Some(value) => _ = map.insert(key, value),
        None => _ = map.remove(&key),
    }
}

#[test]
fn changes_lead_to_the_same_rules_as_a_fresh_start() {
    for seed in 0..60 {
        println!("seed {seed}");
        let mut random = Random(seed);
        let (mut cluster, mut state) = (Cluster::default(), PolicyState::new(NODE, &FAMILIES));
        for step in 0..60 {
            for _ in 0..=random.below(3) {
                cluster.step(&mut random, &mut state);
            }
            state.sync();
            let ruleset = state.ruleset();
            assert!(ruleset == cluster.fresh_state().ruleset(), "seed {seed}, step {step}");
            FAMILIES.iter().for_each(|family| cluster.check(&ruleset, *family));
        }
        // nothing stays of objects that are gone
        cluster.policies.keys().for_each(|key| state.set_policy(key, None));
        for key in cluster.pods.keys() {
            state.set_pod(&Arc::new(key.clone()), None);
        }
        cluster.namespaces.keys().for_each(|name| state.set_namespace(name, None));
        state.sync();
        assert!(state.ruleset().is_empty() && state.is_empty(), "seed {seed}");
    }
}

#[test]
fn batches_make_the_kernel_have_the_policies() {
    in_namespace(module_path!(), "batches_make_the_kernel_have_the_policies", || {
        let tables = FAMILIES.map(table_id);
        for seed in 0..6 {
            println!("seed {seed}");
            let mut random = Random(1000 + seed);
            let (mut cluster, mut state) = (Cluster::default(), PolicyState::new(NODE, &FAMILIES));
            let mut writer = TableWriter::open(tables.to_vec()).unwrap();
            let mut reader = Connection::open().unwrap();
            for step in 0..40 {
                for _ in 0..=random.below(3) {
                    cluster.step(&mut random, &mut state);
                }
                let batch = state.sync();
                let kind = writer.write(&batch, || state.ruleset()).unwrap();
                let expected = if step == 0 { SyncKind::Full } else { SyncKind::Partial };
                assert_eq!(kind, expected, "seed {seed}, step {step}");
                assert!(reader.read(&tables).unwrap().0 == state.ruleset(), "seed {seed}, step {step}");
            }
        }
    });
}

/// A state with pods of this node and of others in namespaces of `team`s, each with policies of its own.
fn large(policies: usize) -> PolicyState {
    let mut state = PolicyState::new(NODE, &[Family::Ipv4]);
    for number in 0..policies {
        let namespace = format!("n{}", number % 20);
        let app = format!("app-{number}");
        state.set_namespace(&namespace, Some(labels("name", &namespace)));
        let address = format!("10.{}.{}.1", 1 + number / 250, number % 250);
        let info = pod(&namespace, &app, NODE, &[&address], 8080);
        state.set_pod(&Arc::new(Key::new(namespace.clone(), app.clone())), Some(info));
        let spec = serde_json::json!({
            "podSelector": {"matchLabels": {"app": app}},
            "ingress": [{"from": [{"podSelector": {"matchLabels": {"client-of": app}}}], "ports": [{"port": "web"}]}],
        });
        state.set_policy(&Key::new(namespace.clone(), app), Some(policy(&namespace, spec)));
    }
    state.sync();
    state
}

#[test]
fn work_does_not_grow_with_unrelated_policies() {
    let work = |policies: usize| -> Vec<u64> {
        let mut state = large(policies);
        let mut counts = Vec::new();
        let mut count = |state: &mut PolicyState, change: &dyn Fn(&mut PolicyState)| {
            let before = state.steps();
            change(state);
            let batch = state.sync();
            assert!(!batch.is_empty());
            counts.push(state.steps() - before);
        };
        let client = Arc::new(Key::new("n0", "client"));
        let mut info = pod("n0", "client", "other", &["10.200.0.1"], 0);
        info.labels.insert("client-of".to_owned(), "app-0".to_owned());
        count(&mut state, &|state| _ = state.set_pod(&client, Some(info.clone())));
        count(&mut state, &|state| _ = state.set_pod(&client, None));
        let server = Arc::new(Key::new("n0", "app-0"));
        let moved = pod("n0", "app-0", NODE, &["10.200.0.2"], 9090);
        count(&mut state, &|state| _ = state.set_pod(&server, Some(moved.clone())));
        let key = Key::new("n0", "app-0");
        let spec = serde_json::json!({"podSelector": {"matchLabels": {"app": "app-0"}}, "ingress": [{}]});
        let open = policy("n0", spec);
        count(&mut state, &|state| state.set_policy(&key, Some(open.clone())));
        count(&mut state, &|state| state.set_policy(&key, None));
        counts
    };
    let few = work(40);
    assert_eq!(few, work(2000));
    assert!(few.iter().all(|steps| *steps < 40), "{few:?}");
}

#[test]
fn a_pod_more_is_an_element_more() {
    let mut state = large(10);
    let client = Arc::new(Key::new("n0", "client"));
    let mut info = pod("n0", "client", "other", &["10.200.0.1"], 0);
    info.labels.insert("client-of".to_owned(), "app-0".to_owned());
    state.set_pod(&client, Some(info.clone()));
    let batch = state.sync();
    let [crate::netfilter::Change::AddElements { elements, .. }] = &batch.changes[..] else {
        panic!("{batch:?}")
    };
    assert_eq!(elements.len(), 1);
    // a pod without the label changes nothing
    info.labels.clear();
    state.set_pod(&Arc::new(Key::new("n0", "other")), Some(info));
    assert!(state.sync().is_empty());
}
