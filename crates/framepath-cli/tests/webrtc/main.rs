// SPDX-License-Identifier: MIT OR Apache-2.0
//! WebRTC from `send` to `recv`: every frame, viewers that join and leave, refusals, and losses on the way; browsers, and servers of others.
//! All addresses are on the loopback interface, or in network namespaces of the tests.

mod browser;
mod chromium;
mod clip;
mod encoders;
mod https;
mod ledgers;
mod losses;
mod namespace;
mod pictures;
mod pion;
mod proxy;
mod reconnects;
mod refusals;
mod restarts;
mod rtp;
mod sender;
mod sharing;
mod viewers;
mod waits;

framepath_testkit::tests!(
    browser::a_browser_shows_the_stream_and_its_ledger,
    browser::a_browser_shows_the_pictures_that_were_sent,
    browser::viewers_that_come_and_go_leave_nothing,
    pion::a_stream_goes_through_a_server_to_a_browser_and_to_framepath,
    pion::a_server_that_disappears_is_an_error,
    rtp::a_stream_over_rtp_arrives_encrypted_and_plain,
    rtp::recv_receives_rtp_at_an_address_and_by_a_description,
    rtp::a_receiver_of_rtp_without_or_with_too_many_addresses_is_refused,
    rtp::rtp_without_a_key_that_a_receiver_can_know_is_refused,
    rtp::only_its_user_may_read_the_file_with_the_key,
    rtp::packets_that_the_kernel_refuses_are_an_error,
    rtp::a_stream_goes_through_janus_to_two_browsers,
    browser::a_browser_with_a_wrong_token_says_so,
    browser::a_tab_in_the_background_goes_on_and_harms_nobody,
    viewers::all_frames_of_a_clip_arrive,
    viewers::a_viewer_records_the_stream_where_the_container_needs_no_size,
    viewers::two_viewers_get_all_frames,
    viewers::a_late_viewer_starts_at_a_keyframe,
    viewers::a_killed_viewer_does_not_disturb_another,
    viewers::a_sender_that_disappears_is_an_error,
    viewers::a_sender_whose_run_fails_is_an_error_at_its_viewers,
    viewers::an_interrupted_sender_ends_its_viewers,
    viewers::the_user_sees_and_ends_viewers,
    viewers::an_interrupted_viewer_ends,
    viewers::a_slow_display_shows_the_newest_frames,
    viewers::a_slow_path_with_a_backlog_drops_up_to_a_keyframe,
    https::a_server_with_a_certificate_is_trusted_and_others_are_not,
    refusals::a_viewer_without_the_token_is_refused,
    refusals::two_hundred_half_open_connections_cost_a_viewer_no_frame,
    refusals::a_server_that_answers_500_or_nothing_is_an_error,
    refusals::requests_that_are_not_whep_are_refused,
    refusals::foreign_datagrams_get_no_answer,
    refusals::wrong_arguments_are_errors_that_say_what_is_right,
    sharing::a_screen_is_shown_on_another,
    sharing::codes_that_are_wrong_show_nothing,
    encoders::a_stream_of_large_packets_ends,
    encoders::ten_viewers_cost_one_encoding,
    encoders::a_viewer_decodes_what_the_sender_decodes,
    encoders::a_late_viewer_of_a_gradual_refresh_gets_a_keyframe,
    encoders::the_death_of_an_encoder_in_a_worker_costs_viewers_no_frame,
    encoders::a_slow_network_costs_frames_in_front_of_the_encoder_and_not_behind_it,
    encoders::a_viewer_below_the_lowest_bit_rate_costs_another_no_frames,
    ledgers::both_ends_have_the_whole_table,
    ledgers::frames_are_matched_without_user_data,
    ledgers::clocks_a_day_apart_agree,
    ledgers::an_end_without_a_ledger_gives_no_rows,
    ledgers::the_sender_has_the_rows_of_each_viewer,
    ledgers::the_ledger_goes_on_when_the_sender_starts_again,
    ledgers::the_ledger_goes_on_when_the_network_is_back,
    ledgers::a_running_viewer_shows_the_table,
    waits::a_wait_in_the_encoder_is_on_its_row,
    waits::a_wait_for_the_pace_is_on_its_row,
    waits::a_wait_in_the_network_is_on_its_row,
    waits::a_wait_for_earlier_packets_is_on_the_row_of_the_reassembly,
    waits::a_wait_in_the_jitter_buffer_is_on_its_row,
    waits::a_wait_in_the_decoder_is_on_its_row,
    losses::a_lost_packet_is_sent_again,
    losses::without_latency_a_lost_packet_costs_the_frames_up_to_the_next_keyframe,
    losses::a_loss_in_hevc_vp9_and_av1_costs_the_frames_up_to_the_next_keyframe,
    losses::a_loss_in_front_of_an_open_group_shows_no_damaged_picture,
    losses::the_loss_of_the_last_frames_is_counted,
    losses::the_loss_of_the_first_frames_is_counted,
    losses::frames_that_the_sender_drops_are_lost_for_the_viewer,
    losses::three_percent_of_loss_cost_no_frame,
    reconnects::a_session_outlives_a_network_that_is_away_for_five_seconds,
    reconnects::a_viewer_connects_again_when_the_network_is_back,
    reconnects::a_viewer_goes_on_with_a_sender_that_starts_again,
    reconnects::a_viewer_gives_up_after_the_timeout,
    reconnects::connections_without_a_frame_are_failed_attempts,
    reconnects::a_viewer_that_comes_back_gets_a_keyframe_at_once,
    restarts::a_viewer_whose_address_changes_keeps_its_session,
    restarts::a_browser_whose_address_changes_keeps_its_session,
    restarts::a_publisher_whose_address_changes_keeps_its_session,
);
