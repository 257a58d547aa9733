//! A client with random operations, which records them.

use super::collection::{Collection, annotations, is_ours, query, read_list, read_object, send, with_query};
use super::padding;
use crate::history::{Call, Freshness, Object, Operation, Order, Outcome, Version};
use client::{Client, Error};
use env::World;
use http::Method;
use serde_json::{Value, json};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// The number of names.
const NAMES: u64 = 8;
/// The pause after a broken connection, in which the server may start again.
const PAUSE: Duration = Duration::from_millis(5);

/// The versions that a client remembers, to list them exactly.
const REMEMBERED: usize = 16;

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// See the module.
pub struct Loader {
    id: u32,
    client: Client,
    collection: Collection,
    order: Arc<Order>,
    random: World,
    written: u64,
    /// The last known form of objects, right or wrong.
    objects: HashMap<String, Object>,
    /// The newest version that it has seen.
    newest: Version,
    /// Versions that it has seen last.
    versions: VecDeque<Version>,
    /// Whether its objects have many sizes.
    is_padded: bool,
    operations: Vec<Operation>,
}

impl Loader {
    pub fn new(
        id: u32,
        client: Client,
        collection: Collection,
        order: Arc<Order>,
        random: World,
        is_padded: bool,
    ) -> Self {
        Loader {
            id,
            client,
            collection,
            order,
            random,
            written: 0,
            objects: HashMap::new(),
            newest: 0,
            versions: VecDeque::new(),
            is_padded,
            operations: Vec::new(),
        }
    }

    /// Sends requests, one after another, until the load is over.
    pub async fn run(mut self, is_over: impl Fn() -> bool) -> Vec<Operation> {
        while !is_over() {
            let call = self.draw();
            let begin = self.order.draw();
            let outcome = self.send(&call).await;
            let end = self.order.draw();
            self.learn(&outcome);
            if outcome == Outcome::Unknown {
                tokio::time::sleep(PAUSE).await;
            }
            self.operations.push(Operation { client: self.id, call, begin, end, outcome });
        }
        self.operations
    }

    fn below(&self, limit: u64) -> u64 {
        env::random_u64(&self.random) % limit
    }

    fn value(&mut self) -> String {
        self.written += 1;
        let padding = if self.is_padded { padding::draw(&self.random) } else { String::new() };
        format!("{}-{}{padding}", self.id, self.written)
    }

    fn draw(&mut self) -> Call {
        let name = format!("object-{}", self.below(NAMES));
        match self.below(100) {
            0..=14 => Call::Create { name, value: self.value() },
            15..=29 => match self.objects.get(&name) {
                // the version of another form is a conflict, now and then
                Some(known) => Call::Update { name, expected: known.version, value: self.value() },
                None => Call::Create { name, value: self.value() },
            },
            30..=44 => Call::Patch { name, value: self.value() },
            45..=54 => Call::Apply { name, value: self.value() },
            55..=64 => {
                let uid = self.objects.get(&name).map(|it| it.uid.clone()).filter(|_| self.below(2) == 0);
                Call::Delete { name, uid }
            }
            65..=65 => Call::DeleteCollection,
            66..=82 => Call::Get { name, freshness: self.freshness(false) },
            _ => {
                let page = (self.below(3) == 0).then(|| 1 + self.below(4) as u32);
                Call::List { freshness: self.freshness(true), page }
            }
        }
    }

    fn freshness(&self, is_list: bool) -> Freshness {
        match self.below(7) {
            0 => Freshness::Any,
            1 if self.newest > 0 => Freshness::NotOlderThan(self.newest),
            2 if self.newest > 0 && is_list => Freshness::Exact(self.remembered()),
            3 if self.newest > 0 && is_list => Freshness::Unmatched(self.remembered()),
            _ => Freshness::Latest,
        }
    }

    /// A version that was seen, the newest or an older one.
    fn remembered(&self) -> Version {
        let at = self.below(REMEMBERED as u64) as usize;
        self.versions.get(at).copied().unwrap_or(self.newest)
    }

    fn remember(&mut self, version: Version) {
        self.newest = self.newest.max(version);
        self.versions.push_front(version);
        self.versions.truncate(REMEMBERED);
    }

