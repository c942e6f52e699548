//! Where a table or store is: paths, globs, files and URLs become an object store and a place in it.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::{Component, Path as FsPath, PathBuf};
use std::sync::Arc;

use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use url::Url;

use crate::error::{Error, Result};
use crate::storage::local::LocalFiles;

/// Puts a layer around every object store that a table uses: counters, limits, faults.
pub type StoreLayer<'a> = &'a (dyn Fn(Arc<dyn ObjectStore>) -> Arc<dyn ObjectStore> + Send + Sync);

/// What kind of set of files a location names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum FileSet {
    /// All files below a folder.
    Folder,
    /// The files below a folder whose relative paths match.
    Glob(glob::Pattern),
    /// One file of a folder.
    File(String),
}

/// A table's place.
#[derive(Clone, Debug)]
pub(crate) struct Location {
    /// As it was given.
    pub text: String,
    /// The root folder, ending in `/`.
    pub root: Url,
    /// The root folder within the object store.
    pub prefix: Path,
    /// The root folder, if it is on a local file system.
    pub local: Option<PathBuf>,
    /// What kind of set it is.
    pub shape: FileSet,
    /// The object store that has the table.
    pub object_store: Arc<dyn ObjectStore>,
}

/// A folder of an object store: where the store of indexes is.
#[derive(Clone)]
pub(crate) struct StorePlace {
    /// For people.
    pub text: String,
    /// The folder within the object store.
    pub prefix: Path,
    /// The folder, if it is on a local file system.
    pub local: Option<PathBuf>,
    /// The object store that has the folder.
    pub object_store: Arc<dyn ObjectStore>,
}

impl fmt::Debug for StorePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Place").field(&self.text).finish()
    }
}

impl Location {
    /// Finds out what `text` names.
    pub(crate) async fn parse(text: &str, options: &HashMap<String, String>, layer: StoreLayer<'_>) -> Result<Self> {
        match parse_address(text)? {
            Address::Local(path) => Self::local(text, &path, layer),
            Address::Remote(url) => Self::remote(text, &url, options, layer).await,
        }
    }

