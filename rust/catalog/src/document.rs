//! A file of TOML, whose keys are taken one after the other. An error names the file, the line and the key, and never a value.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lakemark_table::{Error, ErrorKind, Result};
use toml::de::{DeTable, DeValue};

use crate::place::Place;
use crate::value::{Given, Value};

/// A file of TOML, or a text that stands for one.
#[derive(Clone)]
pub struct Document {
    name: Arc<str>,
    /// The folder that paths in it begin at.
    folder: PathBuf,
    text: String,
}

/// Values of the text may be secrets.
impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Document").field(&self.name).finish()
    }
}

impl Document {
    /// Reads a file.
    ///
    /// # Errors
    /// The file is not there (`NotFound`), or cannot be read.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            let kind = if error.kind() == std::io::ErrorKind::NotFound { ErrorKind::NotFound } else { ErrorKind::Io };
            Error::new(kind, format!("the configuration {} cannot be read: {error}", path.display()))
        })?;
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        Ok(Self { name: path.display().to_string().into(), folder, text })
    }

    /// A text under a name. Paths in it begin at the working directory.
    #[must_use]
    pub fn new(name: &str, text: impl Into<String>) -> Self {
        Self { name: name.into(), folder: PathBuf::new(), text: text.into() }
    }

    /// The name of the file, as it was given.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Takes the whole apart.
    ///
    /// # Errors
    /// The text is no TOML, or one of `take`.
    pub fn take<T>(&self, take: impl FnOnce(Section<'_>) -> Result<T>) -> Result<T> {
        let table = DeTable::parse(&self.text).map_err(|error| {
            let byte = error.span().map_or(0, |span| span.start);
            self.place(byte).wrong(error.message())
        })?;
        take(Section::of(self, String::new(), table.span().start, table.get_ref()))
    }

    fn place(&self, byte: usize) -> Place {
        let before = self.text.as_bytes().iter().take(byte);
        Place::new(&self.name, 1 + before.filter(|letter| **letter == b'\n').count())
    }
}

/// A key with what it has.
struct Entry<'a> {
    /// Where the key stands.
    byte: usize,
    value: &'a DeValue<'a>,
}

/// A table of the file.
pub struct Section<'a> {
    document: &'a Document,
    /// What it is called in messages.
    name: String,
    byte: usize,
    left: BTreeMap<&'a str, Entry<'a>>,
}

impl<'a> Section<'a> {
    fn of(document: &'a Document, name: String, byte: usize, table: &'a DeTable<'a>) -> Self {
        let mut left = BTreeMap::new();
        for (key, value) in table.iter() {
            left.insert(&**key.get_ref(), Entry { byte: key.span().start, value: value.get_ref() });
        }
        Self { document, name, byte, left }
    }

    /// Where it stands.
    #[must_use]
    pub fn place(&self) -> Place {
        self.document.place(self.byte)
    }

    /// Where a key stands that is left.
    #[must_use]
    pub fn place_of(&self, key: &str) -> Place {
        self.document.place(self.left.get(key).map_or(self.byte, |entry| entry.byte))
    }

