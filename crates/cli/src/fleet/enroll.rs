//! `mayfly executor enroll NAME`: an id for an executor, and a user of the broker that may do what an executor of its pool
//! has to do and no more. What it prints is what the executor's host needs. `--id` names an executor that has both by other
//! means, as the compose file's have, and has the server know its name.

use std::{fmt::Write as _, process::ExitCode};

use mayfly_core::{clock::Clock as _, id::ExecutorId};
use mayfly_queue::rabbitmq::{Enrollment, Management, ManagementError};
use mayfly_settings::Settings;
use mayfly_store::{
    error::StoreError,
    executors::{ExecutorStore as _, NewExecutor},
};
use mayfly_store_postgres::PostgresStore;
use mayfly_telemetry::SystemClock;

use super::database;
use crate::{
    args::{Common, fleet::EnrollArgs},
    context, exit,
    failure::Failure,
    terminal::print,
};

/// An executor that nobody has been before.
struct Enrolled {
    id: ExecutorId,
    name: String,
    pool: String,
    user: Enrollment,
}

/// Where the broker is, without anybody's credentials.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    scheme: String,
    host: String,
    vhost: String,
}

/// What has been done, and what is left to be done by hand.
struct Done {
    has_user: bool,
    is_listed: bool,
}

pub(crate) async fn enroll(common: &Common, args: EnrollArgs) -> Result<ExitCode, Failure> {
    let settings = context::settings(context::service(common))?;
    let pool = args.pool.unwrap_or_else(|| settings.executor.pool.clone());
    mayfly_settings::pool(&pool).map_err(|why| Failure::usage(format!("--pool: {why}")))?;
    if let Some(id) = args.id {
        let executor = NewExecutor {
            id,
            name: args.name,
            pool,
        };
        return enroll_known(&settings, executor).await;
    }
    let place = place(&settings, args.broker.as_deref())?;
    let id = ExecutorId::new();
    let enrolled = Enrolled {
        id,
        user: Enrollment::new(id, &pool),
        name: args.name,
        pool,
    };
    let management = match settings.broker.management()? {
        Some(url) => Some(Management::new(url.expose()).map_err(broker_failed)?),
        None => None,
    };
    let store = if settings.database.engine().is_ok() && settings.database.api().is_ok() {
        Some(database::open(&settings.database).await?)
    } else {
        None
    };
    if let Some(management) = &management {
        let made = management.enroll(&place.vhost(), &enrolled.user).await;
        made.map_err(broker_failed)?;
    }
    if let Some(store) = &store
        && let Err(failure) = list(store, &enrolled).await
    {
        // Nobody has been told the password.
        if let Some(management) = &management {
            management
                .withdraw(&enrolled.user.user)
                .await
                .map_err(broker_failed)?;
        }
        return Err(failure);
    }
    let done = Done {
        has_user: management.is_some(),
        is_listed: store.is_some(),
    };
    print(&text(&enrolled, &place, &done))?;
    Ok(ExitCode::from(exit::OK))
}

/// Has the server know an executor whose id and user are made already.
async fn enroll_known(settings: &Settings, executor: NewExecutor) -> Result<ExitCode, Failure> {
    let store = database::open(&settings.database).await?;
    let NewExecutor { id, name, pool } = executor.clone();
    let said = match store.enroll_executor(executor, None, SystemClock.now()).await {
        Ok(()) => "is enrolled",
        Err(error @ StoreError::ExecutorExists(_)) => {
            let there = store.find_executor(id).await?;
            if there.is_none_or(|there| (&there.name, &there.pool) != (&name, &pool)) {
                let about = format!("enrolling {name} of pool {pool} as {id}");
                return Err(Failure::from(error).about(about));
            }
            "was enrolled before"
        }
        Err(error) => return Err(error.into()),
    };
    print(&format!("executor {name} of pool {pool} {said}\n"))?;
    Ok(ExitCode::from(exit::OK))
}

fn broker_failed(error: ManagementError) -> Failure {
    let code = match error {
        ManagementError::Url => exit::USAGE,
        ManagementError::NoAnswer { .. } | ManagementError::Refused { .. } => exit::INTERNAL,
    };
    Failure::new(code, error).about("setting `broker.management_url`".to_owned())
}

/// Puts it among the executors that the server knows by name.
async fn list(store: &PostgresStore, enrolled: &Enrolled) -> Result<(), Failure> {
    let executor = NewExecutor {
        id: enrolled.id,
        name: enrolled.name.clone(),
        pool: enrolled.pool.clone(),
    };
    Ok(store.enroll_executor(executor, None, SystemClock.now()).await?)
}