    fn local(text: &str, path: &FsPath, layer: StoreLayer<'_>) -> Result<Self> {
        let (folder, shape) = match std::fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => (path.to_owned(), FileSet::Folder),
            Ok(_) => {
                let name = path.file_name().and_then(|name| name.to_str());
                let (Some(name), Some(parent)) = (name, path.parent()) else {
                    return Err(Error::invalid(format!("the path {text} is not UTF-8; rename the file")));
                };
                (parent.to_owned(), FileSet::File(name.to_owned()))
            }
            Err(_) if has_wildcard(text) => {
                let Some(path) = path.to_str() else {
                    return Err(Error::invalid(format!("the path {text} is not UTF-8")));
                };
                let SplitGlob { folder, pattern } = split_glob(path, text)?;
                (PathBuf::from(folder), FileSet::Glob(pattern))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(Error::not_found(format!("the table {text} does not exist; check the path")));
            }
            Err(error) => return Err(Error::io(format!("the table {text} cannot be read")).with_source(error)),
        };
        let root = Url::from_directory_path(&folder)
            .map_err(|()| Error::invalid(format!("the path {text} cannot be made a URL")))?;
        let prefix = Path::from_absolute_path(&folder).map_err(|error| Error::invalid(error.to_string()))?;
        let object_store = layer(Arc::new(LocalFiles::default()));
        Ok(Self { text: text.to_owned(), root, prefix, local: Some(folder), shape, object_store })
    }

    async fn remote(text: &str, url: &Url, options: &HashMap<String, String>, layer: StoreLayer<'_>) -> Result<Self> {
        let decoded = percent_encoding::percent_decode_str(url.path()).decode_utf8_lossy().into_owned();
        if has_wildcard(&decoded) {
            let SplitGlob { folder, pattern } = split_glob(&decoded, text)?;
            let mut root = url.clone();
            root.set_path(&format!("{folder}/"));
            let RemotePlace { object_store, prefix } = object_store_for(&root, options, layer)?;
            return Ok(Self {
                text: text.to_owned(),
                root,
                prefix,
                local: None,
                shape: FileSet::Glob(pattern),
                object_store,
            });
        }
        let RemotePlace { object_store, prefix } = object_store_for(url, options, layer)?;
        let mut root = url.clone();
        // Spark gives folders names that end in .parquet, too, so that the store is searched for a file.
        let is_file = decoded.ends_with(".parquet") && object_store.head(&prefix).await.is_ok();
        if is_file && let Some(name) = prefix.filename().map(str::to_owned) {
            let parent: Vec<_> = prefix.parts().collect();
            let parent = Path::from_iter(parent.into_iter().rev().skip(1).collect::<Vec<_>>().into_iter().rev());
            root = url.join(".").map_err(|error| Error::invalid(format!("{text}: {error}")))?;
            return Ok(Self {
                text: text.to_owned(),
                root,
                prefix: parent,
                local: None,
                shape: FileSet::File(name),
                object_store,
            });
        }
        if !root.path().ends_with('/') {
            root.set_path(&format!("{}/", url.path()));
        }
        Ok(Self { text: text.to_owned(), root, prefix, local: None, shape: FileSet::Folder, object_store })
    }

    /// The place of a data file by its path below the root folder. A percent sign in the path is one in the name.
    pub(crate) fn data_file_path(&self, path: &str) -> Path {
        let full = if self.prefix.as_ref().is_empty() { path.to_owned() } else { format!("{}/{path}", self.prefix) };
        Path::parse(&full).unwrap_or_else(|_| Path::from(full.as_str()))
    }

    /// What its object store is made with; none if that is in memory.
    pub(crate) fn settings(&self, options: &HashMap<String, String>) -> Option<StorageSettings> {
        StorageSettings::of(self.local.as_deref(), self.root.as_str(), options)
    }

    /// Whether the root folder has a Delta log.
    pub(crate) async fn is_delta(&self) -> Result<bool> {
        if !matches!(self.shape, FileSet::Folder) {
            return Ok(false);
        }
        if let Some(folder) = &self.local {
            return Ok(folder.join("_delta_log").is_dir());
        }
        let log = self.prefix.clone().join("_delta_log");
        let listed = self.object_store.list_with_delimiter(Some(&log)).await?;
        Ok(!listed.objects.is_empty())
    }

    /// The store of indexes that belongs to the table.
    pub(crate) fn locate_store(
        &self,
        store: Option<&str>,
        options: &HashMap<String, String>,
        layer: StoreLayer<'_>,
    ) -> Result<Option<StorePlace>> {
        match (store, &self.shape) {
            (Some(text), _) => StorePlace::parse(text, options, layer).map(Some),
            (None, FileSet::Folder) => Ok(Some(StorePlace {
                text: match &self.local {
                    Some(folder) => folder.join(STORE_FOLDER).display().to_string(),
                    None => format!("{}{STORE_FOLDER}", self.root),
                },
                prefix: self.prefix.clone().join(STORE_FOLDER),
                local: self.local.as_ref().map(|folder| folder.join(STORE_FOLDER)),
                object_store: Arc::clone(&self.object_store),
            })),
            (None, FileSet::Glob(_) | FileSet::File(_)) => Ok(None),
        }
    }
}

/// The store's folder beside the data.
pub(crate) const STORE_FOLDER: &str = "_lakemark";

/// All that an object store is made with beside its address, credentials among them; nothing for local files.
#[derive(Default)]
pub(crate) struct StorageSettings(pub BTreeMap<String, String>);

impl StorageSettings {
    /// None for a store in memory: each handle has its own.
    fn of(local: Option<&FsPath>, address: &str, options: &HashMap<String, String>) -> Option<Self> {
        if local.is_some() {
            return Some(Self::default());
        }
        let url = Url::parse(address).ok().filter(|url| url.scheme() != "memory")?;
        Some(Self(settings(&url, options).collect()))
    }
}

impl StorePlace {
    /// What its object store is made with; none if that is in memory.
    pub(crate) fn settings(&self, options: &HashMap<String, String>) -> Option<StorageSettings> {
        StorageSettings::of(self.local.as_deref(), &self.text, options)
    }

    fn parse(text: &str, options: &HashMap<String, String>, layer: StoreLayer<'_>) -> Result<Self> {
        match parse_address(text)? {
            Address::Local(path) => {
                let prefix = Path::from_absolute_path(&path).map_err(|error| Error::invalid(error.to_string()))?;
                let object_store = layer(Arc::new(LocalFiles::default()));
                Ok(Self { text: path.display().to_string(), prefix, local: Some(path), object_store })
            }
            Address::Remote(url) => {
                let RemotePlace { object_store, prefix } = object_store_for(&url, options, layer)?;
                Ok(Self { text: text.to_owned(), prefix, local: None, object_store })
            }
        }
    }
}

enum Address {
    Local(PathBuf),
    Remote(Url),
}

