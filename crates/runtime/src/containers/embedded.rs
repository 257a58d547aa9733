//! The runtime in this process, as the agent sees it.

use super::details::{details, image_details};
use super::state::{EmbeddedOptions, State, blocking, image_error};
use crate::images::{Image, ImageReference, ImageStore, PullProgress, Puller};
use crate::*;
use env::World;
use futures_util::FutureExt;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Events that a subscriber may be behind.
const QUEUE: usize = 256;

/// See the module. Must be made inside of a tokio runtime.
pub struct EmbeddedRuntime {
    state: Arc<State>,
}

impl EmbeddedRuntime {
    /// Opens the runtime, and finds the pods that are there.
    pub fn open(options: EmbeddedOptions, world: World) -> Result<Self, RuntimeError> {
        Ok(EmbeddedRuntime { state: State::open(options, world)? })
    }

    /// As [`EmbeddedRuntime::open`], with copies of images in place of overlays.
    pub fn open_without_overlay(options: EmbeddedOptions, world: World) -> Result<Self, RuntimeError> {
        Ok(EmbeddedRuntime { state: State::open_with(options, world, false)? })
    }

    pub fn image_store(&self) -> &Arc<ImageStore> {
        &self.state.images
    }

    fn puller(&self) -> Puller {
        let options = &self.state.options;
        Puller {
            store: self.state.images.clone(),
            hosts: options.registries.clone(),
            agent: options.agent.clone(),
            world: self.state.world.clone(),
        }
    }

    async fn find_image(&self, image: &str) -> Result<Option<Image>, RuntimeError> {
        let (store, image) = (self.state.images.clone(), image.to_owned());
        blocking(move || store.find(&image).map_err(|why| image_error(&why))).await
    }
}

fn image_info(image: Image) -> ImageInfo {
    let (uid, username) = image.parsed.config.user();
    // without a user it is root
    let uid = uid.or(username.is_empty().then_some(0));
    let size = image.size;
    ImageInfo {
        id: image.id.to_string(),
        tags: image.tags,
        digests: image.digests,
        size,
        uid,
        username,
        is_pinned: false,
    }
}

