//! What permission costs: deciding for one user among many roles and bindings, and carrying one change over.
//!
//!     cargo run --release -p bench --bin permission
//!
//! What it does not do: read objects. What a request costs in all is the loader's to tell.

use auth::rbac::{Binding, Policy, Role, RoleRef, Rule, Subject};
use auth::{Attributes, Authorizer, Chain, MASTERS, Rbac, User};
use clap::Parser;
use names::Names;
use std::hint::black_box;
use std::io::{Write, stdout};
use std::sync::Arc;
use std::time::Instant;

/// A terminal that is gone cannot be told.
macro_rules! tell {
    ($($told:tt)*) => {{ let _ = writeln!(stdout(), $($told)*); }};
}

#[derive(Parser)]
struct Asked {
    #[arg(long, default_value_t = 1000)]
    roles: usize,
    #[arg(long, default_value_t = 5000)]
    bindings: usize,
    #[arg(long, default_value_t = 100)]
    namespaces: usize,
    /// How often each thing is done.
    #[arg(long, default_value_t = 200_000)]
    times: u32,
}

fn main() {
    let asked = Asked::parse();
    let (roles, bindings) = (roles(&asked), bindings(&asked));
    let rbac = Arc::new(Rbac::new(&Names::kubernetes()));
    rbac.replace(Policy::compile(roles.clone(), bindings.clone()));
    let chain = Chain { authorizers: vec![rbac.clone()] };
    let in_groups = |groups: &[&str]| User {
        groups: groups.iter().map(|group| (*group).to_owned()).collect(),
        ..User::named("user-777")
    };
    let decide = |label: &str, user: &User, name: &str| {
        let attributes = Attributes {
            user,
            verb: "get",
            api_group: "",
            version: "v1",
            resource: "configmaps",
            subresource: "",
            namespace: "ns-77",
            name,
            path: "",
            resource_request: true,
        };
        let allowed = chain.authorize(&attributes).now().is_some_and(|it| it.is_allowed());
        let each = time(asked.times, || drop(black_box(chain.authorize(black_box(&attributes)))));
        tell!("{label:<44} {each:>10.3} µs   {}", if allowed { "permitted" } else { "not permitted" });
    };
    tell!("{} roles, {} bindings", asked.roles, asked.bindings);
    decide("the masters' group", &in_groups(&[MASTERS, "system:authenticated"]), "a");
    decide("a user", &in_groups(&["staff", "system:authenticated"]), "a");
    decide("a user with 20 groups that mean nothing", &in_groups(&many().each_ref().map(|it| &**it)), "a");
    decide("a user who may not", &User::named("nobody"), "a");
    let changed = bindings[bindings.len() / 2].clone();
    let each = time(asked.times / 1000, || {
        let mut policy = Policy::clone(&rbac.policy());
        policy.unbind(&changed);
        policy.bind(changed.clone());
        rbac.replace(policy);
    });
    tell!("{:<44} {each:>10.3} µs", "one binding changes");
    let each = time(asked.times / 1000, || {
        let mut policy = Policy::clone(&rbac.policy());
        policy.put_role(roles[roles.len() / 2].clone());
        rbac.replace(policy);
    });
    tell!("{:<44} {each:>10.3} µs", "one role changes");
    let each = time(asked.times / 5000, || rbac.replace(Policy::compile(roles.clone(), bindings.clone())));
    tell!("{:<44} {each:>10.3} µs", "all of it anew");
}

/// Microseconds that each of many takes: the best of many short rounds, as others use the machine too.
fn time(times: u32, mut once: impl FnMut()) -> f64 {
    const ROUNDS: u32 = 100;
    let each = (times / ROUNDS).max(1);
    let mut best = f64::MAX;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        (0..each).for_each(|_| once());
        best = best.min(start.elapsed().as_secs_f64() * 1e6 / f64::from(each));
    }
    best
}

fn many() -> [String; 20] {
    std::array::from_fn(|at| format!("group-{at}"))
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Half of the roles are the cluster's.
fn roles(asked: &Asked) -> Vec<Arc<Role>> {
    let rule = |resources: &[&str]| Rule {
        verbs: words(&["get", "list", "watch"]),
        api_groups: words(&[""]),
        resources: words(resources),
        ..Rule::default()
    };
    let role = |at: usize| {
        let namespace =
            if at.is_multiple_of(2) { String::new() } else { format!("ns-{}", at % asked.namespaces) };
        let rules = [rule(&["pods", "pods/log"]), rule(&["services"]), rule(&["configmaps"])];
        Arc::new(Role { namespace, name: format!("role-{at}"), rules: vec![rules.into()] })
    };
    (0..asked.roles).map(role).collect()
}

/// A tenth of the bindings count everywhere.
fn bindings(asked: &Asked) -> Vec<Arc<Binding>> {
    let binding = |at: usize| {
        let everywhere = at % 10 == 0;
        let namespace = if everywhere { String::new() } else { format!("ns-{}", at % asked.namespaces) };
        // the user of the test has but one, in one namespace
        let user = if everywhere { format!("operator-{at}") } else { format!("user-{at}") };
        let role = RoleRef { of_cluster: true, name: format!("role-{}", at * 2 % asked.roles.max(1)) };
        let subjects = vec![Subject::User(user), Subject::Group(format!("team-{}", at % 50))];
        Arc::new(Binding { namespace, name: format!("binding-{at}"), role, subjects })
    };
    (0..asked.bindings).map(binding).collect()
}
