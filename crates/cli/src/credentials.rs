//! Credentials of the settings, for the requests of jobs on this host.

use mayfly_egress::{Credential, Credentials, Trust};
use mayfly_executor::{TenantCredentials, Tenants};
use mayfly_settings::{Settings, SettingsError};

use crate::{exit, failure::Failure};

/// All of them; none, where none are set.
pub(crate) fn of(settings: &Settings) -> Result<Option<TenantCredentials>, Failure> {
    let egress = &settings.executor.egress;
    let given = egress.read()?;
    if given.is_empty() {
        return Ok(None);
    }
    let trust = egress.trusted()?.map_or(Trust::Host, Trust::Only);
    let (mut all, mut tenants) = (Vec::new(), std::collections::BTreeMap::new());
    for one in given {
        let made = Credential::new(&one.name, one.rule, &one.header, &one.prefix, one.value.expose());
        all.push(made.map_err(|fault| SettingsError::Impossible {
            path: format!("executor.egress.credentials.{}", one.name),
            why: fault.to_string(),
        })?);
        tenants.insert(one.name, one.tenants.map_or(Tenants::All, Tenants::These));
    }
    tracing::info!(
        credentials = all.len(),
        "requests of jobs get credentials that are held here"
    );
    let credentials = Credentials::new(all, trust).map_err(|error| Failure::new(exit::USAGE, error))?;
    Ok(Some(TenantCredentials { credentials, tenants }))
}
