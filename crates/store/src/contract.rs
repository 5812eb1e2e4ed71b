//! What every store does, as tests: run against each implementation by [`contract_tests`](crate::contract_tests).
//!
//! An implementation gives a [`Place`]: a database of its own, that can be opened several times at once. Time is the
//! contexts': an implementation whose database has a clock of its own is tested with that clock replaced.

pub mod accounts;
pub mod artifacts;
pub mod audit;
pub mod batches;
pub mod bench;
pub mod blobs;
pub mod cancel;
pub mod content;
pub mod executors;
pub mod grants;
pub mod images;
pub mod jobs;
pub mod leases;
pub mod letters;
pub mod lists;
pub mod model;
pub mod orphans;
pub mod scheduling;
pub mod secrets;
pub mod shares;
pub mod submissions;
pub mod uploads;

use std::sync::Arc;

use async_trait::async_trait;
use mayfly_dispatch::ledger::Ledger;

use crate::{records::Pool, seam::Store};

/// A database that exists for one case.
#[async_trait]
pub trait Place: Send + Sync {
    /// Opens one more handle on it, as another process would.
    async fn open(&self) -> Arc<dyn Store>;

    /// Every row that dispatching looks at, read back.
    async fn ledger(&self, queue: &Pool) -> Ledger;

    /// Of how many attempts output is kept that no report has named.
    async fn outputs(&self) -> usize;

    /// How many pieces of files are kept.
    async fn pieces(&self) -> usize;
}

