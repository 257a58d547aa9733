//! `/healthz`, `/livez` and `/readyz`: health checks, one by one or all together.
//!
//! Invariants: a response comes within the timeouts of the checks of store and KMS plugins. The reason of a
//! failure is only in the response of that single check; other responses withhold it.

use super::slis::Slis;
use crate::options::limits;
use crate::serve::Shutdown;
use crate::server::post_start_hooks::{Hook, Start};
use encryption::Keyring;
use env::World;
use rest::options::Query;
use schema::problem::quoted;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use store::{Store, StoreError};

/// The health endpoints.
pub const ENDPOINTS: [&str; 3] = ["healthz", "livez", "readyz"];

/// The components that are checked, and the timeouts.
pub struct Health {
    store: Arc<dyn Store>,
    shutdown: Shutdown,
    start: Arc<Start>,
    world: World,
    /// When the grace period of `/livez` ends, by the world's clock.
    livez_grace_end: Duration,
    store_health_timeout: Duration,
    store_ready_timeout: Duration,
    /// KMS plugins, by the names of their checks.
    keyring: Option<Arc<Keyring>>,
    kms_plugins: Vec<&'static str>,
    /// Whether the configuration of keys is reloaded when it changes.
    reloads_keys: bool,
    /// SLI metrics.
    pub slis: Slis,
}

