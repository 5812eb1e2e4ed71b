//! The sections of a fleet's roles: `[server]`, `[database]`, `[broker]`, `[executor]`.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use mayfly_core::{
    egress::IpNet,
    host::Posture,
    id::ExecutorId,
    image::ImageName,
    units::{ByteSize, Span},
    word::word,
};
use serde::{Deserialize, Deserializer, Serialize, de};

use crate::{ExecutorEgressSettings, SANDBOXES, Secret, SettingsError};

/// `mayfly server`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerSettings {
    /// Where the API listens: an address and a port; port 0 takes a free one.
    pub listen: SocketAddr,
    /// By which clients and executors reach the server, `http://…` or `https://…`; empty: clients by where it listens, and
    /// executors by the broker alone.
    pub public_url: String,
    /// An order to an executor that is longer than this leaves out what its job brings, which is fetched by an address
    /// below `public_url`.
    pub input_in_message: ByteSize,
    /// A report with more output than this leaves it out: its executor leaves it at an address below `public_url` before.
    pub output_in_message: ByteSize,
    /// The certificate chain of the API, in PEM; empty: no TLS.
    pub tls_cert: PathBuf,
    /// Its key, in PEM.
    pub tls_key: PathBuf,
    /// The pools that it dispatches to.
    #[serde(deserialize_with = "list")]
    pub pools: Vec<String>,
    /// How long requests that are under way may take once it is asked to stop.
    pub grace: Span,
    /// The secret of result tokens, by which an executor proves that it was given an attempt: 32 characters or more that
    /// nobody can guess, the same for all replicas.
    pub token_key: Secret,
    /// A file that holds it.
    pub token_key_file: PathBuf,
    /// The key under which tenants' named secrets are sealed in the database: 32 characters or more that nobody can guess,
    /// the same for all replicas; empty: none are kept. Whoever loses it loses them.
    pub secrets_key: Secret,
    /// A file that holds it.
    pub secrets_key_file: PathBuf,
    /// The key that was in use before: what was sealed with it is opened still.
    pub secrets_key_before: Secret,
    /// A file that holds it.
    pub secrets_key_before_file: PathBuf,
}

/// The database of a fleet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatabaseSettings {
    /// For `mayfly migrate`: the role that owns the tables.
    pub owner_url: Secret,
    /// A file that holds it.
    pub owner_url_file: PathBuf,
    /// For the API, under the tenants' row policies.
    pub api_url: Secret,
    /// A file that holds it.
    pub api_url_file: PathBuf,
    /// For scheduler, recorder and reconciler, across tenants.
    pub engine_url: Secret,
    /// A file that holds it.
    pub engine_url_file: PathBuf,
    /// Most connections of each of the two in one process.
    pub connections: u32,
}

/// The message broker of a fleet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BrokerSettings {
    /// `amqp://user:password@host:port/vhost`, or `amqps://…`.
    pub url: Secret,
    /// A file that holds it.
    pub url_file: PathBuf,
    /// The management API, `http://user:password@host:15672`, for `mayfly executor enroll`.
    pub management_url: Secret,
    /// A file that holds it.
    pub management_url_file: PathBuf,
}

/// `mayfly executor`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecutorSettings {
    /// Its id, the same across restarts, from `mayfly executor enroll`.
    pub id: String,
    /// The pool whose jobs it takes.
    pub pool: String,
    /// Jobs that it runs at a time.
    pub slots: u32,
    /// The images that it has before it takes a job, by name: `repository@sha256:…`, which is pulled, or the id of an
    /// image that is there. None: `python`, as `image.python` says.
    #[serde(default)]
    pub images: BTreeMap<String, String>,
    /// How long running jobs may take to end once it is asked to stop.
    pub grace: Span,
    /// What is demanded of its host.
    #[serde(deserialize_with = "word")]
    pub posture: Posture,
    /// Floors that its host may miss under `production` nevertheless, by the names of `mayfly doctor`.
    #[serde(default, deserialize_with = "list")]
    pub accept: Vec<String>,
    /// How often it is tried again whether sandboxes hold on its host: at most this long after the last time.
    pub self_test_every: Span,
    /// Addresses and ranges of the deployment's own services, beside the broker and the engine: no job reaches them, whatever
    /// its policy allows.
    #[serde(default, deserialize_with = "list")]
    pub own_addresses: Vec<String>,
    /// Credentials that requests of jobs get here.
    #[serde(default)]
    pub egress: ExecutorEgressSettings,
}

