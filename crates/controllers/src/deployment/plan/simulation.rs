//! A simulation of a deployment, its replica sets and their pods, in which each sees changes of the others late and in
//! random order. The limits hold at every moment, and at the end the rollout is complete.

use super::*;
use api::Time;
use names::Names;

/// The number of simulated histories.
const HISTORIES: u64 = 300;
/// The number of events before the template changes no more.
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

/// A replica set of one template.
#[derive(Debug, Default)]
struct Set {
    desired: i32,
    generation: i64,
    /// The desired pods and the generation that its loop has seen.
    seen: (i32, i64),
    /// Its pods, and whether each is ready.
    pods: Vec<bool>,
    status: Status,
    /// The status that the deployment has seen.
    formatted: Status,
}

impl Set {
    /// Its loop creates or deletes pods, or writes the status if the number is right.
    fn work(&mut self) {
        let desired = self.seen.0 as usize;
        if self.pods.len() < desired {
            return self.pods.resize(desired, false);
        }
        if self.pods.len() > desired {
            // pods that are not ready are deleted first
            self.pods.sort();
            self.pods.drain(..self.pods.len() - desired);
            return;
        }
        let available = self.pods.iter().filter(|ready| **ready).count() as i32;
        self.status = Status { replicas: self.pods.len() as i32, available, observed: self.seen.1 };
    }

    fn resize(&mut self, desired: i32) {
        self.desired = desired;
        self.generation += 1;
    }

    fn object(&self, template: usize) -> Arc<ReplicaSet> {
        let mut set = ReplicaSet::default();
        set.metadata.name = template.to_string();
        set.metadata.uid = template.to_string();
        set.metadata.generation = self.generation;
        set.metadata.creation_timestamp = i64::try_from(template).ok().map(Time);
        set.spec.replicas = Some(self.desired);
        set.status.replicas = self.formatted.replicas;
        set.status.available_replicas = self.formatted.available;
        set.status.observed_generation = self.formatted.observed;
        Arc::new(set)
    }
}

struct World {
    deployment: Deployment,
    limits: Limits,
    annotations: RevisionAnnotations,
    /// By template.
    sets: Vec<Option<Set>>,
    template: usize,
}

impl World {
    fn step(&mut self) {
        let formatted = |(template, set): (usize, &Option<Set>)| set.as_ref().map(|set| set.object(template));
        let mut old: Vec<_> = self.sets.iter().enumerate().filter_map(formatted).collect();
        let new = old.iter().position(|set| set.name() == self.template.to_string());
        let sets = Sets { new: new.map(|at| old.remove(at)), old };
        let view = View {
            deployment: &self.deployment,
            sets: &sets,
            limits: &self.limits,
            annotations: &self.annotations,
            old_pods: false,
        };
        match rolling(&view) {
            Step::Create(desired) => {
                self.sets[self.template] = Some(Set { desired, generation: 1, ..Set::default() });
            }
            Step::Scale(moves) => {
                for Move { set, to } in moves {
                    let template: usize = set.name().parse().unwrap();
                    self.sets[template].as_mut().unwrap().resize(to);
                }
            }
            Step::Rest | Step::Cleanup(_) => {}
        }
    }

    /// A random event.
    fn random_event(&mut self, chance: &mut Chance, is_final: bool) {
        let template = chance.below(self.sets.len());
        match chance.below(if is_final { 5 } else { 6 }) {
            0 => self.step(),
            5 if chance.below(10) == 0 => self.template = template,
            what => {
                let Some(set) = &mut self.sets[template] else { return };
                match what {
                    1 => set.seen = (set.desired, set.generation),
                    2 => set.work(),
                    3 => set.formatted = set.status,
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

    fn is_complete(&self) -> bool {
        self.sets.iter().enumerate().all(|(template, set)| {
            let desired = if template == self.template { self.limits.replicas as usize } else { 0 };
            let pods = set.as_ref().map_or(&[][..], |set| &set.pods);
            pods.len() == desired && pods.iter().all(|ready| *ready)
        })
    }
}

#[test]
fn limits_hold_for_any_order_of_observations() {
    for seed in 0..HISTORIES {
        let mut chance = Chance(seed);
        let replicas = 1 + chance.below(12) as i32;
        let surge = chance.below(4) as i32;
        let unavailable = (chance.below(4) as i32).max(i32::from(surge == 0)).min(replicas);
        let limits = Limits { replicas, surge, unavailable };
        let first = Set {
            desired: replicas,
            generation: 1,
            seen: (replicas, 1),
            pods: vec![true; replicas as usize],
            ..Set::default()
        };
        let mut world = World {
            deployment: Deployment::default(),
            limits,
            annotations: RevisionAnnotations::new(&Names::kubernetes()),
            sets: vec![Some(first), None, None, None],
            template: 1,
        };
        for _ in 0..EVENTS {
            world.random_event(&mut chance, false);
            world.check(seed);
        }
        let mut left = 100_000;
        while !world.is_complete() {
            world.random_event(&mut chance, true);
            world.check(seed);
            left -= 1;
            assert!(left > 0, "seed {seed}: it does not complete: {limits:?} {:?}", world.sets);
        }
    }
}
