//! Address families of a service: completes and checks the linked fields `clusterIP`, `clusterIPs`, `ipFamilies` and
//! `ipFamilyPolicy`.
//!
//! It allocates nothing; `allocate` does once the families are known.

use super::service_type::{needs_address, same, texts};
use crate::check::{self, Problems};
use crate::read;
use apimachinery::net::Family;
use schema::problem::Problem;
use schema::{Path, Value, format};

pub(super) const NONE: &str = "None";
const SINGLE: &str = "SingleStack";
const REQUIRE_DUAL: &str = "RequireDualStack";
const PREFER_DUAL: &str = "PreferDualStack";
const POLICIES: &[&str] = &[PREFER_DUAL, REQUIRE_DUAL, SINGLE];
const MOST_ADDRESSES: usize = 2;

pub(super) const ADDRESS: &[&str] = &["spec", "clusterIP"];
pub(super) const ADDRESSES: &[&str] = &["spec", "clusterIPs"];
pub(super) const FAMILIES: &[&str] = &["spec", "ipFamilies"];
pub(super) const POLICY: &[&str] = &["spec", "ipFamilyPolicy"];

pub(super) fn is_headless(service: &Value) -> bool {
    matches!(service.items(ADDRESSES), [one] if read::text(one) == NONE)
}

/// Both the single address and the list of them are as they were.
pub(super) fn same_addresses(new: &Value, old: &Value) -> bool {
    same(new, old, ADDRESS) && same(new, old, ADDRESSES)
}

/// Completes `clusterIP` from `clusterIPs` and the other way round, if only one was given.
pub(super) fn link_addresses(next: &mut Value, old: Option<&Value>) {
    let address = next.text(ADDRESS).to_owned();
    let Some(old) = old else {
        if !address.is_empty() && next.items(ADDRESSES).is_empty() {
            next.set(ADDRESSES, vec![address.into()]);
        }
        return;
    };
    let unchanged = old.text(ADDRESS) == address;
    if !old.items(ADDRESSES).is_empty() && next.items(ADDRESSES).is_empty() && unchanged {
        next.set(ADDRESSES, old.items(ADDRESSES).to_vec());
    }
    // a client that knows only the single address changed it
    if !unchanged && same(next, old, ADDRESSES) {
        if address.is_empty() {
            next.unset(ADDRESSES);
        } else {
            next.set(ADDRESSES, vec![address.into()]);
        }
    }
}

/// A service that prefers two families is left as it is when the cluster gains or loses one.
pub(super) fn stays_preferring(next: &Value, old: Option<&Value>) -> bool {
    let Some(old) = old else { return false };
    let prefers = |it: &Value| it.text(POLICY) == PREFER_DUAL;
    prefers(next)
        && prefers(old)
        && same(next, old, &["spec", "type"])
        && needs_address(next)
        && same_addresses(next, old)
        && same(next, old, FAMILIES)
}

/// Fills in policy and families; `configured` are the cluster's, the default first.
pub(super) fn fill(next: &mut Value, old: Option<&Value>, configured: &[Family]) -> Result<(), Problems> {
    if !needs_address(next) || stays_preferring(next, old) {
        return Ok(());
    }
    let free = next.text(ADDRESS) == NONE && read::map(next, &["spec", "selector"]).is_empty();
    if !read::has(next, POLICY) {
        let policy = match old.and_then(|old| read::opt_text(old, POLICY)) {
            Some(before) => before,
            None if free => REQUIRE_DUAL,
            None => SINGLE,
        };
        next.set(POLICY, policy);
    }
    sound(related(next))?;
    let mut out = Problems::new();
    if let Some(old) = old {
        shrink(next, old, &mut out);
    }
    plural_needs_dual(next, &mut out);
    infer_from_addresses(next, configured, &mut out);
    sound(out)?;
    if free {
        // no address is allocated, so the networks of the cluster do not matter
        let first = first_family(next, configured);
        let mut families = texts(next, FAMILIES);
        if families.is_empty() {
            families.push(first.name().to_owned());
        }
        if families.len() < MOST_ADDRESSES && next.text(POLICY) != SINGLE {
            families.push(first.other().name().to_owned());
        }
        set_texts(next, FAMILIES, families);
        return Ok(());
    }
    sound(available(next, configured))?;
    let mut families = texts(next, FAMILIES);
    let first = first_family(next, configured);
    if families.is_empty() {
        families.push(first.name().to_owned());
    }
    if next.text(POLICY) != SINGLE && families.len() == 1 && configured.len() == MOST_ADDRESSES {
        families.push(first.other().name().to_owned());
    }
    set_texts(next, FAMILIES, families);
    Ok(())
}

