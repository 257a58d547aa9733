//! A runtime that counts the calls to another one and measures their time.

use super::counters::AgentMetrics;
use crate::runtime::{
    Call, ContainerConfig, ContainerInfo, ContainerStats, ContainerStatus, ExecOutput, ExecStreams,
    FilesystemStats, ImageInfo, LinuxResources, PortStream, RegistryAuth, Runtime, RuntimeEvent,
    RuntimeStatus, RuntimeVersion, SandboxConfig, SandboxInfo, SandboxStats, SandboxStatus, SharedRuntime,
    StreamOptions,
};
use env::World;
use futures_util::FutureExt;
use std::time::Duration;
use tokio::sync::mpsc;

/// See the module.
pub struct RuntimeMeter {
    pub runtime: SharedRuntime,
    pub metrics: AgentMetrics,
    pub world: World,
}

impl RuntimeMeter {
    fn count<'a, T: Send + 'a>(&'a self, operation: &'static str, call: Call<'a, T>) -> Call<'a, T> {
        async move {
            let begun = self.world.elapsed();
            let answer = call.await;
            self.metrics.call_ended(operation, self.world.elapsed().saturating_sub(begun), answer.is_err());
            answer
        }
        .boxed()
    }
}

impl Runtime for RuntimeMeter {
    fn version(&self) -> Call<'_, RuntimeVersion> {
        self.count("version", self.runtime.version())
    }

    fn status(&self) -> Call<'_, RuntimeStatus> {
        self.count("status", self.runtime.status())
    }

    fn run_sandbox<'a>(&'a self, config: &'a SandboxConfig, handler: &'a str) -> Call<'a, String> {
        let call = self.count("run_podsandbox", self.runtime.run_sandbox(config, handler));
        async move {
            let begun = self.world.elapsed();
            let answer = call.await;
            let time = self.world.elapsed().saturating_sub(begun);
            self.metrics.sandbox_ended(handler, time, answer.is_err());
            answer
        }
        .boxed()
    }

    fn stop_sandbox<'a>(&'a self, id: &'a str) -> Call<'a, ()> {
        self.count("stop_podsandbox", self.runtime.stop_sandbox(id))
    }

    fn remove_sandbox<'a>(&'a self, id: &'a str) -> Call<'a, ()> {
        self.count("remove_podsandbox", self.runtime.remove_sandbox(id))
    }

    fn sandboxes<'a>(&'a self, uid: Option<&'a str>) -> Call<'a, Vec<SandboxInfo>> {
        self.count("list_podsandbox", self.runtime.sandboxes(uid))
    }

    fn sandbox_status<'a>(&'a self, id: &'a str) -> Call<'a, SandboxStatus> {
        self.count("podsandbox_status", self.runtime.sandbox_status(id))
    }

    fn create_container<'a>(
        &'a self,
        sandbox: &'a str,
        config: &'a ContainerConfig,
        sandbox_config: &'a SandboxConfig,
    ) -> Call<'a, String> {
        self.count("create_container", self.runtime.create_container(sandbox, config, sandbox_config))
    }

    fn start_container<'a>(&'a self, id: &'a str) -> Call<'a, ()> {
        self.count("start_container", self.runtime.start_container(id))
    }

    fn stop_container<'a>(&'a self, id: &'a str, grace: Duration) -> Call<'a, ()> {
        self.count("stop_container", self.runtime.stop_container(id, grace))
    }

    fn remove_container<'a>(&'a self, id: &'a str) -> Call<'a, ()> {
        self.count("remove_container", self.runtime.remove_container(id))
    }

    fn containers<'a>(&'a self, uid: Option<&'a str>) -> Call<'a, Vec<ContainerInfo>> {
        self.count("list_containers", self.runtime.containers(uid))
    }

    fn container_status<'a>(&'a self, id: &'a str) -> Call<'a, ContainerStatus> {
        self.count("container_status", self.runtime.container_status(id))
    }

    fn update_resources<'a>(&'a self, id: &'a str, resources: &'a LinuxResources) -> Call<'a, ()> {
        self.count("update_container", self.runtime.update_resources(id, resources))
    }

    fn reopen_log<'a>(&'a self, id: &'a str) -> Call<'a, ()> {
        self.count("reopen_container_log", self.runtime.reopen_log(id))
    }

    fn checkpoint<'a>(&'a self, id: &'a str, location: &'a str, timeout: Duration) -> Call<'a, ()> {
        self.count("checkpoint_container", self.runtime.checkpoint(id, location, timeout))
    }

    fn exec_sync<'a>(
        &'a self,
        id: &'a str,
        command: &'a [String],
        timeout: Duration,
    ) -> Call<'a, ExecOutput> {
        self.count("exec_sync", self.runtime.exec_sync(id, command, timeout))
    }

    fn exec<'a>(
        &'a self,
        id: &'a str,
        command: &'a [String],
        options: StreamOptions,
    ) -> Call<'a, ExecStreams> {
        self.count("exec", self.runtime.exec(id, command, options))
    }

    fn attach<'a>(&'a self, id: &'a str, options: StreamOptions) -> Call<'a, ExecStreams> {
        self.count("attach", self.runtime.attach(id, options))
    }

    fn port_forward<'a>(&'a self, sandbox: &'a str, port: u16) -> Call<'a, PortStream> {
        self.count("port_forward", self.runtime.port_forward(sandbox, port))
    }

    fn container_stats(&self) -> Call<'_, Vec<ContainerStats>> {
        self.count("list_container_stats", self.runtime.container_stats())
    }

    fn sandbox_stats(&self) -> Call<'_, Vec<SandboxStats>> {
        self.count("list_podsandbox_stats", self.runtime.sandbox_stats())
    }

    fn images(&self) -> Call<'_, Vec<ImageInfo>> {
        self.count("list_images", self.runtime.images())
    }

    fn image<'a>(&'a self, image: &'a str) -> Call<'a, Option<ImageInfo>> {
        self.count("image_status", self.runtime.image(image))
    }

    fn pull<'a>(
        &'a self,
        image: &'a str,
        auth: Option<&'a RegistryAuth>,
        sandbox_config: &'a SandboxConfig,
    ) -> Call<'a, String> {
        self.count("pull_image", self.runtime.pull(image, auth, sandbox_config))
    }

    fn remove_image<'a>(&'a self, image: &'a str) -> Call<'a, ()> {
        self.count("remove_image", self.runtime.remove_image(image))
    }

    fn image_fs(&self) -> Call<'_, Vec<FilesystemStats>> {
        self.count("image_fs_info", self.runtime.image_fs())
    }

    fn update_pod_cidr<'a>(&'a self, cidr: &'a str) -> Call<'a, ()> {
        self.count("update_runtime_config", self.runtime.update_pod_cidr(cidr))
    }

    fn events(&self) -> Call<'_, mpsc::Receiver<RuntimeEvent>> {
        // a stream, not a call
        self.runtime.events()
    }
}
