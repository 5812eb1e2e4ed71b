//! `mayfly tenant` and `mayfly key` in the database itself, for whoever runs the server: the way to the first key. That is
//! the fleet's database where `database.api_url` is set, else the one of `mayfly dev`.

use std::{process::ExitCode, sync::Arc};

use chrono::{DateTime, TimeDelta, Utc};
use mayfly_api::{ApiKey, prefix};
use mayfly_core::{account::Belonging, clock::Clock as _, id::TenantId};
use mayfly_settings::{Settings, SettingsError};
use mayfly_store::{
    accounts::{
        KeyRecord, KeysOf, MAX_WEIGHT, NewKey, NewTenant, Quotas, Standing, TenantChange, TenantRecord,
        USUAL_WEIGHT, is_name,
    },
    seam::{MAX_PAGE, Store},
};
use mayfly_store_postgres::PostgresStore;
use mayfly_store_sqlite::SqliteStore;
use mayfly_telemetry::SystemClock;
use mayfly_wire::account::{CreatedKey, Key, KeyStanding, Tenant};

use crate::{
    args::remote::{KeyCommand, KeyCreateArgs, TenantCommand},
    exit,
    failure::Failure,
    remote::{self, KeyFile},
    terminal::print,
};

/// The database of the settings.
async fn open(settings: &Settings) -> Result<Arc<dyn Store>, Failure> {
    let database = &settings.database;
    match database.api() {
        Ok(api_url) => {
            let parts = mayfly_store_postgres::Settings {
                api_url: api_url.expose().to_owned(),
                engine_url: database.engine()?.expose().to_owned(),
                connections: database.connections,
            };
            Ok(Arc::new(PostgresStore::open(&parts).await?))
        }
        Err(SettingsError::Missing { .. }) => Ok(Arc::new(SqliteStore::open(&settings.store.path).await?)),
        Err(error) => Err(error.into()),
    }
}

