//! Measures RBAC: authorization of one user among many roles and bindings, and application of one change.
//!
//!     cargo run --release -p bench --bin permission
//!
//! Left out: reading objects. `load` measures whole requests.

use auth::rbac::{Binding, Policy, Role, RoleRef, Rule, Subject};
use auth::{Attributes, Authorizer, Chain, MASTERS, Rbac, User};
use bench::print_line;
use clap::Parser;
use names::Names;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

#[derive(Parser)]
struct Cli {
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
    let cli = Cli::parse();
    let (roles, bindings) = (roles(&cli), bindings(&cli));
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
        let each = time(cli.times, || drop(black_box(chain.authorize(black_box(&attributes)))));
        print_line!("{label:<44} {each:>10.3} µs   {}", if allowed { "permitted" } else { "not permitted" });
    };
    print_line!("{} roles, {} bindings", cli.roles, cli.bindings);
    decide("the masters' group", &in_groups(&[MASTERS, "system:authenticated"]), "a");
    decide("a user", &in_groups(&["staff", "system:authenticated"]), "a");
    decide("a user with 20 groups without bindings", &in_groups(&many().each_ref().map(|it| &**it)), "a");
    decide("a user without permission", &User::named("stranger"), "a");
    let changed = bindings[bindings.len() / 2].clone();
    let each = time(cli.times / 1000, || {
        let mut policy = Policy::clone(&rbac.policy());
        policy.unbind(&changed);
        policy.bind(changed.clone());
        rbac.replace(policy);
    });
    print_line!("{:<44} {each:>10.3} µs", "one binding changes");
    let each = time(cli.times / 1000, || {
        let mut policy = Policy::clone(&rbac.policy());
        policy.put_role(roles[roles.len() / 2].clone());
        rbac.replace(policy);
    });
    print_line!("{:<44} {each:>10.3} µs", "one role changes");
    let each = time(cli.times / 5000, || rbac.replace(Policy::compile(roles.clone(), bindings.clone())));
    print_line!("{:<44} {each:>10.3} µs", "compiling all");
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
fn roles(cli: &Cli) -> Vec<Arc<Role>> {
    let rule = |resources: &[&str]| Rule {
        verbs: words(&["get", "list", "watch"]),
        api_groups: words(&[""]),
        resources: words(resources),
        ..Rule::default()
    };
    let role = |at: usize| {
        let namespace =
            if at.is_multiple_of(2) { String::new() } else { format!("ns-{}", at % cli.namespaces) };
        let rules = [rule(&["pods", "pods/log"]), rule(&["services"]), rule(&["configmaps"])];
        Arc::new(Role { namespace, name: format!("role-{at}"), rules: vec![rules.into()] })
    };
    (0..cli.roles).map(role).collect()
}

/// A tenth of the bindings count everywhere.
fn bindings(cli: &Cli) -> Vec<Arc<Binding>> {
    let binding = |at: usize| {
        let everywhere = at.is_multiple_of(10);
        let namespace = if everywhere { String::new() } else { format!("ns-{}", at % cli.namespaces) };
        // the user of the test has but one, in one namespace
        let user = if everywhere { format!("operator-{at}") } else { format!("user-{at}") };
        let role = RoleRef { of_cluster: true, name: format!("role-{}", at * 2 % cli.roles.max(1)) };
        let subjects = vec![Subject::User(user), Subject::Group(format!("team-{}", at % 50))];
        Arc::new(Binding { namespace, name: format!("binding-{at}"), role, subjects })
    };
    (0..cli.bindings).map(binding).collect()
}