#[derive(Debug, Clone, Copy)]
struct Check {
    name: &'static str,
    target: CheckTarget,
    /// Whether only `/readyz` includes it.
    only_ready: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CheckTarget {
    /// Always healthy.
    Nothing,
    Store,
    StoreReady,
    /// Whether the disk of the store is full.
    DiskSpace,
    /// Whether values of other servers can be read.
    Readable,
    /// The KMS plugin with this index.
    KmsPlugin(usize),
    Start(Hook),
    End,
}

/// Status code and text.
#[derive(Debug, PartialEq, Eq)]
pub struct Report {
    pub code: u16,
    pub text: String,
    /// Names of the failed checks, for the log.
    pub failed: Vec<&'static str>,
}

impl Report {
    fn ok(text: String) -> Self {
        Report { code: 200, text, failed: Vec::new() }
    }
}

/// Problems of the store, by both timeouts, and of each KMS plugin.
#[derive(Default)]
struct Problems {
    health: Option<String>,
    ready: Option<String>,
    kms_plugins: Vec<Option<String>>,
}

/// Endpoint and check of a health path.
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
        let livez_grace_end = world.elapsed().saturating_add(livez_grace);
        Health {
            store,
            shutdown,
            start,
            world,
            livez_grace_end,
            store_health_timeout,
            store_ready_timeout,
            keyring: None,
            kms_plugins: Vec::new(),
            reloads_keys: false,
            slis: Slis::default(),
        }
    }

    /// Adds the checks of KMS plugins.
    pub fn add_keyring(&mut self, keyring: &Arc<Keyring>, reloads: bool) {
        // once per configured plugin
        self.kms_plugins = keyring.checks().into_iter().map(|name| &*name.leak()).collect();
        self.keyring = Some(keyring.clone());
        self.reloads_keys = reloads;
    }

    /// The names of an endpoint's checks, in order.
    pub fn names(&self, endpoint: &str) -> impl Iterator<Item = &'static str> {
        self.checks(endpoint).into_iter().map(|check| check.name)
    }

    /// Responds to `/<endpoint>` or `/<endpoint>/<check>`; `None` for an unknown check.
    pub async fn respond(&self, endpoint: &'static str, one: Option<&str>, query: &Query) -> Option<Report> {
        let checks = self.checks(endpoint);
        match one {
            Some(name) => {
                let check = *checks.iter().find(|check| check.name == name)?;
                Some(respond_one(&check, self.problem(&check, endpoint, &self.probe(&[check]).await)))
            }
            None => Some(self.respond_all(endpoint, &checks, query).await),
        }
    }

    async fn respond_all(&self, endpoint: &'static str, checks: &[Check], query: &Query) -> Report {
        let excluded: BTreeSet<&str> = query.all("exclude").collect();
        let needed: Vec<Check> =
            checks.iter().filter(|check| !excluded.contains(check.name)).copied().collect();
        let problems = self.probe(&needed).await;
        let well = |check: &Check| (check.name, self.problem(check, endpoint, &problems).is_none());
        respond_all(endpoint, checks.iter().map(well), query, &self.slis)
    }

    /// Queries store and KMS plugins for these checks, concurrently.
    async fn probe(&self, checks: &[Check]) -> Problems {
        let needed = |at: CheckTarget| checks.iter().any(|check| check.target == at);
        let kms_plugins = (0..self.kms_plugins.len())
            .map(|at| self.probe_kms_plugin(at, needed(CheckTarget::KmsPlugin(at))));
        let (health, ready, kms_plugins) = tokio::join!(
            self.store_within(self.store_health_timeout, needed(CheckTarget::Store)),
            self.store_within(self.store_ready_timeout, needed(CheckTarget::StoreReady)),
            futures_util::future::join_all(kms_plugins),
        );
        Problems { health, ready, kms_plugins }
    }

    async fn probe_kms_plugin(&self, at: usize, needed: bool) -> Option<String> {
        let keyring = self.keyring.as_ref().filter(|_| needed)?;
        keyring.check(at).await.err()
    }

    async fn store_within(&self, limit: Duration, needed: bool) -> Option<String> {
        if !needed {
            return None;
        }
        let why = match env::io::timeout(limit, self.store.probe()).await {
            // a full disk has a check of its own: reads and deletions go on
            Ok(Ok(()) | Err(StoreError::Full { .. })) => return None,
            Ok(Err(why)) => why.to_string(),
            Err(_) => "context deadline exceeded".to_owned(),
        };
        Some(format!("error getting data from etcd: {why}"))
    }

    fn problem(&self, check: &Check, endpoint: &str, problems: &Problems) -> Option<String> {
        match check.target {
            CheckTarget::Nothing => None,
            CheckTarget::Store => problems.health.clone(),
            CheckTarget::StoreReady => problems.ready.clone(),
            CheckTarget::DiskSpace => self.full_disk(),
            CheckTarget::Readable => self.store.unreadable(),
            CheckTarget::KmsPlugin(at) => problems.kms_plugins.get(at).cloned().flatten(),
            CheckTarget::Start(hook) => {
                let believed = endpoint == "livez" && self.world.elapsed() < self.livez_grace_end;
                let unfinished = !believed && !self.start.is_finished(hook);
                unfinished.then(|| "not finished".to_owned())
            }
            CheckTarget::End => self.shutdown.is_draining().then(|| "process is shutting down".to_owned()),
        }
    }

    fn full_disk(&self) -> Option<String> {
        match self.store.healthy() {
            Err(full @ StoreError::Full { .. }) => Some(full.to_string()),
            // the disk of an etcd: its quota
            Err(why) if self.store.stats().full => Some(why.to_string()),
            _ => None,
        }
    }

    fn checks(&self, endpoint: &str) -> Vec<Check> {
        let check = |name, target| Check { name, target, only_ready: false };
        let ready = |name, target| Check { name, target, only_ready: true };
        let mut all = vec![
            check("ping", CheckTarget::Nothing),
            check("log", CheckTarget::Nothing),
            check("etcd", CheckTarget::Store),
            ready("etcd-readiness", CheckTarget::StoreReady),
        ];
        // upstream has no such checks: they appear only while they fail
        if self.full_disk().is_some() {
            all.push(ready("disk-space", CheckTarget::DiskSpace));
        }
        if self.store.unreadable().is_some() {
            all.push(ready("encryption-keys", CheckTarget::Readable));
        }
        let kms_plugins = self.kms_plugins.iter().enumerate();
        all.extend(kms_plugins.map(|(at, name)| check(name, CheckTarget::KmsPlugin(at))));
        // the caches are filled before the port opens
        all.push(ready("informer-sync", CheckTarget::Nothing));
        let hooks = Hook::ALL.into_iter();
        let of_start = hooks.flat_map(|hook| hook.checks().iter().map(move |name| (*name, hook)));
        all.extend(of_start.map(|(name, hook)| check(name, CheckTarget::Start(hook))));
        if self.reloads_keys {
            // the file is watched before the port opens
            all.push(check(
                "poststarthook/start-encryption-provider-config-automatic-reload",
                CheckTarget::Nothing,
            ));
        }
        all.push(ready("shutdown", CheckTarget::End));
        all.retain(|check| endpoint == "readyz" || !check.only_ready);
        all
    }
}

