use std::sync::Arc;

use mayfly_core::id::{AttemptId, ExecutorId, JobId};
use mayfly_dispatch::message::{Control, Order, VERSION};

use super::{
    Subject,
    ground::{Executor, Ground, never, soon, woken},
};
use crate::seam::{Closed, Heard, LinkEvent, MAX_OUTPUT_BYTES, Output, OutputListener, PublishError, Stream};

const fn control(order: Order) -> Control {
    Control { v: VERSION, order }
}

async fn order(executor: &mut Executor) -> Order {
    match soon("an order", executor.link.next()).await {
        LinkEvent::Control(control) => control.order,
        other => panic!("{other:?} came in place of an order"),
    }
}

async fn say(ground: &Ground, executor: ExecutorId, order: Order) -> Result<(), PublishError> {
    let control = control(order);
    soon(
        "the confirm",
        ground.queue.control(&ground.pool, executor, &control),
    )
    .await
}

pub(super) async fn an_order_reaches_its_executor_and_no_other(subject: Arc<dyn Subject>) {
    let ground = Ground::declared(subject).await;
    let (mut told, mut other) = (ground.executor(1).await, ground.executor(1).await);
    for wanted in [Order::Cordon, Order::Uncordon, Order::Drain, Order::Stop] {
        say(&ground, told.id, wanted)
            .await
            .expect("the order is passed on");
        assert_eq!(order(&mut told).await, wanted);
    }
    // Also to one that waits.
    let id = other.id;
    let say = async {
        say(&ground, id, Order::Drain)
            .await
            .expect("the order is passed on")
    };
    let event = woken("the order", other.link.next(), say).await;
    assert!(
        matches!(event, LinkEvent::Control(control) if control.order == Order::Drain),
        "{event:?}"
    );
    never("another's order", told.link.next()).await;
}

pub(super) async fn an_order_for_an_executor_that_is_not_there_is_unroutable(subject: Arc<dyn Subject>) {
    let ground = Ground::declared(subject).await;
    let executor = ground.executor(1).await;
    let elsewhere = Ground {
        subject: Arc::clone(&ground.subject),
        queue: ground.subject.queue(),
        pool: format!("{}-2", ground.pool),
    };
    for published in [
        say(&ground, ExecutorId::new(), Order::Stop).await,
        say(&elsewhere, executor.id, Order::Stop).await,
    ] {
        assert!(
            matches!(published, Err(PublishError::Unroutable { .. })),
            "{published:?}"
        );
    }
}

fn output(executor: &Executor, job: JobId, offset: u64) -> Output {
    Output {
        job,
        attempt: AttemptId::new(),
        session: executor.session,
        stream: if offset == 0 {
            Stream::Stdout
        } else {
            Stream::Stderr
        },
        offset,
        bytes: vec![0, 255, b'x'],
    }
}

async fn listen(ground: &Ground, job: JobId) -> Box<dyn OutputListener> {
    let listener = soon("the listener", ground.queue.listen(job)).await;
    listener.unwrap_or_else(|error| panic!("output can be listened to: {error}"))
}

async fn hear(listener: &mut dyn OutputListener) -> Heard {
    soon("output", listener.next())
        .await
        .expect("the listener stands")
}

pub(super) async fn output_reaches_whoever_listens_to_its_job_and_tells_who_has_sent_it(
    subject: Arc<dyn Subject>,
) {
    let ground = Ground::declared(subject).await;
    let (one, two) = (ground.executor(1).await, ground.executor(1).await);
    let (job, other) = (JobId::new(), JobId::new());
    let (mut first, mut second) = (listen(&ground, job).await, listen(&ground, job).await);
    let mut elsewhere = listen(&ground, other).await;
    let said = [
        output(&one, job, 0),
        output(&one, job, 3),
        output(&one, other, u64::MAX / 2),
    ];
    for output in &said {
        one.events.publish_output(output.clone());
    }
    for listener in [&mut first, &mut second] {
        for expected in &said[..2] {
            let heard = hear(&mut **listener).await;
            assert_eq!((heard.by, &heard.output), (Some(one.id), expected));
        }
    }
    assert_eq!(hear(&mut *elsewhere).await.output, said[2]);
    // Whatever session another one says it is of, it is known who it is.
    let lie = Output {
        session: one.session,
        ..output(&two, job, 9)
    };
    two.events.publish_output(lie.clone());
    let heard = hear(&mut *first).await;
    assert_eq!((heard.by, heard.output), (Some(two.id), lie));
    never("further output", elsewhere.next()).await;
}

pub(super) async fn output_that_nobody_listens_to_is_lost(subject: Arc<dyn Subject>) {
    let ground = Ground::declared(subject).await;
    let executor = ground.executor(1).await;
    let job = JobId::new();
    executor.events.publish_output(output(&executor, job, 0));
    // Too long: it is lost too, and costs the link nothing.
    let mut listener = listen(&ground, job).await;
    executor.events.publish_output(Output {
        bytes: vec![0; MAX_OUTPUT_BYTES + 1],
        ..output(&executor, job, 1)
    });
    let longest = Output {
        bytes: vec![7; MAX_OUTPUT_BYTES],
        ..output(&executor, job, 2)
    };
    executor.events.publish_output(longest.clone());
    let heard = loop {
        // The first one may have been on its way still when the listener came.
        let heard = hear(&mut *listener).await.output;
        if heard.offset != 0 {
            break heard;
        }
    };
    assert_eq!(heard, longest);
    executor.say(1).await;
}

pub(super) async fn a_cut_listener_says_so(subject: Arc<dyn Subject>) {
    let ground = Ground::declared(subject).await;
    let job = JobId::new();
    let mut listener = listen(&ground, job).await;
    let accident = ground.subject.cut_connections();
    let closed = woken("the end", listener.next(), accident).await;
    assert!(matches!(closed, Err(Closed::Disconnected { .. })), "{closed:?}");
    let mut listener = listen(&ground, job).await;
    let executor = ground.executor(1).await;
    let output = output(&executor, job, 0);
    executor.events.publish_output(output.clone());
    assert_eq!(hear(&mut *listener).await.output, output);
}

pub(super) async fn a_queue_that_is_used_is_connected(subject: Arc<dyn Subject>) {
    let ground = Ground::declared(subject).await;
    ground.publish().await;
    let health = ground.queue.health();
    assert!(health.connected && health.blocked.is_none(), "{health:?}");
}
