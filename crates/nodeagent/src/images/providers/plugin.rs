//! The protocol with a credential provider: a request on its standard input, an answer on its standard output.

use super::config::ProviderConfig;
use crate::runtime::RegistryAuth;
use schema::time::parse_duration;
use serde_json::{Value, json};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

/// How long a program may take.
pub const TIMEOUT: Duration = Duration::from_secs(60);
/// The longest answer.
const MAX_ANSWER: u64 = 1 << 20;
const REQUEST: &str = "CredentialProviderRequest";
const RESPONSE: &str = "CredentialProviderResponse";

/// The images that an answer is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheKeyType {
    Image,
    Registry,
    Global,
}

/// The answer of a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderAnswer {
    pub key_type: CacheKeyType,
    /// How long it is good for, if that differs from the configuration.
    pub cache: Option<Duration>,
    /// Credentials by pattern of images.
    pub auths: Vec<(String, RegistryAuth)>,
}

/// Runs a program for an image.
pub async fn run(config: &ProviderConfig, image: &str) -> Result<ProviderAnswer, String> {
    let request = json!({"kind": REQUEST, "apiVersion": config.api_version, "image": image});
    let failed = |error: std::io::Error| {
        format!("error execing credential provider plugin {} for image {image}: {error}", config.name)
    };
    let mut child = Command::new(&config.program)
        .args(&config.args)
        .envs(config.env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    let (input, output) = (child.stdin.take(), child.stdout.take());
    let write = async {
        if let Some(mut input) = input {
            // a program that does not read its request answers all the same
            let _ = input.write_all(format!("{request}\n").as_bytes()).await;
        }
    };
    let read = async {
        let mut answer = Vec::new();
        if let Some(output) = output {
            output.take(MAX_ANSWER).read_to_end(&mut answer).await?;
        }
        Ok::<_, std::io::Error>(answer)
    };
    let ((), answer) = tokio::join!(write, read);
    let status = child.wait().await.map_err(failed)?;
    if !status.success() {
        return Err(format!(
            "error execing credential provider plugin {} for image {image}: {status}",
            config.name
        ));
    }
    parse(&answer.map_err(failed)?, &config.api_version)
}

/// Reads an answer, which must have the version of the request.
fn parse(answer: &[u8], version: &str) -> Result<ProviderAnswer, String> {
    if answer.is_empty() {
        return Err("got empty response from credential provider".to_owned());
    }
    let answer: Value = serde_json::from_slice(answer).map_err(|error| error.to_string())?;
    let text = |name: &str| answer[name].as_str().unwrap_or_default();
    if text("kind") != RESPONSE {
        return Err(format!("failed to decode {RESPONSE}, unexpected Kind: {:?}", text("kind")));
    }
    if text("apiVersion") != version {
        return Err(format!(
            "apiVersion from credential plugin response did not match expected apiVersion:{version}, actual \
             apiVersion:{}",
            text("apiVersion")
        ));
    }
    let key_type = match text("cacheKeyType") {
        "Image" => CacheKeyType::Image,
        "Registry" => CacheKeyType::Registry,
        "Global" => CacheKeyType::Global,
        other => {
            return Err(format!("credential provider plugin did not return a valid cacheKeyType: {other:?}"));
        }
    };
    let cache =
        answer["cacheDuration"].as_str().map(|text| parse_duration(text).map_err(|error| error.to_string()));
    let cache = cache.transpose()?.map(|nanos| Duration::from_nanos(u64::try_from(nanos).unwrap_or(0)));
    let auth = |(pattern, auth): (&String, &Value)| {
        let text = |name: &str| auth[name].as_str().unwrap_or_default().to_owned();
        let auth = RegistryAuth {
            username: text("username"),
            password: text("password"),
            ..RegistryAuth::default()
        };
        (pattern.clone(), auth)
    };
    let auths = answer["auth"].as_object().into_iter().flatten().map(auth).collect();
    Ok(ProviderAnswer { key_type, cache, auths })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_must_fit_the_request() {
        let check = |answer: &str, expected: &str| {
            assert_eq!(parse(answer.as_bytes(), "g/v1").err().unwrap_or_default(), expected, "{answer}");
        };
        let answer = |version: &str, key: &str| {
            format!(
                r#"{{"kind":"CredentialProviderResponse","apiVersion":"{version}","cacheKeyType":"{key}",
                    "cacheDuration":"10m","auth":{{"a.test":{{"username":"u","password":"p"}}}}}}"#
            )
        };
        check("", "got empty response from credential provider");
        check("not json", "expected ident at line 1 column 2");
        check(
            r#"{"kind":"Bogus"}"#,
            "failed to decode CredentialProviderResponse, unexpected Kind: \"Bogus\"",
        );
        check(
            &answer("g/v9", "Image"),
            "apiVersion from credential plugin response did not match expected apiVersion:g/v1, actual apiVersion:g/v9",
        );
        check(
            &answer("g/v1", "Bogus"),
            "credential provider plugin did not return a valid cacheKeyType: \"Bogus\"",
        );
        let made = parse(answer("g/v1", "Registry").as_bytes(), "g/v1").unwrap();
        assert_eq!((made.key_type, made.cache), (CacheKeyType::Registry, Some(Duration::from_secs(600))));
        assert_eq!((&*made.auths[0].0, &*made.auths[0].1.password), ("a.test", "p"));
    }
}
