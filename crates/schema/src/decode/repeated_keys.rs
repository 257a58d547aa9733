//! The duplicate keys of a whole JSON text, in the order in which they occur.
//!
//! The decoder notices duplicate keys on its way, but in the order of its own work. This walk is slower and exact, and
//! is made only where the decoder has noticed one.

use super::strict_errors::{StrictError, StrictErrors};
use crate::path::Path;
use crate::source::{Json, Source, SyntaxError, Token};
use std::collections::HashSet;

/// Lists every key that a map of the text has once more.
pub(super) fn repeated_keys(bytes: &[u8], limits: StrictErrors) -> Result<Vec<StrictError>, SyntaxError> {
    let mut source = Json::new(bytes)?;
    let mut found = limits;
    let token = source.value()?;
    below(&mut source, &token, &Path::ROOT, &mut found)?;
    Ok(found.into_list())
}

fn below(
    source: &mut Json<'_>,
    token: &Token<'_>,
    path: &Path<'_>,
    found: &mut StrictErrors,
) -> Result<(), SyntaxError> {
    match token {
        Token::Map => {
            let mut keys = HashSet::new();
            while let Some(key) = source.key()? {
                let path = path.field(&key);
                if keys.contains(&key) {
                    found.duplicate(&path);
                }
                let token = source.value()?;
                below(source, &token, &path, found)?;
                keys.insert(key);
            }
        }
        Token::List => {
            let mut nth = 0;
            while source.item()? {
                let token = source.value()?;
                below(source, &token, &path.index(nth), found)?;
                nth += 1;
            }
        }
        _ => {}
    }
    Ok(())
}
