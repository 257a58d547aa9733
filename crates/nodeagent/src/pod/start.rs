//! Actions of a plan: sandboxes and containers are started and stopped.

use super::plan::{Kill, Plan, Start};
use super::setup::ContainerInput;
use super::spec::{ContainerKind, ContainerSpec, container_hash, find};
use super::step_error::StepError;
use super::termination::{ContainerEnd, container_grace, grace_period};
use super::worker::{KillRequest, Message, Worker};
use crate::images::ImageError;
use crate::images::keyring::Keyring;
use crate::pod_facts::description;
use crate::probes::action::ProbeTarget;
use crate::probes::worker::ProbeResult;
use crate::runtime::{ContainerState, ContainerStatus, RuntimeCode, SandboxConfig, labels};
use client::EventType;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use std::time::Duration;
use tokio::sync::mpsc;

/// The delay before the next attempt to start a container that could not be made.
const RETRY: Duration = Duration::from_secs(10);
/// The delay before a failed pull shows its delay.
const PULL_RETRY: Duration = Duration::from_secs(1);
/// The timeout of a hook after the start.
const HOOK_TIMEOUT: Duration = Duration::from_secs(3600);

/// Why a container could not be started: the reason of its status, a message, and when to try again.
struct StartFailure {
    reason: &'static str,
    message: String,
    retry_in: Duration,
}

impl StartFailure {
    fn new(reason: &'static str, message: impl Into<String>) -> Self {
        StartFailure { reason, message: message.into(), retry_in: RETRY }
    }
}

/// The kind of a container, as metrics name it.
fn container_type(kind: ContainerKind) -> &'static str {
    match kind {
        ContainerKind::Init => "init_container",
        ContainerKind::App => "container",
        ContainerKind::Ephemeral => "ephemeral_container",
    }
}

impl Worker {
    /// Carries out a plan. Returns points in time at which the next step may do more.
    pub(super) async fn carry_out(&mut self, plan: &Plan) -> Result<Vec<Duration>, StepError> {
        if plan.kill_pod {
            self.kill_pod(grace_period(&self.pod)).await?;
        }
        for kill in &plan.kill {
            self.kill_container(kill).await?;
        }
        if plan.create_sandbox.is_some() || !plan.start.is_empty() {
            return self.start_all(plan).await;
        }
        Ok(Vec::new())
    }

    async fn start_all(&mut self, plan: &Plan) -> Result<Vec<Duration>, StepError> {
        let retry = self.context.world.elapsed() + RETRY;
        let attempt = plan.create_sandbox.or(self.observed.sandbox().map(|it| it.info.attempt)).unwrap_or(0);
        let config = match self.context.setup.sandbox(&self.pod, attempt).await {
            Ok(config) => config,
            Err(why) => {
                self.sandbox_failed(&why);
                return Ok(vec![retry]);
            }
        };
        if plan.create_sandbox.is_some() {
            // only now: a container restarts in its sandbox also where the class cannot be read
            let handler = match self.context.setup.runtime_handler(&self.pod).await {
                Ok(handler) => handler,
                Err(why) => {
                    self.sandbox_failed(&why);
                    return Ok(vec![retry]);
                }
            };
            let id = match self.context.runtime.run_sandbox(&config, &handler).await {
                Ok(id) => {
                    self.context.metrics.sandbox_made(true);
                    id
                }
                Err(why) if why.code == RuntimeCode::Unavailable => return Err(why.into()),
                Err(why) => {
                    self.context.metrics.sandbox_made(false);
                    self.sandbox_failed(&why.to_string());
                    // the runtime may have kept a part of it
                    self.relist().await?;
                    return Ok(vec![retry]);
                }
            };
            let status = self.context.runtime.sandbox_status(&id).await?;
            self.observed.set_sandbox(status);
        }
        let Some(sandbox) = self.observed.sandbox().map(|it| it.info.id.clone()) else {
            return Ok(vec![retry]);
        };
        let secrets = self.context.setup.pull_secrets(&self.pod).await;
        let keyring = Keyring::from_secrets(secrets.iter().map(|it| &**it));
        let mut wakes = Vec::new();
        for start in &plan.start {
            if self.kill.has_changed().unwrap_or(true) {
                return Err(StepError::Interrupted);
            }
            if let Some((delay, _)) = start.wait {
                self.show_backoff(start, delay);
                continue;
            }
            let started = self.start_container(start, &sandbox, &config, &keyring).await?;
            let error = started.as_ref().err().map(|it| it.reason);
            self.context.metrics.container_start(container_type(start.kind), error);
            match started {
                Ok(()) => drop(self.waiting.remove(&start.name)),
                Err(failure) => {
                    wakes.push(self.context.world.elapsed() + failure.retry_in);
                    self.waiting.insert(start.name.clone(), (failure.reason.to_owned(), failure.message));
                }
            }
        }
        Ok(wakes)
    }

