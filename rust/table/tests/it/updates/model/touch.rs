//! Writers of folders that keep rows and change files, or keep names and change rows.

use std::fs::{self, File};
use std::time::{Duration, SystemTime};

use lakemark_table::ErrorKind;
use rand::Rng;
use rand::seq::IndexedRandom;

use super::rows::draw_row;
use super::{Trial, store};

impl Trial {
    pub async fn touch(&mut self) -> &'static str {
        if self.others.form.is_delta {
            return "nothing";
        }
        self.held.clear();
        match self.random.random_range(0..4) {
            0 => self.touch_replaced().await,
            at => self.change_file(at),
        }
    }

    fn change_file(&mut self, how: u32) -> &'static str {
        let Some(path) = self.others.files().choose(&mut self.random).cloned() else { return "nothing" };
        let place = self.root().join(&path);
        match how {
            1 => {
                let times = [SystemTime::now(), SystemTime::now() - Duration::from_secs(100_000)];
                let time = times[self.random.random_range(0..2)];
                File::options().write(true).open(place).unwrap().set_modified(time).unwrap();
                "others: touch a file"
            }
            2 => {
                let name = self.others.new_name();
                fs::rename(&place, place.with_file_name(name)).unwrap();
                "others: rename a file"
            }
            _ => {
                let mut rows: Vec<_> = self.others.live(&path).into_iter().map(|(_, key, row)| (key, row)).collect();
                if self.is_uncertain && rows.iter().any(|(key, _)| self.expected.is_buffered(*key)) {
                    return "nothing";
                }
                for (key, row) in &mut rows {
                    if self.random.random_bool(0.4) {
                        let partition = row.get(&super::rows::P).cloned();
                        *row = draw_row(&mut self.random, &self.others.columns);
                        if let Some(partition) = partition {
                            row.insert(super::rows::P, partition);
                        }
                        self.expected.base.insert(*key, row.clone());
                    }
                }
                self.others.write(&mut self.random, &path, &rows);
                "others: write a file anew"
            }
        }
    }

    /// A file whose rows were migrated into the store changes: nobody can tell which of both counts, until it is as it was.
    async fn touch_replaced(&mut self) -> &'static str {
        let replaced: Vec<String> = store::replaced(&self.root()).into_iter().collect();
        let Some(path) = replaced.choose(&mut self.random) else { return "nothing" };
        let Ok(file) = File::options().write(true).open(self.root().join(path)) else { return "nothing" };
        let before = file.metadata().unwrap().modified().unwrap();
        file.set_modified(before + Duration::from_secs(1)).unwrap();
        let error = self.table().snapshot().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        file.set_modified(before).unwrap();
        "others: touch a migrated file"
    }
}
