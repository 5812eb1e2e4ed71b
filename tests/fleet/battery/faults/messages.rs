//! Messages that nobody should have sent: copies, old ones, rubbish, what somebody else says, and lies.

use lapin::{
    BasicProperties, Channel, Confirmation,
    options::{
        BasicGetOptions, BasicPublishOptions, ConfirmSelectOptions, QueueBindOptions, QueueDeclareOptions,
    },
    types::FieldTable,
};
use mayfly_core::id::{AttemptId, SessionId};
use serde_json::{Value, json};

use crate::{
    battery::{ground::Ground, run::Jobs},
    support::{SOON, wait_for},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    DispatchAgain,
    DispatchReordered,
    DispatchWithAnothersToken,
    DispatchOfNobody,
    MalformedJobs,
    OversizedJob,
    EventsAgain,
    EventsReordered,
    MalformedEvents,
    OversizedEvents,
    EventsOfAnother,
    EventsOfNobody,
    ExecutorLies,
}

const JOBS: (&str, &str) = ("mayfly.jobs", "default");
const EVENTS: (&str, &str) = ("mayfly.events", "events.default");
/// More than a message may have: 48 MiB.
const OVERSIZED: usize = (48 << 20) + 1;
/// As many messages as are copied.
const COPIES: usize = 6;

/// A user of the broker.
struct Speaker {
    _connection: lapin::Connection,
    channel: Channel,
    user: String,
}

impl Speaker {
    async fn new(url: &str) -> Self {
        let connection = lapin::Connection::connect(url, lapin::ConnectionProperties::default()).await;
        let connection = connection.expect("the broker can be reached");
        let channel = connection.create_channel().await.expect("a channel");
        let confirms = channel.confirm_select(ConfirmSelectOptions::default());
        confirms.await.expect("confirms");
        let (user, _) = super::broker::credentials(url);
        Self {
            _connection: connection,
            channel,
            user,
        }
    }

    /// Publishes in its own name, and waits until the broker has it.
    async fn says(&self, (exchange, key): (&str, &str), body: &[u8]) {
        let properties = BasicProperties::default()
            .with_delivery_mode(2)
            .with_user_id(self.user.as_str().into());
        self.publish((exchange, key), body, properties).await;
    }

    async fn publish(&self, (exchange, key): (&str, &str), body: &[u8], properties: BasicProperties) {
        let mandatory = BasicPublishOptions {
            mandatory: true,
            ..BasicPublishOptions::default()
        };
        let published = self
            .channel
            .basic_publish(exchange.into(), key.into(), mandatory, body, properties);
        let confirmed = published
            .await
            .expect("it is sent")
            .await
            .expect("it is answered");
        assert!(matches!(confirmed, Confirmation::Ack(None)), "{confirmed:?}");
    }

    /// A queue that gets a copy of what is published.
    async fn overhears(&self, (exchange, key): (&str, &str)) -> Overhearing<'_> {
        let exclusive = QueueDeclareOptions {
            exclusive: true,
            ..QueueDeclareOptions::default()
        };
        let queue = self
            .channel
            .queue_declare("".into(), exclusive, FieldTable::default());
        let queue = queue.await.expect("a queue").name().to_string();
        let bound = self.channel.queue_bind(
            queue.as_str().into(),
            exchange.into(),
            key.into(),
            QueueBindOptions::default(),
            FieldTable::default(),
        );
        bound.await.expect("it is bound");
        Overhearing { speaker: self, queue }
    }
}

struct Overhearing<'a> {
    speaker: &'a Speaker,
    queue: String,
}

impl Overhearing<'_> {
    /// The next so many messages, as they were said.
    async fn next(&self, count: usize) -> Vec<Vec<u8>> {
        let mut heard = Vec::new();
        wait_for(SOON, "messages to copy", async || {
            let get = BasicGetOptions { no_ack: true };
            let got = self
                .speaker
                .channel
                .basic_get(self.queue.as_str().into(), get)
                .await;
            heard.extend(
                got.expect("the queue is there")
                    .map(|message| message.delivery.data),
            );
            (heard.len() >= count).then_some(())
        })
        .await;
        heard
    }
}

