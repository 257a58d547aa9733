//! The `kube` library against a real process, through the kubeconfig that the process writes: both of its contexts, by
//! token and by client certificate, serve a client of another make.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::pin::pin;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use futures_util::TryStreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, ObjectMeta, PostParams, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt};

const TIMEOUT: Duration = Duration::from_secs(120);

/// A process, which does not outlive the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // gone already is as good
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(directory: &Path) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pintle"));
    command.args(["up", "--components", "apiserver", "--secure-port", "0", "--data-dir"]).arg(directory);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let message = BufReader::new(child.stdout.take().unwrap()).lines().next().unwrap().unwrap();
    assert!(message.contains("is ready on https://"), "{message}");
    Process(child)
}

/// The configuration that `kube` makes of a context; `None` is the current one.
async fn config(file: &Path, context: Option<&str>) -> Config {
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..Default::default() };
    let mut config =
        Config::from_custom_kubeconfig(Kubeconfig::read_from(file).unwrap(), &options).await.unwrap();
    // the environment may name one, and the server is on this machine
    config.proxy_url = None;
    config
}

/// Lists, creates, watches and deletes.
async fn use_api(client: Client, name: &str) {
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let listed = maps.list(&ListParams::default()).await.unwrap();
    assert!(listed.items.iter().all(|it| it.name_any() != name));
    let from = listed.metadata.resource_version.unwrap();
    let mut events = pin!(maps.watch(&WatchParams::default(), &from).await.unwrap());
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let map = ConfigMap { metadata, ..ConfigMap::default() };
    maps.create(&PostParams::default(), &map).await.unwrap();
    let added = events.try_next().await.unwrap();
    assert!(matches!(&added, Some(WatchEvent::Added(it)) if it.name_any() == name), "{added:?}");
    maps.delete(name, &DeleteParams::default()).await.unwrap();
    let deleted = events.try_next().await.unwrap();
    assert!(matches!(&deleted, Some(WatchEvent::Deleted(it)) if it.name_any() == name), "{deleted:?}");
    assert!(maps.get_opt(name).await.unwrap().is_none());
}

#[tokio::test]
async fn both_contexts_of_the_written_kubeconfig_work() {
    let directory = tempfile::tempdir().unwrap();
    let _server = start(directory.path());
    let file = directory.path().join("admin.kubeconfig");
    for (context, has_token) in [(None, true), (Some("pintle"), true), (Some("pintle-certificate"), false)] {
        let config = config(&file, context).await;
        let user = &config.auth_info;
        assert_eq!(user.token.is_some(), has_token, "{context:?}");
        let has_pair = user.client_certificate_data.is_some() && user.client_key_data.is_some();
        assert_eq!(has_pair, !has_token, "{context:?}");
        let client = Client::try_from(config).unwrap();
        let work = use_api(client, if has_token { "by-token" } else { "by-certificate" });
        tokio::time::timeout(TIMEOUT, work).await.unwrap();
    }
}
