//! What the command's tests share.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// A directory of one test, removed with it.
pub(crate) struct Directory(pub(crate) PathBuf);

impl Directory {
    /// `name` is the test's own.
    pub(crate) fn new(name: &str) -> Self {
        let name = format!("ashway-cli-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        // Another user, to whom a test steps down, must get in.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        Self(path)
    }

    pub(crate) fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
