//! The ceiling for writes: how often the disk makes a batch durable.
//!
//! Writes a batch and waits for `fdatasync`, over and over, in a file of its own in the folder given, which is
//! gone afterwards. Appended batches also make the file's new length durable; batches written in place, to
//! blocks the file has already, do not. What it does not do: more than one sync at a time.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write, stdout};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Parser;
use serde_json::json;

/// The length at which the file is begun again: enough to keep a disk from answering out of a small cache.
const WRAP_BYTES: u64 = 256 << 20;

/// The disk's own sync rate
#[derive(Parser)]
#[command(name = "sync")]
struct Cli {
    /// The folder to write in, on the disk to measure
    directory: PathBuf,
    /// The size of a batch; the default is that of 16 pods of 6.7 kB
    #[arg(long, default_value_t = 107_200, value_parser = clap::value_parser!(u32).range(1..=64 << 20))]
    bytes: u32,
    /// How long to go on
    #[arg(long, default_value_t = 5.0, value_name = "S")]
    seconds: f64,
    /// Write over blocks that the file has already instead of making it longer
    #[arg(long)]
    in_place: bool,
    /// Write the result as JSON, too
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    let length = Duration::try_from_secs_f64(cli.seconds).context("--seconds")?;
    let mut syncs = measure(&cli.directory, &batch(cli.bytes as usize), length, cli.in_place, WRAP_BYTES)
        .with_context(|| format!("cannot measure in {}", cli.directory.display()))?;
    syncs.took_ms.sort_by(f64::total_cmp);
    let rate = syncs.took_ms.len() as f64 / syncs.seconds;
    let mode = if cli.in_place { "in place" } else { "append" };
    let (p50, p99) = (syncs.quantile(0.5), syncs.quantile(0.99));
    let megabytes = rate * f64::from(cli.bytes) / 1e6;
    writeln!(
        stdout(),
        "sync, {mode}: {rate:.0} syncs/s of {} bytes, {megabytes:.1} MB/s, p50 {p50:.2} ms, p99 {p99:.2} ms",
        cli.bytes
    )?;
    if let Some(path) = cli.out {
        let result = json!({
            "mode": mode, "bytes": cli.bytes, "seconds": syncs.seconds, "syncs": syncs.took_ms.len(),
            "syncs_per_s": rate, "mb_per_s": megabytes, "p50_ms": p50, "p99_ms": p99,
        });
        std::fs::write(&path, format!("{result:#}\n"))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// How long each sync took.
struct Syncs {
    seconds: f64,
    took_ms: Vec<f64>,
}

impl Syncs {
    /// Of sorted times.
    fn quantile(&self, part: f64) -> f64 {
        let at = (self.took_ms.len() as f64 * part) as usize;
        self.took_ms.get(at.min(self.took_ms.len().saturating_sub(1))).copied().unwrap_or_default()
    }
}

fn measure(
    directory: &Path,
    batch: &[u8],
    length: Duration,
    in_place: bool,
    wrap_bytes: u64,
) -> anyhow::Result<Syncs> {
    let mut named = tempfile::Builder::new().prefix("sync-").tempfile_in(directory)?;
    let file = named.as_file_mut();
    let wrap = wrap_bytes.max(batch.len() as u64);
    if in_place {
        for _ in 0..wrap / batch.len() as u64 {
            file.write_all(batch)?;
        }
        file.sync_all()?;
        file.seek(SeekFrom::Start(0))?;
    }
    let (began, mut took_ms, mut written) = (Instant::now(), Vec::new(), 0);
    loop {
        if written + batch.len() as u64 > wrap {
            begin_again(file, in_place)?;
            written = 0;
        }
        let start = Instant::now();
        file.write_all(batch)?;
        file.sync_data()?;
        took_ms.push(start.elapsed().as_secs_f64() * 1e3);
        written += batch.len() as u64;
        if began.elapsed() >= length {
            return Ok(Syncs { seconds: began.elapsed().as_secs_f64(), took_ms });
        }
    }
}

fn begin_again(file: &mut File, in_place: bool) -> std::io::Result<()> {
    if !in_place {
        file.set_len(0)?;
    }
    file.seek(SeekFrom::Start(0)).map(drop)
}

/// Bytes that no disk or file system can make fewer of.
fn batch(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    next.flatten().take(bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_least_one_sync_is_made_and_nothing_is_left() {
        let folder = tempfile::tempdir().unwrap();
        for in_place in [false, true] {
            let syncs = measure(folder.path(), &batch(1 << 12), Duration::ZERO, in_place, 1 << 14).unwrap();
            assert_eq!(syncs.took_ms.len(), 1);
            assert!(syncs.seconds > 0.0 && syncs.quantile(0.99) > 0.0);
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn batches_have_their_size_and_no_pattern() {
        let batch = batch(4099);
        assert_eq!(batch.len(), 4099);
        let distinct: std::collections::BTreeSet<_> = batch.chunks(8).collect();
        assert_eq!(distinct.len(), batch.chunks(8).count());
    }
}
