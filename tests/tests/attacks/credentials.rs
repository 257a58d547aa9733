//! Requests without credentials, with wrong ones, and with credentials in wrong places.

use super::arena::{Arena, Attack, Attacker, TREASURE, attack};
use super::*;
use http::Method;
use std::time::Duration;
use tests::{NOW, authority, self_signed};

const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const ACCESS: &str = "/apis/authorization.k8s.io/v1";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const BASIC: &str = "Basic YWRtaW46YWRtaW4=";

fn without_credentials() -> Vec<Attack> {
    let review =
        json!({"spec": {"user": "admin", "resourceAttributes": {"verb": "get", "resource": "pods"}}});
    vec![
        attack("anonymous lists secrets").get(SECRETS).forbidden("cannot list resource"),
        attack("anonymous reads a secret")
            .get(format!("{SECRETS}/treasure"))
            .forbidden("cannot get resource"),
        attack("anonymous lists secrets as a table")
            .get(SECRETS)
            .header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
            .forbidden("cannot list resource"),
        attack("anonymous reads the metadata of secrets")
            .get("/api/v1/secrets")
            .header("accept", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io")
            .forbidden("at the cluster scope"),
        attack("anonymous watches secrets")
            .get(format!("{SECRETS}?watch=1"))
            .forbidden("cannot watch resource"),
        attack("anonymous watches secrets by the old path")
            .get("/api/v1/watch/namespaces/default/secrets")
            .forbidden("cannot watch resource"),
        attack("anonymous looks for a secret with HEAD")
            .send(Method::HEAD, format!("{SECRETS}/treasure"))
            .refused(403, "", ""),
        attack("anonymous creates a pod").post(PODS, pod("p", "n")).forbidden("cannot create resource"),
        attack("anonymous deletes a namespace")
            .delete(format!("{NAMESPACES}/other"))
            .forbidden("cannot delete resource"),
        attack("anonymous deletes all secrets").delete(SECRETS).forbidden("cannot deletecollection resource"),
        attack("anonymous lists the API groups").get("/apis").forbidden("cannot get path"),
        attack("anonymous reads the OpenAPI document").get("/openapi/v2").forbidden("cannot get path"),
        attack("anonymous reviews a token")
            .post(REVIEWS, json!({"spec": {"token": "x"}}))
            .forbidden("cannot create resource"),
        attack("anonymous reviews the access of another user")
            .post(format!("{ACCESS}/subjectaccessreviews"), &review)
            .forbidden("cannot create resource"),
        attack("anonymous reviews its own access")
            .post(format!("{ACCESS}/selfsubjectaccessreviews"), &review)
            .forbidden("cannot create resource"),
        attack("anonymous requests a certificate")
            .post(REQUESTS, json!({}))
            .forbidden("cannot create resource"),
        attack("anonymous uses a method of its own")
            .send(Method::from_bytes(b"PROPFIND").unwrap(), SECRETS)
            .refused(403, "Forbidden", ""),
    ]
}

fn with_wrong_credentials() -> Vec<Attack> {
    let second = Duration::from_secs(30);
    let masters = "system:masters";
    let wrong = |name, header: &str| {
        attack(name).get(SECRETS).header("authorization", header).by(Attacker::Anonymous)
    };
    let certificate = |name, pair| attack(name).by(Attacker::Certificate(pair)).get(SECRETS);
    let refused = |case: Attack| case.refused(401, "Unauthorized", "Unauthorized");
    vec![
        refused(wrong("a token of letters", "Bearer admin")),
        refused(wrong("a token that is the text of a secret", &format!("Bearer {TREASURE}"))),
        refused(wrong(
            "a token of a megabyte less than the limit",
            &format!("Bearer {}", "x".repeat(900_000)),
        )),
        refused(wrong("a token of three empty parts", "Bearer ..")),
        wrong("a name and a password", BASIC).forbidden("system:anonymous"),
        wrong("a scheme that does not exist", "Masters admin").forbidden("system:anonymous"),
        attack("a token in the query")
            .get(format!("{SECRETS}?access_token=admin&token=admin"))
            .forbidden("list"),
        attack("a token in a cookie")
            .get(SECRETS)
            .header("cookie", "token=admin; authorization=Bearer%20admin")
            .forbidden("list"),
        attack("the user in headers of a front proxy")
            .get(SECRETS)
            .header("x-remote-user", "admin")
            .header("x-remote-group", masters)
            .forbidden("system:anonymous"),
        attack("the address of a trusted machine in headers")
            .get(SECRETS)
            .header("x-forwarded-for", "127.0.0.1")
            .header("x-real-ip", "127.0.0.1")
            .header("forwarded", "for=127.0.0.1;by=admin")
            .forbidden("system:anonymous"),
        refused(certificate("a certificate that signed itself", self_signed("admin", masters))),
        refused(certificate(
            "a certificate of an authority with the same name",
            tests::Authority::new("cluster").client("admin", masters),
        )),
        refused(certificate(
            "a certificate that has expired",
            authority().client_from("admin", masters, NOW - 60, second),
        )),
        refused(certificate(
            "a certificate that is not valid yet",
            authority().client_from("admin", masters, NOW + 60, second),
        )),
        refused(certificate("a certificate for servers", authority().server_named("admin", masters))),
    ]
}

fn of_users_without_roles() -> Vec<Attack> {
    let stranger = |name| attack(name).by(Attacker::Stranger);
    vec![
        stranger("a user without roles lists secrets")
            .get("/api/v1/secrets")
            .forbidden("User \\\"stranger\\\""),
        stranger("a user without roles reads metrics").get("/metrics").forbidden("cannot get path"),
        stranger("a user without roles takes a snapshot of the store")
            .get("/store/snapshot")
            .forbidden("cannot get path"),
        stranger("a user without roles reads a memory profile")
            .get("/debug/pprof/heap")
            .forbidden("cannot get path"),
        stranger("a user without roles reads the command line")
            .get("/debug/pprof/cmdline")
            .forbidden("cannot get path"),
        stranger("a user without roles reads queues of requests")
            .get("/debug/api_priority_and_fairness/dump_requests")
            .forbidden("cannot get path"),
        stranger("a user without roles raises the log level")
            .send(Method::PUT, "/debug/flags/v")
            .body("9")
            .forbidden("cannot put path"),
        stranger("a user without roles reads log files").get("/logs/").forbidden("cannot get path"),
        stranger("a user without roles reads the health of components")
            .get("/api/v1/componentstatuses")
            .forbidden("cannot list resource"),
        stranger("a user without roles reviews a token")
            .post(REVIEWS, json!({"spec": {"token": "x"}}))
            .forbidden("cannot create resource"),
        stranger("a user without roles reads a resource that does not exist")
            .get("/apis/none.example.com/v1/things")
            .forbidden("cannot list resource"),
        stranger("a user without roles guesses the name of a custom resource")
            .get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/x")
            .forbidden("cannot get resource"),
    ]
}

#[tokio::test]
async fn no_access_without_credentials() {
    Arena::start().await.run("Requests without credentials", without_credentials()).await;
}

#[tokio::test]
async fn no_access_with_wrong_credentials() {
    Arena::start().await.run("Wrong credentials", with_wrong_credentials()).await;
}

#[tokio::test]
async fn no_access_without_roles() {
    Arena::start().await.run("Users without roles", of_users_without_roles()).await;
}
