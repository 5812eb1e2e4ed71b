use std::sync::Arc;

use super::{
    Subject,
    ground::{Ground, batch_in, never, soon, woken},
    samples,
};
use crate::seam::{LinkEvent, ReplyAddress};

pub(super) async fn a_reply_reaches_the_link_that_asked_and_no_other(subject: Arc<dyn Subject>) {
    let ground = Ground::declared(subject).await;
    let (mut a, mut b) = (ground.executor(1).await, ground.executor(1).await);
    a.say(1).await;
    b.say(1).await;
    let mut recorder = ground.recorder().await;
    let taken = recorder.take(2).await;
    // Twice each, in turn, so that a reply in the wrong place is the wrong one.
    for processed in 1..=2 {
        for incoming in &taken {
            let to = incoming.reply_to.as_ref().expect("a batch has an address");
            let reply = samples::reply(batch_in(incoming).session, processed);
            soon("the reply's end", ground.queue.reply(to, &reply)).await;
        }
    }
    for executor in [&mut a, &mut b] {
        for processed in 1..=2 {
            assert_eq!(
                executor.reply().await,
                samples::reply(executor.session, processed)
            );
        }
    }
    // Also while it waits, and no further one comes.
    let to = taken[0].reply_to.as_ref().expect("a batch has an address");
    let (asked, other) = match batch_in(&taken[0]).session {
        session if session == a.session => (&mut a, &mut b),
        _ => (&mut b, &mut a),
    };
    let reply = samples::reply(asked.session, 3);
    let event = woken("the reply", asked.link.next(), ground.queue.reply(to, &reply)).await;
    assert!(matches!(event, LinkEvent::Reply(read) if read == reply));
    never("a further reply", other.link.next()).await;
}

pub(super) async fn a_reply_to_a_link_that_is_gone_is_lost(subject: Arc<dyn Subject>) {
    let ground = Ground::declared(subject).await;
    let gone = ground.executor(1).await;
    gone.say(1).await;
    let mut recorder = ground.recorder().await;
    let old = recorder.one().await;
    let old_address = old.reply_to.as_ref().expect("a batch has an address");
    let id = gone.id;
    drop(gone);
    // The same executor, on another link.
    let mut back = ground.executor_of(id, 1).await;
    let late = samples::reply(batch_in(&old).session, 1);
    soon("the reply's end", ground.queue.reply(old_address, &late)).await;
    back.say(1).await;
    let new = recorder.one().await;
    let new_address = new.reply_to.as_ref().expect("a batch has an address");
    let reply = samples::reply(back.session, 1);
    soon("the reply's end", ground.queue.reply(new_address, &reply)).await;
    assert_eq!(back.reply().await, reply);
}

pub(super) async fn a_reply_goes_to_no_address_that_the_broker_did_not_give(subject: Arc<dyn Subject>) {
    let ground = Ground::declared(subject).await;
    let executor = ground.consuming(1).await;
    let reply = samples::reply(executor.session, 1);
    for address in [
        "",
        "mayfly.jobs",
        &format!("mayfly.jobs.{}", ground.pool),
        "\u{0}",
        &"x".repeat(300),
    ] {
        soon(
            "the reply's end",
            ground.queue.reply(&ReplyAddress(address.into()), &reply),
        )
        .await;
    }
    let message = ground.publish().await;
    let mut executor = executor;
    executor.delivery_of(&message).await;
    never("a reply", executor.link.next()).await;
}
