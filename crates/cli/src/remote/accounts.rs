//! `mayfly tenant` and `mayfly key` at a server.

use std::{io::Write as _, path::Path, process::ExitCode};

use mayfly_core::id::TenantId;
use mayfly_wire::account::{ChangeTenant, CreatedKey, Key, NewKey, NewTenant, Tenant};

use super::{Remote, lists::json_lines};
use crate::{
    args::remote::{KeyCommand, KeyCreateArgs, TenantCommand},
    exit,
    failure::Failure,
    report::{time, word},
    show::table,
    terminal::{print, say, shown},
};

/// Entries that one request of a whole list asks for.
const PAGE: u32 = 1000;

pub(crate) async fn tenant(remote: &Remote, command: TenantCommand) -> Result<ExitCode, Failure> {
    match command {
        TenantCommand::Create {
            name,
            weight,
            most_in_flight,
            most_queued,
            json,
        } => {
            let new = NewTenant {
                name,
                weight,
                most_in_flight,
                most_queued,
            };
            let made = remote.client.create_tenant(&new).await?;
            tenant_made(&made, json)?;
        }
        TenantCommand::Show { tenant, json } => {
            let id = tenant_of(remote, &tenant).await?;
            let tenant = remote.client.tenant(id).await?;
            print_tenants(&[tenant], json)?;
        }
        TenantCommand::Set { tenant, terms, json } => {
            let id = tenant_of(remote, &tenant).await?;
            let change = ChangeTenant {
                weight: terms.weight,
                most_in_flight: terms.most_in_flight.map(|bound| bound.0),
                most_queued: terms.most_queued.map(|bound| bound.0),
            };
            let tenant = remote.client.change_tenant(id, &change).await?;
            print_tenants(&[tenant], json)?;
        }
        TenantCommand::List { json } => {
            let tenants = remote.client.tenants(PAGE).take(usize::MAX).await?;
            print_tenants(&tenants, json)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Says which tenant was made.
pub(crate) fn tenant_made(tenant: &Tenant, json: bool) -> Result<(), Failure> {
    print(&if json {
        json_lines(&[tenant])?
    } else {
        format!("{}\n", tenant.tenant)
    })
}

/// Prints tenants.
pub(crate) fn print_tenants(tenants: &[Tenant], json: bool) -> Result<(), Failure> {
    print(&if json {
        json_lines(tenants)?
    } else {
        tenants_listed(tenants)
    })
}

fn tenants_listed(tenants: &[Tenant]) -> String {
    let bound = |most: Option<u32>| most.map_or_else(|| "-".to_owned(), |most| most.to_string());
    let mut table = table([
        "TENANT",
        "WEIGHT",
        "MOST IN FLIGHT",
        "MOST QUEUED",
        "CREATED",
        "ID",
    ]);
    for tenant in tenants {
        table.add_row([
            shown(&tenant.name),
            tenant.weight.to_string(),
            bound(tenant.most_in_flight),
            bound(tenant.most_queued),
            time(tenant.created_at),
            tenant.tenant.to_string(),
        ]);
    }
    format!("{table}\n")
}

pub(crate) async fn key(remote: &Remote, command: KeyCommand) -> Result<ExitCode, Failure> {
    let client = &remote.client;
    match command {
        KeyCommand::Create(args) => {
            let tenant = match &args.tenant {
                Some(text) => Some(tenant_of(remote, text).await?),
                None => None,
            };
            let new = NewKey {
                name: key_name(&args),
                role: args.role,
                tenant,
                expires_after: args.expires_after,
            };
            // Before the key is made: one that nobody can keep is of no use.
            let file = args.out.as_deref().map(KeyFile::create).transpose()?;
            let made = client.create_key(&new).await?;
            key_made(&made, args.json, file)?;
        }
        KeyCommand::List { tenant, json } => {
            let tenant = match &tenant {
                Some(text) => Some(tenant_of(remote, text).await?),
                None => None,
            };
            let keys = client.keys(tenant, PAGE).take(usize::MAX).await?;
            print_keys(&keys, json)?;
        }
        KeyCommand::Revoke { keys } => {
            for key in keys {
                client.revoke_key(key).await?;
                print(&format!("key {key} opens nothing any more\n"))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What a key is called.
pub(crate) fn key_name(args: &KeyCreateArgs) -> String {
    args.name.clone().unwrap_or_else(|| args.role.to_string())
}

/// Shows a key this once, or writes it into its file.
pub(crate) fn key_made(made: &CreatedKey, json: bool, file: Option<KeyFile<'_>>) -> Result<(), Failure> {
    let id = made.key.key;
    match file {
        Some(file) => {
            let path = file.path.display().to_string();
            file.write(&made.secret)?;
            say(&format!("mayfly: key {id} is in {path}, and is not shown again"));
        }
        None if json => print(&json_lines(&[made])?)?,
        None => {
            print(&format!("{}\n", made.secret))?;
            say(&format!("mayfly: this is key {id}; it is not shown again"));
        }
    }
    Ok(())
}

/// Prints keys.
pub(crate) fn print_keys(keys: &[Key], json: bool) -> Result<(), Failure> {
    print(&if json {
        json_lines(keys)?
    } else {
        keys_listed(keys)
    })
}

/// A new file that only its owner can read. It is removed again where no key comes into it.
pub(crate) struct KeyFile<'a> {
    path: &'a Path,
    file: std::fs::File,
    is_written: bool,
}

impl Drop for KeyFile<'_> {
    fn drop(&mut self) {
        if !self.is_written && std::fs::remove_file(self.path).is_err() {
            say(&format!("mayfly: {} is left empty", self.path.display()));
        }
    }
}

impl<'a> KeyFile<'a> {
    /// Makes it, where there is none of that name.
    pub(crate) fn create(path: &'a Path) -> Result<Self, Failure> {
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(path).map_err(|error| Self::failed(path, error))?;
        Ok(Self {
            path,
            file,
            is_written: false,
        })
    }

    fn write(mut self, secret: &str) -> Result<(), Failure> {
        self.is_written = true;
        writeln!(self.file, "{secret}")
            .and_then(|()| self.file.sync_all())
            .map_err(|error| Self::failed(self.path, error))
    }

    fn failed(path: &Path, error: std::io::Error) -> Failure {
        let error = anyhow::Error::new(error).context(format!("{} can't be written", path.display()));
        Failure::new(exit::NO_OUTPUT, error)
    }
}

fn keys_listed(keys: &[Key]) -> String {
    let mut table = table(["KEY", "ROLE", "TENANT", "STANDING", "EXPIRES", "LAST USED", "ID"]);
    for key in keys {
        table.add_row([
            shown(&key.name),
            key.role.to_string(),
            key.tenant.map_or_else(String::new, |tenant| tenant.to_string()),
            word(key.standing),
            key.expires_at.map_or_else(|| "never".to_owned(), time),
            key.last_used_at.map_or_else(|| "never".to_owned(), time),
            key.key.to_string(),
        ]);
    }
    format!("{table}\n")
}

/// The tenant of this name or id.
async fn tenant_of(remote: &Remote, text: &str) -> Result<TenantId, Failure> {
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    let mut tenants = remote.client.tenants(PAGE);
    while let Some(tenant) = tenants.next().await? {
        if tenant.name == text {
            return Ok(tenant.tenant);
        }
    }
    let error = anyhow::anyhow!("there is no tenant {text}: `mayfly tenant list` shows which there are");
    Err(Failure::new(exit::NOT_FOUND, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keys_file_is_new_and_its_owners_alone() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        KeyFile::create(&path).unwrap().write("mayfly_1_2").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "mayfly_1_2\n");
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert!(KeyFile::create(&path).is_err(), "nothing is overwritten");
        let unused = folder.path().join("unused");
        drop(KeyFile::create(&unused).unwrap());
        assert!(!unused.exists());
    }
}
