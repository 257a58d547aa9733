//! The calls of a simulated runtime.

use super::streams;
use super::{SimulatedRuntime, State};
use crate::runtime::*;
use futures_util::FutureExt;
use std::collections::BTreeMap;

fn not_found(what: &str, id: &str) -> RuntimeError {
    RuntimeError::new(RuntimeCode::NotFound, format!("{what} {id} not found"))
}

fn unimplemented<T: Send + 'static>() -> Call<'static, T> {
    async { Err(RuntimeError::new(RuntimeCode::Unimplemented, "not simulated")) }.boxed()
}

fn is_of_pod(of: &BTreeMap<String, String>, uid: Option<&str>) -> bool {
    uid.is_none() || labels::pod_uid(of) == uid
}

fn next_id(state: &mut State, prefix: &str) -> String {
    state.next += 1;
    format!("{prefix}{:04}", state.next)
}

impl Runtime for SimulatedRuntime {
    fn version(&self) -> Call<'_, RuntimeVersion> {
        async {
            self.answer().await?;
            Ok(RuntimeVersion { name: "simulated".into(), version: "1".into(), api_version: "v1".into() })
        }
        .boxed()
    }

    fn status(&self) -> Call<'_, RuntimeStatus> {
        async {
            self.answer().await?;
            let ready =
                |kind: &str| RuntimeCondition { kind: kind.into(), is_true: true, ..Default::default() };
            Ok(RuntimeStatus { conditions: vec![ready("RuntimeReady"), ready("NetworkReady")] })
        }
        .boxed()
    }

    fn run_sandbox<'a>(&'a self, config: &'a SandboxConfig, handler: &'a str) -> Call<'a, String> {
        async move {
            self.answer().await?;
            let created_at = self.now();
            let id = {
                let mut state = self.shared.state.lock();
                let id = next_id(&mut state, "s");
                let info = SandboxInfo {
                    id: id.clone(),
                    name: config.name.clone(),
                    uid: config.uid.clone(),
                    namespace: config.namespace.clone(),
                    attempt: config.attempt,
                    is_ready: true,
                    created_at: created_at + state.next as i64,
                    labels: config.labels.clone(),
                    annotations: config.annotations.clone(),
                    handler: handler.to_owned(),
                };
                let status =
                    SandboxStatus { info, ips: vec!["10.0.0.2".into()], namespaces: Default::default() };
                state.sandboxes.insert(id.clone(), status);
                id
            };
            self.count("run sandbox".into()).await;
            Ok(id)
        }
        .boxed()
    }

    fn stop_sandbox<'a>(&'a self, id: &'a str) -> Call<'a, ()> {
        async move {
            self.answer().await?;
            let running: Vec<String> = {
                let mut state = self.shared.state.lock();
                if let Some(sandbox) = state.sandboxes.get_mut(id) {
                    sandbox.info.is_ready = false;
                }
                state.containers.values().filter(|(of, _)| of == id).map(|(_, it)| it.id.clone()).collect()
            };
            running.iter().for_each(|it| self.end_container(it, 137));
            self.count("stop sandbox".into()).await;
            Ok(())
        }
        .boxed()
    }

    fn remove_sandbox<'a>(&'a self, id: &'a str) -> Call<'a, ()> {
        async move {
            self.answer().await?;
            {
                let mut state = self.shared.state.lock();
                state.sandboxes.remove(id);
                state.containers.retain(|_, (of, _)| of != id);
            }
            self.count("remove sandbox".into()).await;
            Ok(())
        }
        .boxed()
    }

    fn sandboxes<'a>(&'a self, uid: Option<&'a str>) -> Call<'a, Vec<SandboxInfo>> {
        async move {
            self.answer().await?;
            let state = self.shared.state.lock();
            let all = state.sandboxes.values().map(|it| &it.info);
            Ok(all.filter(|it| is_of_pod(&it.labels, uid)).cloned().collect())
        }
        .boxed()
    }

    fn sandbox_status<'a>(&'a self, id: &'a str) -> Call<'a, SandboxStatus> {
        async move {
            self.answer().await?;
            let status = self.shared.state.lock().sandboxes.get(id).cloned();
            status.ok_or_else(|| not_found("sandbox", id))
        }
        .boxed()
    }

    fn create_container<'a>(
        &'a self,
        sandbox: &'a str,
        config: &'a ContainerConfig,
        _: &'a SandboxConfig,
    ) -> Call<'a, String> {
        async move {
            self.answer().await?;
            let created_at = self.now();
            let id = {
                let mut state = self.shared.state.lock();
                if !state.sandboxes.contains_key(sandbox) {
                    return Err(not_found("sandbox", sandbox));
                }
                let id = next_id(&mut state, "c");
                let status = ContainerStatus {
                    id: id.clone(),
                    name: config.name.clone(),
                    attempt: config.attempt,
                    state: ContainerState::Created,
                    created_at: created_at + state.next as i64,
                    image: config.image.clone(),
                    image_ref: config.image.clone(),
                    labels: config.labels.clone(),
                    annotations: config.annotations.clone(),
                    mounts: config.mounts.clone(),
                    log_path: config.log_path.clone(),
                    ..ContainerStatus::default()
                };
                state.containers.insert(id.clone(), (sandbox.to_owned(), status));
                id
            };
            self.count(format!("create {}", config.name)).await;
            Ok(id)
        }
        .boxed()
    }

    fn start_container<'a>(&'a self, id: &'a str) -> Call<'a, ()> {
        async move {
            self.answer().await?;
            let now = self.now();
            let (name, behaviour) = {
                let mut state = self.shared.state.lock();
                let Some((_, status)) = state.containers.get_mut(id) else {
                    return Err(not_found("container", id));
                };
                let name = status.name.clone();
                let behaviour = state.behaviours.get(&name).cloned().unwrap_or_default();
                let Some((_, status)) = state.containers.get_mut(id) else {
                    return Err(not_found("container", id));
                };
                if let Some(why) = &behaviour.start_error {
                    status.state = ContainerState::Exited;
                    (status.exit_code, status.finished_at) = (128, now);
                    (status.reason, status.message) = ("StartError".into(), why.clone());
                    return Err(RuntimeError::new(RuntimeCode::Unknown, why.clone()));
                }
                (status.state, status.started_at) = (ContainerState::Running, now);
                (name, behaviour)
            };
            self.run_timer(id.to_owned(), &behaviour);
            self.count(format!("start {name}")).await;
            Ok(())
        }
        .boxed()
    }

    fn stop_container<'a>(&'a self, id: &'a str, grace: Duration) -> Call<'a, ()> {
        async move {
            self.answer().await?;
            let found = {
                let state = self.shared.state.lock();
                let name = state.containers.get(id).map(|(_, it)| it.name.clone());
                name.map(|name| (state.behaviours.get(&name).cloned().unwrap_or_default(), name))
            };
            let Some((behaviour, name)) = found else { return Ok(()) };
            if behaviour.ignores_stop {
                env::sleep(&self.shared.world, grace).await;
                self.end_container(id, 137);
            } else {
                self.end_container(id, 0);
            }
            self.count(format!("stop {name}")).await;
            Ok(())
        }
        .boxed()
    }

    fn remove_container<'a>(&'a self, id: &'a str) -> Call<'a, ()> {
        async move {
            self.answer().await?;
            let removed = self.shared.state.lock().containers.remove(id);
            if let Some((_, status)) = removed {
                self.count(format!("remove {}", status.name)).await;
            }
            Ok(())
        }
        .boxed()
    }

    fn containers<'a>(&'a self, uid: Option<&'a str>) -> Call<'a, Vec<ContainerInfo>> {
        async move {
            self.answer().await?;
            let state = self.shared.state.lock();
            let info = |(sandbox, it): &(String, ContainerStatus)| ContainerInfo {
                id: it.id.clone(),
                sandbox_id: sandbox.clone(),
                name: it.name.clone(),
                attempt: it.attempt,
                image: it.image.clone(),
                image_ref: it.image_ref.clone(),
                state: it.state,
                created_at: it.created_at,
                labels: it.labels.clone(),
                annotations: it.annotations.clone(),
            };
            let all = state.containers.values().filter(|(_, it)| is_of_pod(&it.labels, uid));
            Ok(all.map(info).collect())
        }
        .boxed()
    }

    fn container_status<'a>(&'a self, id: &'a str) -> Call<'a, ContainerStatus> {
        async move {
            self.answer().await?;
            let status = self.shared.state.lock().containers.get(id).map(|(_, it)| it.clone());
            status.ok_or_else(|| not_found("container", id))
        }
        .boxed()
    }

    fn update_resources<'a>(&'a self, id: &'a str, resources: &'a LinuxResources) -> Call<'a, ()> {
        async move {
            self.answer().await?;
            let cpus = &resources.cpuset_cpus;
            self.count(format!("update {id} cpus={cpus}")).await;
            Ok(())
        }
        .boxed()
    }

    fn reopen_log<'a>(&'a self, _: &'a str) -> Call<'a, ()> {
        unimplemented()
    }

    fn checkpoint<'a>(&'a self, id: &'a str, location: &'a str, _: Duration) -> Call<'a, ()> {
        async move {
            self.answer().await?;
            let status = self.shared.state.lock().containers.get(id).map(|(_, it)| it.clone());
            let status = status.ok_or_else(|| not_found("container", id))?;
            let text = format!("checkpoint of {} attempt {}\n", status.name, status.attempt);
            let failed = |why: std::io::Error| RuntimeError::new(RuntimeCode::Unknown, why.to_string());
            tokio::fs::write(location, text).await.map_err(failed)?;
            self.count(format!("checkpoint {}", status.name)).await;
            Ok(())
        }
        .boxed()
    }

    fn exec_sync<'a>(&'a self, id: &'a str, command: &'a [String], _: Duration) -> Call<'a, ExecOutput> {
        async move {
            self.answer().await?;
            let status = self.container_status(id).await?;
            if status.state != ContainerState::Running {
                return Err(RuntimeError::new(RuntimeCode::Unknown, "container is not running"));
            }
            // `exit N` is the only command
            let code = command.last().and_then(|it| it.strip_prefix("exit ")).and_then(|it| it.parse().ok());
            Ok(ExecOutput { exit_code: code.unwrap_or(0), ..ExecOutput::default() })
        }
        .boxed()
    }

    fn exec<'a>(
        &'a self,
        _: &'a str,
        command: &'a [String],
        options: StreamOptions,
    ) -> Call<'a, ExecStreams> {
        async move { streams::exec(command, options) }.boxed()
    }

    fn attach<'a>(&'a self, _: &'a str, _: StreamOptions) -> Call<'a, ExecStreams> {
        unimplemented()
    }

    fn port_forward<'a>(&'a self, _: &'a str, port: u16) -> Call<'a, PortStream> {
        async move { Ok(streams::port_forward(port)) }.boxed()
    }

    fn container_stats(&self) -> Call<'_, Vec<ContainerStats>> {
        async { Ok(Vec::new()) }.boxed()
    }

    fn sandbox_stats(&self) -> Call<'_, Vec<SandboxStats>> {
        async { Ok(Vec::new()) }.boxed()
    }

    fn images(&self) -> Call<'_, Vec<ImageInfo>> {
        async {
            self.answer().await?;
            Ok(Vec::new())
        }
        .boxed()
    }

    fn image<'a>(&'a self, image: &'a str) -> Call<'a, Option<ImageInfo>> {
        async move {
            self.answer().await?;
            let is_absent = self.shared.state.lock().absent_images.contains(image);
            Ok((!is_absent).then(|| ImageInfo { id: image.to_owned(), ..ImageInfo::default() }))
        }
        .boxed()
    }

    fn pull<'a>(
        &'a self,
        image: &'a str,
        _: Option<&'a RegistryAuth>,
        _: &'a SandboxConfig,
    ) -> Call<'a, String> {
        async move {
            self.answer().await?;
            self.count(format!("pull {image}")).await;
            match self.shared.state.lock().absent_images.contains(image) {
                true => Err(RuntimeError::new(RuntimeCode::NotFound, format!("{image}: not found"))),
                false => Ok(image.to_owned()),
            }
        }
        .boxed()
    }

    fn remove_image<'a>(&'a self, _: &'a str) -> Call<'a, ()> {
        async { Ok(()) }.boxed()
    }

    fn image_fs(&self) -> Call<'_, Vec<FilesystemStats>> {
        async { Ok(Vec::new()) }.boxed()
    }

    fn update_pod_cidr<'a>(&'a self, cidr: &'a str) -> Call<'a, ()> {
        self.shared.state.lock().log.push(format!("cidr {cidr}"));
        async { Ok(()) }.boxed()
    }

    fn events(&self) -> Call<'_, mpsc::Receiver<RuntimeEvent>> {
        async {
            self.answer().await?;
            let (sender, receiver) = mpsc::channel(1024);
            self.shared.state.lock().listeners.push(sender);
            Ok(receiver)
        }
        .boxed()
    }
}