impl Runtime for EmbeddedRuntime {
    fn version(&self) -> Call<'_, RuntimeVersion> {
        let version = RuntimeVersion {
            name: "pintle".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            api_version: "v1".to_owned(),
        };
        async move { Ok(version) }.boxed()
    }

    fn status(&self) -> Call<'_, RuntimeStatus> {
        let condition = |kind: &str, is_true: bool, reason: &str, message: &str| RuntimeCondition {
            kind: kind.to_owned(),
            is_true,
            reason: reason.to_owned(),
            message: message.to_owned(),
        };
        let network = match self.state.options.cni.configuration() {
            Some(_) => condition("NetworkReady", true, "", ""),
            None => condition(
                "NetworkReady",
                false,
                "NetworkPluginNotReady",
                "Network plugin returns error: cni plugin not initialized",
            ),
        };
        let conditions = vec![condition("RuntimeReady", true, "", ""), network];
        async move { Ok(RuntimeStatus { conditions }) }.boxed()
    }

    fn details<'a>(&'a self, subject: DetailsSubject<'a>) -> Call<'a, BTreeMap<String, String>> {
        async move {
            match subject {
                DetailsSubject::Image(image) => {
                    let found = self.find_image(image).await?;
                    Ok(found.map(|it| image_details(&it)).unwrap_or_default())
                }
                _ => details(&self.state, subject),
            }
        }
        .boxed()
    }

    fn run_sandbox<'a>(&'a self, config: &'a SandboxConfig, handler: &'a str) -> Call<'a, String> {
        self.state.run_sandbox(config, handler).boxed()
    }

    fn stop_sandbox<'a>(&'a self, id: &'a str) -> Call<'a, ()> {
        self.state.stop_sandbox(id).boxed()
    }

    fn remove_sandbox<'a>(&'a self, id: &'a str) -> Call<'a, ()> {
        self.state.remove_sandbox(id).boxed()
    }

    fn sandboxes<'a>(&'a self, uid: Option<&'a str>) -> Call<'a, Vec<SandboxInfo>> {
        async move { Ok(self.state.list_sandboxes(uid)) }.boxed()
    }

    fn sandbox_status<'a>(&'a self, id: &'a str) -> Call<'a, SandboxStatus> {
        async move { self.state.sandbox_status(id) }.boxed()
    }

    fn create_container<'a>(
        &'a self,
        sandbox: &'a str,
        config: &'a ContainerConfig,
        sandbox_config: &'a SandboxConfig,
    ) -> Call<'a, String> {
        self.state.create_container(sandbox, config, sandbox_config).boxed()
    }

    fn start_container<'a>(&'a self, id: &'a str) -> Call<'a, ()> {
        self.state.start_container(id).boxed()
    }

    fn stop_container<'a>(&'a self, id: &'a str, grace: Duration) -> Call<'a, ()> {
        self.state.stop_container(id, grace).boxed()
    }

    fn remove_container<'a>(&'a self, id: &'a str) -> Call<'a, ()> {
        self.state.remove_container(id).boxed()
    }

    fn containers<'a>(&'a self, uid: Option<&'a str>) -> Call<'a, Vec<ContainerInfo>> {
        async move { Ok(self.state.list_containers(uid)) }.boxed()
    }

    fn container_status<'a>(&'a self, id: &'a str) -> Call<'a, ContainerStatus> {
        async move { self.state.container_status(id) }.boxed()
    }

    fn update_resources<'a>(&'a self, id: &'a str, resources: &'a LinuxResources) -> Call<'a, ()> {
        async move { self.state.update_resources(id, resources) }.boxed()
    }

    fn reopen_log<'a>(&'a self, id: &'a str) -> Call<'a, ()> {
        self.state.reopen_log(id).boxed()
    }

    fn checkpoint<'a>(&'a self, id: &'a str, _: &'a str, _: Duration) -> Call<'a, ()> {
        async move { self.state.checkpoint(id) }.boxed()
    }

    fn exec_sync<'a>(
        &'a self,
        id: &'a str,
        command: &'a [String],
        timeout: Duration,
    ) -> Call<'a, ExecOutput> {
        self.state.exec_sync(id, command, timeout).boxed()
    }

    fn exec<'a>(
        &'a self,
        id: &'a str,
        command: &'a [String],
        options: StreamOptions,
    ) -> Call<'a, ExecStreams> {
        self.state.exec(id, command, options).boxed()
    }

    fn attach<'a>(&'a self, id: &'a str, options: StreamOptions) -> Call<'a, ExecStreams> {
        self.state.attach(id, options).boxed()
    }

    fn port_forward<'a>(&'a self, sandbox: &'a str, port: u16) -> Call<'a, PortStream> {
        self.state.port_forward(sandbox, port).boxed()
    }

    fn container_stats(&self) -> Call<'_, Vec<ContainerStats>> {
        let state = self.state.clone();
        blocking(move || Ok(state.container_stats())).boxed()
    }

    fn sandbox_stats(&self) -> Call<'_, Vec<SandboxStats>> {
        let state = self.state.clone();
        blocking(move || Ok(state.sandbox_stats())).boxed()
    }

    fn images(&self) -> Call<'_, Vec<ImageInfo>> {
        let store = self.state.images.clone();
        blocking(move || {
            let images = store.list().map_err(|why| image_error(&why))?;
            Ok(images.into_iter().map(image_info).collect())
        })
        .boxed()
    }

    fn image<'a>(&'a self, image: &'a str) -> Call<'a, Option<ImageInfo>> {
        async move { Ok(self.find_image(image).await?.map(image_info)) }.boxed()
    }

    fn pull<'a>(
        &'a self,
        image: &'a str,
        auth: Option<&'a RegistryAuth>,
        _: &'a SandboxConfig,
    ) -> Call<'a, String> {
        async move {
            let progress: PullProgress = Arc::new(|_| {});
            let pulled = self.puller().pull(image, auth, progress).await;
            let pulled = pulled.map_err(|why| {
                let error = image_error(&why);
                let image =
                    ImageReference::parse(image).map_or_else(|_| image.to_owned(), |it| it.to_string());
                let message = format!("failed to pull and unpack image {image:?}: {}", error.message);
                RuntimeError::new(error.code, message)
            })?;
            Ok(pulled.id.to_string())
        }
        .boxed()
    }

    fn remove_image<'a>(&'a self, image: &'a str) -> Call<'a, ()> {
        let (state, image) = (self.state.clone(), image.to_owned());
        blocking(move || {
            state.images.remove(&image).map_err(|why| image_error(&why))?;
            state.collect_garbage()
        })
        .boxed()
    }

    fn image_fs(&self) -> Call<'_, Vec<FilesystemStats>> {
        let state = self.state.clone();
        blocking(move || {
            let usage = state.images.usage().map_err(|why| image_error(&why))?;
            Ok(vec![FilesystemStats {
                timestamp: state.now(),
                mountpoint: state.images.root().display().to_string(),
                used_bytes: Some(usage.bytes),
                inodes_used: Some(usage.inodes),
            }])
        })
        .boxed()
    }

    /// CNI plugins get their networks from their configuration.
    fn update_pod_cidr<'a>(&'a self, _: &'a str) -> Call<'a, ()> {
        async { Ok(()) }.boxed()
    }

    fn events(&self) -> Call<'_, mpsc::Receiver<RuntimeEvent>> {
        let mut events = self.state.events.subscribe();
        let (sender, receiver) = mpsc::channel(QUEUE);
        tokio::spawn(async move {
            // a subscriber that fell behind gets the end of the stream, and looks at everything
            while let Ok(event) = events.recv().await {
                if sender.send(event).await.is_err() {
                    return;
                }
            }
        });
        async move { Ok(receiver) }.boxed()
    }
}
