//! The database of a fleet, by the settings: brought up to date by its owner, waited for by everybody else.

use std::{process::ExitCode, sync::Arc, time::Duration};

use mayfly_core::chain::Chain;
use mayfly_settings::{DatabaseSettings, Secret};
use mayfly_store::error::StoreError;
use mayfly_store_postgres::{Passwords, PostgresStore, Settings, migrate};

use super::enroll::unescaped;
use crate::{args::Common, context, exit, failure::Failure, terminal::print};

/// The wait after a database that could not be opened, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Opens it, for as long as it takes: it may be started after this, or be set up after this. What waiting does not mend is
/// an error.
pub(crate) async fn wait_for(settings: &DatabaseSettings) -> Result<Arc<PostgresStore>, Failure> {
    let settings = store_settings(settings)?;
    let mut pause = FIRST_PAUSE;
    loop {
        let error = match PostgresStore::open(&settings).await {
            Ok(store) => return Ok(Arc::new(store)),
            Err(error @ StoreError::Open { .. }) => error,
            Err(error) => return Err(error.into()),
        };
        tracing::warn!(error = %Chain(&error), retry_in_ms = pause.as_millis(), "the database is not there yet");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Opens it now, or not at all.
pub(super) async fn open(settings: &DatabaseSettings) -> Result<PostgresStore, Failure> {
    Ok(PostgresStore::open(&store_settings(settings)?).await?)
}

fn store_settings(settings: &DatabaseSettings) -> Result<Settings, Failure> {
    Ok(Settings {
        api_url: settings.api()?.expose().to_owned(),
        engine_url: settings.engine()?.expose().to_owned(),
        connections: settings.connections,
    })
}

/// `mayfly migrate`.
pub(crate) async fn bring_up_to_date(common: &Common) -> Result<ExitCode, Failure> {
    let settings = context::settings(context::service(common))?;
    let owner = settings.database.owner()?;
    let passwords = Passwords {
        api: password("database.api_url", settings.database.api().ok())?,
        engine: password("database.engine_url", settings.database.engine().ok())?,
    };
    migrate(owner.expose(), &passwords).await?;
    print("the database is up to date\n")?;
    Ok(ExitCode::from(exit::OK))
}

/// What a role logs in with: the password that its own address has, so that it stands in one place alone.
fn password(path: &str, url: Option<Secret>) -> Result<Option<String>, Failure> {
    let Some(url) = url else { return Ok(None) };
    let wrong = || {
        Failure::usage(format!(
            "setting `{path}` is not of the form postgres://USER:PASSWORD@HOST/DATABASE"
        ))
    };
    let rest = url.expose().split_once("://").ok_or_else(wrong)?.1;
    let Some((user, _)) = rest.rsplit_once('@') else {
        return Ok(None);
    };
    let Some((_, password)) = user.split_once(':') else {
        return Ok(None);
    };
    unescaped(password).map(Some).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_gets_the_password_of_its_own_address() {
        let of = |url: &str| password("database.api_url", Some(Secret::from(url.to_owned())));
        assert_eq!(
            of("postgres://mayfly_api:a%40b%2Fc@h:5432/d").unwrap(),
            Some("a@b/c".to_owned())
        );
        assert_eq!(of("postgres://mayfly_api@h/d").unwrap(), None);
        assert_eq!(of("postgres://h/d").unwrap(), None);
        assert_eq!(password("database.api_url", None).unwrap(), None);
        let error = of("postgres://u:hunter%2@h/d").unwrap_err().text();
        assert!(
            error.contains("database.api_url") && !error.contains("hunter"),
            "{error}"
        );
    }
}