    fn sandbox_failed(&self, why: &str) {
        let message = format!("Failed to create pod sandbox: {why}");
        self.record(EventType::Warning, "FailedCreatePodSandBox", &message);
    }

    /// The container waits for its delay; the event comes with the first look.
    fn show_backoff(&mut self, start: &Start, delay: Duration) {
        let delay = super::backoff::go_duration(delay);
        let pod = description(&self.pod);
        let message = format!("back-off {delay} restarting failed container={} pod={pod}", start.name);
        let waiting = ("CrashLoopBackOff".to_owned(), message);
        if self.waiting.get(&start.name) != Some(&waiting) {
            let text = format!("Back-off restarting failed container {} in pod {pod}", start.name);
            self.record_container(start.kind, &start.name, EventType::Warning, "BackOff", &text);
            self.waiting.insert(start.name.clone(), waiting);
        }
    }

    fn record_container(
        &self,
        kind: ContainerKind,
        name: &str,
        event_type: EventType,
        reason: &str,
        message: &str,
    ) {
        self.context.events.record(&self.pod, Some((kind, name)), event_type, reason, message);
    }

    /// Pulls, creates and starts one container.
    async fn start_container(
        &mut self,
        start: &Start,
        sandbox: &str,
        sandbox_config: &SandboxConfig,
        keyring: &Keyring,
    ) -> Result<Result<(), StartFailure>, StepError> {
        let pod = self.pod.clone();
        let context = self.context.clone();
        let Some(spec) = find(&pod, &start.name) else { return Ok(Ok(())) };
        let name = &*start.name;
        let now = context.world.elapsed();
        if let Some(ended) = start.ended {
            self.backoff.advance((name.to_owned(), container_hash(&spec.container)), ended, now);
        }
        let warn = |message: &str| {
            let text = format!("Error: {message}");
            context.events.record(&pod, Some((spec.kind, name)), EventType::Warning, "Failed", &text);
        };
        let ensure = context.images.ensure(&pod, &spec, keyring, sandbox_config, &*context.events);
        let image = tokio::select! {
            biased;
            image = ensure => image,
            _ = self.kill.changed() => {
                self.kill.mark_changed();
                return Err(StepError::Interrupted);
            }
        };
        let image = match image {
            Ok(image) => image,
            Err(ImageError { reason, message, retry_at }) => {
                warn(reason);
                let retry_in = match retry_at {
                    Some(at) => at.saturating_sub(context.world.elapsed()),
                    None if reason == "ErrImagePull" => PULL_RETRY,
                    None => RETRY,
                };
                return Ok(Err(StartFailure { reason, message, retry_in }));
            }
        };
        let previous = self.observed.container(name).map(labels::restart_count);
        let attempt = match previous {
            Some(count) => count + 1,
            None => context.setup.logged_attempts(&pod, name),
        };
        let target = self.observed.container(spec.target).map(|it| it.id.clone());
        let input = ContainerInput {
            pod: &pod,
            spec: &spec,
            attempt,
            hash: &format!("{:x}", container_hash(&spec.container)),
            image: &image,
            ips: self.observed.ips(),
            target_id: target.as_deref().filter(|_| !spec.target.is_empty()),
        };
        let config = match context.setup.container(input).await {
            Ok(config) => config,
            Err(why) => {
                warn(&why.message);
                return Ok(Err(StartFailure::new(why.reason, why.message)));
            }
        };
        let id = match context.runtime.create_container(sandbox, &config, sandbox_config).await {
            Ok(id) => id,
            Err(why) if why.code == RuntimeCode::Unavailable => return Err(why.into()),
            // its image may have been removed since the runtime has shown it
            Err(why) if why.is_not_found() && context.images.forget_seen() => {
                let failure = StartFailure::new("CreateContainerError", why.message);
                return Ok(Err(StartFailure { retry_in: Duration::ZERO, ..failure }));
            }
            Err(why) => {
                warn(&why.message);
                return Ok(Err(StartFailure::new("CreateContainerError", why.message)));
            }
        };
        self.record_container(
            spec.kind,
            name,
            EventType::Normal,
            "Created",
            &format!("Created container {name}"),
        );
        let started = context.runtime.start_container(&id).await;
        let status = context.runtime.container_status(&id).await;
        if let Ok(status) = status {
            self.observed.set_container(status);
        }
        if let Err(why) = started {
            if why.code == RuntimeCode::Unavailable {
                return Err(why.into());
            }
            warn(&why.message);
            return Ok(Err(StartFailure {
                retry_in: Duration::ZERO,
                ..StartFailure::new("RunContainerError", why.message)
            }));
        }
        self.record_container(
            spec.kind,
            name,
            EventType::Normal,
            "Started",
            &format!("Started container {name}"),
        );
        context.setup.container_started(&pod, name, &id, attempt);
        self.run_post_start(&spec, &id).await
    }