/// The response for all checks of an endpoint, given their names and results.
pub fn respond_all(
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
        slis.record(name, endpoint, well);
        if well {
            text += &format!("[+]{name} ok\n");
        } else {
            failed.push(name);
            text += &format!("[-]{name} failed: reason withheld\n");
        }
    }
    if !excluded.is_empty() {
        let unknown: Vec<_> = excluded.iter().map(|name| quoted(name)).collect();
        text += "warn: some health checks cannot be excluded: no matches for ";
        text += &format!("{}\n", unknown.join(","));
    }
    if !failed.is_empty() {
        text += &format!("{endpoint} check failed\n");
        return Report { code: 500, text, failed };
    }
    if query.get("verbose").is_none() {
        return Report::ok("ok".to_owned());
    }
    text += &format!("{endpoint} check passed\n");
    Report::ok(text)
}

fn respond_one(check: &Check, problem: Option<String>) -> Report {
    match problem {
        None => Report::ok("ok".to_owned()),
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

    async fn get(health: &Health, path: &str) -> Option<(u16, String)> {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let (endpoint, one) = parse(path)?;
        let report = health.respond(endpoint, one, &Query::parse(query)).await;
        report.map(|report| (report.code, report.text))
    }

    fn finish(health: &Health) {
        Hook::ALL.into_iter().for_each(|hook| health.start.finish(hook));
    }

    fn not(text: &str, part: &str) -> String {
        text.lines().filter(|line| !line.contains(part)).map(|line| format!("{line}\n")).collect()
    }

    #[tokio::test]
    async fn machines_get_ok_and_people_get_lines() {
        let health = health(&Simulated::new(0, 0), 0);
        finish(&health);
        assert_eq!(get(&health, "/livez").await, Some((200, "ok".into())));
        health.store.close().await;
        let text = get(&health, "/readyz?verbose&exclude=etcd&exclude=b&exclude=etcd-readiness&exclude=a\"");
        let text = not(&text.await.unwrap().1, "poststarthook");
        assert_eq!(
            text,
            "[+]ping ok\n[+]log ok\n[+]etcd excluded: ok\n[+]etcd-readiness excluded: ok\n[+]informer-sync ok\n\
             [+]autoregister-completion ok\n[+]shutdown ok\nwarn: some health checks cannot be excluded: no matches for \"a\\\"\",\"b\"\n\
             readyz check passed\n"
        );
        let (code, text) = get(&health, "/livez?exclude=b").await.unwrap();
        assert_eq!(code, 500);
        assert_eq!(
            not(&text, "poststarthook"),
            "[+]ping ok\n[+]log ok\n[-]etcd failed: reason withheld\n[+]autoregister-completion ok\n\
             warn: some health checks cannot be excluded: no matches for \"b\"\nlivez check failed\n"
        );
        let why =
            "internal server error: error getting data from etcd: the store is unavailable: it is closing\n";
        assert_eq!(get(&health, "/livez/etcd?exclude=etcd").await, Some((500, why.into())));
    }

    #[tokio::test]
    async fn paths() {
        let health = health(&Simulated::new(0, 0), 0);
        assert_eq!(get(&health, "/livez/ping").await, Some((200, "ok".into())));
        for path in ["/livez/shutdown", "/livez/etcd-readiness", "/livez/bogus", "/livez/", "/livez/ping/"] {
            assert_eq!(get(&health, path).await, None, "{path}");
        }
        assert_eq!(parse("/livezz"), None);
        assert_eq!(parse("/readyz/a/b"), Some(("readyz", Some("a/b"))));
    }

    #[tokio::test]
    async fn livez_has_a_grace_period_at_startup() {
        let simulated = Simulated::new(0, 0);
        let health = health(&simulated, 10);
        health.start.finish(Hook::Bootstrap);
        let roles = "poststarthook/rbac/bootstrap-roles";
        let unfinished = Some((500, "internal server error: not finished\n".to_owned()));
        assert_eq!(get(&health, &format!("/readyz/{roles}")).await, unfinished);
        assert_eq!(get(&health, &format!("/healthz/{roles}")).await, unfinished);
        assert_eq!(get(&health, "/livez").await, Some((200, "ok".into())));
        simulated.advance(Duration::from_secs(11));
        assert_eq!(get(&health, &format!("/livez/{roles}")).await, unfinished);
        let text = get(&health, "/livez").await.unwrap().1;
        assert!(text.contains(&format!("[-]{roles} failed: reason withheld\n")), "{text}");
        assert!(text.contains("[+]poststarthook/bootstrap-controller ok\n"), "{text}");
        finish(&health);
        assert_eq!(get(&health, "/livez").await, Some((200, "ok".into())));
    }
}