    /// The keys that are left.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.left.keys().map(|name| (*name).to_owned()).collect()
    }

    /// A key with the names of the tables that it is in.
    #[must_use]
    pub fn path(&self, key: &str) -> String {
        if self.name.is_empty() { key.to_owned() } else { format!("{}.{key}", self.name) }
    }

    fn wrong<T>(&self, key: &str, wanted: &str) -> Result<T> {
        Err(self.place_of(key).wrong(format!("{} takes {wanted}", self.path(key))))
    }

    /// A text.
    ///
    /// # Errors
    /// The key has something else (`InvalidInput`), as with all that follow.
    pub fn text(&mut self, key: &str) -> Result<Option<String>> {
        let text = match self.left.get(key).map(|entry| entry.value) {
            None => None,
            Some(DeValue::String(text)) => Some(text.to_string()),
            Some(_) => return self.wrong(key, "a text in quotes"),
        };
        self.left.remove(key);
        Ok(text)
    }

    /// A text, if the key has one.
    pub fn text_if_it_is_one(&mut self, key: &str) -> Option<String> {
        let DeValue::String(text) = self.left.get(key)?.value else { return None };
        self.left.remove(key);
        Some(text.to_string())
    }

    /// A text, or a list of such.
    ///
    /// # Errors
    /// As of [`Section::text`].
    pub fn texts(&mut self, key: &str) -> Result<Vec<String>> {
        let Some(DeValue::Array(list)) = self.left.get(key).map(|entry| entry.value) else {
            return Ok(self.text(key)?.into_iter().collect());
        };
        let texts = list.iter().map(|item| match item.get_ref() {
            DeValue::String(text) => Some(text.to_string()),
            _ => None,
        });
        let Some(texts) = texts.collect::<Option<Vec<String>>>() else {
            return self.wrong(key, "texts in quotes");
        };
        self.left.remove(key);
        Ok(texts)
    }

    /// `true` or `false`.
    ///
    /// # Errors
    /// As of [`Section::text`].
    pub fn flag(&mut self, key: &str) -> Result<Option<bool>> {
        let flag = match self.left.get(key).map(|entry| entry.value) {
            None => None,
            Some(DeValue::Boolean(flag)) => Some(*flag),
            Some(_) => return self.wrong(key, "true or false"),
        };
        self.left.remove(key);
        Ok(flag)
    }

    /// A whole number that is not negative. The key has to be there.
    ///
    /// # Errors
    /// As of [`Section::text`].
    pub fn number(&mut self, key: &str) -> Result<usize> {
        let number = match self.left.get(key).map(|entry| entry.value) {
            Some(DeValue::Integer(number)) => usize::from_str_radix(number.as_str(), number.radix()).ok(),
            _ => None,
        };
        let Some(number) = number else {
            return self.wrong(key, "a whole number that is not negative");
        };
        self.left.remove(key);
        Ok(number)
    }

    /// The same, if the key is there.
    ///
    /// # Errors
    /// As of [`Section::text`].
    pub fn number_if_given(&mut self, key: &str) -> Result<Option<usize>> {
        if self.left.contains_key(key) { self.number(key).map(Some) } else { Ok(None) }
    }

    /// An address with a port.
    ///
    /// # Errors
    /// As of [`Section::text`].
    pub fn address(&mut self, key: &str) -> Result<Option<std::net::SocketAddr>> {
        let place = self.place_of(key);
        let Some(text) = self.text(key)? else { return Ok(None) };
        let said = format!("{} takes an address with a port, as in \"127.0.0.1:8815\"", self.path(key));
        text.parse().map(Some).map_err(|_| place.wrong(said))
    }

    /// A path or URL. A relative path begins at the folder of the file, and `~/` at the home of the user.
    ///
    /// # Errors
    /// As of [`Section::text`].
    pub fn location(&mut self, key: &str) -> Result<Option<String>> {
        Ok(self.text(key)?.map(|text| self.located(&text)))
    }

    /// What a path or URL in the file means.
    #[must_use]
    pub fn located(&self, text: &str) -> String {
        if text.contains("://") || text.starts_with("file:") {
            return text.to_owned();
        }
        self.file(text).display().to_string()
    }

    fn file(&self, text: &str) -> PathBuf {
        match (text.strip_prefix("~/"), std::env::home_dir()) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => self.document.folder.join(text),
        }
    }

    /// A value that may be a secret: a text, or a table that says where the text is.
    ///
    /// # Errors
    /// As of [`Section::text`].
    pub fn value(&mut self, key: &str) -> Result<Option<Value>> {
        const WANTED: &str = "a text in quotes, { env = \"NAME\" } or { file = \"PATH\" }";
        let (place, path) = (self.place_of(key), self.path(key));
        let given = match self.left.get(key).map(|entry| entry.value) {
            None => return Ok(None),
            Some(DeValue::String(text)) => Given::text(text),
            // What is no secret is often written without quotes.
            Some(DeValue::Boolean(flag)) => Given::text(&flag.to_string()),
            Some(DeValue::Integer(number)) => Given::text(&number.to_string()),
            Some(DeValue::Table(table)) => {
                let mut section = Section::of(self.document, path.clone(), 0, table);
                let (variable, file) = (section.text("env")?, section.text("file")?);
                section.end("it takes env or file")?;
                match (variable, file) {
                    (Some(variable), None) => Given::Variable(variable),
                    (None, Some(file)) => Given::File(self.file(&file)),
                    _ => return self.wrong(key, WANTED),
                }
            }
            Some(_) => return self.wrong(key, WANTED),
        };
        self.left.remove(key);
        Ok(Some(Value { given, place, path }))
    }

    /// A table in this one.
    ///
    /// # Errors
    /// As of [`Section::text`].
    pub fn section(&mut self, key: &str) -> Result<Option<Section<'a>>> {
        let (byte, table) = match self.left.get(key).map(|entry| (entry.byte, entry.value)) {
            None => return Ok(None),
            Some((byte, DeValue::Table(table))) => (byte, table),
            Some(_) => return self.wrong(key, "a table"),
        };
        self.left.remove(key);
        Ok(Some(Section::of(self.document, self.path(key), byte, table)))
    }

    /// The keys of a table in this one, with their values.
    ///
    /// # Errors
    /// As of [`Section::value`].
    pub fn values(&mut self, key: &str) -> Result<BTreeMap<String, Value>> {
        let Some(mut section) = self.section(key)? else { return Ok(BTreeMap::new()) };
        section.rest_as_values()
    }

    /// All keys that are left, with their values.
    ///
    /// # Errors
    /// As of [`Section::value`].
    pub fn rest_as_values(&mut self) -> Result<BTreeMap<String, Value>> {
        let mut values = BTreeMap::new();
        for key in self.names() {
            if let Some(value) = self.value(&key)? {
                values.insert(key, value);
            }
        }
        Ok(values)
    }

    /// All keys that are left and those of tables in them, each with its names, its value as a text, and its place.
    #[must_use]
    pub fn leaves(&self) -> Vec<Leaf> {
        let mut leaves = Vec::new();
        for (key, entry) in &self.left {
            let path = self.path(key);
            let text = match entry.value {
                DeValue::Table(table) => {
                    leaves.extend(Section::of(self.document, path, entry.byte, table).leaves());
                    continue;
                }
                DeValue::String(text) => Some(text.to_string()),
                DeValue::Boolean(flag) => Some(flag.to_string()),
                DeValue::Integer(number) => Some(number.to_string()),
                DeValue::Float(number) => Some(number.to_string()),
                DeValue::Datetime(_) | DeValue::Array(_) => None,
            };
            leaves.push(Leaf { path, text, place: self.document.place(entry.byte) });
        }
        leaves
    }

    /// Takes a key whatever it has; somebody else reads it.
    pub fn leave(&mut self, key: &str) {
        self.left.remove(key);
    }

    /// Fails if a key is left.
    ///
    /// # Errors
    /// The key that is left (`InvalidInput`), with a hint.
    pub fn end(self, hint: &str) -> Result<()> {
        match self.left.keys().next() {
            None => Ok(()),
            Some(key) => Err(self.place_of(key).wrong(format!("there is no key {}; {hint}", self.path(key)))),
        }
    }
}

