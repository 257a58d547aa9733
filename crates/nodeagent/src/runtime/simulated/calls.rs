//! The calls of a simulated runtime.

use super::streams;
use super::{Behaviour, SimulatedRuntime, Simulation, State, logs};
use crate::runtime::*;
use futures_util::FutureExt;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

fn not_found(what: &str, id: &str) -> RuntimeError {
    RuntimeError::new(RuntimeCode::NotFound, format!("{what} {id} not found"))
}

fn unimplemented<T: Send + 'static>() -> Call<'static, T> {
    async { Err(RuntimeError::new(RuntimeCode::Unimplemented, "not simulated")) }.boxed()
}

fn is_of_pod(of: &BTreeMap<String, String>, uid: Option<&str>) -> bool {
    uid.is_none() || labels::pod_uid(of) == uid
}

fn next_id(simulation: Option<&Arc<dyn Simulation>>, state: &mut State, kind: &str) -> String {
    state.next += 1;
    format!("{}{kind}{:04}", simulation.map_or("", |it| it.id_prefix()), state.next)
}

impl SimulatedRuntime {
    fn behaviour_of(&self, id: &str) -> Behaviour {
        let state = self.shared.state.lock();
        state.containers.get(id).map(|(_, it)| state.behaviour(it)).unwrap_or_default()
    }
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
            let simulation = self.shared.simulation.as_ref();
            let ips = simulation.map_or_else(|| vec!["10.0.0.2".into()], |it| it.allocate(config));
            let id = {
                let mut state = self.shared.state.lock();
                let id = next_id(simulation, &mut state, "s");
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
                let status = SandboxStatus { info, ips, namespaces: Default::default() };
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
                if let Some(sandbox) = state.sandboxes.get_mut(id)
                    && std::mem::replace(&mut sandbox.info.is_ready, false)
                    && let Some(simulation) = &self.shared.simulation
                {
                    simulation.release(&sandbox.ips);
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
                let removed = state.sandboxes.remove(id).filter(|it| it.info.is_ready);
                if let (Some(sandbox), Some(simulation)) = (removed, &self.shared.simulation) {
                    simulation.release(&sandbox.ips);
                }
                let State { containers, simulated, .. } = &mut *state;
                containers.retain(|_, (of, _)| of != id);
                simulated.retain(|container, _| containers.contains_key(container));
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
        sandbox_config: &'a SandboxConfig,
    ) -> Call<'a, String> {
        async move {
            self.answer().await?;
            let created_at = self.now();
            let simulation = self.shared.simulation.as_ref();
            let id = {
                let mut state = self.shared.state.lock();
                if !state.sandboxes.contains_key(sandbox) {
                    return Err(not_found("sandbox", sandbox));
                }
                if state.absent_images.contains(&config.image) {
                    return Err(not_found("image", &config.image));
                }
                let id = next_id(simulation, &mut state, "c");
                let behaviour = simulation.map(|it| it.container(sandbox_config, config));
                if let Some(behaviour) = behaviour.filter(|it| *it != Behaviour::default()) {
                    state.simulated.insert(id.clone(), behaviour);
                }
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
            let behaviour = {
                let state = self.shared.state.lock();
                state.containers.get(id).map(|(_, status)| state.behaviour(status))
            };
            let behaviour = behaviour.ok_or_else(|| not_found("container", id))?;
            if behaviour.start_delay > Duration::ZERO {
                env::sleep(&self.shared.world, behaviour.start_delay).await;
            }
            let now = self.now();
            let name = {
                let mut state = self.shared.state.lock();
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
                status.name.clone()
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
                let status = state.containers.get(id).map(|(_, it)| it);
                status.map(|status| (state.behaviour(status), status.name.clone()))
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
            let removed = {
                let mut state = self.shared.state.lock();
                state.simulated.remove(id);
                state.containers.remove(id)
            };
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
            if self.shared.simulation.is_some() {
                let (output, exit_code) = streams::simulated_output(&self.behaviour_of(id), command);
                return Ok(ExecOutput { stdout: output, exit_code, ..ExecOutput::default() });
            }
            // `exit N` is the only command
            let code = command.last().and_then(|it| it.strip_prefix("exit ")).and_then(|it| it.parse().ok());
            Ok(ExecOutput { exit_code: code.unwrap_or(0), ..ExecOutput::default() })
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
            match self.shared.simulation {
                Some(_) => Ok(streams::simulated_exec(&self.behaviour_of(id), command, options)),
                None => streams::exec(command, options),
            }
        }
        .boxed()
    }

    fn attach<'a>(&'a self, _: &'a str, _: StreamOptions) -> Call<'a, ExecStreams> {
        unimplemented()
    }

    fn port_forward<'a>(&'a self, _: &'a str, port: u16) -> Call<'a, PortStream> {
        async move {
            match self.shared.simulation {
                Some(_) => {
                    let message = format!("nothing listens on port {port} of a simulated pod");
                    Err(RuntimeError::new(RuntimeCode::Unavailable, message))
                }
                None => Ok(streams::port_forward(port)),
            }
        }
        .boxed()
    }

    fn log<'a>(&'a self, id: &'a str) -> Call<'a, Option<Vec<u8>>> {
        async move {
            if self.shared.simulation.is_none() {
                return Ok(None);
            }
            let state = self.shared.state.lock();
            let (_, status) = state.containers.get(id).ok_or_else(|| not_found("container", id))?;
            let until = if status.finished_at > 0 { status.finished_at } else { self.now() };
            Ok(Some(logs::lines(&state.behaviour(status).log, status.started_at, until)))
        }
        .boxed()
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
            let is_absent = match &self.shared.simulation {
                Some(simulation) => !simulation.has_image(image),
                None => self.shared.state.lock().absent_images.contains(image),
            };
            Ok((!is_absent).then(|| ImageInfo { id: image.to_owned(), ..ImageInfo::default() }))
        }
        .boxed()
    }

    fn pull<'a>(
        &'a self,
        image: &'a str,
        _: Option<&'a RegistryAuth>,
        sandbox_config: &'a SandboxConfig,
    ) -> Call<'a, String> {
        async move {
            self.answer().await?;
            if let Some(simulation) = &self.shared.simulation {
                let pull = simulation.pull(image, sandbox_config);
                if pull.delay > Duration::ZERO {
                    env::sleep(&self.shared.world, pull.delay).await;
                }
                return match pull.error {
                    Some(why) => Err(RuntimeError::new(RuntimeCode::NotFound, why)),
                    None => Ok(image.to_owned()),
                };
            }
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
        self.record(format!("cidr {cidr}"));
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
