//! How large buffer, runs and cache are: the parameters of MaSM-αM (Athanassoulis 2014, section 3.3.4 and theorem 3.2).
//!
//! ```text
//! ‖SSD‖ = cache / page     M = √‖SSD‖     memory = α·M pages
//! S = ½·α·M                         pages of the buffer
//! N = (2/α − ½·α)·M / ⌊4/α²⌋ + 1    runs of one pass that are merged into one of two
//! α·M − S                           runs that a scan may have to merge
//! ```
//!
//! Then every update is written at most twice, and 2 − ¼·α² times on average. Pages are those of the runs on the disk. A scan needs a page
//! for each run. The pages that are left the buffer takes beyond S, as MaSM-M does (figure 3.9). Our scans do not merge runs by key, so
//! that they need no page of each at once. They keep row groups in memory, which come to α·M − S pages at most.

use std::collections::BTreeMap;

use crate::error::{Error, Result};

const CACHE_BYTES: u64 = 1 << 30;
const PAGE_BYTES: u64 = 64 << 10;
const ALPHA: f64 = 1.0;
/// How much of a scan's memory a row group of a run may take. Partitions read as many row groups at once. Each costs something beside its
/// values, so that larger ones are better until partitions of the data files wait for those few.
const GROUPS_IN_MEMORY: u64 = 8;
/// How many times the memory of the buffer and of scans a part of a large call takes: each part is looked up in all data files.
const MEMORIES_OF_PART: u64 = 8;
/// A row group below these bytes costs more to open than to read.
const LEAST_GROUP_BYTES: u64 = 64 << 10;

/// An option of updates, which users give beside a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum UpdateOption {
    /// [`Parameters::cache_bytes`].
    CacheBytes,
    /// [`Parameters::page_bytes`].
    PageBytes,
    /// [`Parameters::alpha`].
    Alpha,
    /// [`Parameters::migration_threshold`].
    MigrationThreshold,
}

impl UpdateOption {
    /// All options.
    pub const ALL: [Self; 4] = [Self::CacheBytes, Self::PageBytes, Self::Alpha, Self::MigrationThreshold];

    /// The name that users and manifests have for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::CacheBytes => "cache_bytes",
            Self::PageBytes => "page_bytes",
            Self::Alpha => "alpha",
            Self::MigrationThreshold => "migration_threshold",
        }
    }

    /// The option of a name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|option| option.name() == name)
    }
}

/// The parameters of MaSM-αM.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters {
    /// Bytes of the SSD that buffered updates may take.
    pub cache_bytes: u64,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Memory as a multiple of M pages: from 2/M^(2/3) to 2.
    pub alpha: f64,
    /// Pages of the buffer, S.
    pub buffer_pages: u64,
    /// Runs of one pass that are merged at a time, N.
    pub merged_runs: u64,
    /// Runs that a scan may have to merge, α·M − S.
    pub scanned_runs: u64,
    /// How full the cache may be before a writer begins a migration, above 0 up to 1; none if no writer does.
    pub migration_threshold: Option<f64>,
}

impl Parameters {
    /// The parameters that these options set.
    pub(crate) fn of(options: &[(String, String)]) -> Result<Self> {
        // By name, so that of several unknown options the message names the same one each time.
        let named: BTreeMap<&str, &str> = options.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let mut options = BTreeMap::new();
        for (name, value) in named {
            let option = UpdateOption::from_name(name).ok_or_else(|| {
                let known = UpdateOption::ALL.map(UpdateOption::name).join(", ");
                Error::invalid(format!("there is no option {name} of updates; there are {known}"))
            })?;
            options.insert(option, value);
        }
        let bytes = |option: UpdateOption, default: u64| match options.get(&option) {
            None => Ok(default),
            Some(text) => text.parse().map_err(|_| {
                let name = option.name();
                Error::invalid(format!("the option {name} is a number of bytes, such as {default}, not {text:?}"))
            }),
        };
        let alpha = match options.get(&UpdateOption::Alpha) {
            None => ALPHA,
            Some(text) => text
                .parse()
                .map_err(|_| Error::invalid(format!("the option alpha is a number, such as {ALPHA}, not {text:?}")))?,
        };
        let migration_threshold = options.get(&UpdateOption::MigrationThreshold).map(|text| share(text)).transpose()?;
        let cache_bytes = bytes(UpdateOption::CacheBytes, CACHE_BYTES)?;
        let sizes = Self::new(cache_bytes, bytes(UpdateOption::PageBytes, PAGE_BYTES)?, alpha)?;
        Ok(Self { migration_threshold, ..sizes })
    }

    fn new(cache_bytes: u64, page_bytes: u64, alpha: f64) -> Result<Self> {
        let pages = cache_bytes.checked_div(page_bytes).unwrap_or(0);
        if page_bytes < 512 || pages < 16 {
            return Err(Error::invalid(format!(
                "a cache of {cache_bytes} bytes in pages of {page_bytes} is too small: give pages of 512 bytes or more, \
                 and at least 16 of them"
            )));
        }
        let m = (pages as f64).sqrt();
        let least = 2.0 / m.powf(2.0 / 3.0);
        if !(least..=2.0).contains(&alpha) {
            return Err(Error::invalid(format!(
                "alpha is {alpha}; with {pages} pages it may be from {least:.3} to 2, so that updates are written twice at most"
            )));
        }
        let buffer = (0.5 * alpha * m).floor().max(1.0);
        let merged = ((2.0 / alpha - 0.5 * alpha) * m / (4.0 / (alpha * alpha)).floor() + 1.0).floor();
        let scanned = (alpha * m - buffer).floor().max(2.0);
        Ok(Self {
            cache_bytes,
            page_bytes,
            alpha,
            buffer_pages: buffer as u64,
            merged_runs: (merged as u64).clamp(2, scanned as u64),
            scanned_runs: scanned as u64,
            migration_threshold: None,
        })
    }

