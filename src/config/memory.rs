//! How much memory this process may use, as far as the system tells: the machine's, or less where
//! a container or a service manager has set a limit.

use std::fs;
use std::path::Path;

/// In bytes; `None` if the system does not tell.
pub(super) fn available() -> Option<u64> {
    let machine = total(&read("/proc/meminfo")?)?;
    let groups = read("/proc/self/cgroup").unwrap_or_default();
    Some(files(&groups).iter().filter_map(|file| limit(&read(file)?)).fold(machine, u64::min))
}

fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// A group's limit holds for all groups in it. Inside of a container the topmost one is the
/// container's own, and the path may be one that exists only outside.
fn files(groups: &str) -> Vec<String> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (root, name) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            _ if controllers.split(',').any(|controller| controller == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        for group in Path::new(path).ancestors() {
            let group = group.to_string_lossy();
            files.push(format!("{root}{}/{name}", group.trim_end_matches('/')));
        }
    }
    files
}

/// `max` stands for none; so does a number near the largest, which is then no minimum.
fn limit(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machines_memory_is_in_kibibytes() {
        let text = "MemTotal:       16384 kB\nMemFree:  1 kB\n";
        assert_eq!(total(text), Some(16 << 20));
        assert_eq!(total("MemFree: 1 kB"), None);
    }

    #[test]
    fn each_group_around_the_process_may_have_a_limit() {
        assert_eq!(
            files("0::/system.slice/zkshim.service\n"),
            [
                "/sys/fs/cgroup/system.slice/zkshim.service/memory.max",
                "/sys/fs/cgroup/system.slice/memory.max",
                "/sys/fs/cgroup/memory.max",
            ]
        );
        assert_eq!(
            files("7:cpu,cpuacct:/\n4:memory:/docker/1\nnonsense"),
            [
                "/sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory/docker/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            ]
        );
    }

    #[test]
    fn a_group_without_a_limit_says_max() {
        assert_eq!(limit("max\n"), None);
        assert_eq!(limit("1073741824\n"), Some(1 << 30));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_may_use_some_memory() {
        assert!(available() > Some(1 << 20));
    }
}
