//! Name constraints of issuers.
//!
//! Invariants: a name is accepted only if no issuer excludes it and every issuer that permits some names of its
//! form permits this one. Mail addresses and URIs are not compared: a certificate with one is rejected below an
//! issuer that limits them.

use super::chain_error::ChainError;
use x509_parser::extensions::{GeneralName, GeneralSubtree};
use x509_parser::prelude::X509Certificate;

/// Checks all names of `chain` by the constraints of `issuer`.
pub(super) fn check(issuer: &X509Certificate<'_>, chain: &[&X509Certificate<'_>]) -> Result<(), ChainError> {
    let constraints = issuer.name_constraints().map_err(|_| ChainError::Malformed)?;
    let Some(constraints) = constraints else { return Ok(()) };
    let permitted = constraints.value.permitted_subtrees.as_deref().unwrap_or(&[]);
    let excluded = constraints.value.excluded_subtrees.as_deref().unwrap_or(&[]);
    let is_understood = |it: &GeneralSubtree<'_>| {
        use GeneralName::{DNSName, IPAddress, RFC822Name, URI};
        matches!(it.base, DNSName(_) | IPAddress(_) | RFC822Name(_) | URI(_))
    };
    if constraints.critical && !permitted.iter().chain(excluded).all(is_understood) {
        return Err(ChainError::UnknownCriticalExtension);
    }
    for certificate in chain {
        let names = certificate.subject_alternative_name().map_err(|_| ChainError::Malformed)?;
        for name in names.iter().flat_map(|it| &it.value.general_names) {
            let excludes = excluded.iter().any(|it| covers(&it.base, name).unwrap_or(false));
            let mut of_its_form = permitted.iter().filter_map(|it| covers(&it.base, name)).peekable();
            let permits = of_its_form.peek().is_none() || of_its_form.any(|covers| covers);
            if excludes || !permits || is_uncompared(name) && limits(permitted, excluded, name) {
                return Err(ChainError::NameNotPermitted);
            }
        }
    }
    Ok(())
}

fn is_uncompared(name: &GeneralName<'_>) -> bool {
    matches!(name, GeneralName::RFC822Name(_) | GeneralName::URI(_))
}

/// Whether a constraint for names of this form exists.
fn limits(permitted: &[GeneralSubtree<'_>], excluded: &[GeneralSubtree<'_>], name: &GeneralName<'_>) -> bool {
    let same_form =
        |it: &GeneralSubtree<'_>| std::mem::discriminant(&it.base) == std::mem::discriminant(name);
    permitted.iter().chain(excluded).any(same_form)
}

/// Whether a constraint covers a name; `None` if it is for names of another form.
fn covers(constraint: &GeneralName<'_>, name: &GeneralName<'_>) -> Option<bool> {
    match (constraint, name) {
        (GeneralName::DNSName(domain), GeneralName::DNSName(name)) => Some(is_within(name, domain)),
        (GeneralName::IPAddress(network), GeneralName::IPAddress(address)) => {
            let (base, mask) = network.split_at(network.len() / 2);
            let same_family = base.len() == address.len() && mask.len() == address.len();
            let parts = base.iter().zip(mask).zip(*address);
            Some(same_family && parts.into_iter().all(|((base, mask), octet)| base & mask == octet & mask))
        }
        _ => None,
    }
}

/// Whether a host is the domain or below it; a domain with a leading dot has only hosts below it.
fn is_within(name: &str, domain: &str) -> bool {
    let (name, domain) = (name.to_ascii_lowercase(), domain.to_ascii_lowercase());
    match domain.strip_prefix('.') {
        _ if domain.is_empty() => true,
        Some(_) => name.len() > domain.len() && name.ends_with(&domain),
        None => name.strip_suffix(&domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domain_constraints_cover_subdomains() {
        for (name, domain, covered) in [
            ("a.example", "example", true),
            ("example", "example", true),
            ("Example", "EXAMPLE", true),
            ("badexample", "example", false),
            ("example", ".example", false),
            ("a.example", ".example", true),
            ("anything", "", true),
        ] {
            assert_eq!(is_within(name, domain), covered, "{name} in {domain}");
        }
    }

    #[test]
    fn networks_cover_addresses_of_their_family() {
        let network = GeneralName::IPAddress(&[10, 1, 0, 0, 255, 255, 0, 0]);
        let is_covered = |octets: &[u8]| covers(&network, &GeneralName::IPAddress(octets));
        assert_eq!(is_covered(&[10, 1, 2, 3]), Some(true));
        assert_eq!(is_covered(&[10, 2, 2, 3]), Some(false));
        assert_eq!(is_covered(&[0; 16]), Some(false));
        assert_eq!(covers(&network, &GeneralName::DNSName("a")), None);
    }
}
