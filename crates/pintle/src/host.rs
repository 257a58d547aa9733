//! Facts about this process and its machine: command line and host name.

/// The arguments of the process, program name first.
pub fn command_line() -> Vec<String> {
    std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect()
}

/// The name by which the process was started, without folders.
pub fn program_name() -> Option<String> {
    let program = std::env::args_os().next()?;
    Some(std::path::Path::new(&program).file_name()?.to_string_lossy().into_owned())
}

/// The host name: from the kernel, `/etc/hostname` or `HOSTNAME`, whichever is readable first.
pub fn host_name() -> Option<String> {
    let paths = ["/proc/sys/kernel/hostname", "/etc/hostname"];
    let name = paths.iter().find_map(|path| std::fs::read_to_string(path).ok());
    name.or_else(|| std::env::var("HOSTNAME").ok()).map(|name| name.trim().to_owned())
}