/// Runs the suite: one test for each case. `$make` is an absolute path to an async function without arguments that makes
/// an `Option<Arc<dyn Place>>`: none where there is no server to make one on, which it has said and counted. The
/// second argument is how many random lists of operations are tried.
#[macro_export]
macro_rules! contract_tests {
    ($make:path) => {
        $crate::contract_tests! { $make, 48 }
    };
    ($make:path, $random_cases:literal) => {
        $crate::contract_tests! { @each $make,
            jobs: [
                a_job_is_found_as_it_was_submitted,
                a_job_is_accepted_once,
                jobs_are_listed_newest_first_page_by_page,
                a_page_has_a_bound,
                another_tenants_job_is_not_there,
                how_many_jobs_stand_is_read_at_once,
                commits_are_noticed_and_what_changes_nothing_is_none,
            ],
            batches: [
                a_batch_is_found_as_it_was_begun,
                the_jobs_of_a_batch_come_in_the_order_of_their_places,
                an_item_is_accepted_once_however_often_it_is_submitted,
                a_submission_is_accepted_whole_or_not_at_all,
                jobs_without_a_batch_are_submitted_together_too,
                a_batch_that_is_complete_takes_no_further_job,
                how_its_jobs_stand_is_counted,
                its_ends_come_in_the_order_of_their_commits_each_once,
                batches_are_listed_newest_first_page_by_page,
                another_tenants_batch_is_not_there,
                a_large_batch_is_read_page_by_page_after_a_restart,
                a_name_that_no_item_may_have_is_refused,
                no_name_of_an_item_stands_in_the_log,
            ],
            grants: [
                of_two_sessions_that_ask_one_is_granted,
                of_two_sessions_that_ask_at_once_by_two_handles_one_is_granted,
                the_same_session_gets_the_same_answer,
                a_batch_that_is_delivered_again_changes_nothing,
                nothing_behind_a_gap_counts_until_it_is_filled,
                an_ask_without_a_right_to_it_is_denied,
                a_quarantined_batch_has_no_effect_and_what_follows_has,
                a_call_that_is_dropped_halfway_leaves_nothing_behind,
            ],
            leases: [
                a_result_counts_from_the_holder_alone,
                a_result_after_the_lease_is_superseded,
                a_dead_sessions_job_is_lost_where_it_may_be_tried_once,
                a_dead_sessions_job_is_tried_again_after_a_wait,
                a_heartbeat_since_the_tick_voids_it,
                a_lost_tick_starts_every_lease_afresh,
                a_queue_that_is_gone_starts_every_lease_afresh,
                a_new_session_ends_the_old_one,
                what_a_heartbeat_does_not_name_is_lost,
                pools_are_judged_apart,
            ],
            scheduling: [
                as_many_are_dispatched_as_there_is_room_for,
                a_pool_that_is_quick_has_more_ahead,
                the_higher_priority_goes_first_and_then_the_older,
                nothing_is_dispatched_before_its_time,
                a_pool_gets_its_own_jobs,
                a_call_makes_no_more_messages_than_memory_allows,
                an_unconfirmed_publication_is_taken_again_with_the_next_number,
                a_lost_publication_is_taken_again_once_the_queue_is_low_for_long,
                a_confirm_of_an_older_publication_counts_for_nothing,
                confirms_are_noted_together,
                an_attempt_that_is_a_dead_letter_five_times_ends_its_job,
                a_dead_letter_counts_once_and_its_confirm_no_more,
                a_job_expires_before_its_first_start_alone,
                a_job_that_has_started_does_not_stand_in_the_way_of_what_expires,
                what_is_due_next_is_known,
            ],
            shares: [
                a_tenant_with_many_jobs_holds_up_nobody,
                slots_go_by_weight,
                a_job_waits_until_every_session_has_its_image,
                why_a_job_waits_is_said,
                a_job_that_waits_for_its_turn_knows_its_place,
                a_tenant_has_no_more_in_flight_than_it_may,
                a_tenant_has_no_more_queued_than_it_may,
                of_submissions_at_once_no_more_are_accepted_than_a_quota_allows,
            ],
            lists: [
                each_field_of_a_filter_counts,
                a_filter_finds_its_tenants_jobs_alone,
                a_call_looks_at_so_many_jobs_at_most,
            ],
            executors: [
                an_executor_is_found_as_it_was_enrolled,
                a_name_is_one_executors,
                a_session_shows_what_it_has_said_of_itself,
                a_cordoned_executor_gets_nothing_new_and_keeps_what_it_has,
                a_self_test_is_on_record_and_one_that_failed_takes_the_slots_away,
                a_session_is_told_that_it_is_cordoned,
                cordoning_is_on_record_where_it_changes_anything,
            ],
            letters: [
                a_letter_is_listed_as_it_was_kept_the_oldest_first,
                a_letter_about_an_attempt_becomes_its_next_publication_once,
                a_letter_about_an_attempt_that_waits_no_more_is_not_replayed,
                another_letter_is_handed_out_whole_until_it_is_forgotten,
                a_discarded_letter_is_gone_and_on_record,
                there_is_room_for_so_many_letters,
            ],
            submissions: [
                a_submission_that_is_repeated_is_the_same_job,
                a_key_with_another_body_is_refused,
                a_key_is_its_tenants_own,
                of_submissions_at_once_one_makes_the_job,
                a_key_is_known_for_a_day_whatever_becomes_of_its_job,
                a_job_is_not_dispatched_before_the_time_it_names,
                a_time_that_has_passed_is_no_wait,
                a_job_that_waits_for_its_time_can_expire_and_be_canceled,
                content_that_is_not_kept_goes_with_its_jobs_end,
                content_that_is_not_kept_is_there_for_each_attempt,
            ],
            cancel: [
                a_queued_job_ends_at_once,
                a_dispatched_job_ends_at_once_and_never_starts,
                a_started_job_ends_as_canceled_whatever_its_run_reports,
                a_canceled_job_that_is_lost_is_canceled,
                a_job_that_is_over_stays_as_it_is,
                of_cancel_and_finish_one_wins,
            ],
            orphans: [
                what_is_left_in_a_pool_is_found,
                jobs_of_a_dead_process_end_once,
                whoever_ends_them_may_die_halfway,
                however_many_are_left_all_of_them_end,
                a_batch_that_is_taken_over_goes_on_in_the_new_pool,
                an_attempt_that_was_taken_over_starts_once,
            ],
            artifacts: [
                the_files_that_a_report_names_are_kept_piece_by_piece,
                files_go_with_their_attempt_where_no_report_names_them,
                only_a_running_attempt_takes_files_and_the_first_piece_counts,
                an_attempts_files_have_a_bound,
                a_report_that_names_a_file_that_is_not_there_is_trouble_of_ours,
            ],
            blobs: [
                what_a_job_brings_is_found_until_its_attempt_is_over,
                what_a_job_brings_is_its_attempts_alone,
                content_that_is_not_kept_is_found_until_the_end,
                what_all_of_a_pools_sessions_read_is_known,
                what_a_run_has_left_becomes_its_result_byte_for_byte,
                what_a_run_has_left_goes_with_its_attempt_whichever_way_that_ends,
                only_a_running_attempt_takes_output_and_the_first_counts,
                a_report_that_names_what_is_not_there_is_trouble_of_ours,
                output_of_an_attempt_that_is_over_is_nobodys_result,
                of_leaving_output_and_the_end_one_comes_first,
            ],
            uploads: [
                an_upload_is_found_once_it_is_whole,
                a_tenant_has_no_more_uploads_than_there_may_be,
                the_attempt_of_a_job_fetches_its_uploads,
                no_job_is_accepted_with_an_upload_that_is_not_there,
                an_upload_stays_while_a_job_has_it,
                an_upload_goes_some_time_after_its_last_use,
            ],
            secrets: [
                what_is_kept_under_a_name_is_its_tenants_own,
                a_secret_is_given_to_an_attempt_that_is_not_over_and_that_is_on_record,
                a_tenant_has_no_more_secrets_than_there_may_be,
            ],
            content: [
                output_comes_back_byte_for_byte,
                a_report_with_hostile_text_comes_back_as_it_was,
                what_a_run_asked_of_hosts_outside_comes_back,
                a_job_with_hostile_text_comes_back_as_it_was,
                the_largest_numbers_come_back,
                an_outcome_is_never_replaced,
            ],
            audit: [
                every_life_has_its_events_in_order,
                a_filter_finds_its_events_alone,
                the_log_of_the_fleet_has_what_is_about_no_job,
                columns_and_body_say_the_same,
                nothing_that_a_job_chose_stands_in_the_log,
            ],
            accounts: [
                a_tenant_is_found_and_on_record,
                what_a_tenant_may_have_is_changed_on_record,
                changes_of_a_tenant_that_come_at_once_are_both_made,
                a_tenants_name_is_taken_once,
                what_no_tenant_may_be_is_refused,
                tenants_are_listed_page_by_page,
                a_key_is_found_and_on_record,
                a_key_that_must_not_be_is_not_made,
                keys_are_listed_page_by_page,
                a_key_opens_nothing_once_its_time_is_over,
                a_key_is_revoked_at_once_and_for_good,
                the_last_use_of_a_key_is_known,
            ],
            images: [
                a_pin_is_found_and_on_record,
                pinning_the_same_again_changes_nothing,
                a_new_pin_replaces_the_old_one_on_record,
            ],
        }

        mod model {
            #[test]
            fn rows_and_model_agree_after_every_step() {
                $crate::contract::model::rows_and_model_agree_after_every_step($make, $random_cases);
            }
        }
    };
    (@each $make:path, $($module:ident: [$($case:ident),* $(,)?]),* $(,)?) => {
        $(mod $module {$(
            #[tokio::test]
            async fn $case() {
                if let Some(place) = $make().await {
                    $crate::contract::$module::$case(place).await;
                }
            }
        )*})*
    };
}
