//! `/healthz`, `/livez` and `/readyz`: every check alone or together, for machines and for people.
//!
//! What always holds: an answer comes within the timeouts of the store's checks and of key servers, whatever these
//! do. Why a check failed is told only to those who ask for that check alone; all others learn that it failed.

use super::slis::Slis;
use crate::options::limits;
use crate::serve::Shutdown;
use crate::server::post_start_hooks::{Hook, Start};
use encryption::Keyring;
use env::World;
use rest::options::Query;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use store::{Store, StoreError};

/// What can be asked for.
pub const ENDPOINTS: [&str; 3] = ["healthz", "livez", "readyz"];

/// What is looked at, and for how long.
pub struct Health {
    store: Arc<dyn Store>,
    shutdown: Shutdown,
    start: Arc<Start>,
    world: World,
    /// Until when, by the world's clock, the start is believed in.
    believed_until: Duration,
    store_health_timeout: Duration,
    store_ready_timeout: Duration,
    /// Key servers, by the names of their checks.
    keyring: Option<Arc<Keyring>>,
    key_servers: Vec<&'static str>,
    /// Whether a configuration of keys is read again when it changes.
    reads_keys_again: bool,
    /// How checks went.
    pub slis: Slis,
}

#[derive(Debug, Clone, Copy)]
struct Check {
    name: &'static str,
    looks_at: LooksAt,
    /// `/healthz` and `/livez` do not look at it.
    only_ready: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LooksAt {
    /// That there is an answer is all there is to it.
    Nothing,
    Store,
    StoreReady,
    /// Whether the disk of the store is full.
    DiskSpace,
    /// Whether what other servers wrote can be read.
    Readable,
    /// The key server at this place.
    KeyServer(usize),
    Start(Hook),
    End,
}

/// Status code and text.
#[derive(Debug, PartialEq, Eq)]
pub struct Report {
    pub code: u16,
    pub text: String,
    /// Answers to machines are short; what failed is told to those who may ask for it.
    pub failed: Vec<&'static str>,
}

impl Report {
    fn fine(text: String) -> Self {
        Report { code: 200, text, failed: Vec::new() }
    }
}

/// What is wrong with the store, seen by the two who look at it, and with each key server.
#[derive(Default)]
struct Problems {
    health: Option<String>,
    ready: Option<String>,
    key_servers: Vec<Option<String>>,
}

/// Endpoint and check of a path, where it is one of health.
pub fn parse(path: &str) -> Option<(&'static str, Option<&str>)> {
    let path = path.strip_prefix('/')?;
    let endpoint = ENDPOINTS.into_iter().find(|endpoint| path.starts_with(endpoint))?;
    let rest = &path[endpoint.len()..];
    match rest.strip_prefix('/') {
        Some(check) => Some((endpoint, Some(check))),
        None => rest.is_empty().then_some((endpoint, None)),
    }
}

impl Health {
    /// A health that looks at a store and at the beginning and the end of a server.
    pub fn new(
        store: Arc<dyn Store>,
        shutdown: Shutdown,
        start: Arc<Start>,
        world: World,
        limits: &limits::Options,
    ) -> Self {
        let limits::Options { livez_grace, store_health_timeout, store_ready_timeout, .. } = *limits;
        let believed_until = world.elapsed().saturating_add(livez_grace);
        Health {
            store,
            shutdown,
            start,
            world,
            believed_until,
            store_health_timeout,
            store_ready_timeout,
            keyring: None,
            key_servers: Vec::new(),
            reads_keys_again: false,
            slis: Slis::default(),
        }
    }

    /// Looks at key servers, too.
    pub fn look_at_keys(&mut self, keyring: &Arc<Keyring>, read_again: bool) {
        // as many as an operator names, once
        self.key_servers = keyring.checks().into_iter().map(|name| &*name.leak()).collect();
        self.keyring = Some(keyring.clone());
        self.reads_keys_again = read_again;
    }

    /// The names of an endpoint's checks, in order.
    pub fn names(&self, endpoint: &str) -> impl Iterator<Item = &'static str> {
        self.checks(endpoint).into_iter().map(|check| check.name)
    }

    /// Answers `/<endpoint>` or `/<endpoint>/<check>`; nothing when there is no such check.
    pub async fn answer(&self, endpoint: &'static str, one: Option<&str>, query: &Query) -> Option<Report> {
        let checks = self.checks(endpoint);
        match one {
            Some(name) => {
                let check = *checks.iter().find(|check| check.name == name)?;
                Some(alone(&check, self.problem(&check, endpoint, &self.look(&[check]).await)))
            }
            None => Some(self.together(endpoint, &checks, query).await),
        }
    }

    async fn together(&self, endpoint: &'static str, checks: &[Check], query: &Query) -> Report {
        let excluded: BTreeSet<&str> = query.all("exclude").collect();
        let wanted: Vec<Check> =
            checks.iter().filter(|check| !excluded.contains(check.name)).copied().collect();
        let seen = self.look(&wanted).await;
        let well = |check: &Check| (check.name, self.problem(check, endpoint, &seen).is_none());
        together(endpoint, checks.iter().map(well), query, &self.slis)
    }

