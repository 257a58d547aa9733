//! A deployment, its replica sets and their pods in a world where everybody sees everything late, and in another order
//! each time. Whatever happens, the limits hold at every moment, and in the end the rollout is done.

use super::*;
use names::Names;
use serde_json::json;

/// How many histories are played.
const HISTORIES: u64 = 300;
/// How many things happen before everybody is left in peace.
const EVENTS: usize = 400;

/// splitmix64
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound as u64) as usize
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Status {
    replicas: i32,
    available: i32,
    observed: i64,
}

/// A replica set of one template: what is asked of it, what its loop has seen of that, and what others see of it.
#[derive(Debug, Default)]
struct Set {
    wanted: i32,
    generation: i64,
    /// What its loop has seen: how many are wanted, in which generation.
    seen: (i32, i64),
    /// Its pods, and whether each is ready.
    pods: Vec<bool>,
    status: Status,
    /// What the deployment sees of it.
    shown: Status,
}

impl Set {
    /// Its loop does something, or writes the status when there is nothing to do.
    fn work(&mut self) {
        let wanted = self.seen.0 as usize;
        if self.pods.len() < wanted {
            return self.pods.resize(wanted, false);
        }
        if self.pods.len() > wanted {
            // those that are not ready go first
            self.pods.sort();
            self.pods.drain(..self.pods.len() - wanted);
            return;
        }
        let available = self.pods.iter().filter(|ready| **ready).count() as i32;
        self.status = Status { replicas: self.pods.len() as i32, available, observed: self.seen.1 };
    }

    fn ask(&mut self, wanted: i32) {
        self.wanted = wanted;
        self.generation += 1;
    }

    fn object(&self, template: usize) -> Arc<ReplicaSet> {
        let json = json!({
            "metadata": {
                "name": template.to_string(), "uid": template.to_string(), "generation": self.generation,
                "creationTimestamp": format!("2026-01-{:02}T00:00:00Z", template + 1)
            },
            "spec": {"replicas": self.wanted, "selector": {}},
            "status": {
                "replicas": self.shown.replicas, "availableReplicas": self.shown.available,
                "observedGeneration": self.shown.observed
            }
        });
        Arc::new(serde_json::from_value(json).unwrap())
    }
}

struct World {
    deployment: Deployment,
    limits: Limits,
    marks: RevisionAnnotations,
    /// By template.
    sets: Vec<Option<Set>>,
    template: usize,
}

impl World {
    fn step(&mut self) {
        let shown = |(template, set): (usize, &Option<Set>)| set.as_ref().map(|set| set.object(template));
        let mut old: Vec<_> = self.sets.iter().enumerate().filter_map(shown).collect();
        let new = old.iter().position(|set| set.name_any() == self.template.to_string());
        let sets = Sets { new: new.map(|at| old.remove(at)), old };
        let view = View {
            deployment: &self.deployment,
            sets: &sets,
            limits: &self.limits,
            marks: &self.marks,
            old_pods: false,
        };
        match rolling(&view) {
            Step::Create(wanted) => {
                self.sets[self.template] = Some(Set { wanted, generation: 1, ..Set::default() });
            }
            Step::Scale(moves) => {
                for Move { set, to } in moves {
                    let template: usize = set.name_any().parse().unwrap();
                    self.sets[template].as_mut().unwrap().ask(to);
                }
            }
            Step::Rest | Step::Forget(_) => {}
        }
    }

    /// Something happens.
    fn happens(&mut self, chance: &mut Chance, in_peace: bool) {
        let template = chance.below(self.sets.len());
        match chance.below(if in_peace { 5 } else { 6 }) {
            0 => self.step(),
            5 if chance.below(10) == 0 => self.template = template,
            what => {
                let Some(set) = &mut self.sets[template] else { return };
                match what {
                    1 => set.seen = (set.wanted, set.generation),
                    2 => set.work(),
                    3 => set.shown = set.status,
                    4 if !set.pods.is_empty() => {
                        let pod = chance.below(set.pods.len());
                        set.pods[pod] = true;
                    }
                    _ => {}
                }
            }
        }
    }

    fn pods(&self) -> Vec<bool> {
        self.sets.iter().flatten().flat_map(|set| set.pods.iter().copied()).collect()
    }

    fn check(&self, seed: u64) {
        let pods = self.pods();
        let ready = pods.iter().filter(|ready| **ready).count();
        let (most, least) = (self.limits.most() as usize, self.limits.least_available() as usize);
        assert!(pods.len() <= most, "seed {seed}: {} pods of {most}: {:?}", pods.len(), self.sets);
        assert!(ready >= least, "seed {seed}: {ready} ready of {least}: {:?}", self.sets);
    }

    fn is_done(&self) -> bool {
        self.sets.iter().enumerate().all(|(template, set)| {
            let wanted = if template == self.template { self.limits.replicas as usize } else { 0 };
            let pods = set.as_ref().map_or(&[][..], |set| &set.pods);
            pods.len() == wanted && pods.iter().all(|ready| *ready)
        })
    }
}

#[test]
fn limits_hold_whatever_is_seen_when() {
    for seed in 0..HISTORIES {
        let mut chance = Chance(seed);
        let replicas = 1 + chance.below(12) as i32;
        let surge = chance.below(4) as i32;
        let unavailable = (chance.below(4) as i32).max(i32::from(surge == 0)).min(replicas);
        let limits = Limits { replicas, surge, unavailable };
        let first = Set {
            wanted: replicas,
            generation: 1,
            seen: (replicas, 1),
            pods: vec![true; replicas as usize],
            ..Set::default()
        };
        let mut world = World {
            deployment: serde_json::from_value(json!({"metadata": {}})).unwrap(),
            limits,
            marks: RevisionAnnotations::new(&Names::kubernetes()),
            sets: vec![Some(first), None, None, None],
            template: 1,
        };
        for _ in 0..EVENTS {
            world.happens(&mut chance, false);
            world.check(seed);
        }
        let mut left = 100_000;
        while !world.is_done() {
            world.happens(&mut chance, true);
            world.check(seed);
            left -= 1;
            assert!(left > 0, "seed {seed}: it does not end: {limits:?} {:?}", world.sets);
        }
    }
}
