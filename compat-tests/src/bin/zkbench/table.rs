//! The table that `run` prints, a row a measurement.

use crate::measure::Measurement;
use crate::processes::Process;

/// Heads of the columns.
pub(crate) fn header() -> String {
    format!(
        "{:<20} {:>5} {:>4} {:>10} {:>9} {:>9} {:>9} {:>9}  processor time µs/op (memory MiB)\n",
        "workload", "conns", "fly", "ops/s", "mean ms", "p50 ms", "p99 ms", "max ms",
    )
}

/// One measurement.
pub(crate) fn row(measurement: &Measurement) -> String {
    let figures = &measurement.figures;
    let latency = &figures.latency;
    let own = Process::own().name;
    let each = figures.processes.iter().map(|spent| {
        let resident_mib = spent.resident_kib / 1024;
        format!("{} {:.1} ({resident_mib})", spent.name, spent.cpu_us_per_op)
    });
    let mut processes: Vec<String> = each.collect();
    let servers = figures.processes.iter().filter(|spent| spent.name != own).count();
    if let Some(sum) = figures.servers_cpu_us_per_op().filter(|_| servers > 1) {
        processes.insert(servers, format!("= {sum:.1}"));
    }
    format!(
        "{:<20} {:>5} {:>4} {:>10.0} {:>9.3} {:>9.3} {:>9.3} {:>9.3}  {}\n",
        measurement.workload,
        measurement.connections,
        measurement.in_flight,
        figures.ops_per_second,
        latency.mean_us / 1e3,
        latency.p50_us / 1e3,
        latency.p99_us / 1e3,
        latency.max_us / 1e3,
        processes.join("  "),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{Figures, Latency};
    use crate::processes::Spent;

    #[test]
    fn servers_are_summed_and_the_generator_is_shown_apart() {
        let spent = |name: &str, cpu_us_per_op| Spent {
            name: name.into(),
            cpu_us: 1,
            cpu_us_per_op,
            resident_kib: 2048,
        };
        let row = row(&Measurement {
            run: "now".into(),
            target: "server".into(),
            round: 1,
            workload: "get".into(),
            connections: 8,
            in_flight: 4,
            rate: None,
            figures: Figures {
                seconds: 1.0,
                ops: 10,
                ops_per_second: 10.0,
                latency: Latency::default(),
                processes: vec![spent("etcd", 30.0), spent("zkshim", 8.5), spent("zkbench", 5.0)],
                etcd_per_op: None,
                etcd_start_per_session: None,
            },
        });
        assert!(row.ends_with("etcd 30.0 (2)  zkshim 8.5 (2)  = 38.5  zkbench 5.0 (2)\n"), "{row}");
    }
}
