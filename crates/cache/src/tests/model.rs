//! Random operations, compared with a model that remembers the whole state at every revision.

use std::collections::BTreeMap;
use std::sync::Arc;

use env::{Simulated, World, random_u64};

use super::{Bench, Doc, doc};
use crate::{Change, Entry, Interest, Key, Options, Snapshot, TryRecvError, Watcher};

type State = BTreeMap<String, (u64, Option<String>)>;

const NAMESPACES: [&str; 4] = ["a", "a-b", "a.b", "b"];
const NAMES: [&str; 5] = ["x", "y", "x-1", "z", "w"];
const TERMS: [Option<&str>; 4] = [None, Some(""), Some("n1"), Some("n2")];

struct Random(World);

impl Random {
    fn below(&self, n: usize) -> usize {
        (random_u64(&self.0) % n as u64) as usize
    }

    fn of<'a, T: ?Sized>(&self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }

    fn interest(&self) -> Interest {
        let term = || Arc::from(TERMS[1 + self.below(3)].unwrap());
        let namespace = || Arc::from(self.of(&NAMESPACES));
        match self.below(5) {
            0 => Interest::All,
            1 => Interest::Namespace(namespace()),
            2 => Interest::Object(Key::new(self.of(&NAMESPACES), self.of(&NAMES))),
            3 => Interest::Term(term()),
            _ => Interest::TermIn { namespace: namespace(), term: term() },
        }
    }
}

/// The part of a state that an interest covers.
fn covers(interest: &Interest, path: &str, term: Option<&str>) -> bool {
    let namespace = path.split_once('/').unwrap().0;
    match interest {
        Interest::All => true,
        Interest::Namespace(wanted) => namespace == &**wanted,
        Interest::Object(key) => key.path() == path,
        Interest::Term(wanted) => term == Some(wanted),
        Interest::TermIn { namespace: within, term: wanted } => {
            namespace == &**within && term == Some(wanted)
        }
    }
}

fn covered(state: &State, interest: &Interest) -> State {
    let covered = state.iter().filter(|(path, (_, term))| covers(interest, path, term.as_deref()));
    covered.map(|(path, value)| (path.clone(), value.clone())).collect()
}

fn state_of(snapshot: &Snapshot<Doc>) -> State {
    snapshot
        .range(None, None)
        .map(|(key, entry)| (key.path().to_owned(), (entry.revision, entry.term.clone())))
        .collect()
}

/// A watcher with the state it has put together from its events.
struct Mirror {
    watcher: Watcher<Doc>,
    interest: Interest,
    state: State,
    seen: u64,
}

impl Mirror {
    /// Takes in up to `max` events; whether it is still alive.
    fn drain(&mut self, max: usize) -> bool {
        for _ in 0..max {
            let promised = self.watcher.delivered_up_to();
            match self.watcher.try_recv() {
                Ok(event) => {
                    assert!(event.revision > self.seen, "out of order or twice");
                    if let Some(promised) = promised {
                        assert!(promised >= self.seen && promised < event.revision, "a broken promise");
                    }
                    self.seen = event.revision;
                    let path = event.key.path().to_owned();
                    let previous = event.previous.as_ref().map(|previous| previous.revision);
                    if let Some((known, _)) = self.state.get(&path) {
                        assert_eq!(previous, Some(*known), "the event before this one was lost");
                    }
                    let term = event.entry.term();
                    if !event.deleted && covers(&self.interest, &path, term) {
                        self.state.insert(path, (event.revision, term.map(str::to_owned)));
                    } else {
                        self.state.remove(&path);
                    }
                }
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Lagged(_)) => {
                    assert_eq!(self.watcher.try_recv().err(), Some(TryRecvError::Ended));
                    return false;
                }
                Err(TryRecvError::Ended) => panic!("ended without being closed"),
            }
        }
        true
    }
}

struct Run {
    bench: Bench,
    random: Random,
    /// The state at each revision, by index.
    history: Vec<State>,
    mirrors: Vec<Mirror>,
    lagged: usize,
}

impl Run {
    fn new(seed: u64) -> Self {
        let options = Options {
            retention: std::time::Duration::from_secs(60),
            ring_bytes: 40_000,
            ring_events: 150,
            watcher_events: 40,
            watcher_bytes: 3_000,
            pins: 3,
        };
        let random = Random(Simulated::new(0, seed));
        Self {
            bench: Bench::new(options),
            random,
            history: vec![State::new()],
            mirrors: Vec::new(),
            lagged: 0,
        }
    }

    fn revision(&self) -> u64 {
        self.history.len() as u64 - 1
    }

    fn write(&mut self) {
        let mut changes = Vec::new();
        for _ in 0..1 + self.random.below(4) {
            let mut state = self.history.last().unwrap().clone();
            let revision = self.history.len() as u64;
            let path = format!("{}/{}", self.random.of(&NAMESPACES), self.random.of(&NAMES));
            match self.random.below(10) {
                // a change of some other type: the revision moves on, this type does not
                0 | 1 => (),
                2..=4 if state.contains_key(&path) => {
                    let (_, term) = state.remove(&path).unwrap();
                    changes.push(Change::Delete(doc(&path, revision, term.as_deref())));
                }
                _ => {
                    let term = TERMS[self.random.below(4)];
                    state.insert(path.clone(), (revision, term.map(str::to_owned)));
                    changes.push(Change::Put(doc(&path, revision, term)));
                }
            }
            self.history.push(state);
        }
        self.bench.cache.apply(changes);
        self.bench.published.raise(self.revision());
    }