/// What the executor's settings are, as variables; before them, as comments, what is left to be done.
fn text(enrolled: &Enrolled, place: &Place, done: &Done) -> String {
    let Enrolled { id, name, pool, user } = enrolled;
    let mut text =
        format!("# Executor {name} of pool {pool}. Whoever reads this file can be it: chmod 600.\n");
    let mut add = |line: &str| writeln!(text, "{line}").expect("a text takes what is written");
    if !done.has_user {
        add("# At the broker, once; the first asks for the password, which stands in the address below:");
        for command in user.commands(&place.vhost()) {
            add(&format!("#   {command}"));
        }
    }
    if !done.is_listed {
        add("# No name is kept of it: that needs `database.api_url` and `database.engine_url`.");
    }
    let Place { scheme, host, vhost } = place;
    let Enrollment { user, password, .. } = user;
    add(&format!("MAYFLY_EXECUTOR__ID={id}"));
    add(&format!("MAYFLY_EXECUTOR__POOL={pool}"));
    add(&format!(
        "MAYFLY_BROKER__URL={scheme}://{user}:{password}@{host}/{vhost}"
    ));
    text
}

/// Where executors reach the broker: by the setting that the server has, at another host where one is named.
fn place(settings: &Settings, host: Option<&str>) -> Result<Place, Failure> {
    let url = settings.broker.amqp()?;
    let place = Place::of(url.expose()).ok_or_else(|| {
        Failure::usage("setting `broker.url` is not of the form amqp://user:password@host:port/vhost")
    })?;
    Ok(match host {
        Some(host) => Place {
            host: host.to_owned(),
            ..place
        },
        None => place,
    })
}

impl Place {
    fn of(url: &str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let rest = rest.split(['?', '#']).next()?;
        let (authority, vhost) = rest.split_once('/').unwrap_or((rest, ""));
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        (matches!(scheme, "amqp" | "amqps") && !host.is_empty()).then(|| Self {
            scheme: scheme.to_owned(),
            host: host.to_owned(),
            vhost: if vhost.is_empty() { "%2f" } else { vhost }.to_owned(),
        })
    }

    /// The virtual host, as the broker calls it.
    fn vhost(&self) -> String {
        unescaped(&self.vhost).unwrap_or_else(|| self.vhost.clone())
    }
}

/// A part of an address, without its percent signs (RFC 3986, section 2.1).
pub(super) fn unescaped(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let pair = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&pair).ok()?, 16).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_a_broker_has_nobodys_credentials() {
        let place = |url| Place::of(url).map(|place| (place.host, place.vhost));
        let some = |host: &str, vhost: &str| Some((host.to_owned(), vhost.to_owned()));
        assert_eq!(place("amqp://u:p@h:5672/%2f"), some("h:5672", "%2f"));
        assert_eq!(place("amqps://u:p%40@h/fleet?heartbeat=5"), some("h", "fleet"));
        assert_eq!(place("amqp://h"), some("h", "%2f"));
        assert_eq!(place("http://u:p@h/"), None);
        assert_eq!(place("amqp:///"), None);
    }

    #[test]
    fn what_is_printed_is_a_file_of_variables_and_what_is_left_to_be_done() {
        let id = ExecutorId::new();
        let enrolled = Enrolled {
            id,
            name: "host-1".to_owned(),
            pool: "default".to_owned(),
            user: Enrollment::new(id, "default"),
        };
        let place = Place::of("amqp://server:other@broker:5672/%2f").unwrap();
        let text = |has_user, is_listed| text(&enrolled, &place, &Done { has_user, is_listed });
        let by_hand = text(false, false);
        let variables: Vec<&str> = by_hand.lines().filter(|line| !line.starts_with('#')).collect();
        let password = &enrolled.user.password;
        assert_eq!(
            variables,
            [
                format!("MAYFLY_EXECUTOR__ID={id}"),
                "MAYFLY_EXECUTOR__POOL=default".to_owned(),
                format!("MAYFLY_BROKER__URL=amqp://mayfly-executor-{id}.default:{password}@broker:5672/%2f"),
            ]
        );
        assert!(by_hand.contains("set_permissions -p '/' "), "{by_hand}");
        assert!(
            !by_hand.contains("other"),
            "the server's password is not passed on"
        );
        assert_eq!(text(true, true).lines().count(), 4, "nothing is left to be done");
    }
}
