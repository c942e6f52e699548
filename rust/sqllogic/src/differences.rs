//! The list of known differences, and what was found beside it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::Result;
use crate::records::Mode;

/// In which runs of a file a record differs.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Runs {
    /// Over tables of ours, with the index on and off.
    #[default]
    Both,
    /// With the index on alone.
    On,
    /// With the index off alone.
    Off,
    /// As the suite runs it: ours is not compared then.
    Engine,
}

impl Runs {
    fn modes(self) -> BTreeSet<Mode> {
        match self {
            Self::Both => BTreeSet::from([Mode::IndexOn, Mode::IndexOff]),
            Self::On => BTreeSet::from([Mode::IndexOn]),
            Self::Off => BTreeSet::from([Mode::IndexOff]),
            Self::Engine => BTreeSet::from([Mode::Engine]),
        }
    }

    fn of(modes: &BTreeSet<Mode>) -> &'static str {
        match (modes.contains(&Mode::Engine), modes.contains(&Mode::IndexOn), modes.contains(&Mode::IndexOff)) {
            (true, _, _) => "engine",
            (_, true, true) => "both",
            (_, true, false) => "on",
            _ => "off",
        }
    }
}

/// Records that differ for one reason.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    at: Vec<String>,
    #[serde(default)]
    runs: Runs,
    reason: String,
    /// Whether a record of these may differ in some runs and not in others.
    #[serde(default)]
    sometimes: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    difference: Vec<Entry>,
}

/// The list of known differences.
#[derive(Debug, Default)]
pub struct List {
    entries: BTreeMap<String, Entry>,
}

impl List {
    /// Reads the list.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Self::parse(&text).map_err(|problem| format!("{}: {problem}", path.display()).into())
    }

    fn parse(text: &str) -> Result<Self> {
        let written: Written = toml::from_str(text)?;
        let mut entries = BTreeMap::new();
        for entry in written.difference {
            if entry.reason.trim().is_empty() {
                return Err(format!("say why {:?} differ", entry.at).into());
            }
            for place in &entry.at {
                if entries.insert(place.clone(), entry.clone()).is_some() {
                    return Err(format!("{place} is listed twice").into());
                }
            }
        }
        Ok(Self { entries })
    }

    /// What is found and not listed, and what is listed and not found, of the files that were run.
    pub fn compare(&self, found: &Found, ran: impl Fn(&str) -> bool) -> Vec<String> {
        let mut wrong = Vec::new();
        for (place, modes) in found.places() {
            match self.entries.get(place) {
                None => wrong.push(format!("{place} differs ({}):\n{}", Runs::of(&modes), found.text(place))),
                Some(entry) if entry.sometimes && modes.is_subset(&entry.runs.modes()) => {}
                Some(entry) if entry.runs.modes() == modes => {}
                Some(_) => wrong.push(format!("{place} differs in other runs than listed: {}", Runs::of(&modes))),
            }
        }
        for (place, entry) in &self.entries {
            let is_found = found.texts.contains_key(place);
            if !is_found && !entry.sometimes && ran(file_of(place)) {
                wrong.push(format!("{place} is listed and differs no longer; take it off the list"));
            }
        }
        wrong
    }
}

/// The file whose run a record was part of.
fn file_of(place: &str) -> &str {
    let outermost = place.rsplit(" in ").next().unwrap_or(place);
    outermost.rsplit_once(':').map_or(outermost, |(file, _)| file)
}

/// Differences that were found.
#[derive(Debug, Default)]
pub struct Found {
    texts: BTreeMap<String, BTreeMap<Mode, String>>,
}

impl Found {
    /// Adds one.
    pub fn add(&mut self, place: &str, mode: Mode, text: &str) {
        self.texts.entry(place.to_owned()).or_default().insert(mode, text.to_owned());
    }

    fn places(&self) -> impl Iterator<Item = (&str, BTreeSet<Mode>)> {
        self.texts.iter().map(|(place, texts)| (place.as_str(), texts.keys().copied().collect()))
    }

