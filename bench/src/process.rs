//! What the system says about a process.

use anyhow::Context;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

/// User and system time of processes together, in microseconds; none where no process is named or the system has
/// no `/proc`.
pub fn cpu_of(pids: &[u32]) -> anyhow::Result<Option<u64>> {
    let auxiliary = std::fs::read("/proc/self/auxv").unwrap_or_default();
    let ticks = sum_of(pids, "stat", ticks_of)?;
    Ok(ticks.map(|ticks| ticks * 1_000_000 / ticks_per_second(&auxiliary)))
}

/// User and system time of a process, as the scheduler counts it: not in ticks, which are a third of what an agent at
/// rest takes in half a minute.
#[cfg(target_os = "linux")]
pub fn cpu_of_process(pid: u32) -> anyhow::Result<Duration> {
    let pid = nix::unistd::Pid::from_raw(i32::try_from(pid)?);
    let clock = nix::time::clock_getcpuclockid(pid);
    let clock = clock.with_context(|| format!("there is no process {pid}"))?;
    Ok(clock.now()?.into())
}

#[cfg(not(target_os = "linux"))]
pub fn cpu_of_process(_pid: u32) -> anyhow::Result<Duration> {
    anyhow::bail!("CPU time is measured on Linux only")
}

/// User and system time of a thread of this process, in microseconds.
pub fn cpu_of_thread(id: u32) -> Option<u64> {
    let auxiliary = std::fs::read("/proc/self/auxv").unwrap_or_default();
    let ticks = ticks_of(&std::fs::read_to_string(format!("/proc/self/task/{id}/stat")).ok()?)?;
    Some(ticks * 1_000_000 / ticks_per_second(&auxiliary))
}

/// Memory of processes that is in use, in bytes; none as above.
pub fn memory_of(pids: &[u32]) -> anyhow::Result<Option<u64>> {
    Ok(sum_of(pids, "status", resident_kib)?.map(|kib| kib * 1024))
}

/// The processes that run the program of another one, itself included.
pub fn processes_like(pid: u32) -> anyhow::Result<Vec<u32>> {
    let program =
        |pid: u32| std::fs::metadata(format!("/proc/{pid}/exe")).ok().map(|it| (it.dev(), it.ino()));
    let own = program(pid).with_context(|| format!("there is no process {pid}"))?;
    let names = std::fs::read_dir("/proc")?.flatten().map(|entry| entry.file_name());
    let pids = names.filter_map(|name| name.to_str()?.parse().ok());
    Ok(pids.filter(|it| program(*it) == Some(own)).collect())
}

/// Memory of processes in bytes, in which a page that several of them use counts once.
pub fn shared_memory_of(pids: &[u32]) -> anyhow::Result<u64> {
    let kib = |pid: &u32| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
        let line = text.lines().find_map(|line| line.strip_prefix("Pss:")).context("there is no Pss")?;
        Ok(line.trim().trim_end_matches(" kB").parse::<u64>()?)
    };
    Ok(pids.iter().map(kib).sum::<anyhow::Result<u64>>()? * 1024)
}

fn sum_of(pids: &[u32], file: &str, read: fn(&str) -> Option<u64>) -> anyhow::Result<Option<u64>> {
    if pids.is_empty() || !cfg!(target_os = "linux") {
        return Ok(None);
    }
    let one = |pid: &u32| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/{file}"));
        let text = text.with_context(|| format!("there is no process {pid}"))?;
        read(&text).with_context(|| format!("/proc/{pid}/{file} cannot be read"))
    };
    pids.iter().map(one).sum::<anyhow::Result<u64>>().map(Some)
}

/// Fields 14 and 15. The name of the program, field 2, stands in parentheses and may hold anything.
fn ticks_of(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    next()?.checked_add(next()?)
}

/// The kernel's word to every program on the length of a tick; a hundredth of a second nearly everywhere.
fn ticks_per_second(auxiliary: &[u8]) -> u64 {
    const CLOCK_TICKS: usize = 17;
    const WORD: usize = size_of::<usize>();
    let word = |at: &[u8]| at.try_into().map(usize::from_ne_bytes).unwrap_or_default();
    let mut pairs = auxiliary.chunks_exact(2 * WORD).map(|pair| pair.split_at(WORD));
    let found = pairs.find(|(key, _)| word(key) == CLOCK_TICKS).map(|(_, value)| word(value) as u64);
    found.filter(|ticks| *ticks > 0).unwrap_or(100)
}

fn resident_kib(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_read_whatever_the_program_is_called() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194560 100 0 0 0 41 17 3 4 20 0 5 0 1 2 3";
        assert_eq!(ticks_of(stat), Some(58));
        assert_eq!(ticks_of("7 (a) S 1"), None);
        assert_eq!(ticks_of(""), None);
        let pair = |key: usize, value: usize| [key.to_ne_bytes(), value.to_ne_bytes()].concat();
        assert_eq!(ticks_per_second(&[pair(6, 4096), pair(17, 250)].concat()), 250);
        assert_eq!(ticks_per_second(&pair(6, 4096)), 100);
        assert_eq!(cpu_of(&[std::process::id()]).unwrap().is_some(), cfg!(target_os = "linux"));
        assert_eq!(cpu_of(&[]).unwrap(), None);
        let own = cpu_of_process(std::process::id());
        assert_eq!(own.is_ok_and(|it| it > Duration::ZERO), cfg!(target_os = "linux"));
    }

    #[test]
    fn memory_is_read() {
        assert_eq!(resident_kib("Name:\tx\nVmHWM:\t 9 kB\nVmRSS:\t  25144 kB\n"), Some(25144));
        assert_eq!(resident_kib("Name:\tx\n"), None);
    }
}
