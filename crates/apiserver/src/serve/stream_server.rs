//! Serves streams of peers that are known: connections without listener and TLS, for tests of the protocols.

use super::connection::{self, Server};
use super::handler::{Handler, Peer};
use super::limits::Limits;
use super::{Shutdown, bulk};
use env::World;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};

/// See the module. Its connections have the limits of a listener's, and move between the same threads.
pub struct StreamServer<H>(Arc<Server<H>>);

impl<H: Handler> StreamServer<H> {
    pub fn new(handler: Arc<H>, limits: Limits, shutdown: Shutdown, world: World) -> Self {
        StreamServer(Arc::new(Server::new(limits, handler, shutdown, world)))
    }

    /// Serves a stream in a task of its own, until one of the sides closes it.
    pub async fn serve<S>(&self, stream: S, peer: Peer)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Some(permit) = self.0.connection_limit.enter().await else { return };
        let activity = self.0.activity();
        let (bulk, load) = (self.0.bulk.clone(), activity.clone());
        let connection = connection::serve_stream(self.0.clone(), stream, peer, activity, permit);
        bulk::spawn(bulk, load, Box::pin(connection));
    }
}
