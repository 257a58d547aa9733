//! Users from client certificates: the common name is the user's name, each organization a group.
//!
//! What always holds: a certificate's names count for nothing until its chain has been verified against the
//! authority for clients, which is not done here but once per connection by whoever accepted it.

use std::net::IpAddr;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::x509::AttributeTypeAndValue;

use crate::{AuthError, User};

/// The user that a verified leaf certificate speaks for, already in the group of the authenticated.
pub fn identify(leaf_der: &[u8]) -> Result<User, AuthError> {
    let (_, certificate) = X509Certificate::from_der(leaf_der).map_err(malformed)?;
    let subject = certificate.subject();
    // a subject may repeat the attribute; the last one counts, as it does upstream
    let name = match subject.iter_common_name().last() {
        Some(attribute) => text(attribute)?,
        None => return Err(AuthError::NoCommonName),
    };
    if name.is_empty() {
        return Err(AuthError::NoCommonName);
    }
    let groups = subject.iter_organization().map(text).collect::<Result<_, _>>()?;
    Ok(User { groups, ..User::named(name) }.authenticated())
}

/// The common name, which may be empty.
pub fn common_name(der: &[u8]) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let name = certificate.subject().iter_common_name().last();
    Some(name.map(text).transpose().ok()?.unwrap_or_default())
}

/// The last moment at which a certificate is valid, in Unix seconds.
pub fn valid_until(der: &[u8]) -> Option<i64> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    Some(certificate.validity().not_after.timestamp())
}

/// The structure with a certificate's public key.
pub fn public_key(der: &[u8]) -> Option<&[u8]> {
    X509Certificate::from_der(der).ok().map(|(_, certificate)| certificate.tbs_certificate.subject_pki.raw)
}

/// The names and addresses that a certificate is for, as text; nothing of one that cannot be read.
pub fn names(leaf_der: &[u8]) -> Vec<String> {
    let Ok((_, certificate)) = X509Certificate::from_der(leaf_der) else { return Vec::new() };
    let common = certificate.subject().iter_common_name().filter_map(|one| text(one).ok());
    let mut names: Vec<String> = common.collect();
    let Ok(Some(alternatives)) = certificate.subject_alternative_name() else { return names };
    names.extend(alternatives.value.general_names.iter().filter_map(|name| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => match bytes.len() {
            4 => <[u8; 4]>::try_from(*bytes).ok().map(|bytes| IpAddr::from(bytes).to_string()),
            _ => <[u8; 16]>::try_from(*bytes).ok().map(|bytes| IpAddr::from(bytes).to_string()),
        },
        _ => None,
    }));
    names
}

fn text(attribute: &AttributeTypeAndValue<'_>) -> Result<String, AuthError> {
    attribute.as_str().map(str::to_owned).map_err(malformed)
}

fn malformed(problem: impl std::fmt::Display) -> AuthError {
    AuthError::MalformedCertificate(problem.to_string())
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::*;

    fn certificate(names: &[(DnType, &str)]) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for (kind, value) in names {
            params.distinguished_name.push(kind.clone(), *value);
        }
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn the_common_name_is_the_user_and_the_organization_a_group() {
        let der = certificate(&[(DnType::CommonName, "jane"), (DnType::OrganizationName, "system:masters")]);
        let user = identify(&der).unwrap();
        assert_eq!(user.name, "jane");
        assert_eq!(user.groups, ["system:masters", "system:authenticated"]);
        assert_eq!(user.uid, "");
    }

    #[test]
    fn several_organizations_are_several_groups() {
        // the generator of certificates keeps one attribute of a kind, so the second organization is
        // written as an organizational unit of the same length of object identifier and then renamed
        let mut der = certificate(&[
            (DnType::CommonName, "jane"),
            (DnType::OrganizationName, "dev"),
            (DnType::OrganizationalUnitName, "ops"),
        ]);
        let unit = [0x55, 0x04, 0x0b];
        while let Some(at) = der.windows(3).position(|window| window == unit) {
            der[at + 2] = 0x0a;
        }
        assert_eq!(identify(&der).unwrap().groups, ["dev", "ops", "system:authenticated"]);
    }

    #[test]
    fn a_certificate_that_names_nobody_is_told_apart_from_a_broken_one() {
        let nameless = certificate(&[(DnType::OrganizationName, "dev")]);
        assert_eq!(identify(&nameless), Err(AuthError::NoCommonName));
        assert_eq!(identify(&certificate(&[(DnType::CommonName, "")])), Err(AuthError::NoCommonName));
        let whole = certificate(&[(DnType::CommonName, "jane")]);
        for length in [0, 1, whole.len() / 2, whole.len() - 1] {
            let broken = identify(&whole[..length]);
            assert!(matches!(broken, Err(AuthError::MalformedCertificate(_))), "{length}: {broken:?}");
        }
    }
}
