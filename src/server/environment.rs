//! What the operating system tells of this process and its machine. Where it does not tell,
//! there is no value rather than a wrong one.

use std::env;
use std::fs;

/// What stands for a value that does not exist here: there is no Java.
const NOT_APPLICABLE: &str = "<NA>";

/// The lines of `envi`, in ZooKeeper's order (`Environment.list`).
pub(super) fn entries(version: &str) -> Vec<(&'static str, String)> {
    let na = || NOT_APPLICABLE.to_owned();
    let variable = |name| env::var(name).unwrap_or_else(|_| na());
    let kernel = |name| read(&format!("/proc/sys/kernel/{name}")).unwrap_or_else(na);
    let directory = |path: std::io::Result<std::path::PathBuf>| {
        path.map_or_else(|_| na(), |path| path.display().to_string())
    };
    let memory =
        |path, key| kibibytes(path, key).map_or_else(na, |kib| format!("{}MB", kib / 1024));
    vec![
        ("zookeeper.version", version.to_owned()),
        ("host.name", kernel("hostname")),
        ("java.version", na()),
        ("java.vendor", na()),
        ("java.home", na()),
        ("java.class.path", na()),
        ("java.library.path", na()),
        ("java.io.tmpdir", env::temp_dir().display().to_string()),
        ("java.compiler", na()),
        ("os.name", kernel("ostype")),
        ("os.arch", java_architecture().to_owned()),
        ("os.version", kernel("osrelease")),
        ("user.name", variable("USER")),
        ("user.home", variable("HOME")),
        ("user.dir", directory(env::current_dir())),
        ("os.memory.free", memory("/proc/meminfo", "MemAvailable:")),
        ("os.memory.max", memory("/proc/meminfo", "MemTotal:")),
        ("os.memory.total", memory("/proc/self/status", "VmRSS:")),
    ]
}

/// Java's names of the processors.
fn java_architecture() -> &'static str {
    match env::consts::ARCH {
        "x86_64" => "amd64",
        other => other,
    }
}

/// Files that this process has open.
pub(super) fn open_files() -> Option<u64> {
    // Counting opens the directory, which is one more.
    let open = fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1);
    u64::try_from(open).ok()
}

/// How many it may have open.
pub(super) fn open_files_max() -> Option<u64> {
    let limits = read("/proc/self/limits")?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

fn kibibytes(path: &str, key: &str) -> Option<u64> {
    let text = read(path)?;
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse().ok()
}

fn read(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_has_zookeepers_keys_in_order() {
        let entries = entries("3.9.5-x, built on y");
        let keys: Vec<_> = entries.iter().map(|(key, _)| *key).collect();
        assert_eq!(keys.len(), 18);
        assert_eq!(keys.first(), Some(&"zookeeper.version"));
        assert_eq!(keys.last(), Some(&"os.memory.total"));
        assert!(entries.iter().all(|(_, value)| !value.is_empty() && !value.contains('\n')));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn open_files_are_counted_below_their_limit() {
        let (open, max) = (open_files(), open_files_max());
        assert!(open > Some(2) && open < max, "{open:?} of {max:?}");
    }
}
