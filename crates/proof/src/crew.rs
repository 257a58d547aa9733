//! The clients of a run: loaders and watchers of three collections, on one or more servers, and the check of their
//! histories.

use crate::check::{Violation, check};
use crate::history::{Call, History, Operation, Order, Outcome, Watch};
use crate::load::{Collection, Course, END, Loader, Watcher};
use crate::report::Report;
use crate::server::ServerProcess;
use client::Client;
use env::{Seeded, World};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;

/// How long watches may take to their end.
const END_TIMEOUT: Duration = Duration::from_secs(60);
/// Load after the last fault: long enough for a bookmark, which comes before a watch ends.
const LAST: Duration = Duration::from_secs(9);
/// The seconds after which a connection ends that is followed by a watch from the beginning.
const ANEW: u64 = 2;

/// The clients of one collection.
struct Crew {
    collection: Collection,
    loaders: JoinSet<Vec<Operation>>,
    watchers: JoinSet<anyhow::Result<Vec<Watch>>>,
}

/// See the module.
pub struct Crews {
    admin: Client,
    order: Arc<Order>,
    load_is_over: Arc<AtomicBool>,
    all_is_over: Arc<AtomicBool>,
    crews: Vec<Crew>,
}

impl Crews {
    /// Starts so many loaders and watchers for each collection. They take turns on the servers. If there are several
    /// watchers, the last one begins its watches anew.
    pub async fn start(
        servers: &[&ServerProcess],
        loaders: u32,
        watchers: u32,
        is_padded: bool,
        random: &World,
    ) -> anyhow::Result<Self> {
        let client_of = |id: u32| servers[id as usize % servers.len()].client();
        let admin = client_of(0)?;
        let order = Arc::new(Order::default());
        let [load_is_over, all_is_over] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let collections =
            [Collection::config_maps(), Collection::secrets(), Collection::notes(&admin).await?];
        let mut crews = Vec::new();
        for collection in collections {
            let start = collection.empty_version(&admin).await?;
            let mut crew = Crew { collection, loaders: JoinSet::new(), watchers: JoinSet::new() };
            for id in 0..watchers {
                let clients = (0..servers.len() as u32).map(|at| client_of(id + at));
                let clients = clients.collect::<anyhow::Result<Vec<_>>>()?;
                let is_anew = id > 0 && id + 1 == watchers;
                let watcher = Watcher {
                    id,
                    clients,
                    collection: crew.collection.clone(),
                    order: order.clone(),
                    course: if is_anew { Course::Anew } else { Course::Onward(start) },
                    // connections of several lengths: short ones are resumed often
                    timeout: if is_anew { ANEW } else { 10 + u64::from(id) * 30 },
                };
                let is_over = all_is_over.clone();
                crew.watchers.spawn(watcher.run(move || is_over.load(Ordering::SeqCst)));
            }
            for id in 0..loaders {
                let random: World = Seeded::new(0, env::random_u64(random));
                let (client, collection) = (client_of(id)?, crew.collection.clone());
                let loader = Loader::new(id, client, collection, order.clone(), random, is_padded);
                let is_over = load_is_over.clone();
                crew.loaders.spawn(loader.run(move || is_over.load(Ordering::SeqCst)));
            }
            crews.push(crew);
        }
        Ok(Crews { admin, order, load_is_over, all_is_over, crews })
    }

    /// The administrator's client of the first server.
    pub fn admin(&self) -> &Client {
        &self.admin
    }

    /// Ends the load a while after the last fault, and adds histories and violations to the report.
    pub async fn finish(mut self, report: &mut Report) -> anyhow::Result<()> {
        tokio::time::sleep(LAST).await;
        self.load_is_over.store(true, Ordering::SeqCst);
        for crew in &mut self.crews {
            let mut history = History::default();
            while let Some(operations) = crew.loaders.join_next().await {
                history.operations.extend(operations?);
            }
            history.operations.push(end(&self.admin, &crew.collection, &self.order).await?);
            let watches = tokio::time::timeout(END_TIMEOUT, async {
                let mut watches = Vec::new();
                while let Some(parts) = crew.watchers.join_next().await {
                    watches.extend(parts??);
                }
                anyhow::Ok(watches)
            });
            let violations = match watches.await {
                Ok(watches) => {
                    history.watches = watches?;
                    check(&history)
                }
                Err(_) => vec![Violation {
                    rule: "watches are complete",
                    detail: format!("a watch of {} did not see its end", crew.collection.path),
                }],
            };
            report.add(&crew.collection.path, &history, violations);
        }
        self.all_is_over.store(true, Ordering::SeqCst);
        Ok(())
    }
}

/// Creates the object after which watches end.
async fn end(admin: &Client, collection: &Collection, order: &Order) -> anyhow::Result<Operation> {
    let (name, value) = (END.to_owned(), END.to_owned());
    let begin = order.draw();
    let object = collection.create(admin, &name, &value).await?;
    let outcome = Outcome::Object(object);
    Ok(Operation { client: u32::MAX, call: Call::Create { name, value }, begin, end: order.draw(), outcome })
}