    /// Asks the store and key servers what these checks want to know, all at the same time.
    async fn look(&self, checks: &[Check]) -> Problems {
        let wanted = |at: LooksAt| checks.iter().any(|check| check.looks_at == at);
        let key_servers =
            (0..self.key_servers.len()).map(|at| self.key_server(at, wanted(LooksAt::KeyServer(at))));
        let (health, ready, key_servers) = tokio::join!(
            self.store_within(self.store_health_timeout, wanted(LooksAt::Store)),
            self.store_within(self.store_ready_timeout, wanted(LooksAt::StoreReady)),
            futures_util::future::join_all(key_servers),
        );
        Problems { health, ready, key_servers }
    }

    async fn key_server(&self, at: usize, wanted: bool) -> Option<String> {
        let keyring = self.keyring.as_ref().filter(|_| wanted)?;
        keyring.check(at).await.err()
    }

    async fn store_within(&self, limit: Duration, wanted: bool) -> Option<String> {
        if !wanted {
            return None;
        }
        let why = match tokio::time::timeout(limit, self.store.probe()).await {
            // reads and deletions go on: a check of its own says so
            Ok(Ok(()) | Err(StoreError::Full { .. })) => return None,
            Ok(Err(why)) => why.to_string(),
            Err(_) => "context deadline exceeded".to_owned(),
        };
        Some(format!("error getting data from etcd: {why}"))
    }

    fn problem(&self, check: &Check, endpoint: &str, seen: &Problems) -> Option<String> {
        match check.looks_at {
            LooksAt::Nothing => None,
            LooksAt::Store => seen.health.clone(),
            LooksAt::StoreReady => seen.ready.clone(),
            LooksAt::DiskSpace => self.full_disk(),
            LooksAt::Readable => self.store.unreadable(),
            LooksAt::KeyServer(at) => seen.key_servers.get(at).cloned().flatten(),
            LooksAt::Start(hook) => {
                let believed = endpoint == "livez" && self.world.elapsed() < self.believed_until;
                let unfinished = !believed && !self.start.is_finished(hook);
                unfinished.then(|| "not finished".to_owned())
            }
            LooksAt::End => self.shutdown.is_draining().then(|| "process is shutting down".to_owned()),
        }
    }

    fn full_disk(&self) -> Option<String> {
        match self.store.healthy() {
            Err(full @ StoreError::Full { .. }) => Some(full.to_string()),
            _ => None,
        }
    }

    fn checks(&self, endpoint: &str) -> Vec<Check> {
        let check = |name, looks_at| Check { name, looks_at, only_ready: false };
        let ready = |name, looks_at| Check { name, looks_at, only_ready: true };
        let mut all = vec![
            check("ping", LooksAt::Nothing),
            check("log", LooksAt::Nothing),
            check("etcd", LooksAt::Store),
            ready("etcd-readiness", LooksAt::StoreReady),
        ];
        // upstream has no such checks: they are there while they fail
        if self.full_disk().is_some() {
            all.push(ready("disk-space", LooksAt::DiskSpace));
        }
        if self.store.unreadable().is_some() {
            all.push(ready("encryption-keys", LooksAt::Readable));
        }
        let key_servers = self.key_servers.iter().enumerate();
        all.extend(key_servers.map(|(at, name)| check(name, LooksAt::KeyServer(at))));
        // the caches are filled before the port opens
        all.push(ready("informer-sync", LooksAt::Nothing));
        let hooks = Hook::ALL.into_iter();
        let of_start = hooks.flat_map(|hook| hook.checks().iter().map(move |name| (*name, hook)));
        all.extend(of_start.map(|(name, hook)| check(name, LooksAt::Start(hook))));
        if self.reads_keys_again {
            // the file is followed before the port opens
            all.push(check(
                "poststarthook/start-encryption-provider-config-automatic-reload",
                LooksAt::Nothing,
            ));
        }
        all.push(ready("shutdown", LooksAt::End));
        all.retain(|check| endpoint == "readyz" || !check.only_ready);
        all
    }
}