fn parsed(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).expect("messages are JSON")
}

/// What is no message of any kind.
fn malformed() -> [Vec<u8>; 6] {
    [
        Vec::new(),
        b"\xff\x00 no JSON".to_vec(),
        b"{\"v\":0}".to_vec(),
        b"{\"v\":1,\"job\":17}".to_vec(),
        vec![b'['; 100_000],
        json!({ "v": 1, "executor": "nobody", "session": "none", "first": -1, "events": [] })
            .to_string()
            .into_bytes(),
    ]
}

impl Fault {
    pub async fn strike(self, ground: &mut Ground, jobs: &mut Jobs) {
        let server = Speaker::new(ground.fleet.services.amqp()).await;
        let executor = async |number: usize| {
            let settings = ground.fleet.executors[number].settings();
            Speaker::new(&settings["MAYFLY_BROKER__URL"]).await
        };
        match self {
            Self::DispatchAgain | Self::DispatchReordered => {
                let heard = overheard(&server, JOBS, ground, jobs).await;
                self.copies(ground, &server, JOBS, heard).await;
            }
            Self::DispatchWithAnothersToken => {
                let heard: Vec<Value> = overheard(&server, JOBS, ground, jobs)
                    .await
                    .iter()
                    .map(|message| parsed(message))
                    .collect();
                ground.strikes("dispatch messages with the token of another attempt", None);
                for (number, message) in heard.iter().enumerate() {
                    let mut forged = message.clone();
                    forged["token"] = heard[(number + 1) % heard.len()]["token"].clone();
                    forged["publication"] = json!(7);
                    server.says(JOBS, forged.to_string().as_bytes()).await;
                }
            }
            Self::DispatchOfNobody => {
                let heard = overheard(&server, JOBS, ground, jobs).await;
                ground.strikes("dispatch messages of attempts that nobody made", None);
                for message in heard {
                    let mut forged = parsed(&message);
                    forged["attempt"] = json!(AttemptId::new());
                    server.says(JOBS, forged.to_string().as_bytes()).await;
                }
            }
            Self::MalformedJobs => {
                ground.strikes("rubbish among the jobs", None);
                for body in malformed() {
                    server.says(JOBS, &body).await;
                }
            }
            Self::OversizedJob => {
                ground.strikes("a message that is too long among the jobs", None);
                server.says(JOBS, &vec![b' '; OVERSIZED]).await;
            }
            Self::EventsAgain | Self::EventsReordered => {
                let heard = overheard(&server, EVENTS, ground, jobs).await;
                let first = executor(0).await;
                let own = ground.first_executor();
                // What a client may say that did not hear the confirm.
                let heard = heard
                    .into_iter()
                    .filter(|message| parsed(message)["executor"] == json!(own));
                self.copies(ground, &first, EVENTS, heard.collect()).await;
            }
            Self::MalformedEvents => {
                ground.strikes("rubbish among the events", None);
                let first = executor(0).await;
                for body in malformed() {
                    first.says(EVENTS, &body).await;
                }
            }
            Self::OversizedEvents => {
                ground.strikes("a message that is too long among the events", None);
                executor(0).await.says(EVENTS, &vec![b' '; OVERSIZED]).await;
            }
            Self::EventsOfAnother => {
                let second = executor(1).await;
                let _refused = lies(ground, jobs, &server, &second, &ground.first_executor()).await;
            }
            Self::EventsOfNobody => {
                let heard = overheard(&server, EVENTS, ground, jobs).await;
                ground.strikes("events that nobody vouches for", None);
                for body in heard {
                    server.publish(EVENTS, &body, BasicProperties::default()).await;
                }
            }
            Self::ExecutorLies => {
                // Where the fault hit nobody it is made again, and a name is taken once.
                let settings = ground.fleet.enroll(&format!("liar-{}", SessionId::new()));
                let liar = Speaker::new(&settings["MAYFLY_BROKER__URL"]).await;
                let session = lies(ground, jobs, &server, &liar, &settings["MAYFLY_EXECUTOR__ID"]).await;
                // Its session is one of the fleet's: what it said was read, and not only refused.
                let known = format!("SELECT session_id FROM sessions WHERE session_id = '{session}'");
                wait_for(SOON, "the session of who lies", async || {
                    (!ground.fleet.services.ask(&known).is_empty()).then_some(())
                })
                .await;
            }
        }
    }

