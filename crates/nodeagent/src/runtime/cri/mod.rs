//! A container runtime behind a Unix socket that speaks the CRI v1: containerd, CRI-O.
//!
//! Every call has a timeout. The events of the runtime are those of the CRI, or those of containerd where its version
//! has none in the CRI.

mod connection;
pub(crate) mod convert;
mod events;
mod settings;
mod streaming;

pub use connection::CriRuntime;
pub use settings::{CniDirectories, RuntimeSettings};

use super::*;
use futures_util::FutureExt;
use grpc::cri;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::mpsc;

/// Success of a call whose object is gone already.
fn or_gone<T>(answer: Result<T, RuntimeError>) -> Result<(), RuntimeError> {
    match answer {
        Err(why) if !why.is_not_found() => Err(why),
        _ => Ok(()),
    }
}

fn seconds(time: Duration) -> i64 {
    time.as_secs_f64().ceil() as i64
}

/// The label by which the sandboxes and containers of a pod are found.
fn of_pod(uid: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(names::node::POD_UID.to_owned(), uid.to_owned())])
}

impl Runtime for CriRuntime {
    fn version(&self) -> Call<'_, RuntimeVersion> {
        async move {
            let request = cri::VersionRequest { version: "0.1.0".into() };
            let answer = self.call(self.runtime().version(request)).await?;
            Ok(RuntimeVersion {
                name: answer.runtime_name,
                version: answer.runtime_version,
                api_version: answer.runtime_api_version,
            })
        }
        .boxed()
    }

    fn status(&self) -> Call<'_, RuntimeStatus> {
        async move {
            let answer = self.call(self.runtime().status(cri::StatusRequest { verbose: false })).await?;
            let condition = |it: cri::RuntimeCondition| RuntimeCondition {
                kind: it.r#type,
                is_true: it.status,
                reason: it.reason,
                message: it.message,
            };
            let conditions = answer.status.unwrap_or_default().conditions;
            Ok(RuntimeStatus { conditions: conditions.into_iter().map(condition).collect() })
        }
        .boxed()
    }

    fn run_sandbox<'a>(&'a self, config: &'a SandboxConfig, handler: &'a str) -> Call<'a, String> {
        async move {
            let request = cri::RunPodSandboxRequest {
                config: Some(convert::sandbox_config(config)),
                runtime_handler: handler.to_owned(),
            };
            // the runtime may pull the image of the sandbox
            let answer = self.within(self.timeout * 2, self.runtime().run_pod_sandbox(request)).await?;
            Ok(answer.pod_sandbox_id)
        }
        .boxed()
    }

    fn stop_sandbox<'a>(&'a self, id: &'a str) -> Call<'a, ()> {
        async move {
            let request = cri::StopPodSandboxRequest { pod_sandbox_id: id.to_owned() };
            or_gone(self.call(self.runtime().stop_pod_sandbox(request)).await)
        }
        .boxed()
    }

    fn remove_sandbox<'a>(&'a self, id: &'a str) -> Call<'a, ()> {
        async move {
            let request = cri::RemovePodSandboxRequest { pod_sandbox_id: id.to_owned() };
            or_gone(self.call(self.runtime().remove_pod_sandbox(request)).await)
        }
        .boxed()
    }

    fn sandboxes<'a>(&'a self, uid: Option<&'a str>) -> Call<'a, Vec<SandboxInfo>> {
        async move {
            let filter =
                uid.map(|uid| cri::PodSandboxFilter { label_selector: of_pod(uid), ..Default::default() });
            let answer =
                self.call(self.runtime().list_pod_sandbox(cri::ListPodSandboxRequest { filter })).await?;
            Ok(answer.items.into_iter().map(convert::sandbox_info).collect())
        }
        .boxed()
    }

    fn sandbox_status<'a>(&'a self, id: &'a str) -> Call<'a, SandboxStatus> {
        async move {
            let request = cri::PodSandboxStatusRequest { pod_sandbox_id: id.to_owned(), verbose: false };
            let answer = self.call(self.runtime().pod_sandbox_status(request)).await?;
            Ok(convert::sandbox_status(answer.status.unwrap_or_default()))
        }
        .boxed()
    }

    fn create_container<'a>(
        &'a self,
        sandbox: &'a str,
        config: &'a ContainerConfig,
        sandbox_config: &'a SandboxConfig,
    ) -> Call<'a, String> {
        async move {
            let request = cri::CreateContainerRequest {
                pod_sandbox_id: sandbox.to_owned(),
                config: Some(convert::container_config(config)),
                sandbox_config: Some(convert::sandbox_config(sandbox_config)),
            };
            Ok(self.call(self.runtime().create_container(request)).await?.container_id)
        }
        .boxed()
    }

    fn start_container<'a>(&'a self, id: &'a str) -> Call<'a, ()> {
        async move {
            let request = cri::StartContainerRequest { container_id: id.to_owned() };
            self.call(self.runtime().start_container(request)).await.map(drop)
        }
        .boxed()
    }

    fn stop_container<'a>(&'a self, id: &'a str, grace: Duration) -> Call<'a, ()> {
        async move {
            let request = cri::StopContainerRequest { container_id: id.to_owned(), timeout: seconds(grace) };
            or_gone(self.within(self.timeout + grace, self.runtime().stop_container(request)).await)
        }
        .boxed()
    }

    fn remove_container<'a>(&'a self, id: &'a str) -> Call<'a, ()> {
        async move {
            let request = cri::RemoveContainerRequest { container_id: id.to_owned() };
            or_gone(self.call(self.runtime().remove_container(request)).await)
        }
        .boxed()
    }

    fn containers<'a>(&'a self, uid: Option<&'a str>) -> Call<'a, Vec<ContainerInfo>> {
        async move {
            let filter =
                uid.map(|uid| cri::ContainerFilter { label_selector: of_pod(uid), ..Default::default() });
            let answer =
                self.call(self.runtime().list_containers(cri::ListContainersRequest { filter })).await?;
            Ok(answer.containers.into_iter().map(convert::container_info).collect())
        }
        .boxed()
    }

    fn container_status<'a>(&'a self, id: &'a str) -> Call<'a, ContainerStatus> {
        async move {
            let request = cri::ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
            let answer = self.call(self.runtime().container_status(request)).await?;
            Ok(convert::container_status(answer.status.unwrap_or_default()))
        }
        .boxed()
    }

    fn update_resources<'a>(&'a self, id: &'a str, resources: &'a LinuxResources) -> Call<'a, ()> {
        async move {
            let request = cri::UpdateContainerResourcesRequest {
                container_id: id.to_owned(),
                linux: Some(convert::resources(resources)),
                annotations: Default::default(),
            };
            self.call(self.runtime().update_container_resources(request)).await.map(drop)
        }
        .boxed()
    }

    fn reopen_log<'a>(&'a self, id: &'a str) -> Call<'a, ()> {
        async move {
            let request = cri::ReopenContainerLogRequest { container_id: id.to_owned() };
            self.call(self.runtime().reopen_container_log(request)).await.map(drop)
        }
        .boxed()
    }

    fn checkpoint<'a>(&'a self, id: &'a str, location: &'a str, timeout: Duration) -> Call<'a, ()> {
        async move {
            let timeout = self.timeout.max(timeout);
            let request = cri::CheckpointContainerRequest {
                container_id: id.to_owned(),
                location: location.to_owned(),
                timeout: seconds(timeout),
            };
            self.within(timeout, self.runtime().checkpoint_container(request)).await.map(drop)
        }
        .boxed()
    }

    fn exec_sync<'a>(
        &'a self,
        id: &'a str,
        command: &'a [String],
        timeout: Duration,
    ) -> Call<'a, ExecOutput> {
        async move {
            let request = cri::ExecSyncRequest {
                container_id: id.to_owned(),
                cmd: command.to_vec(),
                timeout: seconds(timeout),
            };
            // without a timeout of its own, a command ends with its container
            let limit = if timeout.is_zero() { Duration::from_secs(1 << 32) } else { self.timeout + timeout };
            let answer = self.within(limit, self.runtime().exec_sync(request)).await?;
            Ok(ExecOutput {
                stdout: answer.stdout.to_vec(),
                stderr: answer.stderr.to_vec(),
                exit_code: answer.exit_code,
            })
        }
        .boxed()
    }

    fn exec<'a>(
        &'a self,
        id: &'a str,
        command: &'a [String],
        options: StreamOptions,
    ) -> Call<'a, ExecStreams> {
        async move {
            let request = cri::ExecRequest {
                container_id: id.to_owned(),
                cmd: command.to_vec(),
                tty: options.tty,
                stdin: options.stdin,
                stdout: options.stdout,
                stderr: options.stderr,
            };
            let answer = self.call(self.runtime().exec(request)).await?;
            streaming::exec(&answer.url, options).await
        }
        .boxed()
    }

    fn attach<'a>(&'a self, id: &'a str, options: StreamOptions) -> Call<'a, ExecStreams> {
        async move {
            let request = cri::AttachRequest {
                container_id: id.to_owned(),
                stdin: options.stdin,
                tty: options.tty,
                stdout: options.stdout,
                stderr: options.stderr,
            };
            let answer = self.call(self.runtime().attach(request)).await?;
            streaming::exec(&answer.url, options).await
        }
        .boxed()
    }

    fn port_forward<'a>(&'a self, sandbox: &'a str, port: u16) -> Call<'a, PortStream> {
        async move {
            let request =
                cri::PortForwardRequest { pod_sandbox_id: sandbox.to_owned(), port: vec![i32::from(port)] };
            let answer = self.call(self.runtime().port_forward(request)).await?;
            streaming::port_forward(&answer.url, port).await
        }
        .boxed()
    }

    fn container_stats(&self) -> Call<'_, Vec<ContainerStats>> {
        async move {
            let request = cri::ListContainerStatsRequest::default();
            let answer = self.call(self.runtime().list_container_stats(request)).await?;
            Ok(answer.stats.into_iter().map(convert::container_stats).collect())
        }
        .boxed()
    }

    fn sandbox_stats(&self) -> Call<'_, Vec<SandboxStats>> {
        async move {
            let request = cri::ListPodSandboxStatsRequest::default();
            let answer = self.call(self.runtime().list_pod_sandbox_stats(request)).await?;
            Ok(answer.stats.into_iter().map(convert::sandbox_stats).collect())
        }
        .boxed()
    }

    fn images(&self) -> Call<'_, Vec<ImageInfo>> {
        async move {
            let answer =
                self.call(self.image_service().list_images(cri::ListImagesRequest::default())).await?;
            Ok(answer.images.into_iter().map(convert::image_info).collect())
        }
        .boxed()
    }

    fn image<'a>(&'a self, image: &'a str) -> Call<'a, Option<ImageInfo>> {
        async move {
            let request = cri::ImageStatusRequest { image: Some(convert::image_spec(image)), verbose: false };
            let answer = self.call(self.image_service().image_status(request)).await?;
            Ok(answer.image.map(convert::image_info))
        }
        .boxed()
    }

    fn pull<'a>(
        &'a self,
        image: &'a str,
        auth: Option<&'a RegistryAuth>,
        sandbox_config: &'a SandboxConfig,
    ) -> Call<'a, String> {
        async move {
            let request = cri::PullImageRequest {
                image: Some(convert::image_spec(image)),
                auth: auth.map(convert::auth),
                sandbox_config: Some(convert::sandbox_config(sandbox_config)),
            };
            // the runtime ends pulls without progress itself
            let limit = Duration::from_secs(24 * 3600);
            Ok(self.within(limit, self.image_service().pull_image(request)).await?.image_ref)
        }
        .boxed()
    }

    fn remove_image<'a>(&'a self, image: &'a str) -> Call<'a, ()> {
        async move {
            let request = cri::RemoveImageRequest { image: Some(convert::image_spec(image)) };
            or_gone(self.call(self.image_service().remove_image(request)).await)
        }
        .boxed()
    }

    fn image_fs(&self) -> Call<'_, Vec<FilesystemStats>> {
        async move {
            let answer = self.call(self.image_service().image_fs_info(cri::ImageFsInfoRequest {})).await?;
            Ok(answer.image_filesystems.into_iter().map(convert::filesystem).collect())
        }
        .boxed()
    }

    fn update_pod_cidr<'a>(&'a self, cidr: &'a str) -> Call<'a, ()> {
        async move {
            let network = cri::NetworkConfig { pod_cidr: cidr.to_owned() };
            let config = cri::RuntimeConfig { network_config: Some(network) };
            let request = cri::UpdateRuntimeConfigRequest { runtime_config: Some(config) };
            self.call(self.runtime().update_runtime_config(request)).await.map(drop)
        }
        .boxed()
    }

    fn events(&self) -> Call<'_, mpsc::Receiver<RuntimeEvent>> {
        events::subscribe(self).boxed()
    }
}
