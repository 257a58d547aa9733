//! Queries of URLs.

use schema::url::unescape_path;

/// The pairs of a query, unescaped, in order.
pub fn pairs(query: Option<&str>) -> Vec<(String, String)> {
    let parts = query.unwrap_or("").split('&').filter(|part| !part.is_empty());
    parts
        .map(|part| {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            (unescape(key), unescape(value))
        })
        .collect()
}

fn unescape(text: &str) -> String {
    String::from_utf8_lossy(&unescape_path(&text.replace('+', " "))).into_owned()
}

pub fn get<'q>(query: &'q [(String, String)], key: &str) -> Option<&'q str> {
    query.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_unescaped() {
        let query = pairs(Some("command=sh&command=a+b%26c&input=1&x"));
        assert_eq!(query[1].1, "a b&c");
        assert_eq!(
            (get(&query, "command"), get(&query, "x"), get(&query, "y")),
            (Some("sh"), Some(""), None)
        );
    }
}