    async fn copies(self, ground: &Ground, speaker: &Speaker, to: (&str, &str), mut heard: Vec<Vec<u8>>) {
        ground.strikes("messages are said again", None);
        if matches!(self, Self::DispatchReordered | Self::EventsReordered) {
            heard.reverse();
        }
        for body in heard.iter().chain(&heard) {
            speaker.says(to, body).await;
        }
    }
}

/// Messages of jobs that are under way.
async fn overheard(server: &Speaker, of: (&str, &str), ground: &Ground, jobs: &mut Jobs) -> Vec<Vec<u8>> {
    let overhearing = server.overhears(of).await;
    for _ in 0..COPIES {
        jobs.submit(&ground.recorder, 700).await;
    }
    overhearing.next(COPIES).await
}

/// Says everything that would do harm if it were believed, about attempts that others hold: that they have ended, with
/// another job's result; that they are given up; that they start; that they are held here. Returns the session that it
/// said to be.
async fn lies(
    ground: &Ground,
    jobs: &mut Jobs,
    server: &Speaker,
    liar: &Speaker,
    as_executor: &str,
) -> SessionId {
    let overhearing = server.overhears(EVENTS).await;
    for _ in 0..COPIES {
        jobs.submit(&ground.recorder, 1_500).await;
    }
    // A report to tell as another's, and what a session says of itself.
    let mut report = Value::Null;
    let report = wait_for(SOON, "a report", async || {
        let batch = parsed(&overhearing.next(1).await[0]);
        for event in batch["events"].as_array().into_iter().flatten() {
            if let Some(found) = event.pointer("/finished/report") {
                report = found.clone();
            }
        }
        (!report.is_null()).then(|| report.clone())
    })
    .await;
    // What ran beside it may have ended with it, and what comes next has no program yet.
    let anchor = jobs.submit(&ground.recorder, 3_000).await;
    let anchor = jobs.token(&anchor);
    wait_for(SOON, "a job that runs for a while", async || {
        let running = ground.recorder.under_way();
        running.iter().any(|start| start.token == anchor).then_some(())
    })
    .await;
    let started = "SELECT attempt_id FROM attempts WHERE state = 'started'";
    let held = wait_for(SOON, "attempts that others hold", async || {
        let held = ground.fleet.services.ask(started);
        (!held.is_empty()).then_some(held)
    })
    .await;
    ground.strikes("somebody lies about what others run", None);
    let session = SessionId::new();
    let opened = json!({ "opened": { "slots": 2, "pool": "default", "facts": {
        "build": "0", "reads": 1, "host": "h", "engine": "e", "kernel": "k" } } });
    let mut events = vec![opened];
    for attempt in &held {
        let token = json!("ab".repeat(32));
        events.push(json!({ "starting": { "attempt": attempt, "publication": 1, "token": token } }));
        events.push(json!({ "finished": { "attempt": attempt, "report": report } }));
        events.push(json!({ "abandoned": { "attempt": attempt, "why": "stopped", "ran": false } }));
    }
    let named: Vec<Value> = held
        .iter()
        .map(|attempt| json!({ "attempt": attempt, "phase": "running" }))
        .collect();
    let say = async |first: usize, events: &[Value], heartbeat: Value| {
        let batch = json!({ "v": 1, "executor": as_executor, "session": session, "first": first, "events": events,
                            "heartbeat": heartbeat });
        liar.says(EVENTS, batch.to_string().as_bytes()).await;
    };
    say(1, &events, json!({ "held": named, "free_slots": 0 })).await;
    say(events.len() + 1, &[json!("closed")], Value::Null).await;
    session
}
