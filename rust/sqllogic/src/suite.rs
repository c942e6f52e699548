//! The files of the suite: where Cargo has unpacked them, and a copy to work in.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use datafusion_sqllogictest::read_dir_recursive;
use serde::Deserialize;

use crate::Result;

/// The package that has them.
const PACKAGE: &str = "datafusion-sqllogictest";

/// Where they are in the package.
const FILES: &str = "test_files";

/// Fewer than these are not the whole suite.
const AT_LEAST: usize = 500;

/// Files that the suite itself runs only with features that are not built here.
const OF_OTHER_BUILDS: [&str; 1] = ["encrypted_parquet.slt"];

/// The suite, ready to be run.
pub struct Suite {
    /// Where its statements expect to be run: they name data by the way from there.
    pub folder: PathBuf,
}

/// A file of the suite.
pub struct SuiteFile {
    /// Where it is.
    pub path: PathBuf,
    /// Its path within the suite.
    pub name: String,
}

impl SuiteFile {
    /// Its name without folders and ending.
    pub fn stem(&self) -> &str {
        self.path.file_stem().and_then(|stem| stem.to_str()).unwrap_or(&self.name)
    }

    /// Whether the suite itself would run it in this build.
    pub fn is_of_this_build(&self) -> bool {
        !OF_OTHER_BUILDS.contains(&self.name.as_str())
    }
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    manifest_path: PathBuf,
}

impl Suite {
    /// Copies the suite into a folder, as its statements write beside it. The folders above are those of its source code: who has the data
    /// that it brings no copy of puts it there, and more of the suite is run.
    pub fn prepare(place: &Path) -> Result<Self> {
        let package = unpacked()?;
        let version = package.file_name().unwrap_or_default();
        let folder = place.join(version).join("datafusion/sqllogictest");
        for part in [FILES, "data"] {
            let from = package.join(part);
            if !from.is_dir() {
                return Err(format!("{} is missing: the package {PACKAGE} came without it", from.display()).into());
            }
            copy(&from, &folder.join(part))?;
        }
        // What an earlier run wrote; data that somebody put beside the files stays.
        let scratch = folder.join(FILES).join("scratch");
        if scratch.exists() {
            fs::remove_dir_all(&scratch)?;
        }
        Ok(Self { folder: folder.canonicalize()? })
    }

    /// The files whose names contain one of these, or all of them.
    pub fn files(&self, filters: &[String]) -> Result<Vec<SuiteFile>> {
        let folder = self.folder.join(FILES);
        let mut files = Vec::new();
        for path in read_dir_recursive(&folder)? {
            let Ok(within) = path.strip_prefix(&folder) else { continue };
            let name = within.to_string_lossy().into_owned();
            if name.ends_with(".slt") {
                files.push(SuiteFile { path, name });
            }
        }
        if files.len() < AT_LEAST {
            return Err(format!("{} has {} files, which is not the whole suite", folder.display(), files.len()).into());
        }
        files.retain(|file| filters.is_empty() || filters.iter().any(|filter| file.name.contains(filter.as_str())));
        files.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(files)
    }
}

/// Where Cargo has unpacked the package.
fn unpacked() -> Result<PathBuf> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let told = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--filter-platform", env!("SQLLOGIC_TARGET")])
        .args(["--manifest-path", manifest])
        .output()?;
    if !told.status.success() {
        return Err(format!("cargo metadata failed: {}", String::from_utf8_lossy(&told.stderr)).into());
    }
    let metadata: Metadata = serde_json::from_slice(&told.stdout)?;
    let package = metadata.packages.into_iter().find(|package| package.name == PACKAGE);
    let manifest = package.ok_or_else(|| format!("cargo metadata does not know {PACKAGE}"))?.manifest_path;
    Ok(manifest.parent().map(Path::to_path_buf).unwrap_or_default())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// Whether a statement names data that the suite does not bring.
pub fn lacks_data(sql: &str) -> bool {
    let outside = |text: &str| text.starts_with("../") || text.starts_with("test_files/tpch/data/");
    // An apostrophe in a comment must not hide what follows it, so that whatever stands between two of them is looked at.
    sql.split('\'').filter(|text| outside(text)).any(|text| {
        let plain = text.split(['*', '?']).next().unwrap_or(text);
        let path = Path::new(plain);
        // Of a pattern the folder has to be there.
        let path = if plain.len() < text.len() { path.parent().unwrap_or(path) } else { path };
        !path.exists()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_outside_of_the_suite_is_seen_to_be_missing() {
        assert!(lacks_data("CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '../no-such-folder/a.csv'"));
        assert!(lacks_data("SELECT * FROM '../no-such-folder/*.parquet'"));
        assert!(!lacks_data("SELECT * FROM '../sqllogic/Cargo.toml'"));
        assert!(!lacks_data("COPY t TO 'test_files/scratch/copy/t.parquet'"));
        assert!(!lacks_data("SELECT 'it', '..', 1"));
        assert!(lacks_data("-- it isn't here\nSELECT * FROM '../no-such-folder/a.csv'"));
    }
}
