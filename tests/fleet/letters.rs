//! Dead letters on a real broker: kept, listed and replayed by any server, with one result a job whatever is done.

use std::num::NonZeroU16;

use mayfly_core::{account::Role as KeyRole, id::ExecutorId, outcome::EndState};
use mayfly_dispatch::message::DispatchMessage;
use mayfly_queue::{
    rabbitmq::{RabbitConfig, RabbitQueue},
    seam::{DeliveryTag, ExecutorLink, LinkEvent, Queue as _},
};
use serde_json::{Value, json};

use crate::support::{Fleet, SOON, wait_for};

/// An executor that takes messages and can read none of them.
pub(crate) struct Unable {
    queue: RabbitQueue,
    id: ExecutorId,
    link: Box<dyn ExecutorLink>,
}

impl Unable {
    pub(crate) async fn join(fleet: &Fleet) -> Self {
        let settings = fleet.enroll("unable");
        let id: ExecutorId = settings["MAYFLY_EXECUTOR__ID"].parse().expect("it is an id");
        let config = RabbitConfig::new(settings["MAYFLY_BROKER__URL"].clone());
        let queue = RabbitQueue::connect(config).expect("it is an address");
        let link = Self::consume(&queue, id).await;
        Self { queue, id, link }
    }

    async fn consume(queue: &RabbitQueue, id: ExecutorId) -> Box<dyn ExecutorLink> {
        let one = NonZeroU16::new(1).expect("one is not zero");
        let link = queue
            .join("default", id, one)
            .await
            .expect("the broker lets it in");
        link.set_consuming(true).await.expect("the queue is there");
        link
    }

    async fn delivery(&mut self) -> (DeliveryTag, Box<DispatchMessage>) {
        tokio::time::timeout(SOON, async {
            loop {
                match self.link.next().await {
                    LinkEvent::Delivery(delivery) => {
                        return (delivery.tag, delivery.message.expect("servers write messages"));
                    }
                    LinkEvent::Reply(_) | LinkEvent::Control(_) => {}
                    // An executor comes back whenever the broker has sent it away, and what it held is delivered again.
                    over @ (LinkEvent::Cancelled | LinkEvent::Disconnected { .. }) => {
                        eprintln!("{over:?}: joins again");
                        self.link = Self::consume(&self.queue, self.id).await;
                    }
                }
            }
        })
        .await
        .expect("it is delivered")
    }

    /// Takes a message, says that nobody will ever read it, and returns which publication it was.
    pub(crate) async fn reject(&mut self) -> u32 {
        self.refuse().await.publication
    }

