//! Routes requests: gRPC by its services, and a few pages.

use std::convert::Infallible;
use std::sync::Arc;

use ::http::header::{CONTENT_TYPE, HeaderValue};
use ::http::{Method, Request, Response, StatusCode};
use ::metrics::Registry;
use bytes::Bytes;
use grpc::etcd::auth_server::AuthServer;
use grpc::etcd::cluster_server::ClusterServer;
use grpc::etcd::kv_server::KvServer;
use grpc::etcd::lease_server::LeaseServer;
use grpc::etcd::maintenance_server::MaintenanceServer;
use grpc::etcd::watch_server::WatchServer;
use grpc::tonic::body::Body;
use grpc::tonic::codegen::Service;
use grpc::tonic::{Code, Status};
use http_body_util::Full;
use hyper::body::Incoming;

use crate::error::Error;
use crate::service::Services;
use crate::{CLUSTER_VERSION, VERSION};

/// A client may send so much more than a request may have; the server then says why it refuses it.
const MAX_MESSAGE_FACTOR: usize = 4;

/// Answers requests.
pub struct Router {
    services: Arc<Services>,
    registry: Arc<Registry>,
}

impl Router {
    pub fn new(services: Arc<Services>, registry: Arc<Registry>) -> Self {
        Self { services, registry }
    }

    pub async fn respond(&self, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
        let is_grpc = request.headers().get(CONTENT_TYPE).is_some_and(is_grpc);
        if is_grpc { self.call(request).await } else { Ok(self.page(&request)) }
    }

    /// Passes a call to the service that its path names.
    async fn call(&self, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
        let path = request.uri().path().to_owned();
        let (service, method) = path.trim_start_matches('/').split_once('/').unwrap_or_default();
        let services = self.services.clone();
        let limit = self.services.engine.shared().limits.max_request_bytes.saturating_mul(MAX_MESSAGE_FACTOR);
        let response = match service {
            "etcdserverpb.KV" => {
                KvServer::from_arc(services).max_decoding_message_size(limit).call(request).await?
            }
            "etcdserverpb.Watch" => WatchServer::from_arc(services).call(request).await?,
            "etcdserverpb.Lease" => LeaseServer::from_arc(services).call(request).await?,
            "etcdserverpb.Maintenance" => MaintenanceServer::from_arc(services).call(request).await?,
            "etcdserverpb.Cluster" if method == "MemberList" => {
                ClusterServer::from_arc(services).call(request).await?
            }
            "etcdserverpb.Cluster" => {
                Status::unimplemented("etcdserver: this server is its cluster's only member").into_http()
            }
            "etcdserverpb.Auth" if matches!(method, "Authenticate" | "AuthStatus") => {
                AuthServer::from_arc(services).call(request).await?
            }
            "etcdserverpb.Auth" => Status::from(Error::AuthNotEnabled).into_http(),
            _ => Status::unimplemented(format!("unknown service {service}")).into_http(),
        };
        let code = Status::from_header_map(response.headers()).map_or(Code::Ok, |status| status.code());
        // clients choose the names of services that do not exist
        if code != Code::Unimplemented {
            self.services.engine.shared().metrics.calls.of(&[&format!("{code:?}"), method, service]).inc();
        }
        Ok(response)
    }

    fn page(&self, request: &Request<Incoming>) -> Response<Body> {
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        let shared = self.services.engine.shared();
        match request.uri().path() {
            _ if !is_read => page(StatusCode::METHOD_NOT_ALLOWED, TEXT, "Method Not Allowed\n"),
            "/health" => {
                let reason = match (shared.is_healthy(), shared.state.read().alarms) {
                    (false, _) => "STORE FAILED",
                    (true, 0) => "",
                    (true, _) => "ALARM RAISED",
                };
                let body = serde_json::json!({
                    "health": if reason.is_empty() { "true" } else { "false" },
                    "reason": reason,
                });
                let status = if reason.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
                page(status, JSON, body.to_string())
            }
            "/version" => {
                let body = serde_json::json!({ "etcdserver": VERSION, "etcdcluster": CLUSTER_VERSION });
                page(StatusCode::OK, JSON, body.to_string())
            }
            "/metrics" => page(StatusCode::OK, METRICS, self.registry.text()),
            _ => page(StatusCode::NOT_FOUND, TEXT, "404 page not found\n"),
        }
    }
}

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

fn is_grpc(content_type: &HeaderValue) -> bool {
    content_type.as_bytes().starts_with(b"application/grpc")
}

fn page(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::new(Full::new(body.into())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
