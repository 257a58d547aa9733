//! Clusters that require a user and password.

use super::*;
use outbound::Credentials;

fn login(etcd: &FakeEtcd, password: &str) -> Options {
    let mut options = options(etcd);
    for server in &mut options.servers {
        server.credentials =
            Credentials::Basic { user: "registry".to_owned(), password: password.to_owned() };
    }
    options
}

#[tokio::test]
async fn a_token_is_requested_and_renewed() {
    let etcd = FakeEtcd::start(2).await.unwrap();
    etcd.set_user("registry", "secret");
    etcd.put("/registry/a", "1");
    let run = run_with(login(&etcd, "secret")).await;
    assert_eq!(run.recovered.len(), 1);
    assert_eq!(run.put("/b", Expect::Absent, "2").await, Ok(Revision(3)));
    for value in ["3", "4"] {
        // writes and the next watch need a new token
        etcd.revoke_tokens();
        run.put("/b", Expect::Present, value).await.unwrap();
        etcd.revoke_tokens();
        etcd.cut();
        etcd.put("/registry/a", value);
        run.catch_up().await.unwrap();
    }
    assert_eq!(run.changes(), ["3 /b=2", "4 /b=3", "5 /a=3", "6 /b=4", "7 /a=4"]);
}

#[tokio::test]
async fn a_wrong_password_is_reported_at_the_start() {
    let etcd = FakeEtcd::start(1).await.unwrap();
    etcd.set_user("registry", "secret");
    for options in [login(&etcd, "wrong"), options(&etcd)] {
        let Err(error) = crate::open(options, Seeded::new(START, 1)).await else {
            panic!("it opened");
        };
        let error = error.to_string();
        assert!(
            error.contains("invalid user ID or password") || error.contains("user name is empty"),
            "{error}"
        );
    }
}