    async fn run_post_start(
        &mut self,
        spec: &ContainerSpec<'_>,
        id: &str,
    ) -> Result<Result<(), StartFailure>, StepError> {
        let hook = spec.container.lifecycle.as_ref().and_then(|it| it.post_start.as_deref());
        let Some(hook) = hook else { return Ok(Ok(())) };
        let context = self.context.clone();
        let ip = self.pod_ip();
        let target = ProbeTarget {
            runtime: &context.runtime,
            container: &spec.container,
            container_id: id,
            pod_ip: &ip,
            run: 0,
        };
        let outcome = tokio::select! {
            biased;
            outcome = context.prober.actions.hook(hook, &target, HOOK_TIMEOUT) => outcome,
            _ = self.kill.changed() => {
                self.kill.mark_changed();
                return Err(StepError::Interrupted);
            }
        };
        let why = match outcome {
            Err(why) => why,
            Ok(outcome) => {
                outcome.report(&self.pod, &*self.context.events, &self.context.metrics);
                return Ok(Ok(()));
            }
        };
        let name = &*spec.container.name;
        self.record_container(
            spec.kind,
            name,
            EventType::Warning,
            "FailedPostStartHook",
            "PostStartHook failed",
        );
        let pod = self.pod.clone();
        let kill = Kill {
            id: id.to_owned(),
            name: name.to_owned(),
            reason: super::plan::KillReason::Unknown,
            message: "FailedPostStartHook".to_owned(),
        };
        tracing::debug!(pod = %description(&pod), container = name, %why, "postStart hook failed");
        self.kill_container(&kill).await?;
        Ok(Err(StartFailure { retry_in: Duration::ZERO, ..StartFailure::new("PostStartHookError", why) }))
    }

    pub(super) fn pod_ip(&self) -> String {
        let ips = self.observed.ips();
        ips.first().or(self.context.host_ips.borrow().first()).cloned().unwrap_or_default()
    }

    async fn kill_container(&mut self, kill: &Kill) -> Result<(), StepError> {
        let Some(status) = self.observed.containers.iter().find(|it| it.id == kill.id) else { return Ok(()) };
        let spec = find(&self.pod, &kill.name);
        let grace = container_grace(&self.pod, spec.as_ref().map(|it| &*it.container), kill.reason);
        let ip = self.pod_ip();
        let end = self.container_end(&self.pod, status, &ip, kill.message.clone(), grace);
        let ended = end.run().await;
        self.touched.insert(kill.id.clone());
        ended?;
        self.refresh().await?;
        Ok(())
    }