/// All checks of an endpoint, each by its name and whether it is well, as they are told to who asks with this query.
pub fn together(
    endpoint: &'static str,
    checks: impl Iterator<Item = (&'static str, bool)>,
    query: &Query,
    slis: &Slis,
) -> Report {
    let mut excluded: BTreeSet<&str> = query.all("exclude").collect();
    let mut text = String::new();
    let mut failed = Vec::new();
    for (name, well) in checks {
        if excluded.remove(name) {
            text += &format!("[+]{name} excluded: ok\n");
            continue;
        }
        slis.made(name, endpoint, well);
        if well {
            text += &format!("[+]{name} ok\n");
        } else {
            failed.push(name);
            text += &format!("[-]{name} failed: reason withheld\n");
        }
    }
    if !excluded.is_empty() {
        let unknown: Vec<_> = excluded.iter().map(|name| format!("{name:?}")).collect();
        text += "warn: some health checks cannot be excluded: no matches for ";
        text += &format!("{}\n", unknown.join(","));
    }
    if !failed.is_empty() {
        text += &format!("{endpoint} check failed\n");
        return Report { code: 500, text, failed };
    }
    if query.get("verbose").is_none() {
        return Report::fine("ok".to_owned());
    }
    text += &format!("{endpoint} check passed\n");
    Report::fine(text)
}

fn alone(check: &Check, problem: Option<String>) -> Report {
    match problem {
        None => Report::fine("ok".to_owned()),
        Some(why) => {
            Report { code: 500, text: format!("internal server error: {why}\n"), failed: vec![check.name] }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::Simulated;

    fn health(simulated: &Arc<Simulated>, grace: u64) -> Health {
        let world: World = simulated.clone();
        let store = store::memory::open(&store::Options::default(), world.clone());
        store.start(Box::new(|_| ())).unwrap();
        let limits =
            limits::Options { livez_grace: Duration::from_secs(grace), ..limits::Options::default() };
        Health::new(Arc::new(store), Shutdown::new(), Arc::default(), world, &limits)
    }

    async fn ask(health: &Health, path: &str) -> Option<(u16, String)> {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let (endpoint, one) = parse(path)?;
        let report = health.answer(endpoint, one, &Query::parse(query)).await;
        report.map(|report| (report.code, report.text))
    }

    fn finish(health: &Health) {
        Hook::ALL.into_iter().for_each(|hook| health.start.finish(hook));
    }

    fn not(text: &str, what: &str) -> String {
        text.lines().filter(|line| !line.contains(what)).map(|line| format!("{line}\n")).collect()
    }

    #[tokio::test]
    async fn machines_get_ok_and_people_get_lines() {
        let health = health(&Simulated::new(0, 0), 0);
        finish(&health);
        assert_eq!(ask(&health, "/livez").await, Some((200, "ok".into())));
        health.store.close().await;
        let told = ask(&health, "/readyz?verbose&exclude=etcd&exclude=b&exclude=etcd-readiness&exclude=a\"");
        let told = not(&told.await.unwrap().1, "poststarthook");
        assert_eq!(
            told,
            "[+]ping ok\n[+]log ok\n[+]etcd excluded: ok\n[+]etcd-readiness excluded: ok\n[+]informer-sync ok\n\
             [+]autoregister-completion ok\n[+]shutdown ok\nwarn: some health checks cannot be excluded: no matches for \"a\\\"\",\"b\"\n\
             readyz check passed\n"
        );
        let (code, told) = ask(&health, "/livez?exclude=b").await.unwrap();
        assert_eq!(code, 500);
        assert_eq!(
            not(&told, "poststarthook"),
            "[+]ping ok\n[+]log ok\n[-]etcd failed: reason withheld\n[+]autoregister-completion ok\n\
             warn: some health checks cannot be excluded: no matches for \"b\"\nlivez check failed\n"
        );
        let why =
            "internal server error: error getting data from etcd: the store is unavailable: it is closing\n";
        assert_eq!(ask(&health, "/livez/etcd?exclude=etcd").await, Some((500, why.into())));
    }

    #[tokio::test]
    async fn paths() {
        let health = health(&Simulated::new(0, 0), 0);
        assert_eq!(ask(&health, "/livez/ping").await, Some((200, "ok".into())));
        for path in ["/livez/shutdown", "/livez/etcd-readiness", "/livez/bogus", "/livez/", "/livez/ping/"] {
            assert_eq!(ask(&health, path).await, None, "{path}");
        }
        assert_eq!(parse("/livezz"), None);
        assert_eq!(parse("/readyz/a/b"), Some(("readyz", Some("a/b"))));
    }

    #[tokio::test]
    async fn a_start_is_believed_in_for_a_while_and_only_by_livez() {
        let simulated = Simulated::new(0, 0);
        let health = health(&simulated, 10);
        health.start.finish(Hook::Bootstrap);
        let roles = "poststarthook/rbac/bootstrap-roles";
        let unfinished = Some((500, "internal server error: not finished\n".to_owned()));
        assert_eq!(ask(&health, &format!("/readyz/{roles}")).await, unfinished);
        assert_eq!(ask(&health, &format!("/healthz/{roles}")).await, unfinished);
        assert_eq!(ask(&health, "/livez").await, Some((200, "ok".into())));
        simulated.advance(Duration::from_secs(11));
        assert_eq!(ask(&health, &format!("/livez/{roles}")).await, unfinished);
        let told = ask(&health, "/livez").await.unwrap().1;
        assert!(told.contains(&format!("[-]{roles} failed: reason withheld\n")), "{told}");
        assert!(told.contains("[+]poststarthook/bootstrap-controller ok\n"), "{told}");
        finish(&health);
        assert_eq!(ask(&health, "/livez").await, Some((200, "ok".into())));
    }
}
