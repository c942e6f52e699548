//! Data files that were touched and not changed, under the identity that they have now.

use lakemark_format::ManifestFile;

/// A data file as the manifest knows it, and under the identity that it has now.
#[derive(Clone, Debug)]
pub(crate) struct Adoption {
    pub was: ManifestFile,
    pub now: ManifestFile,
}

impl Adoption {
    /// Whether the file has another identity: a file that is still young has not.
    pub(crate) fn is_news(&self) -> bool {
        self.was != self.now
    }

    /// Gives the file of a manifest its new identity, unless somebody has indexed it again meanwhile.
    pub(crate) fn apply(&self, file: &mut ManifestFile) -> bool {
        let same = file.is_same_version(&self.was);
        if same {
            file.modified_ns = self.now.modified_ns;
            file.etag.clone_from(&self.now.etag);
        }
        same
    }
}
