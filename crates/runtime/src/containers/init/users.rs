//! The user of a process, by the files of the container: `/etc/passwd` and `/etc/group`.

use crate::containers::spec::UserSpec;
use crate::images::root_dir::RootDir;
use rustix::fs::{Mode, OFlags};
use std::fmt;
use std::fs::File;
use std::io::Read;

/// Larger files are not read further.
const FILE_LIMIT: u64 = 4 * 1024 * 1024;
/// Opened without waiting: it may be a pipe.
const FLAGS: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// Numbers of a user, and its home directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedUser {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    pub home: String,
}

/// A name that the files lack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LookupError {
    User(String),
    Group(String),
}

impl fmt::Display for LookupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LookupError::User(name) => {
                write!(f, "unable to find user {name}: no matching entries in passwd file")
            }
            LookupError::Group(name) => {
                write!(f, "unable to find group {name}: no matching entries in group file")
            }
        }
    }
}

/// Whether the user of a container is looked up by a name, so that the image must have it.
pub fn has_name(spec: &UserSpec) -> bool {
    spec.user.split(':').any(|part| !part.is_empty() && part.parse::<u32>().is_err())
}

/// Resolves a user by the files of this root; a number needs no entry.
pub fn resolve(spec: &UserSpec) -> Result<ResolvedUser, String> {
    let open = |path: &str| rustix::fs::open(path, FLAGS, Mode::empty()).ok().map(File::from);
    resolve_in(spec, &read(open("/etc/passwd")), &read(open("/etc/group"))).map_err(|it| it.to_string())
}

/// Resolves a user by the files of another root.
pub fn resolve_inside(spec: &UserSpec, root: &RootDir) -> Result<ResolvedUser, LookupError> {
    let open = |path: &[u8]| root.open_inside(path, FLAGS, Mode::empty()).ok().map(File::from);
    resolve_in(spec, &read(open(b"etc/passwd")), &read(open(b"etc/group")))
}

/// An image may have no such file.
fn read(file: Option<File>) -> String {
    let mut text = Vec::new();
    let _ = file.map(|file| file.take(FILE_LIMIT).read_to_end(&mut text));
    String::from_utf8_lossy(&text).into_owned()
}

fn resolve_in(spec: &UserSpec, passwd: &str, group: &str) -> Result<ResolvedUser, LookupError> {
    let (user, named_group) = match spec.user.split_once(':') {
        Some((user, group)) => (user, Some(group).filter(|it| !it.is_empty())),
        None => (&*spec.user, None),
    };
    let user = if user.is_empty() { "0" } else { user };
    let number = user.parse::<u32>().ok();
    let entries = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>()).filter(|it| it.len() >= 6);
    let mut entries = entries.filter(|it| match number {
        Some(uid) => it[2].parse() == Ok(uid),
        None => it[0] == user,
    });
    let entry = entries.next();
    let uid = match (number, entry.as_ref().and_then(|it| it[2].parse().ok())) {
        (Some(uid), _) | (None, Some(uid)) => uid,
        (None, None) => return Err(LookupError::User(user.to_owned())),
    };
    let groups: Vec<Vec<&str>> =
        group.lines().map(|line| line.split(':').collect()).filter(|it: &Vec<&str>| it.len() >= 4).collect();
    let gid = match (spec.group, named_group) {
        (Some(gid), _) => gid,
        (None, Some(name)) => match name.parse() {
            Ok(gid) => gid,
            Err(_) => {
                let found = groups.iter().find(|it| it[0] == name).and_then(|it| it[2].parse().ok());
                found.ok_or_else(|| LookupError::Group(name.to_owned()))?
            }
        },
        (None, None) => entry.as_ref().and_then(|it| it[3].parse().ok()).unwrap_or(0),
    };
    let mut all = spec.supplemental.clone();
    // memberships of the image count unless a group is named
    if let (Some(entry), None) = (&entry, named_group) {
        let is_member = |it: &&Vec<&str>| it[3].split(',').any(|member| member == entry[0]);
        all.extend(groups.iter().filter(is_member).filter_map(|it| it[2].parse::<u32>().ok()));
    }
    all.push(gid);
    all.sort_unstable();
    all.dedup();
    let home = entry.map_or("/", |it| it[5]).to_owned();
    Ok(ResolvedUser { uid, gid, groups: all, home: if home.is_empty() { "/".to_owned() } else { home } })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\napp:x:1000:1001:App:/home/app:/bin/sh\nbroken\n";
    const GROUP: &str = "root:x:0:\nteam:x:50:app,other\napp:x:1001:\n";

    fn resolve(user: &str, group: Option<u32>, supplemental: &[u32]) -> Result<ResolvedUser, LookupError> {
        let spec = UserSpec { user: user.to_owned(), group, supplemental: supplemental.to_vec() };
        resolve_in(&spec, PASSWD, GROUP)
    }

    #[test]
    fn users_are_resolved_by_name_and_number() {
        let app = ResolvedUser { uid: 1000, gid: 1001, groups: vec![50, 1001], home: "/home/app".into() };
        assert_eq!(resolve("app", None, &[]).unwrap(), app);
        assert_eq!(resolve("1000", None, &[]).unwrap(), app);
        let root = resolve("", None, &[7, 7]).unwrap();
        assert_eq!((root.uid, root.gid, root.groups, &*root.home), (0, 0, vec![0, 7], "/root"));
        let unknown = resolve("4000", Some(3), &[]).unwrap();
        assert_eq!((unknown.uid, unknown.gid, &*unknown.home), (4000, 3, "/"));
        let named = resolve("app:team", None, &[]).unwrap();
        assert_eq!((named.gid, named.groups), (50, vec![50]));
        assert_eq!(resolve("absent", None, &[]), Err(LookupError::User("absent".to_owned())));
        assert_eq!(resolve("app:nogroup", None, &[]), Err(LookupError::Group("nogroup".to_owned())));
        let named = |user: &str| has_name(&UserSpec { user: user.to_owned(), ..UserSpec::default() });
        assert_eq!(
            ["", "0", "7:8", "7:team", "app", "4294967296"].map(named),
            [false, false, false, true, true, true]
        );
    }
}