    /// The same, with the message itself.
    pub(crate) async fn refuse(&mut self) -> Box<DispatchMessage> {
        let (tag, message) = self.delivery().await;
        self.link
            .dead_letter(tag)
            .await
            .expect("the delivery is outstanding");
        message
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poison_jobs_letters_are_listed_and_replayed_by_any_server() {
    let Some(mut fleet) = Fleet::start(0).await else {
        return;
    };
    fleet.add_replica();
    let [one, two] = [
        fleet.api_of(0, KeyRole::Operator).await,
        fleet.api_of(1, KeyRole::Operator).await,
    ];
    let mut unable = Unable::join(&fleet).await;
    let job = fleet.submit("print('read')", json!({})).await;
    // Each is published again at once, and not after the ten seconds in which a lost one is missed.
    assert_eq!([unable.reject().await, unable.reject().await], [1, 2]);
    let (third, message) = unable.delivery().await;
    assert_eq!(message.publication, 3);
    let letters = wait_for(SOON, "both letters to be listed", async || {
        let list: Value = one.get("/v1/dead-letters").await.json().await.expect("JSON");
        let letters = list["dead_letters"].as_array().expect("a list").clone();
        (letters.len() == 2).then_some(letters)
    })
    .await;
    let listed: Value = two.get("/v1/dead-letters").await.json().await.expect("JSON");
    assert_eq!(
        listed["dead_letters"].as_array(),
        Some(&letters),
        "both servers show the same"
    );
    for letter in &letters {
        assert_eq!(letter["why"], "rejected");
        assert_eq!(letter["job"], job.to_string());
        assert_eq!(letter["attempt"], message.attempt.to_string());
        assert!(
            letter["at"].is_string() && !letter.to_string().contains("print"),
            "{letter}"
        );
    }
    let id = |index: usize| letters[index]["id"].as_str().expect("an id").to_owned();
    let replay = |index: usize| format!("/v1/dead-letters/{}/replay", id(index));

    // A viewer may not.
    let viewer = fleet.api_of(0, KeyRole::Viewer).await;
    assert_eq!(viewer.act("POST", &replay(0)).await.0, 403);

    // The first one is replayed by both servers at once: one of them does it.
    let path = replay(0);
    let (first, second) = tokio::join!(one.act("POST", &path), two.act("POST", &path));
    let mut answers = [first.0, second.0];
    answers.sort_unstable();
    assert_eq!(answers, [204, 404]);
    // The one that is held and the one of the replay are the same attempt, and either may start it.
    unable
        .link
        .hand_back(third)
        .await
        .expect("the delivery is outstanding");
    drop(unable);
    fleet.add_executor(1, &[]);
    assert_eq!(fleet.end_of(job, SOON).await, EndState::Succeeded);
    assert_eq!(fleet.details(job).await.attempts.len(), 1);

    // The job is over, and a job has one result.
    let (status, problem) = two.act("POST", &replay(1)).await;
    assert_eq!((status, &problem["code"]), (409, &"conflict".into()));
    assert_eq!(
        one.act("DELETE", &format!("/v1/dead-letters/{}", id(1))).await.0,
        204
    );
    let list: Value = two.get("/v1/dead-letters").await.json().await.expect("JSON");
    assert_eq!(list["dead_letters"], json!([]));
    fleet.every_job_has_one_result();
    for kind in ["dead_letter_replayed", "dead_letter_discarded"] {
        let on_record = format!(
            "SELECT count(*) FROM audit_events WHERE kind = '{kind}' AND job_id = '{job}' \
             AND convert_from(body, 'UTF8') LIKE '%\"by\":%'"
        );
        assert_eq!(fleet.services.count(&on_record), 1, "{kind}");
    }
    fleet.no_container_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_nobody_can_read_ends_and_its_letters_stay() {
    let Some(fleet) = Fleet::start(0).await else {
        return;
    };
    let operator = fleet.api_of(0, KeyRole::Operator).await;
    let mut unable = Unable::join(&fleet).await;
    let job = fleet.submit("print('unread')", json!({})).await;
    let mut publications = Vec::new();
    for _ in 0..5 {
        publications.push(unable.reject().await);
    }
    assert_eq!(publications, [1, 2, 3, 4, 5]);
    assert_eq!(fleet.end_of(job, SOON).await, EndState::Error);
    let printed = fleet.command(&operator, &["dead-letter", "list"]);
    assert_eq!(printed.matches(&job.to_string()).count(), 5, "{printed}");
    assert!(printed.contains("rejected"), "{printed}");
    let printed = fleet.command(&operator, &["dead-letter", "list", "--json", "--limit", "1"]);
    let letter: Value = serde_json::from_str(&printed).expect("a line of JSON");
    let id = letter["id"].as_str().expect("an id");
    let said = fleet.refused(&operator, &["dead-letter", "replay", &id[..12]]);
    assert!(said.contains("one result"), "{said}");
    fleet.command(&operator, &["dead-letter", "discard", &id[..12]]);
    let printed = fleet.command(&operator, &["dead-letter", "list"]);
    assert_eq!(printed.matches(&job.to_string()).count(), 4, "{printed}");
    fleet.every_job_has_one_result();
}
