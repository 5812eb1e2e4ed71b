//! The key to named secrets: of the settings, or for `mayfly dev` in a file of its own beside the database.

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use mayfly_settings::Settings;
use mayfly_vault::Vault;

use crate::{context::beside, embedded::secret, exit, failure::Failure};

/// What a server seals secrets with; none where its settings have no key.
pub(crate) fn of_server(settings: &Settings) -> Result<Option<Arc<Vault>>, Failure> {
    let Some((key, before)) = settings.server.secrets_keys()? else {
        return Ok(None);
    };
    let before = before.as_ref().map(|key| key.expose().as_bytes());
    let vault = Vault::new(key.expose().as_bytes(), before).map_err(Failure::usage)?;
    Ok(Some(Arc::new(vault)))
}

/// What the roles of this process seal secrets with: by the settings, else by the file; none where there is neither.
pub(crate) fn of(settings: &Settings) -> Result<Option<Arc<Vault>>, Failure> {
    if let Some(vault) = of_server(settings)? {
        return Ok(Some(vault));
    }
    let path = file(settings);
    match fs::read(&path) {
        Ok(key) => {
            let vault = Vault::new(key.trim_ascii(), None);
            let vault = vault.map_err(|error| {
                let error = anyhow::Error::new(error).context(format!("the key in {}", path.display()));
                Failure::new(exit::USAGE, error)
            })?;
            Ok(Some(Arc::new(vault)))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unusable(&path, error)),
    }
}

/// Sees to it that there is one: writes a new key into the file, where there is neither that nor one in the settings.
pub(crate) fn make(settings: &Settings) -> Result<(), Failure> {
    if of(settings)?.is_some() {
        return Ok(());
    }
    let path = file(settings);
    // Written aside and linked: whoever sees the file sees all of it, and of two that come at once one counts for both.
    let aside = path.with_extension(format!("{}.new", std::process::id()));
    let written = write(&aside).and_then(|()| match fs::hard_link(&aside, &path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    });
    // What is left of it is a key that opens nothing.
    fs::remove_file(&aside).unwrap_or_default();
    written.map_err(|error| unusable(&path, error))
}

fn write(path: &Path) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.mode(0o600);
    }
    let mut file = options.open(path)?;
    writeln!(file, "{}", hex(&secret()))?;
    file.sync_all()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn file(settings: &Settings) -> PathBuf {
    beside(&settings.store.path, "secrets.key")
}

fn unusable(path: &Path, error: io::Error) -> Failure {
    let error = anyhow::Error::new(error).context(format!(
        "{}, the key to named secrets, can't be used",
        path.display()
    ));
    Failure::new(exit::NO_STORE, error)
}
