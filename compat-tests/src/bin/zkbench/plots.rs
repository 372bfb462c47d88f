//! Plots of a comparison, as SVG: ratios to the reference, and latencies from the median to the
//! 99th percentile.

use anyhow::{Result, anyhow};
use plotters::prelude::*;

use crate::comparison::{Comparison, Figure, cpu, main_servers, median, ops, p50, p99, ratio};

/// A plot: the file's name, what it shows, and its text.
#[derive(Debug)]
pub(crate) struct Plot {
    /// Name of the file.
    pub(crate) file: &'static str,
    /// What it shows, in a sentence.
    pub(crate) shows: String,
    /// The SVG.
    pub(crate) svg: String,
}

/// All plots of a comparison.
pub(crate) fn draw(comparisons: &[Comparison<'_>], reference: &str) -> Result<Vec<Plot>> {
    let servers = main_servers(comparisons, reference);
    let mut plots = Vec::new();
    if servers.is_empty() {
        return Ok(plots);
    }
    let throughput = format!("Operations a second in terms of {reference}: more is better");
    let processor =
        format!("Processor time for an operation in terms of {reference}: less is better");
    let bars: [(_, _, Figure); 2] =
        [("throughput.svg", throughput, ops), ("processor-time.svg", processor, cpu)];
    for (file, shows, of) in bars {
        let rows = Rows::ratios(comparisons, reference, &servers, of);
        plots.push(Plot { file, svg: rows.draw(&shows)?, shows });
    }
    let shows = "Latency in ms, from the median to the 99th percentile: less is better".to_owned();
    let all: Vec<&str> = [reference].into_iter().chain(servers).collect();
    let rows = Rows::latencies(comparisons, &all);
    plots.push(Plot { file: "latency.svg", svg: rows.draw(&shows)?, shows });
    Ok(plots)
}

/// A span on a logarithmic axis for each case and server.
struct Rows<'a> {
    servers: Vec<&'a str>,
    colours: &'static [RGBColor],
    cases: Vec<Row>,
}

/// One case.
struct Row {
    name: String,
    /// In the order of the servers.
    spans: Vec<Option<(f64, f64)>>,
}

