//! The dialect of names: Kubernetes or neutral.

use super::ConfigErrors;
use clap::Args;
use names::Names;

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Dialect")]
pub struct Dialect {
    /// The names of groups, labels, annotations, signers and media types: kubernetes, as every existing client expects,
    /// or neutral, with the operator's domain and vendor
    #[arg(long, value_name = "NAME", default_value = "kubernetes", value_parser = ["kubernetes", "neutral"])]
    pub dialect: String,

    /// In the neutral dialect, the domain that API groups, labels, annotations and signers end in
    #[arg(long, value_name = "DOMAIN")]
    pub api_domain: Option<String>,

    /// In the neutral dialect, the word in media types and schema extensions, and the name of the server's own service
    #[arg(long, value_name = "WORD")]
    pub vendor: Option<String>,
}

impl Dialect {
    pub fn read(&self, errors: &mut ConfigErrors) -> Names {
        let given = [("--api-domain", &self.api_domain), ("--vendor", &self.vendor)];
        if self.dialect != "neutral" {
            for (option, _) in given.iter().filter(|(_, value)| value.is_some()) {
                errors.add(option, "has no effect without --dialect=neutral");
            }
            return Names::kubernetes();
        }
        for (option, value) in given {
            match value.as_deref() {
                None => errors.add(option, "required for --dialect=neutral"),
                Some(text) => {
                    let good = if option == "--vendor" { is_label(text) } else { is_domain(text) };
                    if !good {
                        let form = if option == "--vendor" { "a word of" } else { "a domain in" };
                        errors.add(
                            option,
                            format!("{text:?} is not {form} lower-case letters, digits and dashes"),
                        );
                    }
                }
            }
        }
        let (domain, vendor) = (self.api_domain.as_deref(), self.vendor.as_deref());
        Names::neutral(domain.unwrap_or_default(), vendor.unwrap_or_default())
    }
}

/// A label of a domain name: what a namespace or a service may be called.
fn is_label(text: &str) -> bool {
    let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let ends = text.bytes().next().is_some_and(plain) && text.bytes().next_back().is_some_and(plain);
    ends && text.len() <= 63 && text.bytes().all(|c| plain(c) || c == b'-')
}

/// Short enough to leave room for what stands in front of it.
fn is_domain(text: &str) -> bool {
    text.len() <= 200 && text.contains('.') && text.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(dialect: &str, domain: Option<&str>, vendor: Option<&str>) -> Result<Names, String> {
        let dialect = Dialect {
            dialect: dialect.to_owned(),
            api_domain: domain.map(str::to_owned),
            vendor: vendor.map(str::to_owned),
        };
        let mut errors = ConfigErrors::default();
        let names = dialect.read(&mut errors);
        errors.check().map(|()| names).map_err(|why| why.to_string())
    }

    #[test]
    fn a_dialect_of_ones_own_has_a_domain_and_a_vendor() {
        assert_eq!(read("kubernetes", None, None), Ok(Names::kubernetes()));
        let own = read("neutral", Some("acme.example"), Some("acme"));
        assert_eq!(own, Ok(Names::neutral("acme.example", "acme")));
        let message = read("neutral", None, None).unwrap_err();
        assert!(
            message.contains("--api-domain: required") && message.contains("--vendor: required"),
            "{message}"
        );
        for (domain, vendor) in
            [("acme", "a"), ("Acme.example", "a"), ("a..b", "a"), ("a.b", "a.b"), ("a.b", "-a")]
        {
            assert!(read("neutral", Some(domain), Some(vendor)).is_err(), "{domain} {vendor}");
        }
        let message = read("kubernetes", Some("a.b"), Some("c")).unwrap_err();
        assert_eq!(message.matches("without --dialect=neutral").count(), 2, "{message}");
    }
}