    fn watch(&mut self) {
        let interest = self.random.interest();
        if self.random.below(2) == 0 {
            let (watcher, snapshot) = self.bench.cache.watch_now(interest.clone());
            let state = covered(&state_of(&snapshot), &interest);
            self.mirrors.push(Mirror { watcher, interest, state, seen: snapshot.revision() });
            return;
        }
        let revision = self.random.below(self.history.len()) as u64;
        let oldest = self.bench.cache.oldest();
        match self.bench.cache.watch_after(revision, interest.clone()) {
            Ok(watcher) => {
                assert!(revision >= oldest);
                let state = covered(&self.history[revision as usize], &interest);
                self.mirrors.push(Mirror { watcher, interest, state, seen: revision });
            }
            Err(gone) => assert!(revision < gone.oldest && gone.oldest == oldest),
        }
    }

    fn drain(&mut self) {
        let max = self.random.below(60);
        let before = self.mirrors.len();
        self.mirrors.retain_mut(|mirror| mirror.drain(max));
        self.lagged += before - self.mirrors.len();
    }

    fn drop_watcher(&mut self) {
        let mut mirror = self.mirrors.swap_remove(self.random.below(self.mirrors.len()));
        self.lagged += usize::from(!mirror.drain(usize::MAX));
    }

    fn check(&mut self) {
        let snapshot = self.bench.cache.snapshot();
        assert_eq!(snapshot.revision(), self.revision());
        self.check_snapshot(&snapshot);
        for revision in 0..=self.revision() {
            match self.bench.cache.at(revision) {
                Ok(snapshot) => {
                    assert_eq!(snapshot.revision(), revision);
                    self.check_snapshot(&snapshot);
                }
                Err(gone) => assert!(revision < gone.oldest),
            }
        }
        let before = self.mirrors.len();
        self.mirrors.retain_mut(|mirror| mirror.drain(usize::MAX));
        self.lagged += before - self.mirrors.len();
        for mirror in &self.mirrors {
            assert_eq!(mirror.state, covered(self.history.last().unwrap(), &mirror.interest));
            assert_eq!(mirror.watcher.delivered_up_to(), Some(self.revision()));
        }
        let stats = self.bench.cache.stats();
        assert_eq!((stats.watchers, stats.lagged), (self.mirrors.len(), self.lagged as u64));
        assert_eq!(self.bench.cache.counted_watchers(), stats.watchers);
        assert!(stats.ring_events <= 150 && stats.ring_bytes <= 40_000 && stats.pins <= 3);
    }

    /// A snapshot against the model, by all its queries.
    fn check_snapshot(&self, snapshot: &Snapshot<Doc>) {
        let model = &self.history[snapshot.revision() as usize];
        assert_eq!(&state_of(snapshot), model);
        assert!(snapshot.range(None, None).map(|(key, _)| key.path()).eq(model.keys()));
        assert_eq!(snapshot.len(), model.len());
        let namespace = self.random.of(&NAMESPACES);
        let path = format!("{namespace}/{}", self.random.of(&NAMES));
        let after = format!("{}/{}", self.random.of(&NAMESPACES), self.random.of(&NAMES));
        let (namespace, name) = path.split_once('/').unwrap();
        assert_eq!(
            snapshot.get(namespace, name).map(|entry| entry.revision),
            model.get(&path).map(|at| at.0)
        );
        let expected: Vec<&str> = model
            .keys()
            .map(String::as_str)
            .filter(|path| path.split_once('/').unwrap().0 == namespace && *path > &*after)
            .collect();
        let found: Vec<&str> =
            snapshot.range(Some(namespace), Some(&after)).map(|(key, _)| key.path()).collect();
        assert_eq!(found, expected);
        assert_eq!(snapshot.count(Some(namespace), Some(&after)), expected.len());
        assert_eq!(snapshot.count(None, Some(&after)), model.keys().filter(|path| *path > &after).count());
        for term in ["", "n1", "n2", "nowhere"] {
            let expected =
                model.iter().filter(|(_, (_, at))| at.as_deref() == Some(term)).map(|(path, _)| path);
            assert!(snapshot.with_term(term).map(|(key, _)| key.path()).eq(expected));
        }
    }
}

/// Says which run failed, so that it can be run again.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("seed {}", self.0);
        }
    }
}

#[test]
fn the_cache_is_its_model() {
    let mut lagged = 0;
    for seed in 0..24 {
        let _seed = Seed(seed);
        let mut run = Run::new(seed);
        for step in 0..400 {
            match run.random.below(12) {
                0 => run.watch(),
                1 | 2 => run.drain(),
                3 => run.bench.world.advance(std::time::Duration::from_millis(run.random.below(5000) as u64)),
                4 => run.bench.cache.trim(),
                5 if run.mirrors.len() > 8 => run.drop_watcher(),
                _ => run.write(),
            }
            if step % 40 == 39 {
                run.check();
            }
        }
        assert!(run.bench.cache.oldest() > 0, "the ring was never trimmed");
        lagged += run.lagged;
        run.mirrors.clear();
        assert_eq!((run.bench.cache.stats().watchers, run.bench.cache.lists()), (0, 0));
    }
    assert!(lagged > 0, "no watcher ever lagged");
}
