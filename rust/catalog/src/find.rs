//! Where the files are: in the user's folder of configurations, and in the project that somebody works in.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use lakemark_table::Result;

use crate::document::Document;

/// The name of the files.
pub const FILE: &str = "lakemark.toml";

/// The variable that names one file in the place of all others; an empty one stands for none.
pub const VARIABLE: &str = "LAKEMARK_CONFIG";

/// Where somebody looks.
struct Search {
    /// What the variable says.
    named: Option<OsString>,
    /// The user's folder of configurations.
    user: Option<PathBuf>,
    /// The working directory.
    working: Option<PathBuf>,
}

/// The files that are in force for this process, what counts more after the rest.
///
/// # Errors
/// A file that is there, or that `LAKEMARK_CONFIG` names, cannot be read.
pub(crate) fn documents() -> Result<Vec<Document>> {
    let search =
        Search { named: std::env::var_os(VARIABLE), user: user_folder(), working: std::env::current_dir().ok() };
    search.paths().iter().map(|path| Document::read(path)).collect()
}

fn user_folder() -> Option<PathBuf> {
    let given = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let own = if cfg!(windows) { given("APPDATA") } else { given("XDG_CONFIG_HOME") };
    own.or_else(|| std::env::home_dir().map(|home| home.join(".config")))
}

impl Search {
    fn paths(self) -> Vec<PathBuf> {
        match self.named {
            Some(path) if path.is_empty() => Vec::new(),
            Some(path) => vec![PathBuf::from(path)],
            None => {
                let user = self.user.map(|folder| folder.join("lakemark").join(FILE)).filter(|path| path.is_file());
                let project = self.working.as_deref().and_then(project_file).filter(|path| Some(path) != user.as_ref());
                user.into_iter().chain(project).collect()
            }
        }
    }
}

/// The file of the folder, or of the nearest one above it that has one.
fn project_file(working: &Path) -> Option<PathBuf> {
    working.ancestors().find(|folder| folder.join(FILE).is_file() && is_trusted(folder)).map(|folder| folder.join(FILE))
}

/// Whether only those may write to the file of a folder who may be trusted. Others could send credentials wherever they like.
#[cfg(unix)]
fn is_trusted(folder: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;

    let is_open =
        |path: &Path| std::fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o002 != 0);
    let file = folder.join(FILE);
    let is_trusted = !is_open(folder) && !is_open(&file);
    if !is_trusted {
        let text = "not read, as everybody may write to it or to its folder: take that right away, or name it in";
        tracing::warn!(file = %file.display(), "{text} {VARIABLE}");
    }
    is_trusted
}

#[cfg(not(unix))]
fn is_trusted(_folder: &Path) -> bool {
    true
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn write(folder: &Path) -> PathBuf {
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join(FILE), "").unwrap();
        folder.join(FILE)
    }

    #[test]
    fn the_nearest_file_above_counts_after_that_of_the_user() {
        let root = tempfile::tempdir().unwrap();
        let (user, project) = (root.path().join("config"), root.path().join("p"));
        let deep = project.join("a/b");
        fs::create_dir_all(&deep).unwrap();
        let search = || Search { named: None, user: Some(user.clone()), working: Some(deep.clone()) };
        assert!(search().paths().is_empty());
        let of_project = write(&project);
        assert_eq!(search().paths(), std::slice::from_ref(&of_project));
        let of_user = write(&user.join("lakemark"));
        assert_eq!(search().paths(), [of_user.clone(), of_project]);
        let nearest = write(&deep);
        assert_eq!(search().paths(), [of_user.clone(), nearest]);
        let in_it = Search { named: None, user: Some(user.clone()), working: Some(user.join("lakemark")) };
        assert_eq!(in_it.paths(), [of_user]);
    }

    #[test]
    fn a_variable_names_one_file_or_none() {
        let root = tempfile::tempdir().unwrap();
        write(root.path());
        let named =
            |name: &str| Search { named: Some(name.into()), user: None, working: Some(root.path().to_owned()) }.paths();
        assert_eq!(named("/x/y.toml"), [PathBuf::from("/x/y.toml")]);
        assert!(named("").is_empty());
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_everybody_may_write_or_whose_folder_is_left_out() {
        use std::os::unix::fs::PermissionsExt;

        let root = tempfile::tempdir().unwrap();
        let allow = |path: &Path, mode: u32| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        let folder = root.path().join("open");
        let file = write(&folder);
        allow(&folder, 0o777);
        assert_eq!(project_file(&folder), None);
        let above = write(root.path());
        assert_eq!(project_file(&folder), Some(above.clone()));
        allow(&folder, 0o755);
        allow(&file, 0o666);
        assert_eq!(project_file(&folder), Some(above));
        allow(&file, 0o644);
        assert_eq!(project_file(&folder), Some(file));
    }
}
