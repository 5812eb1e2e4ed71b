//! The broker: ended, emptied, without what was declared on it, out of memory and disk.

use reqwest::Method;
use serde_json::{Value, json};

use super::{A_WHILE, lasts};
use crate::{
    battery::{ground::Ground, run::Jobs},
    support::{Do, SOON, wait_for},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    Restarted,
    Killed,
    Wiped,
    UserLost,
    JobsQueueDeleted,
    JobsQueuePurged,
    EventsQueueDeleted,
    DeadLettersDeleted,
    ExchangesDeleted,
    ConnectionsClosed,
    MemoryAlarm,
    DiskAlarm,
}

/// The broker's management API.
pub struct Broker {
    http: reqwest::Client,
    url: String,
    user: String,
    password: String,
}

const JOBS: &str = "mayfly.jobs.default";
const EVENTS: &str = "mayfly.events.default";

impl Broker {
    pub fn new(amqp: &str, management: &str) -> Self {
        let (credentials, _) = amqp.rsplit_once('@').expect("an address has credentials");
        let (user, password) = credentials
            .trim_start_matches("amqp://")
            .split_once(':')
            .expect("a user and a password");
        let (_, host) = management.rsplit_once('@').expect("an address has credentials");
        let http = reqwest::Client::builder().timeout(SOON).build();
        Self {
            http: http.expect("a client of HTTP"),
            url: format!("http://{}", host.trim_end_matches('/')),
            user: user.to_owned(),
            password: password.to_owned(),
        }
    }

    pub async fn ask(&self, method: Method, path: &str, body: Option<Value>) -> Value {
        let mut request = self
            .http
            .request(method.clone(), format!("{}/api/{path}", self.url))
            .basic_auth(&self.user, Some(&self.password));
        if let Some(body) = body {
            request = request.json(&body);
        }
        let answer = request.send().await.expect("the management API answers");
        let (status, text) = (answer.status(), answer.text().await.unwrap_or_default());
        assert!(status.is_success(), "{method} {path}: {status}: {text}");
        serde_json::from_str(&text).unwrap_or(Value::Null)
    }

    async fn delete(&self, path: &str) {
        self.ask(Method::DELETE, path, None).await;
    }

    async fn permissions(&self, user: &str) -> Value {
        let mut found = self
            .ask(Method::GET, &format!("permissions/%2F/{user}"), None)
            .await;
        found
            .as_object_mut()
            .expect("an object")
            .retain(|key, _| ["configure", "write", "read"].contains(&&**key));
        found
    }

    async fn permit(&self, user: &str, permissions: Value) {
        self.ask(Method::PUT, &format!("permissions/%2F/{user}"), Some(permissions))
            .await;
    }
}

/// User and password in an address.
pub fn credentials(url: &str) -> (String, String) {
    let (credentials, _) = url.rsplit_once('@').expect("an address has credentials");
    let (user, password) = credentials
        .trim_start_matches("amqp://")
        .split_once(':')
        .expect("a user and a password");
    (user.to_owned(), password.to_owned())
}

impl Fault {
    pub async fn strike(self, ground: &mut Ground, jobs: &mut Jobs) {
        ground.strikes(&format!("broker: {self:?}"), None);
        let broker = &ground.broker;
        match self {
            Self::Restarted | Self::Killed => {
                let end = if self == Self::Killed { Do::Kill } else { Do::Stop };
                ground.fleet.services.broker(end);
                jobs.submit_meanwhile(2);
                ground.fleet.services.broker(Do::Start);
            }
            Self::Wiped => {
                jobs.submit_meanwhile(2);
                ground.fleet.services.wipe_broker().await;
            }
            Self::UserLost => {
                let (user, password) =
                    credentials(&ground.fleet.executors[0].settings()["MAYFLY_BROKER__URL"]);
                let permissions = broker.permissions(&user).await;
                broker.delete(&format!("users/{user}")).await;
                jobs.submit_meanwhile(2);
                lasts(A_WHILE).await;
                let body = json!({ "password": password, "tags": "" });
                broker
                    .ask(Method::PUT, &format!("users/{user}"), Some(body))
                    .await;
                broker.permit(&user, permissions).await;
            }
            Self::JobsQueueDeleted => broker.delete(&format!("queues/%2F/{JOBS}")).await,
            Self::JobsQueuePurged => {
                // More than there are slots, so that there is something in it.
                for _ in 0..4 {
                    jobs.submit(&ground.recorder, 300).await;
                }
                broker.delete(&format!("queues/%2F/{JOBS}/contents")).await;
            }
            Self::EventsQueueDeleted => broker.delete(&format!("queues/%2F/{EVENTS}")).await,
            Self::DeadLettersDeleted => broker.delete("queues/%2F/mayfly.dead").await,
            Self::ExchangesDeleted => {
                for exchange in ["mayfly.jobs", "mayfly.events", "mayfly.dead"] {
                    broker.delete(&format!("exchanges/%2F/{exchange}")).await;
                }
            }
            Self::ConnectionsClosed => {
                ground
                    .fleet
                    .services
                    .ctl(&["close_all_connections", "by the test"]);
            }
            Self::MemoryAlarm => {
                alarm(
                    ground,
                    jobs,
                    &["set_vm_memory_high_watermark", "0"],
                    &["set_vm_memory_high_watermark", "0.4"],
                )
                .await;
            }
            Self::DiskAlarm => {
                alarm(
                    ground,
                    jobs,
                    &["set_disk_free_limit", "900000GB"],
                    &["set_disk_free_limit", "50MB"],
                )
                .await;
            }
        }
    }
}

/// The broker takes no messages for a while.
async fn alarm(ground: &Ground, jobs: &mut Jobs, on: &[&str], off: &[&str]) {
    let told = |log: String| log.matches("the broker has an alarm").count();
    let before = told(ground.fleet.servers[0].log());
    ground.fleet.services.ctl(on);
    jobs.submit_meanwhile(2);
    let servers = &ground.fleet.servers;
    wait_for(SOON, "the server to learn of the alarm", async || {
        (told(servers[0].log()) > before).then_some(())
    })
    .await;
    lasts(A_WHILE).await;
    ground.fleet.services.ctl(off);
}
