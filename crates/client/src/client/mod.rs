//! The client of an API server: sends requests, decodes answers.
//!
//! Invariants: an answer with an error status is [`Error::Api`], whether its body is a `Status` or not.

mod lines;

pub use lines::Lines;

use crate::error::{BoxError, Error};
use crate::hash_seed::HashSeed;
use crate::shared_objects::{Decoder, SharedObjects};
use api::meta::v1::Status;
use api::{Json, Resource, from_json};
use bytes::Bytes;
use env::World;
use http::{Request, Response};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tower_service::Service;

/// The body of a request: bytes that are known as a whole.
pub type Body = http_body_util::Full<Bytes>;
type ServerResponse = Response<UnsyncBoxBody<Bytes, BoxError>>;
type Pending = Pin<Box<dyn Future<Output = Result<ServerResponse, BoxError>> + Send>>;

/// See the module. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    send: Arc<dyn Fn(Request<Body>) -> Pending + Send + Sync>,
    /// What its informers share with those of other clients.
    objects: Option<SharedObjects>,
    /// The clock for pauses; real time without one.
    world: Option<World>,
}

impl Client {
    /// A client over a service: HTTPS to a server, or a server in the same process.
    pub fn new<S, B>(service: S) -> Self
    where
        S: Service<Request<Body>, Response = Response<B>> + Clone + Send + Sync + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send + 'static,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let send = move |request| -> Pending {
            let mut service = service.clone();
            Box::pin(async move {
                std::future::poll_fn(|cx| service.poll_ready(cx)).await.map_err(Into::into)?;
                let response = service.call(request).await.map_err(Into::into)?;
                Ok(response.map(|body| body.map_err(Into::into).boxed_unsync()))
            })
        };
        Client { send: Arc::new(send), objects: None, world: None }
    }

    /// A client whose informers share objects with those of other clients.
    pub fn sharing(self, objects: &SharedObjects) -> Self {
        Client { objects: Some(objects.clone()), ..self }
    }

    /// A client that measures pauses after failures with this clock, which a test may hold.
    pub fn in_world(self, world: &World) -> Self {
        Client { world: Some(world.clone()), ..self }
    }

    /// Waits before a request is repeated.
    pub(crate) async fn pause(&self, duration: Duration) {
        match &self.world {
            Some(world) => env::sleep(world, duration).await,
            None => env::io::sleep(duration).await,
        }
    }

    /// A decoder for a new informer.
    pub(crate) fn decoder<K: Resource>(&self) -> Decoder<K> {
        self.objects.as_ref().map(SharedObjects::decoder).unwrap_or_default()
    }

    /// The hash function of a new informer.
    pub(crate) fn hash_seed(&self) -> HashSeed {
        self.world.as_ref().map(HashSeed::of).unwrap_or_default()
    }

    /// Sends a request whose answer is an object.
    pub async fn request<T: Json>(&self, request: Request<Vec<u8>>) -> Result<T, Error> {
        Ok(from_json(&self.request_bytes(request).await?)?)
    }

    /// Sends a request and reads the whole answer.
    pub async fn request_bytes(&self, request: Request<Vec<u8>>) -> Result<Bytes, Error> {
        collect(self.send(request).await?).await
    }

    /// Sends a request whose answer is a stream of lines, such as a watch.
    pub async fn request_lines(&self, request: Request<Vec<u8>>) -> Result<Lines, Error> {
        Ok(Lines::new(self.send(request).await?.into_body()))
    }

    /// Sends a request whose answer is read as it arrives.
    pub async fn request_body(
        &self,
        request: Request<Vec<u8>>,
    ) -> Result<UnsyncBoxBody<Bytes, BoxError>, Error> {
        Ok(self.send(request).await?.into_body())
    }

    /// Sends a request. An answer with an error status is an error.
    async fn send(&self, request: Request<Vec<u8>>) -> Result<ServerResponse, Error> {
        let response = (self.send)(request.map(Body::from)).await.map_err(Error::Transport)?;
        let code = response.status();
        if !code.is_client_error() && !code.is_server_error() {
            return Ok(response);
        }
        let body = collect(response).await?;
        Err(Error::Api(Box::new(status(code, &body))))
    }
}

async fn collect(response: ServerResponse) -> Result<Bytes, Error> {
    Ok(response.into_body().collect().await.map_err(Error::Transport)?.to_bytes())
}

/// The `Status` in the body of an error; one with the text of the body where there is none.
fn status(code: http::StatusCode, body: &[u8]) -> Status {
    let read = from_json::<Status>(body).ok().filter(|status| !status.status.is_empty());
    let mut status = read.unwrap_or_else(|| {
        let text = String::from_utf8_lossy(body).trim().to_owned();
        let message = if text.is_empty() { code.to_string() } else { text };
        Status { status: "Failure".to_owned(), message, ..Status::default() }
    });
    status.code = code.as_u16().into();
    status
}
