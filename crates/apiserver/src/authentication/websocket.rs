//! Tokens of browsers: scripts cannot set headers on a websocket, but name its protocols, and one of those may be
//! `base64url.bearer.authorization.k8s.io.<token in base64>`.
//!
//! What always holds: at least one other protocol must be named, so that there is one to agree on which is not the
//! token.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderMap;
use http::header::{CONNECTION, SEC_WEBSOCKET_PROTOCOL, UPGRADE};

/// The token, if the request is for a websocket and names one.
pub fn token(headers: &HeaderMap, prefix: &str) -> Result<Option<String>, &'static str> {
    // nearly no request has the header
    if !headers.contains_key(SEC_WEBSOCKET_PROTOCOL) || !is_websocket(headers) {
        return Ok(None);
    }
    let (mut tokens, others): (Vec<_>, Vec<_>) =
        words(headers, &SEC_WEBSOCKET_PROTOCOL).partition(|word| word.starts_with(prefix));
    let Some(encoded) = tokens.pop() else { return Ok(None) };
    if !tokens.is_empty() {
        return Err("multiple base64.bearer.authorization tokens specified");
    }
    let decoded = URL_SAFE_NO_PAD.decode(&encoded[prefix.len()..]);
    let decoded = decoded.map_err(|_| "invalid base64.bearer.authorization token encoding")?;
    let token = String::from_utf8(decoded).map_err(|_| "invalid base64.bearer.authorization token")?;
    match (token.is_empty(), others.is_empty()) {
        (true, _) => Ok(None),
        (false, true) => Err("missing additional subprotocol"),
        (false, false) => Ok(Some(token)),
    }
}

/// Takes the tokens out of the protocols that are named.
pub fn forget_token(headers: &mut HeaderMap, prefix: &str) {
    if !headers.contains_key(SEC_WEBSOCKET_PROTOCOL) {
        return;
    }
    let others: Vec<&str> =
        words(headers, &SEC_WEBSOCKET_PROTOCOL).filter(|word| !word.starts_with(prefix)).collect();
    let others = http::HeaderValue::try_from(others.join(", ")).ok().filter(|it| !it.is_empty());
    headers.remove(SEC_WEBSOCKET_PROTOCOL);
    headers.extend(others.map(|others| (SEC_WEBSOCKET_PROTOCOL, others)));
}

/// Whether a request asks for a websocket.
pub fn is_websocket(headers: &HeaderMap) -> bool {
    words(headers, &CONNECTION).any(|word| word.eq_ignore_ascii_case("upgrade"))
        && words(headers, &UPGRADE).any(|word| word.eq_ignore_ascii_case("websocket"))
}

fn words<'a>(headers: &'a HeaderMap, name: &http::HeaderName) -> impl Iterator<Item = &'a str> {
    let texts = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    texts.flat_map(|text| text.split(',')).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_protocol_is_the_token_and_another_is_not() {
        let asked = |protocols: &[&str], upgrade: bool| {
            let mut headers = HeaderMap::new();
            for protocol in protocols {
                headers.append(SEC_WEBSOCKET_PROTOCOL, protocol.parse().unwrap());
            }
            if upgrade {
                headers.insert(CONNECTION, "keep-alive, Upgrade".parse().unwrap());
                headers.insert(UPGRADE, "WebSocket".parse().unwrap());
            }
            token(&headers, "p.")
        };
        let abc = format!("p.{}", URL_SAFE_NO_PAD.encode("abc"));
        assert_eq!(asked(&[&format!("{abc}, other")], true), Ok(Some("abc".to_owned())));
        assert_eq!(asked(&["other", &abc], true), Ok(Some("abc".to_owned())));
        assert_eq!(asked(&[&abc, "other"], false), Ok(None));
        assert_eq!(asked(&["other"], true), Ok(None));
        assert_eq!(asked(&["p.", "other"], true), Ok(None));
        assert!(asked(&[&abc], true).unwrap_err().contains("missing"));
        assert!(asked(&[&abc, &abc, "other"], true).unwrap_err().contains("multiple"));
        assert!(asked(&["p.a", "other"], true).unwrap_err().contains("encoding"));
        assert!(asked(&["p._w", "other"], true).is_err());
    }

    #[test]
    fn a_token_is_forgotten_and_other_protocols_are_not() {
        let mut headers = HeaderMap::new();
        headers.append(SEC_WEBSOCKET_PROTOCOL, "p.abc, one".parse().unwrap());
        headers.append(SEC_WEBSOCKET_PROTOCOL, "two".parse().unwrap());
        forget_token(&mut headers, "p.");
        assert_eq!(headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().collect::<Vec<_>>(), ["one, two"]);
        headers.insert(SEC_WEBSOCKET_PROTOCOL, "p.abc".parse().unwrap());
        forget_token(&mut headers, "p.");
        assert!(headers.is_empty());
    }
}
