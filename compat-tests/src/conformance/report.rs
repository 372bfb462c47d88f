//! What a run says: text for people, JUnit XML and JSON for machines.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

use crate::conformance::case::Section;
use crate::conformance::run::{Outcome, Verdict};

/// How many cases passed, failed, and do not apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// As expected.
    pub passed: usize,
    /// Not as expected.
    pub failed: usize,
    /// Not run against these servers.
    pub not_applicable: usize,
}

/// Counts the verdicts.
#[must_use]
pub fn totals(outcomes: &[Outcome]) -> Totals {
    let mut totals = Totals::default();
    for outcome in outcomes {
        match outcome.verdict {
            Verdict::Passed => totals.passed += 1,
            Verdict::Failed(_) => totals.failed += 1,
            Verdict::NotApplicable(_) => totals.not_applicable += 1,
        }
    }
    totals
}

/// The report for people: a line a case, failures with their message, totals last.
#[must_use]
pub fn text(sections: &[Section], outcomes: &[Outcome]) -> String {
    let mut out = String::new();
    let mut elsewhere: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for section in sections {
        let mut heading = Some(format!("{} {}\n", section.number, section.title));
        for one in outcomes.iter().filter(|one| one.section == section.number) {
            let (case, title, took) = (one.case, one.title, one.took.as_secs_f32());
            let line = match &one.verdict {
                Verdict::Passed => format!("  ok    {case:4} {title} ({took:.1} s)"),
                Verdict::Failed(message) => {
                    let message = message.replace('\n', "\n             ");
                    format!("  FAIL  {case:4} {title} ({took:.1} s)\n             {message}")
                }
                Verdict::NotApplicable(reason) => {
                    elsewhere.entry(reason).or_default().push(case);
                    continue;
                }
            };
            out += &heading.take().unwrap_or_default();
            let _ = writeln!(out, "{line}");
        }
    }
    for (reason, cases) in elsewhere {
        let _ = writeln!(out, "not run ({reason}): {}", cases.join(" "));
    }
    let Totals { passed, failed, not_applicable } = totals(outcomes);
    let _ = writeln!(out, "{passed} passed, {failed} failed, {not_applicable} not applicable");
    out
}

/// The report as JUnit XML, a test suite a section.
#[must_use]
pub fn junit(sections: &[Section], outcomes: &[Outcome]) -> String {
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    for section in sections {
        let ours: Vec<Outcome> =
            outcomes.iter().filter(|one| one.section == section.number).cloned().collect();
        if ours.is_empty() {
            continue;
        }
        let Totals { failed, not_applicable, .. } = totals(&ours);
        let name = escape(&format!("{} {}", section.number, section.title));
        let _ = writeln!(
            out,
            "  <testsuite name=\"{name}\" tests=\"{}\" failures=\"{failed}\" \
             skipped=\"{not_applicable}\">",
            ours.len()
        );
        for one in &ours {
            let name = escape(&format!("{} {}", one.case, one.title));
            let took = one.took.as_secs_f32();
            let _ = write!(
                out,
                "    <testcase classname=\"section {}\" name=\"{name}\" time=\"{took:.3}\">",
                one.section
            );
            match &one.verdict {
                Verdict::Passed => {}
                Verdict::Failed(message) => {
                    let _ = write!(out, "<failure message=\"{}\"/>", escape(message));
                }
                Verdict::NotApplicable(reason) => {
                    let _ = write!(out, "<skipped message=\"{}\"/>", escape(reason));
                }
            }
            out.push_str("</testcase>\n");
        }
        out.push_str("  </testsuite>\n");
    }
    out.push_str("</testsuites>\n");
    out
}

#[derive(Serialize)]
struct Line<'a> {
    section: &'a str,
    case: &'a str,
    title: &'a str,
    verdict: &'a str,
    message: &'a str,
    seconds: f32,
}

/// The report as JSON: `{"totals": …, "cases": […]}`.
///
/// # Errors
/// None that are known; serialisation is fallible by its type.
pub fn json(outcomes: &[Outcome]) -> serde_json::Result<String> {
    let lines: Vec<Line<'_>> = outcomes
        .iter()
        .map(|one| {
            let (verdict, message) = match &one.verdict {
                Verdict::Passed => ("passed", ""),
                Verdict::Failed(message) => ("failed", message.as_str()),
                Verdict::NotApplicable(reason) => ("not applicable", reason.as_str()),
            };
            let (section, case, title) = (one.section, one.case, one.title);
            Line { section, case, title, verdict, message, seconds: one.took.as_secs_f32() }
        })
        .collect();
    #[derive(Serialize)]
    struct Report<'a> {
        totals: Totals,
        cases: Vec<Line<'a>>,
    }
    serde_json::to_string_pretty(&Report { totals: totals(outcomes), cases: lines })
}

fn escape(text: &str) -> String {
    let mut out = String::new();
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' => out.push_str("&#10;"),
            // XML has no way to write most control characters.
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn outcome(case: &'static str, verdict: Verdict) -> Outcome {
        Outcome {
            section: "10.1",
            case,
            title: "a & b",
            verdict,
            took: Duration::from_millis(1500),
        }
    }

    const SECTIONS: &[Section] = &[Section { number: "10.1", title: "Frames", parts: &[] }];

    #[test]
    fn a_failure_is_in_every_report_with_its_message() {
        let outcomes = [
            outcome("F1", Verdict::Passed),
            outcome("F2", Verdict::Failed("got \"<1>\"".to_owned())),
            outcome("F3", Verdict::NotApplicable("needs two servers".to_owned())),
        ];
        let text = text(SECTIONS, &outcomes);
        assert!(text.contains("FAIL  F2") && text.contains("got \"<1>\""), "{text}");
        assert!(text.ends_with("1 passed, 1 failed, 1 not applicable\n"), "{text}");
        let junit = junit(SECTIONS, &outcomes);
        assert!(junit.contains("<failure message=\"got &quot;&lt;1&gt;&quot;\"/>"), "{junit}");
        assert!(junit.contains("tests=\"3\" failures=\"1\" skipped=\"1\""), "{junit}");
        let json = json(&outcomes).expect("the report is plain data");
        assert!(json.contains("\"failed\": 1") && json.contains("\"seconds\": 1.5"), "{json}");
    }
}