pub(crate) async fn tenant(settings: &Settings, command: TenantCommand) -> Result<ExitCode, Failure> {
    let store = open(settings).await?;
    match command {
        TenantCommand::Create {
            name,
            weight,
            most_in_flight,
            most_queued,
            json,
        } => {
            checked_name(&name)?;
            let weight = weight.unwrap_or(USUAL_WEIGHT);
            checked_weight(weight)?;
            let new = NewTenant {
                id: TenantId::new(),
                name,
                weight,
                quotas: Quotas {
                    most_in_flight,
                    most_queued,
                },
            };
            let made = store.create_tenant(new, None, SystemClock.now()).await?;
            remote::tenant_made(&shown_tenant(made), json)?;
        }
        TenantCommand::Show { tenant, json } => {
            let tenant = tenant_record(&*store, &tenant).await?;
            remote::print_tenants(&[shown_tenant(tenant)], json)?;
        }
        TenantCommand::Set { tenant, terms, json } => {
            terms.weight.map_or(Ok(()), checked_weight)?;
            let change = TenantChange {
                weight: terms.weight,
                most_in_flight: terms.most_in_flight.map(|bound| bound.0),
                most_queued: terms.most_queued.map(|bound| bound.0),
            };
            let id = tenant_of(&*store, &tenant).await?;
            let tenant = store.change_tenant(id, change, None, SystemClock.now()).await?;
            remote::print_tenants(&[shown_tenant(tenant)], json)?;
        }
        TenantCommand::List { json } => {
            let (mut tenants, mut after) = (Vec::new(), None);
            loop {
                let page = store.list_tenants(after, MAX_PAGE).await?;
                after = page.last().map(|tenant| tenant.id);
                tenants.extend(page.into_iter().map(shown_tenant));
                if after.is_none() {
                    break;
                }
            }
            remote::print_tenants(&tenants, json)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn key(settings: &Settings, command: KeyCommand) -> Result<ExitCode, Failure> {
    let store = open(settings).await?;
    match command {
        KeyCommand::Create(args) => create(&*store, &args).await?,
        KeyCommand::List { tenant, json } => {
            let of = match &tenant {
                Some(text) => KeysOf::Tenant(tenant_of(&*store, text).await?),
                None => KeysOf::All,
            };
            let (mut keys, mut after) = (Vec::new(), None);
            loop {
                let page = store.list_keys(of, after, MAX_PAGE, SystemClock.now()).await?;
                after = page.last().map(|key| key.id);
                keys.extend(page.into_iter().map(shown_key));
                if after.is_none() {
                    break;
                }
            }
            remote::print_keys(&keys, json)?;
        }
        KeyCommand::Revoke { keys } => {
            for key in keys {
                store.revoke_key(key, None, SystemClock.now()).await?;
                print(&format!("key {key} opens nothing any more\n"))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn create(store: &dyn Store, args: &KeyCreateArgs) -> Result<(), Failure> {
    let name = remote::key_name(args);
    checked_name(&name)?;
    let belonging = args.role.belonging();
    if !belonging.allows(args.tenant.is_some()) {
        return Err(Failure::usage(match belonging {
            Belonging::Tenant => "a key of this role is a tenant's: say which with --tenant",
            Belonging::Fleet | Belonging::Either => "a key of this role is of no tenant: leave --tenant out",
        }));
    }
    let tenant = match &args.tenant {
        Some(text) => Some(tenant_of(store, text).await?),
        None => None,
    };
    let now = SystemClock.now();
    let expires_at = args
        .expires_after
        .map(|life| expiry(now, life.as_duration()))
        .transpose()?;
    let file = args.out.as_deref().map(KeyFile::create).transpose()?;
    let key = ApiKey::generate();
    let record = NewKey {
        id: key.id(),
        tenant,
        role: args.role,
        name,
        secret: key.digest(),
        expires_at,
    };
    let made = store.create_key(record, None, now).await?;
    let made = CreatedKey {
        secret: key.reveal(),
        key: shown_key(made),
    };
    remote::key_made(&made, args.json, file)
}

fn expiry(now: DateTime<Utc>, life: std::time::Duration) -> Result<DateTime<Utc>, Failure> {
    let life = TimeDelta::from_std(life).ok();
    let end = life.and_then(|life| now.checked_add_signed(life));
    end.filter(|end| *end > now)
        .ok_or_else(|| Failure::usage("--expires-after: no key lives that long, or not at all"))
}

fn checked_name(name: &str) -> Result<(), Failure> {
    if is_name(name) {
        return Ok(());
    }
    Err(Failure::usage(
        "a name has 1 to 63 lower-case letters, digits and `-`, and begins and ends with a letter or digit",
    ))
}

fn checked_weight(weight: u32) -> Result<(), Failure> {
    if (1..=MAX_WEIGHT).contains(&weight) {
        return Ok(());
    }
    Err(Failure::usage(format!("a weight is between 1 and {MAX_WEIGHT}")))
}

/// The id of the tenant of this name or id.
async fn tenant_of(store: &dyn Store, text: &str) -> Result<TenantId, Failure> {
    Ok(tenant_record(store, text).await?.id)
}

/// The tenant of this name or id.
async fn tenant_record(store: &dyn Store, text: &str) -> Result<TenantRecord, Failure> {
    let found = match text.parse() {
        Ok(id) => store.find_tenant(id).await?,
        Err(_) => store.find_tenant_by_name(text).await?,
    };
    found.ok_or_else(|| {
        let error = anyhow::anyhow!("there is no tenant {text}: `mayfly tenant list` shows which there are");
        Failure::new(exit::NOT_FOUND, error)
    })
}

fn shown_tenant(record: TenantRecord) -> Tenant {
    Tenant {
        tenant: record.id,
        name: record.name,
        weight: record.weight,
        most_in_flight: record.quotas.most_in_flight,
        most_queued: record.quotas.most_queued,
        created_at: record.created_at,
    }
}

fn shown_key(record: KeyRecord) -> Key {
    Key {
        key: record.id,
        prefix: prefix(record.id),
        name: record.name,
        role: record.role,
        tenant: record.tenant,
        standing: match record.standing {
            Standing::Valid => KeyStanding::Valid,
            Standing::Expired => KeyStanding::Expired,
            Standing::Revoked => KeyStanding::Revoked,
        },
        created_at: record.created_at,
        expires_at: record.expires_at,
        revoked_at: record.revoked_at,
        last_used_at: record.last_used_at,
    }
}
