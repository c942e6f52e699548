//! Values of options, read from what was typed.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use clap::ValueEnum;
use clap::builder::PossibleValue;
use lakemark_datafusion::Share;
use lakemark_table::{RepairAction, StorageOptions};
use tracing_subscriber::EnvFilter;

/// What becomes of buffered updates: the table's enum, which cannot know of the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepairChoice(pub RepairAction);

impl ValueEnum for RepairChoice {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self(RepairAction::Keep), Self(RepairAction::Discard)]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let help = match self.0 {
            RepairAction::Keep => "They stay in the buffer",
            RepairAction::Discard => "They are forgotten",
        };
        Some(PossibleValue::new(self.0.name()).help(help))
    }
}

/// What statements share that run at the same time: the engine's enum, which cannot know of the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareChoice(pub Share);

impl ValueEnum for ShareChoice {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self(Share::Off), Self(Share::Plans), Self(Share::Pages), Self(Share::Stars)]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let (name, help) = match self.0 {
            Share::Off => ("off", "Nothing"),
            Share::Plans => ("plans", "One execution for equal plans"),
            Share::Pages => ("pages", "Plans, and pages of data files that different plans read"),
            Share::Stars => ("stars", "Plans and pages, and of these the joins of star queries"),
        };
        Some(PossibleValue::new(name).help(help))
    }
}

/// An option as KEY=VALUE.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyValue {
    /// What stands before the first `=`.
    pub key: String,
    /// What stands behind it.
    pub value: String,
}

/// The value may be a secret.
impl fmt::Debug for KeyValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.key, StorageOptions::shown(&self.key, &self.value))
    }
}

/// An option.
pub(super) fn key_value(text: &str) -> Result<KeyValue, String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => {
            Ok(KeyValue { key: key.trim().to_owned(), value: value.trim().to_owned() })
        }
        _ => Err("write it as KEY=VALUE, e.g. files_per_segment=64".to_owned()),
    }
}

/// A table as NAME=PATH, or a name that stands for itself.
pub(super) fn served_table(text: &str) -> Result<KeyValue, String> {
    let name = text.trim();
    if !name.is_empty() && !name.contains(['=', '/', ':', '\\', '*']) {
        return Ok(KeyValue { key: name.to_owned(), value: name.to_owned() });
    }
    match key_value(text) {
        Ok(table) if !table.value.is_empty() => Ok(table),
        _ => Err("write it as NAME=PATH, e.g. flights=/lake/flights, or give a name of lakemark.toml".to_owned()),
    }
}

/// Bytes: 512M or 2G.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let wrong = || "write it as a number with an optional K, M or G, e.g. 512M".to_owned();
    let trimmed = text.trim().trim_end_matches(['B', 'b']);
    let (digits, shift) = match trimmed.char_indices().last() {
        Some((at, 'k' | 'K')) => (trimmed.get(..at), 10),
        Some((at, 'm' | 'M')) => (trimmed.get(..at), 20),
        Some((at, 'g' | 'G')) => (trimmed.get(..at), 30),
        _ => (Some(trimmed), 0),
    };
    let number: u64 = digits.and_then(|digits| digits.parse().ok()).ok_or_else(wrong)?;
    number.checked_mul(1 << shift).filter(|&bytes| bytes > 0).ok_or_else(wrong)
}

/// A share: 0.5 or 50%.
pub(super) fn share(text: &str) -> Result<f64, String> {
    let (number, whole) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
    match number.trim().parse::<f64>() {
        Ok(number) if (0.0..=whole).contains(&number) => Ok(number / whole),
        _ => Err("give a share from 0 to 1, such as 0.1, or in per cent, such as 50%".to_owned()),
    }
}

/// A time that has passed: 12h or 30d.
pub(super) fn age(text: &str) -> Result<Duration, String> {
    let units = [('h', 60 * 60), ('d', 24 * 60 * 60), ('w', 7 * 24 * 60 * 60)];
    duration(text, &units).ok_or_else(|| "write it as a number with h, d or w, e.g. 12h or 30d".to_owned())
}

/// A time between two things: 30s, 5m or 1h.
pub(super) fn interval(text: &str) -> Result<Duration, String> {
    let units = [('s', 1), ('m', 60), ('h', 60 * 60)];
    duration(text, &units).ok_or_else(|| "write it as a number with s, m or h, e.g. 30s or 5m".to_owned())
}

/// A whole number with one of the units, each with its seconds.
fn duration(text: &str, units: &[(char, u64)]) -> Option<Duration> {
    let (at, letter) = text.trim().char_indices().last()?;
    let &(_, seconds) = units.iter().find(|&&(unit, _)| unit == letter)?;
    let number: u64 = text.trim().get(..at)?.parse().ok()?;
    number.checked_mul(seconds).map(Duration::from_secs)
}

