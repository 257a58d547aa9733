//! The log backend: events as lines of a file that is rotated.
//!
//! ```text
//! audit.log                              being written
//! audit-2026-11-15T09-56-02.523.log      put aside then
//! audit-2026-11-14T21-03-59.001.log.gz   put aside before, and compressed
//! ```
//!
//! Invariants: a line is complete in one file, unless the disk refused a part of it; the next line then
//! begins a new one. Files are readable by their owner only. Rotation loses nothing; only rotated files
//! beyond the limits are deleted.

use env::World;
use flate2::Compression;
use flate2::write::GzEncoder;
use parking_lot::Mutex;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

/// The destination of lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    Stdout,
    File(PathBuf),
}

/// Limits of rotation. Zero is no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rotation {
    pub max_bytes: u64,
    pub max_age: Duration,
    pub max_backups: usize,
    pub compress: bool,
}

/// The writer.
pub(super) struct Log {
    state: Mutex<State>,
    rotation: Rotation,
    world: World,
    /// Held during cleanup, so that only one runs.
    cleanup_lock: Arc<Mutex<()>>,
}

enum State {
    Stdout,
    File(OpenLog),
}

struct OpenLog {
    path: PathBuf,
    file: Option<File>,
    bytes: u64,
    /// Whether the last line may be incomplete.
    is_torn: bool,
}

impl Log {
    pub fn open(target: &Target, rotation: Rotation, world: World) -> io::Result<Self> {
        let state = match target {
            Target::Stdout => State::Stdout,
            Target::File(path) => {
                if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
                    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
                }
                let (file, bytes) = open(path)?;
                State::File(OpenLog { path: path.clone(), file: Some(file), bytes, is_torn: false })
            }
        };
        Ok(Log { state: Mutex::new(state), rotation, world, cleanup_lock: Arc::default() })
    }

    /// Writes whole lines.
    pub fn write(&self, lines: &[u8]) -> io::Result<()> {
        match &mut *self.state.lock() {
            State::Stdout => {
                let mut out = io::stdout().lock();
                out.write_all(lines)?;
                out.flush()
            }
            State::File(open) => {
                let limit = self.rotation.max_bytes;
                if limit > 0 && open.bytes > 0 && open.bytes + lines.len() as u64 > limit {
                    self.rotate(open)?;
                }
                open.write(lines)
            }
        }
    }

    fn rotate(&self, open: &mut OpenLog) -> io::Result<()> {
        open.file = None;
        let millis = self.world.now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let millis = u64::try_from(millis).unwrap_or(u64::MAX);
        let free = |path: &PathBuf| !path.exists() && !compressed_path(path).exists();
        let aside = (millis..).map(|millis| backup(&open.path, millis)).find(free);
        if let Some(aside) = aside {
            fs::rename(&open.path, aside)?;
        }
        open.bytes = 0;
        open.is_torn = false;
        let (path, rotation, now) = (open.path.clone(), self.rotation, millis);
        let cleanup_lock = self.cleanup_lock.clone();
        let clean = move || {
            let _only = cleanup_lock.lock();
            if let Err(error) = clean_up(&path, &rotation, now) {
                tracing::warn!(%error, "rotated audit logs could not be cleaned up");
            }
        };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(clean)),
            Err(_) => clean(),
        }
        Ok(())
    }
}

impl OpenLog {
    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                let (file, bytes) = open(&self.path)?;
                self.bytes = bytes;
                none.insert(file)
            }
        };
        if self.is_torn {
            file.write_all(b"\n")?;
        }
        self.is_torn = true;
        file.write_all(lines)?;
        self.is_torn = false;
        self.bytes += lines.len() as u64;
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<(File, u64)> {
    let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
    let bytes = file.metadata()?.len();
    Ok((file, bytes))
}

/// Prefix and suffix of the names of rotated files.
fn affixes(path: &Path) -> (String, String) {
    let part = |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
    let end = path.extension().map(|end| format!(".{}", end.to_string_lossy())).unwrap_or_default();
    (format!("{}-", part(path.file_stem())), end)
}

fn backup(path: &Path, millis: u64) -> PathBuf {
    let (begin, end) = affixes(path);
    let seconds = i64::try_from(millis / 1000).unwrap_or(i64::MAX);
    let time = schema::time::format_time(seconds).replace(':', "-");
    path.with_file_name(format!("{begin}{}.{:03}{end}", time.trim_end_matches('Z'), millis % 1000))
}

fn compressed_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".gz");
    name.into()
}