/// Most images of an executor: as many as a heartbeat may list.
pub const MOST_IMAGES: usize = 256;
/// Most slots: what one process has users for.
const MOST_SLOTS: u32 = SANDBOXES;
/// What may be left in a message: a megabyte is no trouble to a broker, sixteen are the most that a job brings.
const IN_MESSAGE: (ByteSize, ByteSize) = (ByteSize::kib(1), ByteSize::mib(16));
/// How often self-tests may be made: each keeps a slot busy for a while, and one that is never made proves nothing.
const SELF_TEST_EVERY: (Span, Span) = (Span::seconds(600), Span::seconds(30 * 24 * 3600));
/// How long a drain may take.
const GRACE: (Span, Span) = (Span::millis(0), Span::seconds(24 * 3600));

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8420)),
            public_url: String::new(),
            input_in_message: ByteSize::kib(64),
            output_in_message: ByteSize::kib(256),
            tls_cert: PathBuf::new(),
            tls_key: PathBuf::new(),
            pools: vec!["default".to_owned()],
            grace: Span::seconds(20),
            token_key: Secret::default(),
            token_key_file: PathBuf::new(),
            secrets_key: Secret::default(),
            secrets_key_file: PathBuf::new(),
            secrets_key_before: Secret::default(),
            secrets_key_before_file: PathBuf::new(),
        }
    }
}

impl Default for DatabaseSettings {
    fn default() -> Self {
        Self {
            owner_url: Secret::default(),
            owner_url_file: PathBuf::new(),
            api_url: Secret::default(),
            api_url_file: PathBuf::new(),
            engine_url: Secret::default(),
            engine_url_file: PathBuf::new(),
            connections: 16,
        }
    }
}

impl Default for BrokerSettings {
    fn default() -> Self {
        Self {
            url: Secret::default(),
            url_file: PathBuf::new(),
            management_url: Secret::default(),
            management_url_file: PathBuf::new(),
        }
    }
}

impl Default for ExecutorSettings {
    fn default() -> Self {
        Self {
            id: String::new(),
            pool: "default".to_owned(),
            slots: 2,
            images: BTreeMap::new(),
            grace: Span::seconds(60),
            posture: Posture::Production,
            accept: Vec::new(),
            self_test_every: Span::seconds(24 * 3600),
            own_addresses: Vec::new(),
            egress: ExecutorEgressSettings::default(),
        }
    }
}

/// Fewest bytes of a secret that nobody can guess.
const TOKEN_KEY_BYTES: usize = 32;

impl ServerSettings {
    /// The secret of result tokens.
    ///
    /// # Errors
    /// It is not given, can't be read, or is short.
    pub fn token_key(&self) -> Result<Secret, SettingsError> {
        let path = "server.token_key";
        let key = needed(path, self.token_key.or_file(path, &self.token_key_file)?)?;
        if key.expose().len() < TOKEN_KEY_BYTES {
            return impossible(
                path,
                &format!("it must have at least {TOKEN_KEY_BYTES} characters"),
            );
        }
        Ok(key)
    }

    /// The key for named secrets and the one before, where there are any.
    ///
    /// # Errors
    /// One that can't be read or is short, and one before where there is none in use.
    pub fn secrets_keys(&self) -> Result<Option<(Secret, Option<Secret>)>, SettingsError> {
        let (path, path_before) = ("server.secrets_key", "server.secrets_key_before");
        let key = self.secrets_key.or_file(path, &self.secrets_key_file)?;
        let before = self
            .secrets_key_before
            .or_file(path_before, &self.secrets_key_before_file)?;
        for (path, key) in [(path, &key), (path_before, &before)] {
            if key
                .as_ref()
                .is_some_and(|key| key.expose().len() < TOKEN_KEY_BYTES)
            {
                return impossible(
                    path,
                    &format!("it must have at least {TOKEN_KEY_BYTES} characters"),
                );
            }
        }
        match (key, before) {
            (None, Some(_)) => impossible(path_before, "give `server.secrets_key`, too"),
            (key, before) => Ok(key.map(|key| (key, before))),
        }
    }