    /// Pages of memory for the buffer and for scans, α·M.
    #[must_use]
    pub fn memory_pages(&self) -> u64 {
        self.buffer_pages + self.scanned_runs
    }

    /// Runs that there may be while some are merged and writers go on: an eighth more than scans should have, one at least.
    #[must_use]
    pub fn most_runs(&self) -> u64 {
        self.scanned_runs + (self.scanned_runs / 8).max(1)
    }

    /// Bytes of the run that the buffer becomes where there are so many runs: S pages, and those of the memory that no run needs.
    #[must_use]
    pub fn buffer_bytes(&self, runs: usize) -> u64 {
        self.memory_pages().saturating_sub(runs as u64).max(self.buffer_pages) * self.page_bytes
    }

    /// Bytes of one call's rows that are in memory at once.
    #[must_use]
    pub fn part_bytes(&self) -> u64 {
        self.memory_pages() * self.page_bytes * MEMORIES_OF_PART
    }

    /// Bytes of runs that a scan may keep in memory: α·M − S pages.
    #[must_use]
    pub fn scan_bytes(&self) -> u64 {
        self.scanned_runs * self.page_bytes
    }

    /// Bytes of a row group of a run, which a scan keeps in memory as a whole.
    #[must_use]
    pub fn row_group_bytes(&self) -> u64 {
        (self.scan_bytes() / GROUPS_IN_MEMORY).max(LEAST_GROUP_BYTES)
    }

    /// Whether merges can keep to the bound however full the cache is: there must be room for runs of one pass beside the ⌊4/α²⌋
    /// of two that fill it.
    pub(crate) fn keeps_bound(&self) -> bool {
        5.0 * (4.0 / (self.alpha * self.alpha)).floor() <= self.scanned_runs as f64
    }

    /// How often an update is written on average, at most: 2 − ¼·α².
    #[must_use]
    pub fn writes_per_update(&self) -> f64 {
        2.0 - 0.25 * self.alpha * self.alpha
    }
}

/// A share such as `50%` or `0.5`.
fn share(text: &str) -> Result<f64> {
    let (number, unit) = text.trim().strip_suffix('%').map_or((text.trim(), 1.0), |number| (number.trim(), 100.0));
    let share = number.parse::<f64>().ok().map(|number| number / unit);
    share.filter(|share| *share > 0.0 && *share <= 1.0).ok_or_else(|| {
        Error::invalid(format!(
            "the option migration_threshold is a share of the cache, such as 50% or 0.5, above 0 and up to 1, not {text:?}"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(options: &[(&str, &str)]) -> Result<Parameters> {
        Parameters::of(
            &options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect::<Vec<_>>(),
        )
    }

    /// Theorem 3.1: S = 0.5·M, N = 0.375·M + 1, and 1.75 writes.
    #[test]
    fn with_alpha_one_the_parameters_are_those_of_masm_m() {
        let masm = of(&[("cache_bytes", "4294967296")]).unwrap();
        assert_eq!((masm.buffer_pages, masm.merged_runs, masm.scanned_runs), (128, 97, 128));
        assert_eq!((masm.buffer_bytes(0), masm.buffer_bytes(1)), (16 << 20, (16 << 20) - 65536));
        assert_eq!((masm.buffer_bytes(128), masm.buffer_bytes(129)), (8 << 20, 8 << 20));
        assert_eq!(masm.most_runs(), 144);
        assert_eq!((masm.scan_bytes(), masm.row_group_bytes()), (8 << 20, 1 << 20));
        assert_eq!(masm.writes_per_update(), 1.75);
    }

    /// MaSM-2M writes every update once: as many runs are scanned as fit the cache.
    #[test]
    fn with_alpha_two_the_buffer_has_m_pages() {
        let masm = of(&[("cache_bytes", "4294967296"), ("alpha", "2")]).unwrap();
        assert_eq!((masm.buffer_pages, masm.scanned_runs), (256, 256));
        assert_eq!(masm.writes_per_update(), 1.0);
    }

    #[test]
    fn a_threshold_is_a_share_or_a_percentage() {
        let of = |text| of(&[("migration_threshold", text)]).unwrap().migration_threshold;
        assert_eq!((of("50%"), of("0.9"), of("100 %")), (Some(0.5), Some(0.9), Some(1.0)));
        assert_eq!(Parameters::of(&[]).unwrap().migration_threshold, None);
    }

    #[test]
    fn impossible_options_are_errors_that_say_what_is_possible() {
        for (options, says) in [
            (&[("alpha", "3")][..], "from 0.079 to 2"),
            (&[("alpha", "much")], "is a number, such as 1"),
            (&[("cache_bytes", "1000")], "too small"),
            (&[("page_bytes", "0")], "too small"),
            (&[("pages", "1")], "there are cache_bytes, page_bytes, alpha"),
            (&[("migration_threshold", "half")], "such as 50% or 0.5"),
            (&[("migration_threshold", "0%")], "above 0"),
            (&[("migration_threshold", "1.5")], "up to 1"),
        ] {
            let error = of(options).unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
        }
    }
}
