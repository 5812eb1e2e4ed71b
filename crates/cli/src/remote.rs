//! Commands that ask a server: the same words, tables, JSON and exit codes as on this host.
//!
//! Which commands come here is decided by [`Place`](crate::place::Place). Nothing here opens a database or an engine, but for
//! `mayfly image pin`, which asks the engine of this host for an image's digests.

mod accounts;
mod artifacts;
mod failure;
mod fleet;
mod follow;
mod jobs;
mod lists;
mod run;
mod secrets;
mod show;
mod top;
mod uploads;

use mayfly_client::{ApiKey, Client, ClientConfig, ServerUrl};
use mayfly_settings::Settings;

pub(crate) use self::{
    accounts::{KeyFile, key, key_made, key_name, print_keys, print_tenants, tenant, tenant_made},
    artifacts::AtServer,
    fleet::{dead_letter, executor, image},
    jobs::{cancel, job, logs},
    lists::audit,
    run::{run, submit},
    secrets::secret,
    top::top,
    uploads::upload,
};
use crate::{exit, failure::Failure};

/// Most bytes of one answer: a job whose outputs are as large as the usual policy lets them be.
pub(crate) const MAX_ANSWER: usize = 256 << 20;

/// A server, and what commands have beside it.
pub(crate) struct Remote {
    pub(crate) client: Client,
    pub(crate) settings: Settings,
}

impl Remote {
    /// The server of these settings.
    pub(crate) fn new(settings: Settings) -> Result<Self, Failure> {
        let client = &settings.client;
        let server = ServerUrl::parse(&client.server, client.allow_plain_http)
            .map_err(|error| Failure::usage(format!("setting `client.server` is wrong: {error}")))?;
        let key = client.api_key()?;
        let key = ApiKey::new(key.expose())
            .map_err(|error| Failure::usage(format!("setting `client.key` is wrong: {error}")))?;
        let ca = (!client.ca_file.as_os_str().is_empty())
            .then(|| std::fs::read(&client.ca_file))
            .transpose()
            .map_err(|error| {
                let error = anyhow::Error::new(error).context(format!(
                    "setting `client.ca_file` is wrong: {} can't be read",
                    client.ca_file.display()
                ));
                Failure::new(exit::USAGE, error)
            })?;
        let client = Client::new(ClientConfig {
            server,
            key: Some(key),
            ca,
            timeout: client.timeout.as_duration(),
            patience: client.patience.as_duration(),
            max_answer: MAX_ANSWER,
        })?;
        Ok(Self { client, settings })
    }
}