fn parse_address(text: &str) -> Result<Address> {
    if text.trim().is_empty() {
        return Err(Error::invalid("the path is empty; give a folder, a glob, a Parquet file or a URL"));
    }
    if text.contains("://") || text.starts_with("file:") {
        let url = Url::parse(text).map_err(|error| Error::invalid(format!("{text} is not a URL: {error}")))?;
        if url.scheme() != "file" {
            return Ok(Address::Remote(url));
        }
        let path = url.to_file_path().map_err(|()| Error::invalid(format!("{text} is not the URL of a local path")))?;
        return Ok(Address::Local(path));
    }
    let path = std::path::absolute(text).map_err(|error| Error::invalid(format!("{text} is not a path: {error}")))?;
    // `absolute` keeps `..`, which an object store's path may not have.
    if path.components().all(|part| part != Component::ParentDir) {
        return Ok(Address::Local(path));
    }
    Ok(Address::Local(std::fs::canonicalize(&path).unwrap_or_else(|_| without_parents(&path))))
}

/// Resolves `..` in a path that does not exist (yet).
fn without_parents(path: &FsPath) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut resolved, part| {
        if part == Component::ParentDir {
            resolved.pop();
        } else {
            resolved.push(part);
        }
        resolved
    })
}

/// The object store of an address, with what a table there would have: settings of the environment, and the options.
///
/// # Errors
/// The address is no URL, this build has no storage for it, or an option is wrong.
pub fn object_store_at(address: &str, options: &HashMap<String, String>) -> Result<Arc<dyn ObjectStore>> {
    let url = Url::parse(address).map_err(|error| Error::invalid(format!("{address} is not a URL: {error}")))?;
    Ok(object_store_for(&url, options, &|store: Arc<dyn ObjectStore>| store)?.object_store)
}

/// A place in an object store.
struct RemotePlace {
    object_store: Arc<dyn ObjectStore>,
    prefix: Path,
}

fn object_store_for(url: &Url, options: &HashMap<String, String>, layer: StoreLayer<'_>) -> Result<RemotePlace> {
    let (object_store, prefix) = object_store::parse_url_opts(url, settings(url, options)).map_err(|error| {
        Error::unsupported(format!("no storage for {url}; this build may lack it, or an option is wrong"))
            .with_source(error)
    })?;
    Ok(RemotePlace { object_store: layer(Arc::from(object_store)), prefix })
}

/// What the object store of a URL is made with, what counts more after the rest.
fn settings(url: &Url, options: &HashMap<String, String>) -> impl Iterator<Item = (String, String)> {
    environment(url).into_iter().chain(options.iter().map(|(key, value)| (key.clone(), value.clone())))
}

/// Credentials and settings of the environment, such as `AWS_ACCESS_KEY_ID`; options that are given come after them.
fn environment(url: &Url) -> Vec<(String, String)> {
    let prefix = match url.scheme() {
        "s3" | "s3a" => "AWS_",
        "gs" => "GOOGLE_",
        "az" | "abfs" | "abfss" | "azure" | "adl" => "AZURE_",
        _ => return Vec::new(),
    };
    let variables =
        std::env::vars_os().filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?)));
    variables.filter(|(key, _)| key.starts_with(prefix)).map(|(key, value)| (key.to_ascii_lowercase(), value)).collect()
}

fn has_wildcard(path: &str) -> bool {
    path.contains(['*', '?', '['])
}

/// A glob in two parts.
struct SplitGlob {
    /// The longest folder without wildcards.
    folder: String,
    /// The pattern below it.
    pattern: glob::Pattern,
}

fn split_glob(path: &str, text: &str) -> Result<SplitGlob> {
    let parts: Vec<&str> = path.split('/').collect();
    let first = parts.iter().position(|part| has_wildcard(part)).unwrap_or(parts.len());
    let (folder, rest) = parts.split_at(first);
    let pattern = glob::Pattern::new(&rest.join("/"))
        .map_err(|error| Error::invalid(format!("{text} is not a glob: {error}; [ ] * ? are wildcards")))?;
    let folder = folder.join("/");
    Ok(SplitGlob { folder: if folder.is_empty() { "/".to_owned() } else { folder }, pattern })
}

/// The place of a file by its path below a root. Other than with [`Path::join`], a percent sign in the path is one in
/// the name.
pub(crate) fn place_of(prefix: &Path, path: &str) -> Result<Path> {
    let full = if prefix.as_ref().is_empty() { path.to_owned() } else { format!("{prefix}/{path}") };
    Path::parse(&full).map_err(|error| Error::internal(format!("{path} cannot be a path")).with_source(error))
}