/// The time of rotation, in Unix seconds, from a file name.
fn rotated_at(name: &str, (begin, end): &(String, String)) -> Option<i64> {
    let name = name.strip_suffix(".gz").unwrap_or(name);
    let stamp = name.strip_prefix(begin.as_str())?.strip_suffix(end.as_str())?;
    let (date, time) = stamp.split_once('T')?;
    schema::time::to_unix(&format!("{date}T{}Z", time.replace('-', ":")))
}

/// Deletes rotated files beyond the limits, and compresses the rest.
fn clean_up(path: &Path, rotation: &Rotation, now_millis: u64) -> io::Result<()> {
    let affixes = affixes(path);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut aside: Vec<(String, i64)> = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if let Some(at) = rotated_at(&name, &affixes) {
            aside.push((name, at));
        }
    }
    // newest first: the names sort by time
    aside.sort_unstable_by(|one, other| other.0.cmp(&one.0));
    let oldest = (now_millis / 1000).saturating_sub(rotation.max_age.as_secs());
    for (nth, (name, at)) in aside.iter().enumerate() {
        let file = folder.join(name);
        let too_many = rotation.max_backups > 0 && nth >= rotation.max_backups;
        let too_old = !rotation.max_age.is_zero() && *at < i64::try_from(oldest).unwrap_or(i64::MAX);
        if too_many || too_old {
            fs::remove_file(&file)?;
        } else if rotation.compress && !name.ends_with(".gz") {
            compress(&file)?;
        }
    }
    Ok(())
}

fn compress(file: &Path) -> io::Result<()> {
    let mut from = File::open(file)?;
    let to = compressed_path(file);
    let into = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&to)?;
    let mut encoder = GzEncoder::new(into, Compression::default());
    let written = io::copy(&mut from, &mut encoder).and_then(|_| encoder.finish()).and_then(|f| f.sync_all());
    if let Err(error) = written {
        // a truncated archive is worse than a large file
        let _ = fs::remove_file(&to);
        return Err(error);
    }
    fs::remove_file(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::Simulated;
    use std::io::Read;
    use std::os::unix::fs::PermissionsExt;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn full_files_are_rotated_compressed_and_finally_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/audit.log");
        let world = Simulated::new(1_700_000_000, 1);
        let day = Duration::from_secs(24 * 3600);
        let rotation = Rotation { max_bytes: 10, max_age: 2 * day, max_backups: 2, compress: true };
        let log = Log::open(&Target::File(path.clone()), rotation, world.clone()).unwrap();
        let inside = path.parent().unwrap();
        fs::write(inside.join("audit-notes.log"), "not ours").unwrap();
        log.write(b"12345\n").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        log.write(b"67890\n").unwrap();
        let first = "audit-2023-11-14T22-13-20.000.log.gz";
        assert_eq!(names(inside), [first, "audit-notes.log", "audit.log"]);
        let mut text = String::new();
        flate2::read::GzDecoder::new(File::open(inside.join(first)).unwrap())
            .read_to_string(&mut text)
            .unwrap();
        assert_eq!((&*text, &*fs::read_to_string(&path).unwrap()), ("12345\n", "67890\n"));
        // a line larger than the limit gets a file of its own, and the same time takes the next name
        log.write(b"a line of its own\n").unwrap();
        world.advance(day);
        log.write(b"x\n").unwrap();
        let rotated = ["audit-2023-11-14T22-13-20.001.log.gz", "audit-2023-11-15T22-13-20.000.log.gz"];
        assert_eq!(names(inside), [rotated[0], rotated[1], "audit-notes.log", "audit.log"]);
        world.advance(day + day / 2);
        log.write(b"123456789\n").unwrap();
        assert_eq!(names(inside).len(), 4, "{:?}", names(inside));
        world.advance(3 * day);
        log.write(b"1\n").unwrap();
        let last = names(inside);
        assert_eq!(last[0], "audit-2023-11-20T10-13-20.000.log.gz");
        assert_eq!(last.len(), 3, "{last:?}");
    }

    #[test]
    fn an_existing_file_is_continued_and_a_torn_line_is_ended() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs::write(&path, "before\n").unwrap();
        let log = Log::open(&Target::File(path.clone()), Rotation::default(), Simulated::new(0, 0)).unwrap();
        if let State::File(open) = &mut *log.state.lock() {
            open.file.as_mut().unwrap().write_all(b"half").unwrap();
            open.is_torn = true;
        }
        log.write(b"after\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "before\nhalf\nafter\n");
        let refused =
            Log::open(&Target::File("/dev/null/x".into()), Rotation::default(), Simulated::new(0, 0));
        assert!(refused.is_err());
    }
}