    pub(crate) fn check(&self) -> Result<(), SettingsError> {
        if self.pools.is_empty() {
            return impossible("server.pools", "name at least one pool");
        }
        for pool in &self.pools {
            if !is_pool(pool) {
                return impossible("server.pools", &not_a_pool(pool));
            }
        }
        if self.tls_cert.as_os_str().is_empty() != self.tls_key.as_os_str().is_empty() {
            return impossible(
                "server.tls_key",
                "give `server.tls_cert` and `server.tls_key`, or neither",
            );
        }
        if !self.public_url.is_empty() && !is_base(&self.public_url) {
            return impossible(
                "server.public_url",
                "it must be `http://HOST` or `https://HOST`, with a port and a path where they are needed, and nothing else",
            );
        }
        for (path, size) in [
            ("server.input_in_message", self.input_in_message),
            ("server.output_in_message", self.output_in_message),
        ] {
            if !(IN_MESSAGE.0..=IN_MESSAGE.1).contains(&size) {
                let why = format!("it must be between {} and {}", IN_MESSAGE.0, IN_MESSAGE.1);
                return impossible(path, &why);
            }
        }
        bounded("server.grace", self.grace)
    }
}

impl DatabaseSettings {
    /// The owner's address.
    ///
    /// # Errors
    /// It is not given, or can't be read.
    pub fn owner(&self) -> Result<Secret, SettingsError> {
        let path = "database.owner_url";
        needed(path, self.owner_url.or_file(path, &self.owner_url_file)?)
    }

    /// The API's address.
    ///
    /// # Errors
    /// It is not given, or can't be read.
    pub fn api(&self) -> Result<Secret, SettingsError> {
        let path = "database.api_url";
        needed(path, self.api_url.or_file(path, &self.api_url_file)?)
    }

    /// The engine's address.
    ///
    /// # Errors
    /// It is not given, or can't be read.
    pub fn engine(&self) -> Result<Secret, SettingsError> {
        let path = "database.engine_url";
        needed(path, self.engine_url.or_file(path, &self.engine_url_file)?)
    }

    pub(crate) fn check(&self) -> Result<(), SettingsError> {
        if (2..=1000).contains(&self.connections) {
            return Ok(());
        }
        impossible("database.connections", "it must be between 2 and 1000")
    }
}

impl BrokerSettings {
    /// The broker's address.
    ///
    /// # Errors
    /// It is not given, or can't be read.
    pub fn amqp(&self) -> Result<Secret, SettingsError> {
        let path = "broker.url";
        needed(path, self.url.or_file(path, &self.url_file)?)
    }

    /// The address of its management API, where there is one.
    ///
    /// # Errors
    /// It can't be read.
    pub fn management(&self) -> Result<Option<Secret>, SettingsError> {
        self.management_url
            .or_file("broker.management_url", &self.management_url_file)
    }
}

impl ExecutorSettings {
    /// The executor's id.
    ///
    /// # Errors
    /// It is not given, or is none.
    pub fn id(&self) -> Result<ExecutorId, SettingsError> {
        if self.id.is_empty() {
            return Err(SettingsError::Missing {
                path: "executor.id".to_owned(),
                hint: "`mayfly executor enroll NAME` makes one",
            });
        }
        self.id
            .parse()
            .or_else(|error: mayfly_core::id::ParseIdError| impossible("executor.id", &error.to_string()))
    }

    /// What no job reaches.
    ///
    /// # Errors
    /// A text that is no address and no range.
    pub fn own_addresses(&self) -> Result<Vec<IpNet>, SettingsError> {
        let net = |text: &String| {
            let net = text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
            net.or_else(|_| {
                let why = format!("{text:?} is no address and no range: `203.0.113.0/24`");
                impossible("executor.own_addresses", &why)
            })
        };
        self.own_addresses.iter().map(net).collect()
    }

