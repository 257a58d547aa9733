//! The termination message of a container: the end of its file, or of its log.

use crate::runtime::ContainerStatus;
use names::node;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

/// Bytes of a message from a file.
const FILE_LIMIT: u64 = 4096;
/// Bytes and lines of a message from a log.
const LOG_LIMIT: usize = 2048;
const LOG_LINES: usize = 80;

/// The message of an ended container. Reads files: not for the threads of the runtime.
pub fn read(status: &ContainerStatus) -> String {
    let annotation = |name: &str| status.annotations.get(name).map(String::as_str).unwrap_or_default();
    let falls_back = annotation(node::CONTAINER_TERMINATION_MESSAGE_POLICY) == "FallbackToLogsOnError"
        && status.exit_code != 0;
    let path = annotation(node::CONTAINER_TERMINATION_MESSAGE_PATH);
    let mount = status.mounts.iter().find(|it| !path.is_empty() && it.container_path == path);
    let message = match mount.map(|it| (tail(Path::new(&it.host_path), FILE_LIMIT), it)) {
        Some((Ok(bytes), _)) => String::from_utf8_lossy(&bytes).into_owned(),
        Some((Err(why), mount)) if why.kind() != io::ErrorKind::NotFound => {
            return format!("Error on reading termination log {}: {why}", mount.host_path);
        }
        _ => String::new(),
    };
    if message.is_empty() && falls_back { read_log(Path::new(&status.log_path)) } else { message }
}

/// At most `limit` bytes from the end of a file.
fn tail(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut file = std::fs::File::open(path)?;
    let size = file.metadata()?.len();
    file.seek(SeekFrom::Start(size.saturating_sub(limit)))?;
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The end of a log in the format of the CRI: time, stream, tags, text.
fn read_log(path: &Path) -> String {
    // a line has a prefix of some 50 bytes
    let Ok(bytes) = tail(path, (LOG_LIMIT + LOG_LINES * 128) as u64) else { return String::new() };
    let text = String::from_utf8_lossy(&bytes);
    let mut message = String::new();
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    for line in &lines[lines.len().saturating_sub(LOG_LINES)..] {
        let mut parts = line.splitn(4, ' ');
        let (Some(_), Some(_), Some(tag), Some(content)) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        message.push_str(if tag.starts_with('P') { content.trim_end_matches('\n') } else { content });
    }
    let mut start = message.len().saturating_sub(LOG_LIMIT);
    while !message.is_char_boundary(start) {
        start += 1;
    }
    message.split_off(start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::Mount;

    fn container(policy: &str, exit_code: i32, file: &Path, log: &Path) -> ContainerStatus {
        let annotations = [
            (node::CONTAINER_TERMINATION_MESSAGE_PATH.to_owned(), "/dev/termination-log".to_owned()),
            (node::CONTAINER_TERMINATION_MESSAGE_POLICY.to_owned(), policy.to_owned()),
        ];
        ContainerStatus {
            exit_code,
            annotations: annotations.into(),
            mounts: vec![Mount {
                container_path: "/dev/termination-log".into(),
                host_path: file.display().to_string(),
                ..Mount::default()
            }],
            log_path: log.display().to_string(),
            ..ContainerStatus::default()
        }
    }

    #[test]
    fn the_file_comes_first_and_the_log_after_errors_only() {
        let dir = tempfile::tempdir().unwrap();
        let (file, log) = (dir.path().join("message"), dir.path().join("0.log"));
        let lines: String = (0..200).map(|it| format!("2026-01-01T00:00:00Z stdout F l{it}\n")).collect();
        std::fs::write(&log, lines).unwrap();
        let fallback = "FallbackToLogsOnError";
        assert_eq!(read(&container("File", 1, &file, &log)), "");
        assert_eq!(read(&container(fallback, 0, &file, &log)), "");
        let message = read(&container(fallback, 1, &file, &log));
        assert!(message.starts_with("l120\n") && message.ends_with("l199\n"), "{message}");
        std::fs::write(&file, b"h\xc3\xa9llo \xff x").unwrap();
        assert_eq!(read(&container(fallback, 1, &file, &log)), "h\u{e9}llo \u{fffd} x");
        std::fs::write(&file, "0123456789".repeat(600)).unwrap();
        assert_eq!(read(&container("File", 0, &file, &log)).len(), 4096);
    }

    #[test]
    fn a_log_gives_at_most_two_kilobytes() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("0.log");
        let lines: String = (0..100)
            .map(|it| {
                format!("2026-01-01T00:00:00.000000000Z stderr F line {it} {}\n", "0123456789".repeat(4))
            })
            .collect();
        std::fs::write(&log, lines).unwrap();
        let message = read(&container("FallbackToLogsOnError", 1, &dir.path().join("none"), &log));
        assert_eq!(message.len(), 2048);
        assert!(message.starts_with("23456789") && message.contains("\nline 59 "), "{message}");
    }
}