    /// What differs, once where it is the same in several runs.
    fn text(&self, place: &str) -> String {
        let distinct: BTreeSet<&str> =
            self.texts.get(place).into_iter().flat_map(BTreeMap::values).map(String::as_str).collect();
        distinct.into_iter().collect::<Vec<_>>().join("\n")
    }

    /// Writes what is not listed into a folder: every difference whole, and entries for the list that lack their reasons.
    pub fn write_unlisted(&self, list: &List, folder: &Path) -> Result<()> {
        let (mut texts, mut entries) = (String::new(), String::new());
        for (place, modes) in self.places().filter(|(place, _)| !list.entries.contains_key(*place)) {
            let (runs, text) = (Runs::of(&modes), self.text(place));
            writeln!(texts, "== {place} ({runs})\n{text}\n")?;
            let shown: String = text.lines().next().unwrap_or_default().chars().take(120).collect();
            writeln!(entries, "# {shown}\n[[difference]]\nat = [\"{place}\"]\nruns = \"{runs}\"\nreason = \"\"\n")?;
        }
        fs::create_dir_all(folder)?;
        fs::write(folder.join("differences.txt"), texts)?;
        fs::write(folder.join("differences.toml"), entries)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found() -> Found {
        let mut found = Found::default();
        for mode in [Mode::IndexOn, Mode::IndexOff] {
            found.add("a.slt:1", mode, "one row more");
        }
        found.add("b.slt.part:2 in c/b.slt:9", Mode::IndexOn, "other words");
        found
    }

    fn compared(list: &str) -> Vec<String> {
        List::parse(list).unwrap().compare(&found(), |file| file != "z.slt")
    }

    const LISTED: &str = "\
[[difference]]
at = [\"a.slt:1\"]
reason = \"why\"
[[difference]]
at = [\"b.slt.part:2 in c/b.slt:9\"]
runs = \"on\"
reason = \"why\"
";

    #[test]
    fn what_is_listed_is_fine_and_nothing_else() {
        assert!(compared(LISTED).is_empty());
        let wrong = compared("");
        assert_eq!(
            wrong,
            ["a.slt:1 differs (both):\none row more", "b.slt.part:2 in c/b.slt:9 differs (on):\nother words"]
        );
        let wrong = compared(&LISTED.replace("runs = \"on\"\n", ""));
        assert_eq!(wrong, ["b.slt.part:2 in c/b.slt:9 differs in other runs than listed: on"]);
    }

    #[test]
    fn what_is_listed_has_to_differ_still() {
        let more =
            |place: &str, rest: &str| format!("{LISTED}[[difference]]\nat = [\"{place}\"]\nreason = \"why\"\n{rest}");
        let wrong = compared(&more("c/d.slt:7", ""));
        assert_eq!(wrong, ["c/d.slt:7 is listed and differs no longer; take it off the list"]);
        assert!(compared(&more("c/d.slt:7", "sometimes = true\n")).is_empty());
        assert!(compared(&more("z.slt:7", "")).is_empty());
        assert!(compared(&more("x.slt.part:1 in z.slt:7", "")).is_empty());
    }

    #[test]
    fn a_list_says_why_and_names_a_record_once() {
        let twice = LISTED.replace("b.slt.part:2 in c/b.slt:9", "a.slt:1");
        assert!(List::parse(&twice).unwrap_err().to_string().contains("a.slt:1 is listed twice"));
        let silent = LISTED.replace("reason = \"why\"", "reason = \" \"");
        assert!(List::parse(&silent).unwrap_err().to_string().contains("say why"));
    }

    #[test]
    fn what_is_not_listed_is_written_as_entries_without_a_reason() {
        let folder = tempfile::TempDir::new().unwrap();
        found().write_unlisted(&List::default(), folder.path()).unwrap();
        let entries = fs::read_to_string(folder.path().join("differences.toml")).unwrap();
        assert!(List::parse(&entries).unwrap_err().to_string().contains("say why"));
        let list = List::parse(&entries.replace("reason = \"\"", "reason = \"why\"")).unwrap();
        assert!(list.compare(&found(), |_| true).is_empty());
    }

    #[test]
    fn the_list_of_the_repository_can_be_read() {
        List::parse(include_str!("../differences.toml")).unwrap();
    }
}
