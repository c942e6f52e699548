//! Values of a file that may be secrets: they are read when somebody needs them, and never shown.

use std::path::PathBuf;

use lakemark_table::{Result, Secret, StorageOptions};

use crate::place::Place;

/// A value as a file gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Given {
    /// The value itself.
    Text(Secret),
    /// A variable of the environment that has it.
    Variable(String),
    /// A file that has it, and nothing else but an end of its line.
    File(PathBuf),
}

impl Given {
    pub(crate) fn text(text: &str) -> Self {
        Self::Text(Secret::new(text))
    }
}

/// A value, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    pub(crate) given: Given,
    pub(crate) place: Place,
    /// The key, with the names of the tables that it is in.
    pub(crate) path: String,
}

impl Value {
    /// Reads the value.
    ///
    /// # Errors
    /// The variable is not set, or the file cannot be read (`InvalidInput`); the message names the key that wants it.
    pub fn read(&self) -> Result<Secret> {
        let (place, path) = (&self.place, &self.path);
        match &self.given {
            Given::Text(text) => Ok(text.clone()),
            Given::Variable(name) => std::env::var(name).map(Secret::new).map_err(|_| {
                place.wrong(format!("{path} wants the variable {name}, which is not set; set it in the environment"))
            }),
            Given::File(file) => {
                let read = std::fs::read_to_string(file).map(|text| Secret::new(text.trim_end_matches(['\n', '\r'])));
                let file = file.display();
                read.map_err(|error| {
                    place.wrong(format!(
                        "{path} wants the file {file}, which cannot be read: {error}; let this user read it"
                    ))
                })
            }
        }
    }

    /// Where the value is, or the value itself if everybody may see it under this name.
    #[must_use]
    pub fn shown(&self, name: &str) -> String {
        match &self.given {
            Given::Text(text) => StorageOptions::shown(name, text.expose()).to_owned(),
            Given::Variable(name) if std::env::var_os(name).is_none() => format!("env {name}, which is not set"),
            Given::Variable(name) => format!("env {name}"),
            Given::File(path) if !path.is_file() => format!("file {}, which is not there", path.display()),
            Given::File(path) => format!("file {}", path.display()),
        }
    }

    /// Where it stands.
    #[must_use]
    pub fn place(&self) -> &Place {
        &self.place
    }
}

#[cfg(test)]
mod tests {
    use crate::document::Document;

    use super::*;

    fn values(text: &str) -> Vec<(String, Value)> {
        Document::new("f", text).take(|mut root| root.rest_as_values()).unwrap().into_iter().collect()
    }

    #[test]
    fn values_are_read_from_the_file_the_environment_or_another_file_and_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret");
        std::fs::write(&file, "hidden\n").unwrap();
        // PATH is set wherever tests run.
        let text = format!(
            "a_key = 'hidden'\nb_key = {{ env = 'PATH' }}\nc_key = {{ file = '{}' }}\nregion = 'r'",
            file.display()
        );
        let values = values(&text);
        let read: Vec<Secret> = values.iter().map(|(_, value)| value.read().unwrap()).collect();
        let path = Secret::new(std::env::var("PATH").unwrap());
        assert!(read == [Secret::new("hidden"), path, Secret::new("hidden"), Secret::new("r")]);
        let shown: Vec<String> = values.iter().map(|(name, value)| value.shown(name)).collect();
        assert_eq!(
            shown,
            ["***".to_owned(), "env PATH".to_owned(), format!("file {}", file.display()), "r".to_owned()]
        );
        assert!(!format!("{values:?}").contains("hidden"));
    }

    #[test]
    fn what_is_not_there_is_named_with_the_key_that_wants_it() {
        let text = "a = { env = 'LAKEMARK_NOBODY_SETS_THIS' }\nb = { file = '/nowhere/secret' }\n";
        let said: Vec<String> = values(text).iter().map(|(_, value)| value.read().unwrap_err().to_string()).collect();
        assert!(said[0].starts_with("f:1: a wants the variable LAKEMARK_NOBODY_SETS_THIS"), "{said:?}");
        assert!(said[1].starts_with("f:2: b wants the file /nowhere/secret"), "{said:?}");
    }

    #[test]
    fn what_is_no_text_is_taken_as_it_is_written() {
        let values = values("a = true\nb = 30\nc = 0x1f\n");
        let read: Vec<String> =
            values.iter().map(|(_, value)| value.read().map(|read| read.expose().to_owned()).unwrap()).collect();
        assert_eq!(read, ["true", "30", "0x1f"]);
    }

    #[test]
    fn other_tables_are_no_values() {
        for text in ["a = { env = 'X', file = 'y' }", "a = { other = 'x' }", "a = {}", "a = [1]"] {
            let error = Document::new("f", text).take(|mut root| root.rest_as_values()).unwrap_err().to_string();
            assert!(error.starts_with("f:1: "), "{text}: {error}");
        }
    }
}
