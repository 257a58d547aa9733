//! Impersonation beyond the permissions for it, and headers that are incomplete or hidden.

use super::arena::{Arena, Attack, Attacker, attack};
use super::*;

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const SCOPES: &str = "impersonate-extra-scopes";

/// A request of the impersonator, who may be `alice`.
fn as_alice(name: &'static str) -> Attack {
    attack(name).by(Attacker::Impersonator).get(SECRETS).header(USER, "alice")
}

fn attacks() -> Vec<Attack> {
    let other = |name, user: &str| attack(name).by(Attacker::Impersonator).get(SECRETS).header(USER, user);
    let impersonate = "cannot impersonate resource";
    vec![
        other("impersonation of another user", "admin").forbidden(impersonate),
        other("impersonation of a user with other letters", "Alice").forbidden(impersonate),
        other("impersonation of a user with a blank", "alice ").forbidden("alice"),
        other("impersonation of a service account", "system:serviceaccount:kube-system:default")
            .forbidden("cannot impersonate resource \\\"serviceaccounts\\\""),
        other("impersonation of a node", "system:node:n")
            .header(GROUP, "system:nodes")
            .forbidden(impersonate),
        other("impersonation of the anonymous user", "system:anonymous").forbidden(impersonate),
        as_alice("impersonation of an allowed user without permissions")
            .forbidden("User \\\"alice\\\" cannot list resource"),
        as_alice("impersonation with the group of masters")
            .header(GROUP, "system:masters")
            .forbidden("cannot impersonate resource \\\"groups\\\""),
        as_alice("impersonation with an allowed group and masters")
            .header(GROUP, "dev")
            .header(GROUP, "system:masters")
            .forbidden("cannot impersonate resource \\\"groups\\\""),
        as_alice("impersonation with two groups in one header")
            .header(GROUP, "dev, system:masters")
            .forbidden("cannot impersonate resource \\\"groups\\\""),
        as_alice("impersonation with another uid")
            .header(UID, "0")
            .forbidden("cannot impersonate resource \\\"uids\\\""),
        as_alice("impersonation with another scope")
            .header(SCOPES, "all")
            .forbidden("cannot impersonate resource \\\"userextras/scopes\\\""),
        as_alice("impersonation with an allowed scope and another")
            .header(SCOPES, "view")
            .header(SCOPES, "all")
            .forbidden("cannot impersonate resource \\\"userextras/scopes\\\""),
        as_alice("impersonation with an extra key of its own")
            .header("impersonate-extra-authentication.kubernetes.io%2fpod-name", "here")
            .forbidden(
                "cannot impersonate resource \\\"userextras/authentication.kubernetes.io/pod-name\\\"",
            ),
        attack("impersonation of a group alone")
            .by(Attacker::Impersonator)
            .get(SECRETS)
            .header(GROUP, "dev")
            .refused(500, "", "without impersonating a user"),
        attack("impersonation of a uid alone")
            .by(Attacker::Impersonator)
            .get(SECRETS)
            .header(UID, "1")
            .refused(500, "", "without impersonating a user"),
        attack("impersonation of an extra alone")
            .by(Attacker::Impersonator)
            .get(SECRETS)
            .header(SCOPES, "view")
            .refused(500, "", "without impersonating a user"),
        attack("impersonation by a user without the permission")
            .by(Attacker::Reader)
            .get(CONFIGMAPS)
            .header(USER, "owner")
            .forbidden(impersonate),
        attack("impersonation of oneself in another group")
            .by(Attacker::Reader)
            .get(CONFIGMAPS)
            .header(USER, "reader")
            .header(GROUP, "system:masters")
            .forbidden(impersonate),
        attack("impersonation by an anonymous user")
            .get(SECRETS)
            .header(USER, "admin")
            .header(GROUP, "system:masters")
            .forbidden(impersonate),
        attack("impersonation by the owner of a namespace")
            .by(Attacker::Owner)
            .get(SECRETS)
            .header(USER, "admin")
            .forbidden(impersonate),
        attack("impersonation by a node")
            .by(Attacker::Node)
            .get(SECRETS)
            .header(USER, "system:node:m")
            .header(GROUP, "system:nodes")
            .forbidden(impersonate),
    ]
}

#[tokio::test]
async fn impersonation_ends_at_its_permissions() {
    Arena::start().await.run("Impersonation", attacks()).await;
}