/// A key that has no table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// The key, with the names of the tables that it is in.
    pub path: String,
    /// What it has; none for lists and times.
    pub text: Option<String>,
    /// Where it stands.
    pub place: Place,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str, take: impl FnOnce(Section<'_>) -> Result<()>) -> String {
        Document::new("lakemark.toml", text).take(take).unwrap_err().to_string()
    }

    #[test]
    fn errors_name_file_line_and_key() {
        let said = error("a = 1\n\n[b]\nc = 3\n", |mut root| {
            root.leave("a");
            root.section("b")?.unwrap().text("c").map(drop)
        });
        assert_eq!(said, "lakemark.toml:4: b.c takes a text in quotes");
        let said = error("a = 1\n[b]\nc = 3\n", |mut root| {
            root.leave("a");
            root.end("look at the page")
        });
        assert_eq!(said, "lakemark.toml:2: there is no key b; look at the page");
    }

    #[test]
    fn a_text_that_is_no_toml_is_not_repeated() {
        let said = error("a = 'x'\nb = 'hidden\n", |_| Ok(()));
        assert!(said.starts_with("lakemark.toml:") && !said.contains("hidden"), "{said}");
        assert_eq!(format!("{:?}", Document::new("f", "hidden")), "Document(\"f\")");
    }

    #[test]
    fn each_kind_of_value_is_taken_as_what_it_is() {
        let text = "t = 'x'\nl = ['a', 'b']\nf = true\nn = 0x10\nw = '127.0.0.1:1'\np = 'sub/t'\nu = 's3://b/t'\n";
        Document::new("f", text)
            .take(|mut root| {
                assert_eq!((root.text("t")?, root.text("none")?), (Some("x".to_owned()), None));
                assert_eq!((root.texts("l")?, root.flag("f")?), (vec!["a".to_owned(), "b".to_owned()], Some(true)));
                assert_eq!((root.number("n")?, root.address("w")?.unwrap().port()), (16, 1));
                assert_eq!(root.location("p")?.unwrap(), "sub/t");
                assert_eq!(root.location("u")?.unwrap(), "s3://b/t");
                root.end("")
            })
            .unwrap();
    }

    #[test]
    fn paths_begin_at_the_folder_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lakemark.toml");
        std::fs::write(&path, "p = 'data/t'\nhome = '~/t'\nfull = '/t'\n").unwrap();
        Document::read(&path)
            .unwrap()
            .take(|mut root| {
                assert_eq!(root.location("p")?.unwrap(), folder.path().join("data/t").display().to_string());
                assert!(root.location("home")?.unwrap().ends_with("/t"));
                assert_eq!(root.location("full")?.unwrap(), "/t");
                Ok(())
            })
            .unwrap();
        let missing = Document::read(&folder.path().join("none.toml")).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
    }

    #[test]
    fn keys_are_listed_with_the_tables_that_they_are_in() {
        let leaves = Document::new("f", "[s]\na = 1\n[s.t]\nb = 'x'\n").take(|mut root| {
            let section = root.section("s")?.unwrap();
            Ok(section
                .leaves()
                .into_iter()
                .map(|leaf| format!("{} {} {}", leaf.place, leaf.path, leaf.text.unwrap_or_default()))
                .collect::<Vec<_>>())
        });
        assert_eq!(leaves.unwrap(), ["f:2 s.a 1", "f:4 s.t.b x"]);
    }
}