    pub(crate) fn check(&self) -> Result<(), SettingsError> {
        self.own_addresses()?;
        self.egress.check()?;
        if !is_pool(&self.pool) {
            return impossible("executor.pool", &not_a_pool(&self.pool));
        }
        if !(1..=MOST_SLOTS).contains(&self.slots) {
            return impossible(
                "executor.slots",
                &format!("it must be between 1 and {MOST_SLOTS}"),
            );
        }
        if self.images.len() > MOST_IMAGES {
            return impossible(
                "executor.images",
                &format!(
                    "there are {}, and at most {MOST_IMAGES} fit into a heartbeat",
                    self.images.len()
                ),
            );
        }
        for (name, reference) in &self.images {
            let path = format!("executor.images.{name}");
            if !matches!(name.parse(), Ok(ImageName::Catalog(_))) {
                return impossible(&path, "it is no name of the catalog");
            }
            if !is_fixed(reference) {
                return impossible(
                    &path,
                    "it must be `repository@sha256:…` or an image's whole id, since a tag can be moved",
                );
            }
        }
        if !(SELF_TEST_EVERY.0..=SELF_TEST_EVERY.1).contains(&self.self_test_every) {
            return impossible(
                "executor.self_test_every",
                &format!(
                    "{} is not between {} and {}; who wants none says so by `self_test` in `executor.accept`",
                    self.self_test_every, SELF_TEST_EVERY.0, SELF_TEST_EVERY.1
                ),
            );
        }
        bounded("executor.grace", self.grace)
    }
}

/// `repository@sha256:…` or `sha256:…`.
fn is_fixed(reference: &str) -> bool {
    matches!(reference.parse(), Ok(ImageName::Digest { .. }))
        || reference.parse::<mayfly_core::digest::Digest>().is_ok()
}

/// An address that paths can be appended to.
fn is_base(url: &str) -> bool {
    let rest = url
        .strip_prefix("https://")
        .or_else(|| url.strip_prefix("http://"));
    rest.is_some_and(|rest| {
        let host = rest.split('/').next().unwrap_or_default();
        let clean =
            |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#' | b'@' | b'"' | b'<' | b'>');
        !host.is_empty() && !host.starts_with(':') && url.len() <= 1024 && rest.bytes().all(clean)
    })
}

/// Pools name queues and stand in patterns of permissions: letters, digits, `_` and `-`.
fn is_pool(name: &str) -> bool {
    let allowed =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_');
    !name.is_empty() && name.len() <= 64 && name.bytes().all(allowed)
}

/// A name that is given for a pool, where it may be one.
///
/// # Errors
/// What a pool's name is made of, as text for whoever gave this one.
pub fn pool(name: &str) -> Result<&str, String> {
    if is_pool(name) {
        Ok(name)
    } else {
        Err(not_a_pool(name))
    }
}

fn not_a_pool(name: &str) -> String {
    let shown: String = name.chars().take(80).collect();
    format!("`{shown}` is no pool: up to 64 lower-case letters, digits, `-` and `_`")
}

fn bounded(path: &str, value: Span) -> Result<(), SettingsError> {
    if (GRACE.0..=GRACE.1).contains(&value) {
        return Ok(());
    }
    impossible(path, &format!("{value} is more than {}", GRACE.1))
}

fn needed(path: &str, value: Option<Secret>) -> Result<Secret, SettingsError> {
    value.ok_or_else(|| SettingsError::Missing {
        path: path.to_owned(),
        hint: "give it, or the path of a file that holds it as `…_file`",
    })
}

fn impossible<T>(path: &str, why: &str) -> Result<T, SettingsError> {
    Err(SettingsError::Impossible {
        path: path.to_owned(),
        why: why.to_owned(),
    })
}

/// A list, or one text with commas, as a variable holds it.
pub(crate) fn list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    struct List;

    impl<'de> de::Visitor<'de> for List {
        type Value = Vec<String>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a list, or a text with commas")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
            let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
            Ok(words.map(ToOwned::to_owned).collect())
        }

        fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let mut words = Vec::new();
            while let Some(word) = list.next_element()? {
                words.push(word);
            }
            Ok(words)
        }
    }

    deserializer.deserialize_any(List)
}

#[cfg(test)]
mod tests;
