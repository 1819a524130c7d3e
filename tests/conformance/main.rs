//! The one suite every database behind the store contract must pass.
//!
//! `suite` and its siblings say what must hold, in terms of the contract; a harness per database
//! makes outboxes and looks at them. A database is supported when it passes.

mod claims;
mod desk;
mod failures;
mod harness;
mod postgres;
mod recovery;
mod rows;
mod schema;
mod sqlite;
mod standing;

/// Runs every test of the suite on every harness.
macro_rules! conformance {
    ($($database:ident: $harness:ty),+ ; $tests:tt) => {
        $(conformance!(@one $database, $harness, $tests);)+
    };
    (@one $database:ident, $harness:ty, { $($module:ident::$test:ident),+ $(,)? }) => {
        mod $database {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $test() {
                    super::$module::$test::<$harness>().await;
                }
            )+
        }
    };
}

conformance! {
    on_postgres: crate::postgres::Postgres,
    on_sqlite: crate::sqlite::Sqlite;
    {
        claims::leases_give_each_event_once,
        claims::row_claims_give_each_event_once,
        claims::total_order_has_one_holder,
        claims::events_of_a_shard_come_in_id_order,
        claims::a_batch_is_limited_by_rows_and_by_bytes,
        claims::a_late_commit_with_a_lower_id_is_claimed,
        claims::an_event_that_is_not_due_waits_alone,
        claims::other_lanes_are_left_alone,
        claims::a_renewed_lease_is_kept_and_a_lost_one_is_told,
        claims::row_claims_are_renewed_and_lost_the_same_way,
        desk::events_are_found_by_what_is_known_of_them,
        desk::a_retried_event_is_due_again_and_marked,
        desk::a_halted_event_that_is_retried_comes_before_its_successors,
        desk::a_discarded_event_lets_its_key_go,
        desk::a_released_key_goes_on_without_the_event_that_held_it,
        desk::what_is_being_worked_on_is_left_alone,
        desk::published_events_are_replayed_in_order,
        desk::what_was_chosen_in_one_state_is_not_changed_in_another,
        desk::who_changed_what_is_recorded,
        failures::published_events_are_deleted_or_marked,
        failures::a_retried_event_holds_its_key,
        failures::without_order_a_retried_event_holds_nothing,
        failures::a_waiting_event_uses_no_attempt,
        failures::a_parked_event_lets_its_key_go,
        failures::a_halted_key_stays_held,
        failures::total_order_is_held_as_a_whole,
        failures::released_events_are_as_before,
        failures::any_failure_text_can_be_stored,
        failures::held_keys_starve_nobody,
        failures::events_without_a_key_hold_nothing,
        failures::the_standing_of_a_lane_is_told,
        recovery::a_lost_lease_writes_nothing,
        recovery::a_lost_row_claim_writes_nothing,
        recovery::settling_twice_is_safe,
        recovery::expired_leases_are_taken_in_halves_and_alone,
        recovery::an_event_alone_in_three_losses_is_convicted,
        recovery::a_living_holder_clears_the_suspicion,
        recovery::passing_the_suspect_ends_the_suspicion,
        recovery::expired_rows_are_taken_in_ever_smaller_batches,
        recovery::rows_claimed_without_order_are_found_by_leases,
        recovery::a_suspect_that_is_held_blocks_nobody,
        recovery::retention_deletes_old_published_events_only,
        rows::payloads_are_kept_byte_for_byte,
        rows::keys_tell_null_from_empty,
        rows::headers_of_every_sort_are_read,
        rows::a_row_with_unreadable_headers_comes_with_its_defect,
        standing::instances_are_remembered_for_a_day,
        standing::a_report_is_kept_as_it_is,
        standing::lanes_with_rows_are_found_whoever_knows_them,
        standing::a_lane_nobody_opened_is_counted_like_any_other,
        standing::leases_are_listed_until_they_are_given_back,
        standing::row_claims_are_listed_by_batch,
        standing::halted_keys_are_told_with_their_events,
        standing::pending_rows_can_be_looked_at_without_claiming_them,
    }
}
