//! The controller manager beside the API server, in the same process.

use ambient::World;
use apiserver::Server;
use apiserver::serve::InMemory;
use auth::User;
use controllers::Context;
use controllers::loops::{self, Options};
use kube::Client;
use names::Names;
use std::sync::Arc;
use tokio::task::JoinHandle;

/// Runs the loops until it is stopped.
pub struct ControlLoops {
    running: JoinHandle<()>,
}

impl ControlLoops {
    /// The loops call the server through memory.
    pub fn start(server: &Server, names: &Names, options: Options, world: &World) -> Self {
        let agent = format!("{}-controller-manager", names.prefix);
        let service = server.service.clone();
        let client = move |user: User| {
            Client::new(InMemory::new(service.clone(), user, &agent), names::DEFAULT_NAMESPACE)
        };
        let own = User::named(format!("system:{}-controller-manager", names.prefix)).authenticated();
        let context = Context::new(client(own), world.clone(), names.clone());
        // who they are need not be proved, so the accounts need not be there
        let namespace = names.system_namespace();
        let accounts = move |name: &'static str| client(User::service_account(&namespace, name));
        let context = context.with_accounts(Arc::new(accounts));
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
