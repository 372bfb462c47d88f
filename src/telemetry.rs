//! What the process tells about itself while it runs: the log.

use std::str::FromStr;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// How a line of the log looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// What the log is told once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// How a line looks.
    pub format: LogFormat,
    /// What is logged.
    pub level: LogLevel,
}

/// A level (`info`), or a list of levels for modules (`info,zkshim::store=debug`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLevel(String);

impl FromStr for LogLevel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        EnvFilter::builder().parse(text).map_err(|error| error.to_string())?;
        // The filter would take it for a module, and be silent about all others.
        let mut parts = text.split(',').map(str::trim);
        let bare = parts.find(|part| {
            !part.is_empty() && !part.contains(['=', '[']) && part.parse::<LevelFilter>().is_err()
        });
        match bare {
            Some(part) => {
                Err(format!("\"{part}\" is no level; a module needs one, such as {part}=debug"))
            }
            None => Ok(Self(text.to_owned())),
        }
    }
}

/// Sends the log of the whole process to standard error from now on.
///
/// # Panics
/// Something else in the process has set up a log before.
pub fn start(options: &Options) {
    let lines = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(&options.level.0))
        .with_writer(std::io::stderr);
    match options.format {
        LogFormat::Text => {
            use std::io::IsTerminal;
            lines.with_ansi(std::io::stderr().is_terminal()).init();
        }
        LogFormat::Json => lines.json().flatten_event(true).init(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_may_name_modules() {
        assert!("info".parse::<LogLevel>().is_ok());
        assert!("warn,zkshim::store=debug".parse::<LogLevel>().is_ok());
        assert!("zkshim=loud".parse::<LogLevel>().is_err());
    }

    #[test]
    fn a_misspelt_level_is_not_taken_for_a_module() {
        let error = "inof".parse::<LogLevel>().expect_err("it is refused");
        assert_eq!(
            error.to_string(),
            "\"inof\" is no level; a module needs one, such as inof=debug"
        );
        assert!("warn,zkshim".parse::<LogLevel>().is_err());
        assert!("INFO, off".parse::<LogLevel>().is_ok());
    }
}
