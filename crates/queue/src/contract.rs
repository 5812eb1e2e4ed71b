//! What every queue has to pass, with the hard parts: confirms, redelivery, hand-over, prefetch, cancelation by the
//! broker, dead letters, a broker that has lost its disk. A test file of an implementation names it once:
//!
//! ```text
//! async fn subject() -> Arc<dyn Subject> { … }
//! mayfly_queue::queue_contract!(subject());
//! ```
//!
//! That makes a test of each of [`CASES`]. Every case has a subject and a pool of its own. Waits end with the state that
//! is waited for, or fail the case after [`PATIENCE`]; where a case says that something does *not* come, it looks first
//! for a state after which it would have come, and then waits for [`QUIET`].

use std::{pin::Pin, sync::Arc, time::Duration};

use async_trait::async_trait;
use mayfly_core::id::ExecutorId;
use mayfly_dispatch::message::DispatchMessage;

use crate::seam::{Origin, Queue};

mod dead_letters;
mod events;
mod ground;
mod jobs;
mod live;
mod publishing;
mod replies;
mod samples;
mod trouble;

/// How long a case waits for what must happen.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// How long a case waits for what must not happen.
pub const QUIET: Duration = Duration::from_millis(100);

/// A broker to be tested, empty, and what its operators can do to it.
#[async_trait]
pub trait Subject: Send + Sync {
    /// With the server's credentials.
    fn queue(&self) -> Arc<dyn Queue>;

    /// With the credentials of one executor.
    async fn queue_of(&self, pool: &str, executor: ExecutorId) -> Arc<dyn Queue>;

    /// About how many messages a pool's queue takes before it refuses: at most a few thousand.
    fn jobs_limit(&self) -> usize;

    /// Publishes bytes with the credentials of an executor, or of the server.
    async fn put(&self, to: &Origin, by: Option<ExecutorId>, bytes: &[u8]);

    /// Cancels the consumers of a pool's jobs and events.
    async fn cancel_consumers(&self, pool: &str);

    /// Cuts every connection.
    async fn cut_connections(&self);

    /// Loses every message and every queue, with every connection.
    async fn wipe(&self);
}

/// One case of the suite.
#[derive(Clone, Copy)]
pub struct Case {
    /// Its name, a sentence.
    pub name: &'static str,
    run: fn(Arc<dyn Subject>) -> Running,
}

type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

/// An attempt to publish that is like no other.
#[must_use]
pub fn sample_attempt() -> DispatchMessage {
    samples::attempt()
}

/// Runs one case.
///
/// # Panics
/// The subject fails it, or there is no case of this name.
pub async fn run(name: &str, subject: Arc<dyn Subject>) {
    let case = CASES.iter().find(|case| case.name == name);
    (case.expect("there is a case of this name").run)(subject).await;
}

/// Hands the list of the cases to another macro.
#[doc(hidden)]
#[macro_export]
macro_rules! queue_contract_cases {
    ($($then:tt)+) => {
        $($then)+! {
            publishing: a_confirmed_attempt_is_in_the_queue,
            publishing: what_is_published_to_no_queue_is_unroutable_and_names_it,
            publishing: a_full_queue_refuses_and_drops_nothing,
            publishing: a_message_that_is_too_long_is_not_sent,
            publishing: declaring_again_changes_nothing,
            jobs: what_is_not_acked_is_delivered_again_when_its_link_is_lost,
            jobs: a_wait_for_a_delivery_ends_when_one_comes,
            jobs: what_is_acked_is_not_delivered_again,
            jobs: what_is_handed_back_goes_to_another_executor,
            jobs: no_more_than_the_prefetch_is_delivered,
            jobs: a_link_that_was_not_told_to_consume_gets_nothing,
            jobs: the_end_of_consuming_frees_what_was_not_taken,
            jobs: nothing_waits_at_a_busy_executor_while_another_is_idle,
            jobs: a_delivery_is_settled_once,
            jobs: a_newer_message_is_handed_back_and_no_dead_letter,
            jobs: a_wait_for_a_delivery_that_is_dropped_takes_nothing,
            events: one_consumer_is_active_and_each_publishers_order_is_kept,
            events: the_next_consumer_gets_what_was_not_acked_in_order_and_marked,
            events: a_consumer_that_waits_is_woken_by_the_end_of_the_active_one,
            events: what_waits_is_taken_up_to_the_bounds,
            events: ticks_and_batches_come_in_the_order_of_their_confirms,
            events: a_tick_of_an_epoch_that_was_not_declared_is_unroutable,
            events: bytes_that_are_no_message_are_shown_and_can_be_set_aside,
            events: a_newer_batch_waits_for_the_next_consumer,
            events: no_executor_speaks_for_another_or_for_the_server,
            events: a_wait_for_events_that_is_dropped_takes_nothing,
            replies: a_reply_reaches_the_link_that_asked_and_no_other,
            replies: a_reply_to_a_link_that_is_gone_is_lost,
            replies: a_reply_goes_to_no_address_that_the_broker_did_not_give,
            live: an_order_reaches_its_executor_and_no_other,
            live: an_order_for_an_executor_that_is_not_there_is_unroutable,
            live: output_reaches_whoever_listens_to_its_job_and_tells_who_has_sent_it,
            live: output_that_nobody_listens_to_is_lost,
            live: a_cut_listener_says_so,
            live: a_queue_that_is_used_is_connected,
            dead_letters: a_message_that_an_executor_rejects_is_listed_as_often_as_one_looks,
            dead_letters: a_message_that_comes_back_too_often_is_a_dead_letter,
            dead_letters: a_dead_letter_that_is_published_again_begins_anew,
            dead_letters: events_that_are_published_again_are_the_word_of_who_said_them,
            dead_letters: a_dead_letter_is_in_one_readers_hands_until_it_is_settled,
            trouble: a_canceled_link_says_so_and_can_consume_again,
            trouble: a_link_to_a_queue_that_is_not_there_is_canceled,
            trouble: a_canceled_consumer_of_events_says_so,
            trouble: a_cut_link_says_so_and_its_deliveries_go_to_another,
            trouble: a_cut_consumer_of_events_says_so,
            trouble: a_cut_reader_of_dead_letters_says_so_and_holds_none,
            trouble: a_wiped_broker_is_noticed_before_a_tick_passes,
        }
    };
}

/// Makes a test of each case; the expression is a future of the subject, or of `None` where there can't be one here, which
/// the expression has said and counted.
#[macro_export]
macro_rules! queue_contract {
    ($subject:expr) => {
        async fn subject_of_a_case() -> Option<std::sync::Arc<dyn $crate::contract::Subject>> {
            $subject.await.into()
        }
        $crate::queue_contract_cases!($crate::queue_contract_tests);
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! queue_contract_tests {
    ($($module:ident: $case:ident,)+) => {$(
        #[tokio::test]
        async fn $case() {
            if let Some(subject) = subject_of_a_case().await {
                $crate::contract::run(stringify!($case), subject).await;
            }
        }
    )+};
}

macro_rules! table {
    ($($module:ident: $case:ident,)+) => {
        /// All of them.
        pub const CASES: &[Case] = &[$(
            Case { name: stringify!($case), run: |subject| Box::pin($module::$case(subject)) },
        )+];
    };
}

crate::queue_contract_cases!(table);
