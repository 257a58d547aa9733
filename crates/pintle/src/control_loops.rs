//! The controller manager beside the API server, in the same process.

use ambient::World;
use apiserver::Server;
use apiserver::serve::InMemory;
use auth::User;
use controllers::Context;
use controllers::loops::{self, Options};
use kube::Client;
use names::Names;
use tokio::task::JoinHandle;

/// Runs the loops until it is stopped.
pub struct ControlLoops {
    running: JoinHandle<()>,
}

impl ControlLoops {
    /// The loops call the server through memory.
    pub fn start(server: &Server, names: &Names, options: Options, world: &World) -> Self {
        let agent = format!("{}-controller-manager", names.prefix);
        let user = User::named(format!("system:{agent}")).authenticated();
        let transport = InMemory::new(server.service.clone(), user, &agent);
        let client = Client::new(transport, names::DEFAULT_NAMESPACE);
        let context = Context::new(client, world.clone(), names.clone());
        let running = tokio::spawn(async move {
            if let Err(why) = loops::run(context, &options).await {
                tracing::error!(%why, "the controller manager cannot run");
            }
        });
        ControlLoops { running }
    }

    /// Ends all loops where they are: what they have begun they find again at the next start.
    pub async fn stop(self) {
        self.running.abort();
        let _ = self.running.await;
    }
}