    fn learn(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Object(object) => {
                self.remember(object.version);
                self.objects.insert(object.name.clone(), object.clone());
            }
            Outcome::List { version, objects } => {
                self.remember(*version);
                self.objects.extend(objects.iter().map(|it| (it.name.clone(), it.clone())));
            }
            _ => {}
        }
    }

    async fn send(&self, call: &Call) -> Outcome {
        let answer = match call {
            Call::List { freshness, page } => self.list(*freshness, *page).await,
            Call::Get { name, freshness } => {
                let path = with_query(&self.collection.object_path(name), &query(*freshness, false));
                self.request(Method::GET, &path, "", None).await.and_then(|it| object(&it))
            }
            Call::Create { name, value } => {
                let body = self.collection.body(name, value, None);
                let made = self.request(Method::POST, &self.collection.path, JSON, Some(&body)).await;
                made.and_then(|it| object(&it))
            }
            Call::Update { name, value, expected } => {
                let body = self.collection.body(name, value, Some(*expected));
                let path = self.collection.object_path(name);
                self.request(Method::PUT, &path, JSON, Some(&body)).await.and_then(|it| object(&it))
            }
            Call::Patch { name, value } => {
                let body = json!({"metadata": {"annotations": annotations(value)}});
                let path = self.collection.object_path(name);
                self.request(Method::PATCH, &path, MERGE, Some(&body)).await.and_then(|it| object(&it))
            }
            Call::Apply { name, value } => {
                let body = self.collection.body(name, value, None);
                let path = self.collection.object_path(name) + "?fieldManager=prove&force=true";
                self.request(Method::PATCH, &path, APPLY, Some(&body)).await.and_then(|it| object(&it))
            }
            Call::Delete { name, uid } => {
                let options = uid.as_ref().map(|uid| json!({"preconditions": {"uid": uid}}));
                let path = self.collection.object_path(name);
                let deleted = self.request(Method::DELETE, &path, JSON, options.as_ref()).await;
                deleted.map(|it| Outcome::Deleted(vec![deleted_uid(&it)]))
            }
            Call::DeleteCollection => {
                let deleted = self.request(Method::DELETE, &self.collection.path, "", None).await;
                deleted.and_then(|it| list(&it)).map(|it| match it {
                    Outcome::List { objects, .. } => {
                        Outcome::Deleted(objects.into_iter().map(|it| it.uid).collect())
                    }
                    other => other,
                })
            }
        };
        answer.unwrap_or_else(|outcome| outcome)
    }

    /// Reads a list, in pages if there is a limit. They are all of one version.
    async fn list(&self, freshness: Freshness, limit: Option<u32>) -> Result<Outcome, Outcome> {
        let (mut found, mut next) = (None, String::new());
        loop {
            // the token of a further page has its version
            let mut pairs = match next.is_empty() {
                true => query(freshness, true),
                false => vec![("continue", next)],
            };
            pairs.extend(limit.map(|it| ("limit", it.to_string())));
            let path = with_query(&self.collection.path, &pairs);
            let page = self.request(Method::GET, &path, "", None).await?;
            let Outcome::List { version, objects } = list(&page)? else { return Err(Outcome::Unknown) };
            let (first, all) = found.get_or_insert_with(|| (version, Vec::new()));
            all.extend(objects);
            // another version than that of the first page is no exact list of either
            *first = version.min(*first);
            next = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
            if next.is_empty() {
                let (version, objects) = found.unwrap_or_default();
                return Ok(Outcome::List { version, objects });
            }
        }
    }

    async fn request(
        &self,
        method: Method,
        path: &str,
        media: &str,
        body: Option<&Value>,
    ) -> Result<Value, Outcome> {
        send(&self.client, method, path, media, body).await.map_err(|error| match &error {
            Error::Api(status) if status.code == 404 => Outcome::Absent,
            // 5xx: the server does not say whether it has written
            Error::Api(status) if status.code < 500 => {
                Outcome::Refused(u16::try_from(status.code).unwrap_or_default())
            }
            _ => Outcome::Unknown,
        })
    }
}

fn object(value: &Value) -> Result<Outcome, Outcome> {
    read_object(value).map(Outcome::Object).map_err(|_| Outcome::Unknown)
}

fn list(value: &Value) -> Result<Outcome, Outcome> {
    let (version, objects) = read_list(value).map_err(|_| Outcome::Unknown)?;
    Ok(Outcome::List { version, objects })
}

/// A delete answers with a `Status`, or with the object.
fn deleted_uid(value: &Value) -> String {
    let uid = if is_ours(value) { &value["metadata"]["uid"] } else { &value["details"]["uid"] };
    uid.as_str().unwrap_or_default().to_owned()
}
