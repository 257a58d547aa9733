//! Volumes that an image declares: folders beside the container's files, each with what the image has at its path.

use super::spec::{MountPropagation, MountSpec};
use crate::images::copy_directory;
use crate::images::root_dir::RootDir;
use crate::steps::step;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::path::Path;

/// Makes the volumes of a container in a folder of its own, except those at paths of other mounts.
pub fn make<'a>(
    folder: &Path,
    declared: impl Iterator<Item = &'a str>,
    mounts: &[MountSpec],
    image: &RootDir,
) -> io::Result<Vec<MountSpec>> {
    let used: Vec<_> = mounts.iter().map(|it| clean(&it.target)).collect();
    let mut made: Vec<MountSpec> = Vec::new();
    for target in declared.map(clean) {
        if target.is_empty() || used.contains(&target) || made.iter().any(|it| it.target == target) {
            continue;
        }
        let source = folder.join(made.len().to_string());
        step("make a volume", &source);
        durable_file::directory(&source, 0o755)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        match image.open_inside(target.as_bytes(), flags, Mode::empty()) {
            Ok(content) => copy_directory(content, &source)?,
            Err(Errno::NOENT) => {}
            Err(why) => return Err(why.into()),
        }
        made.push(MountSpec { source, target, is_readonly: false, propagation: MountPropagation::Private });
    }
    Ok(made)
}

/// An absolute path without `.`, `..` and repeated slashes; that of the root is empty.
fn clean(path: &str) -> String {
    let mut components = Vec::new();
    for component in path.split('/') {
        match component {
            "" | "." => {}
            ".." => drop(components.pop()),
            name => components.push(name),
        }
    }
    components.iter().map(|it| format!("/{it}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn volumes_have_the_content_of_the_image_unless_something_is_mounted_there() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        fs::create_dir_all(image.join("data/inner")).unwrap();
        fs::write(image.join("data/inner/file"), "text").unwrap();
        fs::write(image.join("plain"), "").unwrap();
        let image = RootDir::open(&image).unwrap();
        let mounted = MountSpec { target: "/mounted/".into(), ..MountSpec::default() };
        let declared = ["/data/./inner/..", "/../data", "", "/", "/mounted", "absent/one"];
        let made = make(
            &folder.path().join("volumes"),
            declared.into_iter(),
            std::slice::from_ref(&mounted),
            &image,
        )
        .unwrap();
        let targets: Vec<_> = made.iter().map(|it| &*it.target).collect();
        assert_eq!(targets, ["/data", "/absent/one"]);
        assert_eq!(fs::read_to_string(made[0].source.join("inner/file")).unwrap(), "text");
        assert_eq!(fs::read_dir(&made[1].source).unwrap().count(), 0);
        let file = make(&folder.path().join("others"), ["/plain"].into_iter(), &[], &image);
        assert_eq!(file.unwrap_err().kind(), io::ErrorKind::NotADirectory);
    }
}