    fn container_end<'a>(
        &'a self,
        pod: &'a api::core::v1::Pod,
        status: &'a ContainerStatus,
        pod_ip: &'a str,
        message: String,
        grace: i64,
    ) -> ContainerEnd<'a> {
        let context = &self.context;
        ContainerEnd {
            runtime: &context.runtime,
            actions: &*context.prober.actions,
            world: &context.world,
            events: &*context.events,
            metrics: &context.metrics,
            pod,
            status,
            pod_ip,
            message,
            grace,
        }
    }

    /// Ends all containers at once, then the sandboxes.
    async fn kill_pod(&mut self, grace: i64) -> Result<(), StepError> {
        let ip = self.pod_ip();
        let mut ends: FuturesUnordered<_> = self
            .observed
            .containers
            .iter()
            .filter(|it| it.state != ContainerState::Exited)
            .map(|it| {
                self.container_end(&self.pod, it, &ip, format!("Stopping container {}", it.name), grace).run()
            })
            .collect();
        while let Some(ended) = ends.next().await {
            ended?;
        }
        drop(ends);
        self.stop_sandboxes().await
    }

    async fn stop_sandboxes(&mut self) -> Result<(), StepError> {
        if self.observed.sandboxes.is_empty() && self.observed.containers.is_empty() {
            return Ok(());
        }
        self.touch_all();
        for sandbox in &self.observed.sandboxes {
            self.context.runtime.stop_sandbox(&sandbox.info.id).await?;
        }
        self.refresh().await?;
        Ok(())
    }

    fn touch_all(&mut self) {
        let sandboxes = self.observed.sandboxes.iter().map(|it| it.info.id.clone());
        let containers = self.observed.containers.iter().map(|it| it.id.clone());
        self.touched.extend(sandboxes.chain(containers));
    }

    /// Whether a container gets the stop signal without a hook before it.
    fn is_stopping(&self, id: &str) -> bool {
        let container = self.observed.containers.iter().find(|it| it.id == id);
        let spec = container.and_then(|it| find(&self.pod, &it.name));
        spec.is_some_and(|it| it.container.lifecycle.as_ref().is_none_or(|it| it.pre_stop.is_none()))
    }

    /// Ends the containers of a pod that ends, with reports between, until all have ended or another request comes.
    pub(super) async fn stop_all(
        &mut self,
        request: &KillRequest,
        inbox: &mut mpsc::UnboundedReceiver<Message>,
        results: &mut mpsc::UnboundedReceiver<ProbeResult>,
    ) -> Result<(), StepError> {
        let grace = request.grace.unwrap_or_else(|| grace_period(&self.pod));
        let (pod, ip, context) = (self.pod.clone(), self.pod_ip(), self.context.clone());
        let active: Vec<ContainerStatus> = self
            .observed
            .containers
            .iter()
            .filter(|it| it.state != ContainerState::Exited)
            .cloned()
            .collect();
        let mut ends: FuturesUnordered<_> = active
            .iter()
            .map(|status| {
                let end = ContainerEnd {
                    runtime: &context.runtime,
                    actions: &*context.prober.actions,
                    world: &context.world,
                    events: &*context.events,
                    metrics: &context.metrics,
                    pod: &pod,
                    status,
                    pod_ip: &ip,
                    message: format!("Stopping container {}", status.name),
                    grace,
                };
                async move { (&status.id, end.run().await) }
            })
            .collect();
        while !ends.is_empty() {
            tokio::select! {
                biased;
                Some((id, ended)) = ends.next() => {
                    self.touched.insert(id.clone());
                    ended?;
                }
                Some(message) = inbox.recv() => {
                    // the call that stops a container returns when the runtime shows its end
                    if matches!(&message, Message::Exit(id) if self.is_stopping(id)) {
                        continue;
                    }
                    self.take(message);
                    let shorter = grace_period(&self.pod);
                    if request.grace.is_none() && shorter < grace {
                        return Err(StepError::Interrupted);
                    }
                }
                Some(result) = results.recv() => {
                    self.verdicts.set(&result.container_id, result.kind, result.is_success);
                }
                changed = self.kill.changed() => {
                    let newer = self.kill.borrow().clone().unwrap_or_default();
                    if changed.is_ok() && newer != *request && newer.grace.unwrap_or(grace) < grace {
                        self.kill.mark_changed();
                        return Err(StepError::Interrupted);
                    }
                    if changed.is_err() {
                        // the agent stops
                        std::future::pending::<()>().await;
                    }
                }
            }
            self.follow_end().await;
        }
        drop(ends);
        self.stop_sandboxes().await
    }
}
