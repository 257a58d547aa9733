//! Devices that the agent formats, mounts and grows itself.

use crate::filesystem::Filesystem;
use outbound::io_text;
use std::path::Path;
use std::process::Output;
use std::time::Duration;
use tokio::process::Command;

/// How long a program may take: a check of a large filesystem takes minutes.
const TIMEOUT: Duration = Duration::from_secs(600);
/// The filesystem of a new device whose volume names none.
const DEFAULT_TYPE: &str = "ext4";
/// What `blkid` says of a device without content.
const NO_CONTENT: i32 = 2;
/// What `fsck` says of errors that it cannot correct.
const UNCORRECTED: i32 = 4;

async fn run(program: &str, arguments: &[&str]) -> Result<Output, String> {
    let running = Command::new(program).args(arguments).kill_on_drop(true).output();
    let output = env::io::timeout(TIMEOUT, running).await.map_err(|_| format!("{program}: timeout"))?;
    output.map_err(|why| format!("{program}: {}", io_text(&why)))
}

/// The type of the filesystem on a device, if there is one.
async fn current_type(device: &str) -> Result<Option<String>, String> {
    let output = run("blkid", &["-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export", device]).await?;
    if output.status.code() == Some(NO_CONTENT) {
        return Ok(None);
    }
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(format!("blkid {device}: {}: {}", output.status, text.trim()));
    }
    parse_type(&String::from_utf8_lossy(&output.stdout))
}

fn parse_type(text: &str) -> Result<Option<String>, String> {
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    match (value("TYPE"), value("PTTYPE")) {
        (Some(kind), _) => Ok(Some(kind.to_owned())),
        (None, None) => Ok(None),
        // a partition table is content that must not be lost
        (None, Some(table)) => Err(format!("the device has a partition table ({table}) and no filesystem")),
    }
}

/// The arguments of the program that makes a filesystem.
fn format_arguments<'a>(kind: &str, device: &'a str) -> Vec<&'a str> {
    match kind {
        "ext3" | "ext4" => vec!["-F", "-m0", device],
        "xfs" => vec!["-f", device],
        _ => vec![device],
    }
}

/// Mounts a device. One without content gets a filesystem before, one with a filesystem is checked.
pub async fn format_and_mount(
    filesystem: &dyn Filesystem,
    device: &str,
    target: &Path,
    kind: &str,
    is_readonly: bool,
) -> Result<(), String> {
    let current = current_type(device).await?;
    let fs_type = match (kind, &current) {
        ("", Some(current)) => current,
        ("", None) => DEFAULT_TYPE,
        (kind, _) => kind,
    };
    if !fs_type.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'_' || it == b'-') {
        return Err(format!("{fs_type:?} is no type of a filesystem"));
    }
    match (&current, is_readonly) {
        (None, true) => return Err("cannot mount unformatted disk read only".to_owned()),
        (None, false) => {
            let made = run(&format!("mkfs.{fs_type}"), &format_arguments(fs_type, device)).await?;
            if !made.status.success() {
                let text = String::from_utf8_lossy(&made.stderr);
                return Err(format!("format of disk {device:?} failed: {}: {}", made.status, text.trim()));
            }
        }
        (Some(_), false) => {
            // a machine without the check mounts all the same
            if let Ok(checked) = run("fsck", &["-a", device]).await
                && checked.status.code() == Some(UNCORRECTED)
            {
                return Err(format!("'fsck' found errors on device {device} but could not correct them"));
            }
        }
        (Some(_), true) => {}
    }
    filesystem.mount_device(Path::new(device), target, fs_type, is_readonly).map_err(|why| io_text(&why))
}

/// Makes the filesystem on a device, which is mounted at `target`, as large as the device. One without content needs
/// nothing.
pub async fn grow_filesystem(device: &str, target: &str) -> Result<(), String> {
    let Some(kind) = current_type(device).await? else { return Ok(()) };
    let output = match &*kind {
        "ext3" | "ext4" => run("resize2fs", &[device]).await?,
        "xfs" => run("xfs_growfs", &["-d", target]).await?,
        "btrfs" => run("btrfs", &["filesystem", "resize", "max", target]).await?,
        other => return Err(format!("a filesystem of type {other} on {device} cannot grow")),
    };
    match output.status.success() {
        true => Ok(()),
        false => {
            let text = String::from_utf8_lossy(&output.stderr);
            Err(format!("resize of device {device} failed: {}: {}", output.status, text.trim()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filesystem::LinuxFilesystem;
    use crate::filesystem::testing::LoopDevice;

    #[test]
    fn the_content_of_a_device_is_known() {
        assert_eq!(parse_type("DEVNAME=/dev/loop0\nTYPE=xfs\n"), Ok(Some("xfs".to_owned())));
        assert_eq!(parse_type(""), Ok(None));
        assert!(parse_type("DEVNAME=/dev/sda\nPTTYPE=dos\n").is_err());
    }

    #[tokio::test]
    async fn a_new_device_is_formatted_once() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("disk");
        let device = match LoopDevice::new(&file) {
            Ok(device) => device,
            Err(why) => return testdata::skip(&why),
        };
        let target = dir.path().join("target");
        std::fs::create_dir(&target).unwrap();
        let mount = async |kind: &str, is_readonly| {
            format_and_mount(&LinuxFilesystem, &device.0, &target, kind, is_readonly).await
        };
        assert_eq!(mount("ext4", true).await.unwrap_err(), "cannot mount unformatted disk read only");
        if let Err(why) = mount("", false).await {
            return testdata::skip(&format!("a device cannot be mounted: {why}"));
        }
        std::fs::write(target.join("file"), "kept").unwrap();
        LinuxFilesystem.unmount(&target).unwrap();
        mount("ext4", true).await.unwrap();
        let kept = std::fs::read_to_string(target.join("file"));
        let refused = std::fs::write(target.join("other"), "");
        LinuxFilesystem.unmount(&target).unwrap();
        assert_eq!(kept.unwrap(), "kept");
        assert!(refused.is_err());
        assert!(mount("ext4/../x", false).await.is_err());
        // a device that has grown
        std::fs::OpenOptions::new().write(true).open(&file).unwrap().set_len(64 << 20).unwrap();
        assert!(std::process::Command::new("losetup").args(["-c", &device.0]).status().unwrap().success());
        mount("ext4", false).await.unwrap();
        let size = || rustix::fs::statvfs(&target).unwrap().f_blocks;
        let before = size();
        let grown = grow_filesystem(&device.0, &target.to_string_lossy()).await;
        let after = size();
        LinuxFilesystem.unmount(&target).unwrap();
        // mounted filesystems grow by a right that root may lack
        if let Some(why) = grown.as_ref().err().filter(|why| why.contains("Permission denied")) {
            return testdata::skip(&format!("a mounted filesystem cannot grow here: {why}"));
        }
        grown.unwrap();
        assert!(after > 2 * before, "{before} {after}");
    }
}
