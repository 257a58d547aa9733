//! An in-memory etcd for tests, with fault injection. It implements only the requests that the store sends.
//!
//! Time does not pass by itself: leases expire when a test lets time pass.

mod data;
mod serve;
mod state;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use outbound::Target;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::watch;

pub use state::{Faults, IN_ORDER, OVERTAKING};

use data::Data;
use state::{FakeServer, Inner};

/// A fake etcd cluster of one or more servers, each at its own address.
pub struct FakeEtcd {
    inner: Arc<Inner>,
    servers: Vec<Arc<FakeServer>>,
}

impl FakeEtcd {
    /// Starts an empty cluster of so many servers.
    pub async fn start(count: usize) -> std::io::Result<Self> {
        let faults = Faults { largest: AtomicUsize::new(3 << 19), ..Faults::default() };
        let inner =
            Arc::new(Inner { data: Mutex::new(Data::new(IN_ORDER)), newest: watch::Sender::new(1), faults });
        let mut servers = Vec::new();
        for _ in 0..count {
            let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
            let server = Arc::new(FakeServer {
                address: listener.local_addr()?,
                open: AtomicBool::new(true),
                cuts: watch::Sender::new(0),
            });
            tokio::spawn(serve::listen(listener, server.clone(), inner.clone()));
            servers.push(server);
        }
        Ok(FakeEtcd { inner, servers })
    }

    /// The client endpoints of all servers.
    pub fn targets(&self) -> Vec<Target> {
        let url = |server: &Arc<FakeServer>| format!("http://{}", server.address);
        self.servers.iter().map(|server| Target { url: url(server), ..Target::default() }).collect()
    }

    pub fn faults(&self) -> &Faults {
        &self.inner.faults
    }

    /// Cuts all connections.
    pub fn cut(&self) {
        (0..self.servers.len()).for_each(|server| self.cut_one(server));
    }

    pub fn cut_one(&self, server: usize) {
        self.servers[server].cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Sets whether a server accepts connections. Closing it also cuts its connections.
    pub fn set_open(&self, server: usize, open: bool) {
        self.servers[server].open.store(open, Ordering::SeqCst);
        if !open {
            self.cut_one(server);
        }
    }

    /// Writes as another client would; returns the revision.
    pub fn put(&self, key: &str, value: &str) -> u64 {
        self.put_bytes(key, Bytes::from(value.to_owned()))
    }

    /// The same for a value that is not text.
    pub fn put_bytes(&self, key: &str, value: Bytes) -> u64 {
        self.inner.change(|data| data.put(Bytes::from(key.to_owned()), value, 0))
    }

    pub fn delete(&self, key: &str) -> u64 {
        self.inner.change(|data| {
            data.delete(&Bytes::from(key.to_owned()));
        })
    }

    /// Writes several keys at one revision; a key without a value is deleted.
    pub fn together(&self, keys: &[(&str, Option<&str>)]) -> u64 {
        self.inner.change(|data| {
            for (key, value) in keys {
                let key = Bytes::from(key.to_string());
                match value {
                    Some(value) => data.put(key, Bytes::from(value.to_string()), 0),
                    None => data.delete(&key),
                }
            }
        })
    }

    /// The value of a key and its mod revision.
    pub fn get(&self, key: &str) -> Option<(String, u64)> {
        let data = self.inner.data.lock();
        let stored = data.keys.get(key.as_bytes())?;
        Some((String::from_utf8_lossy(&stored.value).into_owned(), stored.modified))
    }

    /// Whether a key was written with this value, or deleted, at a revision.
    pub fn happened(&self, key: &str, value: Option<&str>, revision: u64) -> bool {
        let data = self.inner.data.lock();
        data.history.iter().any(|entry| {
            let stored = entry.stored.as_ref().map(|stored| &stored.value[..]);
            entry.revision == revision && entry.key == key && stored == value.map(str::as_bytes)
        })
    }

    pub fn keys(&self) -> usize {
        self.inner.data.lock().keys.len()
    }

    pub fn revision(&self) -> u64 {
        self.inner.data.lock().revision
    }

    /// Compacts the history before a revision, and cancels watches that need it.
    pub fn compact(&self, revision: u64) {
        self.inner.data.lock().compacted = revision;
    }

    pub fn compacted(&self) -> u64 {
        self.inner.data.lock().compacted
    }

    /// Restores the state of an earlier revision.
    pub fn go_back(&self, revision: u64) {
        let mut data = self.inner.data.lock();
        data.go_back(revision);
        self.inner.newest.send_replace(revision);
    }

    /// Changes the cluster id.
    pub fn set_cluster(&self, cluster: u64) {
        self.inner.data.lock().cluster = cluster;
    }

    pub fn set_version(&self, version: &str) {
        self.inner.data.lock().version = version.to_owned();
    }

    /// The leases: how many keys each has, and how many seconds it lasts.
    pub fn leases(&self) -> Vec<(usize, i64)> {
        let data = self.inner.data.lock();
        let keys = |lease: i64| data.keys.values().filter(|stored| stored.lease == lease).count();
        data.leases.iter().map(|(id, seconds)| (keys(*id), *seconds)).collect()
    }

    /// Lets time pass for leases; expired ones take their keys with them.
    pub fn pass(&self, seconds: i64) {
        let ended = self.inner.data.lock().pass(seconds);
        for lease in ended {
            self.inner.change(|data| data.end(lease));
        }
    }

    /// Requires authentication with this name and password.
    pub fn set_user(&self, name: &str, password: &str) {
        self.inner.data.lock().user = Some((name.to_owned(), password.to_owned()));
    }

    /// Makes all tokens invalid.
    pub fn revoke_tokens(&self) {
        self.inner.data.lock().revoked += 1;
    }

    /// Drops all leases and keeps their keys.
    pub fn lose_leases(&self) {
        self.inner.data.lock().leases.clear();
    }
}

impl Inner {
    /// Applies a change at its own revision, and wakes the watches.
    fn change(&self, change: impl FnOnce(&mut Data)) -> u64 {
        let mut data = self.data.lock();
        let revision = data.change(change);
        self.newest.send_replace(revision);
        revision
    }
}
