//! Methods about containers and their streams.

use super::CriService;
use super::filter::matches_container;
use super::status::{missing, rpc_status};
use super::stream_server::StreamRequest;
use super::{from_cri, to_cri};
use crate::runtime::{ContainerState, DetailsSubject, StreamOptions};
use crate::server::command_streams::Action;
use grpc::cri;
use grpc::tonic::Status;
use std::collections::BTreeMap;
use std::time::Duration;

/// Seconds of a request; a negative number is none.
pub fn seconds(number: i64) -> Duration {
    Duration::from_secs(u64::try_from(number).unwrap_or(0))
}

/// The streams of a request, if they can be.
fn stream_options(options: StreamOptions) -> Result<StreamOptions, Status> {
    if options.tty && options.stderr {
        return Err(Status::invalid_argument("tty and stderr cannot both be true"));
    }
    if !options.stdin && !options.stdout && !options.stderr {
        return Err(Status::invalid_argument("one of stdin, stdout, or stderr must be set"));
    }
    Ok(options)
}

impl CriService {
    pub async fn create(&self, request: cri::CreateContainerRequest) -> Result<String, Status> {
        let config = from_cri::container_config(request.config)?;
        let sandbox_config = from_cri::sandbox_config(request.sandbox_config)?;
        let sandbox = self.sandbox_id(&request.pod_sandbox_id).await?;
        self.runtime.create_container(&sandbox, &config, &sandbox_config).await.map_err(rpc_status)
    }

    pub async fn list(&self, filter: Option<cri::ContainerFilter>) -> Result<Vec<cri::Container>, Status> {
        let mut filter = filter.unwrap_or_default();
        filter.id = self.container_id(&filter.id).await?;
        filter.pod_sandbox_id = self.sandbox_id(&filter.pod_sandbox_id).await?;
        let containers = self.runtime.containers(None).await.map_err(rpc_status)?;
        let matching = containers.into_iter().filter(|it| matches_container(it, &filter));
        Ok(matching.map(to_cri::container).collect())
    }

    pub async fn container_response(
        &self,
        request: cri::ContainerStatusRequest,
    ) -> Result<cri::ContainerStatusResponse, Status> {
        let id = self.container_id(&request.container_id).await?;
        let status = self.runtime.container_status(&id).await.map_err(rpc_status)?;
        let info = match request.verbose {
            true => self.runtime.details(DetailsSubject::Container(&id)).await.map_err(rpc_status)?,
            false => BTreeMap::new(),
        };
        Ok(cri::ContainerStatusResponse { status: Some(to_cri::container_status(status)), info })
    }

    /// The id of a container that runs.
    async fn running_container(&self, given: &str) -> Result<String, Status> {
        let id = self.container_id(given).await?;
        let status = self.runtime.container_status(&id).await.map_err(rpc_status)?;
        match status.state {
            ContainerState::Running => Ok(id),
            state => Err(Status::failed_precondition(format!("container {id:?} is in the state {state:?}"))),
        }
    }

    pub async fn exec_url(&self, request: cri::ExecRequest) -> Result<String, Status> {
        let cri::ExecRequest { cmd, tty, stdin, stdout, stderr, .. } = request;
        if cmd.is_empty() {
            return Err(missing("the command"));
        }
        let options = stream_options(StreamOptions { stdin, stdout, stderr, tty })?;
        let id = self.running_container(&request.container_id).await?;
        self.streams.url(StreamRequest::Command { action: Action::Exec { id, command: cmd }, options })
    }

    pub async fn attach_url(&self, request: cri::AttachRequest) -> Result<String, Status> {
        let cri::AttachRequest { tty, stdin, stdout, stderr, .. } = request;
        let options = stream_options(StreamOptions { stdin, stdout, stderr, tty })?;
        let id = self.running_container(&request.container_id).await?;
        self.streams.url(StreamRequest::Command { action: Action::Attach { id }, options })
    }

    pub async fn port_forward_url(&self, request: cri::PortForwardRequest) -> Result<String, Status> {
        let sandbox = self.sandbox_id(&request.pod_sandbox_id).await?;
        let status = self.runtime.sandbox_status(&sandbox).await.map_err(rpc_status)?;
        if !status.info.is_ready {
            return Err(Status::failed_precondition(format!("sandbox {sandbox:?} is not running")));
        }
        let port = |number: &i32| {
            let port = u16::try_from(*number).ok().filter(|it| *it > 0);
            port.ok_or_else(|| Status::invalid_argument(format!("invalid port {number}")))
        };
        let ports = request.port.iter().map(port).collect::<Result<_, _>>()?;
        self.streams.url(StreamRequest::PortForward { sandbox, ports })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_must_fit_together() {
        let check =
            |stdin, stdout, stderr, tty| stream_options(StreamOptions { stdin, stdout, stderr, tty }).is_ok();
        assert!(check(false, true, true, false) && check(true, true, false, true));
        assert!(!check(false, false, false, true) && !check(true, true, true, true));
        assert_eq!((seconds(-1), seconds(3)), (Duration::ZERO, Duration::from_secs(3)));
    }
}