impl<'a> Rows<'a> {
    /// From 1 to the ratio.
    fn ratios(
        comparisons: &[Comparison<'_>],
        reference: &str,
        servers: &[&'a str],
        of: Figure,
    ) -> Self {
        Self::of(comparisons, servers, &COLOURS[1..], |comparison, name| {
            let (rounds, against) = comparison.server(name).zip(comparison.server(reference))?;
            // What is too little to be measured has no place on a logarithmic axis.
            ratio(rounds, against, of).filter(|ratio| *ratio > 0.0).map(|ratio| (1.0, ratio))
        })
    }

    /// From the median to the 99th percentile.
    fn latencies(comparisons: &[Comparison<'_>], servers: &[&'a str]) -> Self {
        Self::of(comparisons, servers, &COLOURS, |comparison, name| {
            let rounds = comparison.server(name)?;
            let shown = |of: Figure| {
                let values = rounds.values().filter_map(|figures| of(figures)).collect();
                median(values).filter(|value| *value > 0.0)
            };
            shown(p50).zip(shown(p99))
        })
    }

    fn of(
        comparisons: &[Comparison<'_>],
        servers: &[&'a str],
        colours: &'static [RGBColor],
        span: impl Fn(&Comparison<'_>, &str) -> Option<(f64, f64)>,
    ) -> Self {
        let row = |comparison: &Comparison<'_>| {
            let spans: Vec<_> = servers.iter().map(|name| span(comparison, name)).collect();
            let name = format!("{} {}", comparison.case.workload, comparison.case.load());
            spans.iter().any(Option::is_some).then_some(Row { name, spans })
        };
        let cases = comparisons.iter().filter_map(row).collect();
        Self { servers: servers.to_vec(), colours, cases }
    }

    fn draw(&self, title: &str) -> Result<String> {
        let mut svg = String::new();
        let height = MARGINS_PX + ROW_PX * u32::try_from(self.cases.len() + LEGEND_ROWS as usize)?;
        let root = SVGBackend::with_string(&mut svg, (WIDTH_PX, height)).into_drawing_area();
        // The backend writes to memory and cannot fail; a plot of nothing can.
        self.draw_on(&root, title).map_err(|error| anyhow!("draw {title:?}: {error}"))?;
        drop(root);
        Ok(svg)
    }

    fn draw_on(
        &self,
        root: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
        title: &str,
    ) -> Result<(), Box<dyn std::error::Error>> {
        root.fill(&WHITE)?;
        let rows = i32::try_from(self.cases.len())?;
        let middles: Vec<i32> = (0..rows).map(|row| row * ROW + ROW / 2).collect();
        let (low, high) = self.limits();
        let mut chart = ChartBuilder::on(root)
            .margin(8)
            .caption(title, ("sans-serif", 15))
            .x_label_area_size(24)
            .y_label_area_size(130)
            .build_cartesian_2d(
                (low..high).log_scale(),
                ((rows + LEGEND_ROWS) * ROW..0).with_key_points(middles),
            )?;
        let name = |middle: &i32| {
            let case = self.cases.get((middle / ROW) as usize);
            case.map_or_else(String::new, |case| case.name.clone())
        };
        chart
            .configure_mesh()
            .disable_y_mesh()
            .light_line_style(BLACK.mix(0.06))
            .bold_line_style(BLACK.mix(0.3))
            .y_labels(self.cases.len())
            .y_label_formatter(&name)
            .x_label_formatter(&|value| format!("{value}"))
            .draw()?;
        for (index, server) in self.servers.iter().enumerate() {
            let colour = self.colours[index % self.colours.len()];
            let height = ROW * 4 / 5 / self.servers.len() as i32;
            let spans = self.cases.iter().zip(0..).filter_map(|(case, row)| {
                let top = row * ROW + ROW / 10 + index as i32 * height;
                let (from, to) = case.spans[index]?;
                Some(Rectangle::new([(from, top), (to, top + height)], colour.filled()))
            });
            chart.draw_series(spans)?.label(*server).legend(move |(x, y)| {
                Rectangle::new([(x, y - 4), (x + 14, y + 4)], colour.filled())
            });
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerRight)
            .background_style(WHITE.mix(0.9))
            .border_style(BLACK.mix(0.3))
            .draw()?;
        root.present()?;
        Ok(())
    }

    /// Around all spans, at 1, 2 or 5 of a decade.
    fn limits(&self) -> (f64, f64) {
        let ends = self.cases.iter().flat_map(|case| &case.spans).flatten();
        let (low, high) = ends.fold((f64::MAX, f64::MIN), |(low, high), (from, to)| {
            (low.min(from.min(*to)), high.max(from.max(*to)))
        });
        let decade = |value: f64| 10_f64.powf(value.log10().floor());
        let steps = |value: f64| [1.0, 2.0, 5.0, 10.0].map(|step| step * decade(value));
        let below = steps(low).into_iter().rfind(|step| *step <= low).unwrap_or(low);
        let above = steps(high).into_iter().find(|step| *step >= high).unwrap_or(high);
        // A plot of nothing but ones has some width, too.
        (below.min(above / 2.0), above)
    }
}

const WIDTH_PX: u32 = 760;
const ROW_PX: u32 = 18;
/// A row's height on the vertical axis.
const ROW: i32 = 100;
/// Space below the cases, so that the legend hides none.
const LEGEND_ROWS: i32 = 3;
/// Title, axis and what is around them.
const MARGINS_PX: u32 = 70;

/// The reference's, then colours that those who see few can tell apart (Okabe and Ito).
const COLOURS: [RGBColor; 4] =
    [RGBColor(140, 140, 140), RGBColor(0, 114, 178), RGBColor(230, 159, 0), RGBColor(86, 180, 233)];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::arrange;
    use crate::measure::{Figures, Latency, Measurement};

    fn measured(target: &str, ops_per_second: f64) -> Measurement {
        let latency = Latency { p50_us: 1000.0, p99_us: 20_000.0, ..Latency::default() };
        let (processes, etcd_per_op, etcd_start_per_session) = (Vec::new(), None, None);
        let figures = Figures {
            seconds: 1.0,
            ops: 1,
            ops_per_second,
            latency,
            processes,
            etcd_per_op,
            etcd_start_per_session,
        };
        Measurement {
            run: "now".into(),
            target: target.into(),
            round: 1,
            workload: "set".into(),
            connections: 8,
            in_flight: 4,
            rate: None,
            figures,
        }
    }

    #[test]
    fn a_plot_names_cases_and_servers() {
        let results = [measured("ZooKeeper", 100.0), measured("zkshim", 250.0)];
        let plots = draw(&arrange(&results), "ZooKeeper").expect("they can be drawn");
        let files: Vec<&str> = plots.iter().map(|plot| plot.file).collect();
        assert_eq!(files, ["throughput.svg", "processor-time.svg", "latency.svg"]);
        for plot in [&plots[0], &plots[2]] {
            assert!(plot.svg.contains("set 8 × 4") && plot.svg.contains("zkshim"), "{}", plot.svg);
            assert!(plot.svg.trim_end().ends_with("</svg>"), "{}", plot.svg);
        }
    }

    #[test]
    fn a_reference_alone_has_no_plots() {
        let results = [measured("ZooKeeper", 100.0)];
        assert!(draw(&arrange(&results), "ZooKeeper").expect("there is nothing").is_empty());
    }
}
