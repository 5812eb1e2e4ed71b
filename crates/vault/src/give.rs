//! The secrets of a job for the one attempt that is to run it.

use chrono::{DateTime, Utc};
use mayfly_core::job::{SecretName, SecretText, SecretValues};
use mayfly_store::{blobs::BlobOwner, error::StoreError, seam::Store};

use crate::{OpenError, Vault, Whose};

/// Why an attempt gets no secrets.
#[derive(Debug, thiserror::Error)]
pub enum GiveError {
    /// There is no such attempt of that job and tenant, or it is over.
    #[error("there is no such attempt, or it is over")]
    NoSuchAttempt,
    /// A secret that the job names is not there any more.
    #[error("a secret that the job names is not there any more")]
    NoSecret,
    /// This server has no key, and the job names secrets.
    #[error("there is no key to the secrets that the job names: set `server.secrets_key`")]
    NoKey,
    /// A value can't be opened.
    #[error("a secret can't be opened")]
    Open(#[source] OpenError),
    /// Trouble with the database.
    #[error("the secrets can't be read")]
    Store(#[source] StoreError),
}

/// The values of all secrets of a job, those that it brought itself and those that it names, each in its place. That named ones
/// were given is on record before this returns.
///
/// # Errors
/// [`GiveError`], which shows no value.
pub async fn values_for(
    store: &dyn Store,
    vault: Option<&Vault>,
    owner: BlobOwner,
    now: DateTime<Utc>,
) -> Result<SecretValues, GiveError> {
    let found = store.find_input(owner).await.map_err(GiveError::Store)?;
    let mut job = found.ok_or(GiveError::NoSuchAttempt)?;
    let mut values = job.take_secrets();
    let named = job.named_secrets;
    if named.is_empty() {
        return Ok(values);
    }
    let vault = vault.ok_or(GiveError::NoKey)?;
    let names: Vec<SecretName> = named.names().into_iter().cloned().collect();
    let given = store
        .give_secrets(owner, &names, now)
        .await
        .map_err(GiveError::Store)?;
    let given = given.ok_or(GiveError::NoSecret)?;
    let value_of = |name: &SecretName| -> Result<SecretText, GiveError> {
        let secret = given.iter().find(|secret| secret.name == *name);
        let secret = secret.ok_or(GiveError::NoSecret)?;
        let whose = Whose {
            tenant: owner.tenant,
            name,
            value: secret.value,
        };
        vault.open(whose, &secret.sealed).map_err(GiveError::Open)
    };
    for (variable, name) in &named.env {
        values.env.insert(variable.clone(), value_of(name)?);
    }
    for (path, name) in &named.files {
        values.files.insert(path.clone(), value_of(name)?);
    }
    Ok(values)
}
