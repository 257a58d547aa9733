//! Bearer tokens in WebSocket subprotocols: browsers cannot set headers on a WebSocket, but they can offer
//! the protocol `base64url.bearer.authorization.k8s.io.<token in base64>`.
//!
//! Invariant: at least one other protocol must be offered, so that one can be agreed on that is not the
//! token.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderMap;
use http::header::{CONNECTION, SEC_WEBSOCKET_PROTOCOL, UPGRADE};

/// The token, if the request is for a WebSocket and has one.
pub fn token(headers: &HeaderMap, prefix: &str) -> Result<Option<String>, &'static str> {
    // fast path: nearly no request has the header
    if !headers.contains_key(SEC_WEBSOCKET_PROTOCOL) || !is_websocket(headers) {
        return Ok(None);
    }
    let (mut tokens, others): (Vec<_>, Vec<_>) =
        header_values(headers, &SEC_WEBSOCKET_PROTOCOL).partition(|value| value.starts_with(prefix));
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

/// Removes tokens from the offered protocols.
pub fn remove_token(headers: &mut HeaderMap, prefix: &str) {
    if !headers.contains_key(SEC_WEBSOCKET_PROTOCOL) {
        return;
    }
    let others: Vec<&str> =
        header_values(headers, &SEC_WEBSOCKET_PROTOCOL).filter(|value| !value.starts_with(prefix)).collect();
    let others = http::HeaderValue::try_from(others.join(", ")).ok().filter(|it| !it.is_empty());
    headers.remove(SEC_WEBSOCKET_PROTOCOL);
    headers.extend(others.map(|others| (SEC_WEBSOCKET_PROTOCOL, others)));
}

/// Whether a request is for a WebSocket.
pub fn is_websocket(headers: &HeaderMap) -> bool {
    header_values(headers, &CONNECTION).any(|value| value.eq_ignore_ascii_case("upgrade"))
        && header_values(headers, &UPGRADE).any(|value| value.eq_ignore_ascii_case("websocket"))
}

fn header_values<'a>(headers: &'a HeaderMap, name: &http::HeaderName) -> impl Iterator<Item = &'a str> {
    let texts = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    texts.flat_map(|text| text.split(',')).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bearer_subprotocol_is_the_token() {
        let token_of = |protocols: &[&str], upgrade: bool| {
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
        assert_eq!(token_of(&[&format!("{abc}, other")], true), Ok(Some("abc".to_owned())));
        assert_eq!(token_of(&["other", &abc], true), Ok(Some("abc".to_owned())));
        assert_eq!(token_of(&[&abc, "other"], false), Ok(None));
        assert_eq!(token_of(&["other"], true), Ok(None));
        assert_eq!(token_of(&["p.", "other"], true), Ok(None));
        assert!(token_of(&[&abc], true).unwrap_err().contains("missing"));
        assert!(token_of(&[&abc, &abc, "other"], true).unwrap_err().contains("multiple"));
        assert!(token_of(&["p.a", "other"], true).unwrap_err().contains("encoding"));
        assert!(token_of(&["p._w", "other"], true).is_err());
    }

    #[test]
    fn the_token_is_removed_from_the_subprotocols() {
        let mut headers = HeaderMap::new();
        headers.append(SEC_WEBSOCKET_PROTOCOL, "p.abc, one".parse().unwrap());
        headers.append(SEC_WEBSOCKET_PROTOCOL, "two".parse().unwrap());
        remove_token(&mut headers, "p.");
        assert_eq!(headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().collect::<Vec<_>>(), ["one, two"]);
        headers.insert(SEC_WEBSOCKET_PROTOCOL, "p.abc".parse().unwrap());
        remove_token(&mut headers, "p.");
        assert!(headers.is_empty());
    }
}