fn sound(problems: Problems) -> Result<(), Problems> {
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

fn first_family(next: &Value, configured: &[Family]) -> Family {
    let named = next.items(FAMILIES).first().and_then(|it| Family::named(read::text(it)));
    named.or(configured.first().copied()).unwrap_or(Family::V4)
}

fn set_texts(next: &mut Value, path: &[&'static str], items: Vec<String>) {
    next.set(path, items.into_iter().map(Value::from).collect::<Vec<_>>());
}

fn policy_problem(next: &Value, why: &str) -> Problem {
    let path = Path::ROOT.field("spec");
    Problem::invalid_text(&path.field("ipFamilyPolicy"), next.text(POLICY), why)
}

/// Leaving the second family takes the word of the policy; with it the second of each goes by itself.
fn shrink(next: &mut Value, old: &Value, out: &mut Problems) {
    let single = next.text(POLICY) == SINGLE;
    for (path, unchanged, what) in [
        (ADDRESSES, same_addresses(next, old), "secondary cluster IP"),
        (FAMILIES, same(next, old, FAMILIES), "secondary IP family"),
    ] {
        let (is, was) = (next.items(path).len(), old.items(path).len());
        if single && unchanged && is > 1 {
            let first = next.items(path)[..1].to_vec();
            next.set(path, first);
        } else if !single && is > 0 && is < was {
            out.push(policy_problem(next, &format!("must be 'SingleStack' to release the {what}")));
        }
    }
}

fn plural_needs_dual(next: &Value, out: &mut Problems) {
    if next.text(POLICY) != SINGLE {
        return;
    }
    for (path, what) in [(ADDRESSES, "cluster IPs"), (FAMILIES, "IP families")] {
        if next.items(path).len() > 1 {
            let why =
                format!("must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified");
            out.push(policy_problem(next, &why));
        }
    }
}

/// Addresses that are named tell their families.
fn infer_from_addresses(next: &mut Value, configured: &[Family], out: &mut Problems) {
    let addresses = texts(next, ADDRESSES);
    let mut families = texts(next, FAMILIES);
    for (at, text) in addresses.iter().enumerate() {
        let Some(address) = format::parse_ip(text) else { break };
        let family = Family::of(&address);
        if at < families.len() {
            continue;
        }
        if configured.contains(&family) {
            families.push(family.name().to_owned());
        } else {
            let path = Path::ROOT.field("spec");
            let path = path.field("clusterIPs");
            let why = format!("{} is not configured on this cluster", family.name());
            let formatted = check::format_texts(next.items(ADDRESSES));
            out.push(check::invalid_formatted(&path.index(at), &formatted, &why));
        }
    }
    if !families.is_empty() {
        set_texts(next, FAMILIES, families);
    }
}

/// Checks that the requested families are configured.
fn available(next: &Value, configured: &[Family]) -> Problems {
    let mut out = Problems::new();
    if next.text(POLICY) == REQUIRE_DUAL && configured.len() < MOST_ADDRESSES {
        out.push(policy_problem(next, "this cluster is not configured for dual-stack services"));
    }
    let path = Path::ROOT.field("spec");
    let path = path.field("ipFamilies");
    for (at, family) in texts(next, FAMILIES).iter().enumerate() {
        if !configured.iter().any(|one| one.name() == family) {
            out.push(Problem::invalid_text(&path.index(at), family, "not configured on this cluster"));
        }
    }
    out
}

/// Whether the linked fields agree with each other, whatever the cluster has.
pub(super) fn related(service: &Value) -> Problems {
    let mut out = Problems::new();
    // these services have no addresses; another check reports them
    if !needs_address(service) {
        return out;
    }
    let spec = Path::ROOT.field("spec");
    let path = spec.field("clusterIPs");
    let addresses = service.items(ADDRESSES);
    let families = texts(service, FAMILIES);
    let formatted = check::format_texts(addresses);
    match service.text(ADDRESS) {
        "" if !addresses.is_empty() => {
            out.push(check::invalid_formatted(
                &path,
                &formatted,
                "must be empty when `clusterIP` is not specified",
            ));
        }
        "" => {}
        _ if addresses.is_empty() => out.push(Problem::required(&path, "")),
        address if read::text(&addresses[0]) != address => {
            out.push(check::invalid_formatted(&path, &formatted, "first value must match `clusterIP`"));
        }
        _ => {}
    }
    family_names(&families, &spec.field("ipFamilies"), &mut out);
    if let Some(policy) = read::opt_text(service, POLICY)
        && !POLICIES.contains(&policy)
    {
        out.push(check::unsupported(&spec.field("ipFamilyPolicy"), policy, POLICIES));
    }
    each_address(addresses, &path, &mut out);
    if addresses.len() > MOST_ADDRESSES {
        out.push(check::invalid_formatted(&path, &formatted, "may only hold up to 2 values"));
    }
    if addresses.len() > 1 {
        let parsed: Vec<_> = addresses.iter().map(|it| format::parse_ip(read::text(it))).collect();
        let known: Vec<_> = parsed.iter().flatten().copied().collect();
        if known.len() == addresses.len() && !check::is_dual_stack(&known) {
            out.push(check::invalid_formatted(
                &path,
                &formatted,
                "may specify no more than one IP for each IP family",
            ));
        }
    }
    for (at, text) in addresses.iter().map(read::text).enumerate() {
        let wanted = families.get(at).and_then(|name| Family::named(name));
        if let (Some(wanted), Some(address)) = (wanted, format::parse_ip(text))
            && wanted != Family::of(&address)
        {
            let why = format!("expected an {} value as indicated by `ipFamilies[{at}]`", wanted.name());
            out.push(Problem::invalid_text(&path.index(at), text, &why));
        }
    }
    out
}

fn family_names(families: &[String], path: &Path<'_>, out: &mut Problems) {
    let mut seen = check::TextSet::default();
    for (at, family) in families.iter().enumerate() {
        if Family::named(family).is_none() {
            out.push(check::unsupported(&path.index(at), family, &["IPv4", "IPv6"]));
        }
        if !seen.insert(family) {
            out.push(check::duplicate_text(&path.index(at), family));
        }
    }
}

fn each_address(addresses: &[Value], path: &Path<'_>, out: &mut Problems) {
    for (at, text) in addresses.iter().map(read::text).enumerate() {
        let path_of_it = path.index(at);
        if text == NONE && at == 0 {
            if addresses.len() > 1 {
                let formatted = check::format_texts(addresses);
                out.push(check::invalid_formatted(
                    path,
                    &formatted,
                    "'None' must be the first and only value",
                ));
            }
            return;
        }
        out.extend(format::ip(text).iter().map(|why| Problem::invalid_text(&path_of_it, text, why)));
    }
}
