//! Helpers of unit tests.

use api::{Json, from_json};
use client::Body;
use http::{Request, Response};
use serde_json::Value;
use std::convert::Infallible;
use std::task::{Context, Poll};
use tower_service::Service;

/// A typed object from its JSON.
pub fn object<T: Json>(json: Value) -> T {
    from_json(json.to_string().as_bytes()).unwrap()
}

/// A server that answers each request with the future of a function.
#[derive(Clone)]
pub struct TestServer<F>(F);

pub fn server<F, A>(answer: F) -> TestServer<F>
where
    F: FnMut(Request<Body>) -> A,
    A: Future<Output = Result<Response<Body>, Infallible>>,
{
    TestServer(answer)
}

impl<F, A> Service<Request<Body>> for TestServer<F>
where
    F: FnMut(Request<Body>) -> A,
    A: Future<Output = Result<Response<Body>, Infallible>>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = A;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> A {
        (self.0)(request)
    }
}