/// The time between two looks: an interval that is not nothing.
pub(super) fn pause(text: &str) -> Result<Duration, String> {
    let wrong = || "write it as a number with s, m or h, e.g. 30s or 5m; at least 1s".to_owned();
    interval(text).ok().filter(|pause| !pause.is_zero()).ok_or_else(wrong)
}

/// Where a port is listened on: a port of this machine alone, or an address with a port.
pub(super) fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let text = text.trim();
    if let Ok(port) = text.parse::<u16>() {
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    }
    text.parse().map_err(|_| "give a port such as 9464, or an address with a port such as 0.0.0.0:9464".to_owned())
}

/// What is logged: a level for what is ours, or a filter as `LAKEMARK_LOG` has it.
pub(super) fn log_filter(text: &str) -> Result<String, String> {
    let text = text.trim();
    let filter = match text {
        "error" | "warn" | "info" | "debug" | "trace" => {
            let ours = ["cli", "serve", "datafusion", "catalog", "table", "index"]
                .map(|name| format!(",lakemark_{name}={text}"));
            format!("error{}", ours.concat())
        }
        _ => text.to_owned(),
    };
    let wrong = |_| "give error, warn, info, debug or trace, or a filter such as lakemark_table=debug".to_owned();
    if !text.contains('=') && filter == text {
        return Err(wrong(()));
    }
    EnvFilter::try_new(&filter).map(|_| filter).map_err(|_| wrong(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_take_units() {
        assert_eq!(size("512M"), Ok(512 << 20));
        assert_eq!(size("2GB"), Ok(2 << 30));
        assert_eq!(size("4096"), Ok(4096));
        for wrong in ["", "G", "-1", "0", "1T", "99999999999G"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn ages_have_a_unit() {
        assert_eq!(age("7d"), Ok(Duration::from_secs(604_800)));
        assert_eq!(age("36h"), Ok(Duration::from_secs(129_600)));
        assert_eq!(age("2w"), Ok(Duration::from_secs(1_209_600)));
        for wrong in ["", "7", "d", "-1d", "1.5h", "1y", "99999999999999999w"] {
            assert!(age(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn intervals_have_a_unit() {
        assert_eq!(interval("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(interval("5m"), Ok(Duration::from_secs(300)));
        assert_eq!(interval("1h"), Ok(Duration::from_secs(3600)));
        assert_eq!(interval("0s"), Ok(Duration::ZERO));
        for wrong in ["", "30", "s", "-1s", "1.5m", "1d", "9999999999999999999h"] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn pauses_have_a_unit_and_are_never_nothing() {
        assert_eq!(pause("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(pause("5m"), Ok(Duration::from_secs(300)));
        assert_eq!(pause("1h"), Ok(Duration::from_secs(3600)));
        for wrong in ["", "30", "s", "0s", "-1s", "1.5m", "1d", "99999999999999999h"] {
            assert!(pause(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_port_alone_is_one_of_this_machine() {
        assert_eq!(listen_address("9464").unwrap().to_string(), "127.0.0.1:9464");
        assert_eq!(listen_address("0.0.0.0:9464").unwrap().to_string(), "0.0.0.0:9464");
        assert_eq!(listen_address("[::1]:80").unwrap().to_string(), "[::1]:80");
        for wrong in ["", "65536", "-1", "localhost", "1.2.3.4", "host:9464"] {
            assert!(listen_address(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_level_is_meant_for_what_is_ours_and_a_filter_is_taken_as_it_is() {
        assert_eq!(
            log_filter("debug").unwrap(),
            "error,lakemark_cli=debug,lakemark_serve=debug,lakemark_datafusion=debug,lakemark_catalog=debug,lakemark_table=debug,lakemark_index=debug"
        );
        assert_eq!(log_filter("lakemark_table=trace").unwrap(), "lakemark_table=trace");
        for wrong in ["", "loud", "lakemark_table=loud"] {
            assert!(log_filter(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_table_is_served_under_a_name_of_its_own_or_one_of_the_configuration() {
        let shown = |text: &str| served_table(text).map(|table| (table.key, table.value)).ok();
        let pair = |name: &str, path: &str| Some((name.to_owned(), path.to_owned()));
        assert_eq!(shown("flights=/lake/flights"), pair("flights", "/lake/flights"));
        assert_eq!((shown("trips"), shown("t=trips")), (pair("trips", "trips"), pair("t", "trips")));
        for wrong in ["", "=x", "x=", "/lake/flights", "s3://lake/t"] {
            assert_eq!(shown(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn values_of_options_that_may_be_secret_are_not_printed() {
        let printed = format!("{:?} {:?}", key_value("aws_token=hidden"), key_value("aws_region=r"));
        assert_eq!(printed, "Ok(aws_token=***) Ok(aws_region=r)");
    }

    #[test]
    fn options_are_key_and_value() {
        assert_eq!(key_value("a=b=c"), Ok(KeyValue { key: "a".to_owned(), value: "b=c".to_owned() }));
        assert!(key_value("a").is_err());
        assert!(key_value("=b").is_err());
    }
}
