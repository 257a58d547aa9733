//! The connection to a CRI runtime: clients, timeouts, errors.

use crate::runtime::error::{RuntimeCode, RuntimeError};
use grpc::cri::image_service_client::ImageServiceClient;
use grpc::cri::runtime_service_client::RuntimeServiceClient;
use grpc::tonic::{self, Code};
use outbound::trace::{TracedChannel, Tracer};
use outbound::{Channel, InvalidTarget, RpcError, Target};
use std::sync::Arc;
use std::time::Duration;

/// The timeout of calls that read or change state.
const TIMEOUT: Duration = Duration::from_secs(120);
/// The limit of one response: lists of thousands of containers fit.
const RESPONSE_LIMIT: usize = 64 << 20;

/// A runtime behind a socket. Cheap to clone.
#[derive(Clone)]
pub struct CriRuntime {
    pub(super) channel: TracedChannel,
    images: TracedChannel,
    pub(super) timeout: Duration,
}

impl CriRuntime {
    /// Connects on the first call. `images` is the endpoint of the image service, if it is another one. With a tracer,
    /// calls are spans.
    pub fn new(
        endpoint: &str,
        images: Option<&str>,
        timeout: Option<Duration>,
        tracer: Option<Arc<Tracer>>,
    ) -> Result<Self, InvalidTarget> {
        let channel = channel(endpoint, &tracer)?;
        let images = match images.filter(|it| !it.is_empty() && *it != endpoint) {
            Some(images) => self::channel(images, &tracer)?,
            None => channel.clone(),
        };
        Ok(CriRuntime { channel, images, timeout: timeout.unwrap_or(TIMEOUT) })
    }

    pub(super) fn runtime(&self) -> RuntimeServiceClient<TracedChannel> {
        RuntimeServiceClient::new(self.channel.clone()).max_decoding_message_size(RESPONSE_LIMIT)
    }

    pub(super) fn image_service(&self) -> ImageServiceClient<TracedChannel> {
        ImageServiceClient::new(self.images.clone()).max_decoding_message_size(RESPONSE_LIMIT)
    }

    pub(super) async fn within<T>(
        &self,
        time: Duration,
        call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
    ) -> Result<T, RuntimeError> {
        self.channel.within(time, call).await.map_err(error)
    }

    pub(super) async fn call<T>(
        &self,
        call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
    ) -> Result<T, RuntimeError> {
        self.within(self.timeout, call).await
    }
}

fn channel(endpoint: &str, tracer: &Option<Arc<Tracer>>) -> Result<TracedChannel, InvalidTarget> {
    let url = if endpoint.contains(':') { endpoint.to_owned() } else { format!("unix://{endpoint}") };
    let channel = Channel::new(&Target { url, ..Target::default() }, &[])?;
    Ok(TracedChannel::new(channel, tracer.clone()))
}

pub(super) fn error(from: RpcError) -> RuntimeError {
    match from {
        RpcError::Refused { code, message } => RuntimeError::new(runtime_code(code), message),
        RpcError::Timeout(_) => RuntimeError::new(RuntimeCode::DeadlineExceeded, "context deadline exceeded"),
        RpcError::TooLarge => RuntimeError::new(RuntimeCode::ResourceExhausted, from.to_string()),
        RpcError::Unsent(why) | RpcError::Lost(why) => RuntimeError::new(RuntimeCode::Unavailable, why),
    }
}

fn runtime_code(code: Code) -> RuntimeCode {
    match code {
        Code::InvalidArgument => RuntimeCode::InvalidArgument,
        Code::DeadlineExceeded => RuntimeCode::DeadlineExceeded,
        Code::NotFound => RuntimeCode::NotFound,
        Code::AlreadyExists => RuntimeCode::AlreadyExists,
        Code::PermissionDenied => RuntimeCode::PermissionDenied,
        Code::ResourceExhausted => RuntimeCode::ResourceExhausted,
        Code::FailedPrecondition => RuntimeCode::FailedPrecondition,
        Code::Unimplemented => RuntimeCode::Unimplemented,
        Code::Internal => RuntimeCode::Internal,
        Code::Unavailable => RuntimeCode::Unavailable,
        _ => RuntimeCode::Unknown,
    }
}
