//! The limit of open files. A server raises its own; programs that it starts get the one that it began with, because some
//! look through all descriptors up to the limit, and `select` takes none above 1023.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;
use std::sync::OnceLock;

/// The limit before the first change; none inside is no limit.
static INITIAL: OnceLock<Option<u64>> = OnceLock::new();

fn remember() {
    INITIAL.get_or_init(|| getrlimit(Resource::Nofile).current);
}

/// The limit that this process began with, if it has changed it and there was one.
pub fn initial_open_files() -> Option<u64> {
    INITIAL.get().copied().flatten()
}

/// Sets the limit. Where that is not allowed, it is raised as far as it can be.
pub fn set_open_files(files: u64) -> io::Result<()> {
    remember();
    setrlimit(Resource::Nofile, Rlimit { current: Some(files), maximum: Some(files) }).map_err(|why| {
        raise_open_files();
        why.into()
    })
}

/// Raises the limit to its maximum and returns it; none if there is no limit.
pub fn raise_open_files() -> Option<u64> {
    remember();
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return current;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => maximum,
        // some systems allow less than they say
        Err(_) => current,
    }
}

/// What the limit can be raised to; none if that has no limit.
pub fn maximum_open_files() -> Option<u64> {
    getrlimit(Resource::Nofile).maximum
}

/// Sets the limit, and leaves its maximum, which the program may raise it to.
pub fn lower_open_files(files: u64) -> io::Result<()> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let current = Some(maximum.map_or(files, |it| it.min(files)));
    Ok(setrlimit(Resource::Nofile, Rlimit { current, maximum })?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_that_a_process_began_with_is_known_after_it_was_raised() {
        lower_open_files(200).unwrap();
        assert_eq!(initial_open_files(), None, "nothing to give back");
        let raised = raise_open_files();
        assert!(raised.is_none_or(|it| it > 200), "{raised:?}");
        assert_eq!(initial_open_files(), Some(200));
        assert_eq!(raise_open_files(), raised);
        lower_open_files(200).unwrap();
        assert_eq!(getrlimit(Resource::Nofile), Rlimit { current: Some(200), maximum: raised });
        assert_eq!(initial_open_files(), Some(200));
    }
}
