//! Paths that two readers could understand in two ways: authorization and routing agree on each.

use super::arena::{Arena, Attack, Attacker, attack};

fn by_reader(name: &'static str, path: &str) -> Attack {
    attack(name).by(Attacker::Reader).get(path)
}

fn attacks() -> Vec<Attack> {
    let secret = "secrets/treasure";
    let prefix = "/api/v1/namespaces/default";
    let path = |text: &str| format!("{prefix}/{text}");
    let nothing = |case: Attack| case.refused(404, "", "");
    vec![
        by_reader("a path with dots from config maps to secrets", &path(&format!("configmaps/../{secret}")))
            .forbidden("configmaps/secrets"),
        by_reader("a path with escaped dots", &path(&format!("configmaps/%2e%2e/{secret}")))
            .forbidden("configmaps/secrets"),
        by_reader("a path with an escaped slash", &path("configmaps/%2e%2e%2fsecrets%2ftreasure"))
            .forbidden("configmaps/secrets"),
        by_reader("a path with a twice escaped slash", &path("configmaps/..%252fsecrets%252ftreasure"))
            .refused(400, "BadRequest", "may not contain '%'"),
        by_reader("a path with a backslash", &path("configmaps/..%5csecrets%5ctreasure"))
            .refused(404, "NotFound", ""),
        by_reader("an escaped slash within a resource", "/api/v1/namespaces/default%2fsecrets/treasure")
            .forbidden("cannot get resource"),
        by_reader("an escaped resource", &path("s%65crets/treasure")).forbidden("\\\"secrets\\\""),
        by_reader("a resource in capitals", &path("SECRETS/treasure")).forbidden("\\\"SECRETS\\\""),
        by_reader("a resource with a zero byte", &path("configmaps%00/../secrets/treasure"))
            .forbidden("cannot get resource"),
        by_reader("a resource with a parameter", &path("secrets;x=configmaps/treasure"))
            .forbidden("cannot get resource"),
        by_reader(
            "a path with two slashes before the resource",
            "/api/v1/namespaces/default//secrets/treasure",
        )
        .forbidden("cannot get resource"),
        by_reader("a path with two slashes at its start", "//api/v1/namespaces/default/secrets/treasure")
            .forbidden("secrets"),
        by_reader("a path with a dot as a segment", "/./api/v1/namespaces/default/secrets/treasure")
            .forbidden("cannot get path"),
        by_reader("a path below health checks", "/healthz/../api/v1/namespaces/default/secrets/treasure")
            .forbidden("cannot get path"),
        by_reader("an escaped path below health checks", "/healthz%2f..%2fmetrics")
            .forbidden("cannot get path"),
        by_reader("the metrics below the version", "/version/../metrics").forbidden("cannot get path"),
        by_reader("the metrics with a slash", "/metrics/").forbidden("cannot get path"),
        by_reader("the metrics in capitals", "/METRICS").forbidden("cannot get path"),
        by_reader("the metrics with two slashes", "//metrics").forbidden("cannot get path"),
        by_reader("a namespace of dots", "/api/v1/namespaces/../secrets").forbidden("secrets"),
        by_reader("a namespace that is empty", "/api/v1/namespaces//secrets").forbidden("secrets"),
        by_reader("a namespace of a star", "/api/v1/namespaces/*/secrets").forbidden("secrets"),
        nothing(by_reader("a group that is empty", "/apis//v1/secrets")),
        by_reader("a version that is not served", "/api/v2/namespaces/default/secrets/treasure")
            .forbidden("secrets"),
        by_reader("the internal version", "/api/__internal/namespaces/default/secrets/treasure")
            .forbidden("secrets"),
        by_reader("a secret as a subresource", &path(&format!("configmaps/settings/{secret}")))
            .forbidden("configmaps/secrets"),
        by_reader("a subresource with a slash behind", &path("pods/here/log/")).forbidden("pods/log"),
        by_reader("a subresource that is escaped", &path("pods/here%2flog")).forbidden("pods/log"),
        by_reader("a proxy as a name", &path("pods/here/proxy/../log")).forbidden("pods/proxy"),
        by_reader("the old path of a proxy", "/api/v1/proxy/namespaces/default/pods/here").forbidden("proxy"),
        by_reader("the old path of a watch of all", "/api/v1/watch/secrets")
            .forbidden("cannot watch resource"),
        by_reader("a watch by the query of a name", &path("secrets/treasure?watch=1")).forbidden("secrets"),
        by_reader("a key of the store", "/registry/secrets/default/treasure").forbidden("cannot get path"),
        nothing(by_reader("a path that goes on after an object", &path("configmaps/settings//../secrets"))),
        by_reader("a fragment", &path("configmaps/settings%23/../secrets")).forbidden("configmaps/.."),
        by_reader("a query within the path", &path("configmaps/settings%3fx=/secrets"))
            .forbidden("configmaps/secrets"),
    ]
}

#[tokio::test]
async fn authorization_and_routing_read_paths_alike() {
    Arena::start().await.run("Paths", attacks()).await;
}
