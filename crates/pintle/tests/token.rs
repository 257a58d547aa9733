//! `pintle token`, and `pintle join` as far as it goes without root: against a server that runs beside it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

#[allow(dead_code, reason = "other tests use the rest")]
mod components;

use components::{Process, caller, free_port, until};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn pintle(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pintle"));
    command.args(arguments).env_remove("KUBECONFIG");
    command
}

/// A server with its control loops, which sign the cluster information.
fn server(directory: &Path, port: u16) -> Process {
    let mut command = pintle(&["up", "--components", "apiserver,controller-manager"]);
    command.args(["--secure-port", &port.to_string(), "--data-dir"]);
    let mut child = command.arg(directory).stdout(Stdio::piped()).spawn().unwrap();
    let message = BufReader::new(child.stdout.take().unwrap()).lines().next().unwrap().unwrap();
    assert!(message.contains("is ready on https://"), "{message}");
    Process(child)
}

fn text(output: &[u8]) -> String {
    String::from_utf8_lossy(output).into_owned()
}

#[tokio::test]
async fn tokens_are_created_listed_and_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().to_str().unwrap();
    let port = free_port();
    let _server = server(folder.path(), port);
    let token = |arguments: &[&str]| -> Output {
        pintle(&["token"]).args(arguments).args(["--data-dir", directory]).output().unwrap()
    };
    let server_url = format!("https://127.0.0.1:{port}");
    let created = token(&["create", "--server", &server_url, "--description", "for the shelf"]);
    let line = text(&created.stdout);
    assert!(created.status.success(), "{}", text(&created.stderr));
    assert_eq!(text(&created.stderr), "", "the server is reached, and signs");
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!((&words[..3], words[3]), (&["pintle", "join", &*server_url][..], "--token"));
    assert!(words[6].starts_with("sha256:") && words[6].len() == 71, "{line}");
    let (id, secret) = words[4].split_once('.').unwrap();
    let listed = text(&token(&["list"]).stdout);
    let row = listed.lines().nth(1).unwrap();
    assert!(row.starts_with(id) && row.ends_with("for the shelf"), "{listed}");
    assert!(!listed.contains(secret));
    // without credentials, as a new machine reads it
    let insecure =
        outbound::Target { url: server_url.clone(), insecure: true, ..outbound::Target::default() };
    let anonymous = outbound::HttpClient::new(&insecure, outbound::Limits::default()).unwrap();
    let path = "/api/v1/namespaces/kube-public/configmaps/cluster-info";
    let signature = format!("jws-kubeconfig-{id}");
    until("the signature", &anonymous, path, |code, body| code == 200 && body.contains(&signature)).await;
    assert_eq!(anonymous.get("/api/v1/namespaces/kube-public/configmaps").await.unwrap().status, 403);
    // a second token needs nothing new
    let second = token(&["create", "--ttl", "0s", "--server", &server_url]);
    assert!(second.status.success(), "{}", text(&second.stderr));
    let deleted = token(&["delete", id]);
    assert_eq!(text(&deleted.stdout), format!("token {id} deleted\n"));
    until("the signature's end", &anonymous, path, |_, body| !body.contains(&signature)).await;
    let again = token(&["delete", id]);
    assert_eq!(
        (again.status.code(), text(&again.stderr)),
        (Some(1), format!("pintle: there is no token {id}\n"))
    );
    let listed = text(&token(&["list"]).stdout);
    assert!(listed.lines().count() == 2 && listed.contains("<forever>"), "{listed}");
    // the roles are there, for all tokens
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/pintle:node-bootstrapper";
    until("the binding", &caller(folder.path()), bindings, |code, _| code == 200).await;
}

#[test]
fn errors_of_the_command_line_say_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().to_str().unwrap();
    for (arguments, part) in [
        (&["token", "list", "--data-dir", directory][..], "name one with --kubeconfig"),
        (&["token"], "try 'pintle token create'"),
        (&["token", "delete"], "TOKEN"),
        (&["join", "https://a", "https://b"], "unexpected argument"),
    ] {
        let output = pintle(arguments).output().unwrap();
        let message = text(&output.stderr) + &text(&output.stdout);
        assert!(!output.status.success() && message.contains(part), "{arguments:?}: {message}");
    }
}
