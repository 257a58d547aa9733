//! Front proxy options: the headers that carry the user.

use super::ConfigErrors;
use apiserver::authentication::FrontProxy;
use clap::Args;
use http::HeaderName;

#[derive(Debug, Clone, Args)]
pub struct RequestHeaders {
    /// The common names of trusted front proxies, comma-separated; if empty, every certificate of those authorities is
    /// trusted
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub requestheader_allowed_names: Vec<String>,

    /// Headers with the user name; the first one present counts
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "X-Remote-User")]
    pub requestheader_username_headers: Vec<String>,

    /// Headers with the user's groups
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "X-Remote-Group")]
    pub requestheader_group_headers: Vec<String>,

    /// The prefixes of headers with extra information about the user
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "X-Remote-Extra-")]
    pub requestheader_extra_headers_prefix: Vec<String>,
}

impl RequestHeaders {
    pub fn read(&self, errors: &mut ConfigErrors) -> FrontProxy {
        let mut headers = |option: &str, texts: &[String]| -> Vec<HeaderName> {
            let mut read = Vec::new();
            for text in texts {
                let name = HeaderName::from_bytes(text.trim().as_bytes());
                read.extend(errors.take(option, name.map_err(|_| format!("{text:?} is not a header name"))));
            }
            read
        };
        let username_headers =
            headers("--requestheader-username-headers", &self.requestheader_username_headers);
        let group_headers = headers("--requestheader-group-headers", &self.requestheader_group_headers);
        let extra = headers("--requestheader-extra-headers-prefix", &self.requestheader_extra_headers_prefix);
        let extra_prefixes = extra.into_iter().map(|name| name.as_str().to_owned()).collect();
        let allowed_names = self.requestheader_allowed_names.clone();
        if allowed_names.iter().any(|name| name.trim().is_empty()) {
            errors.add("--requestheader-allowed-names", "a name is empty");
        }
        FrontProxy { allowed_names, username_headers, group_headers, extra_prefixes }
    }
}
