// SPDX-License-Identifier: MIT OR Apache-2.0
//! `framepath trace` on programs that were not written for it: their frames, and that they are not changed.

mod attach;
mod causes;
mod compare;
mod ffmpeg;
mod gst_lineage;
mod gstreamer;
mod harmless;
mod joined;
mod lineage;
mod marks;
mod rights;
mod windows;

use framepath_testkit::harness::Missing;
use framepath_testkit::{finish, framepath, run};
use serde_json::Value;

framepath_testkit::tests! {
    ffmpeg::every_frame_of_every_clip_is_seen_and_the_output_is_the_same,
    ffmpeg::the_probes_of_older_kernels_see_the_same,
    ffmpeg::the_stages_are_those_of_the_command,
    ffmpeg::the_programs_of_a_shell_command_have_streams_of_their_own,
    ffmpeg::each_output_of_a_program_has_its_own_way,
    ffmpeg::all_outputs_have_the_frames,
    ffmpeg::a_gate_checks_the_figures_of_a_trace,
    ffmpeg::a_part_of_the_way_begins_with_its_first_stage,
    ffmpeg::a_paced_output_and_a_slow_reader_are_told_apart,
    joined::each_input_of_a_joined_picture_is_the_one_that_its_pixels_show,
    joined::each_picture_of_a_muxer_has_its_way,
    lineage::each_output_has_the_input_that_its_pixels_show,
    gst_lineage::each_buffer_has_the_origin_that_its_pixels_show,
    gst_lineage::each_frame_of_a_file_has_its_origin,
    gst_lineage::each_buffer_of_a_player_has_its_origin,
    gstreamer::a_pipeline_has_the_elements_as_stages,
    gstreamer::the_branches_of_a_tee_are_kept_apart,
    gstreamer::lists_of_packets_are_the_frames_that_they_are_made_of,
    marks::a_program_names_its_frames_itself,
    rights::a_program_with_other_rights_leaves_the_recording,
    rights::a_process_of_another_user_is_refused,
    windows::ffplay_shows_each_frame_that_is_in_its_texture,
    windows::mpv_is_matched_only_if_it_shows_each_frame_once,
    windows::a_pipeline_shows_the_buffer_of_its_sink,
    attach::a_running_program_is_traced_and_goes_on,
    attach::the_last_seconds_of_a_running_program_are_shown,
    attach::the_last_seconds_are_a_line_of_json_for_each_update,
    attach::a_killed_trace_leaves_the_program_alone,
    attach::no_process_stays_stopped_behind_a_trace,
    attach::programs_without_frames_say_so,
    harmless::commands::commands_run_as_alone,
    harmless::commands::commands_run_as_alone_at_level_threads,
    harmless::commands::commands_run_as_alone_at_level_preload,
    harmless::terminal::ctrl_z_stops_a_traced_command_and_fg_continues_it,
    harmless::terminal::a_command_that_is_stopped_by_a_signal_stops_its_job,
    harmless::terminal::a_command_that_ignores_ctrl_z_goes_on,
    harmless::terminal::a_traced_command_reads_the_terminal,
    harmless::terminal::a_background_job_that_reads_the_terminal_stops,
    harmless::terminal::a_command_that_handles_ctrl_c_goes_on,
    harmless::terminal::ctrl_backslash_ends_a_traced_command,
    harmless::terminal::a_background_job_ends_with_its_code,
    harmless::terminal::a_closed_terminal_ends_a_traced_command,
    harmless::terminal::an_attached_program_in_the_foreground_is_not_stopped,
    harmless::signals::the_first_signal_is_forwarded_and_the_second_ends_the_tracer,
    harmless::signals::a_signal_ends_a_command_that_does_not_handle_it,
    harmless::signals::a_killed_tracer_leaves_its_command_running,
    harmless::signals::each_signal_ends_only_the_tracer_of_a_running_process,
    harmless::signals::a_stopped_command_stops_its_tracer,
    harmless::signals::a_command_that_was_stopped_when_it_was_attached_stays_so,
    harmless::killed::a_killed_tracer_of_a_process_leaves_nothing,
    harmless::killed::a_killed_tracer_of_a_command_leaves_nothing,
    harmless::killed::a_tracer_that_is_killed_while_it_ends_leaves_nothing,
    harmless::killed::programs_beside_a_traced_one_run_on,
    harmless::loader::the_loader_has_no_breakpoint,
    harmless::limits::a_command_has_all_numbers_of_processes_but_one,
    harmless::limits::a_limit_of_file_sizes_is_the_commands,
    harmless::limits::a_command_runs_traced_or_not_at_all,
    harmless::limits::an_error_before_the_start_ends_the_command_without_a_word,
    harmless::limits::arguments_of_any_bytes_reach_the_command,
    harmless::plugins::a_program_that_loads_many_libraries_is_never_stopped,
    harmless::plugins::the_parent_of_such_a_program_sees_no_stop,
    causes::costs_in_a_demuxer_have_their_causes,
    causes::costs_in_a_filter_have_their_causes,
    causes::costs_on_a_thread_of_an_encoder_have_their_causes,
    causes::costs_in_a_gstreamer_element_have_their_causes,
    compare::two_traced_commands_are_compared_by_stage_and_cause,
    compare::stages_of_one_side_have_no_difference,
    compare::a_failed_traced_side_is_an_error,
    compare::an_interrupt_ends_the_traced_side,
}

/// Ignores a test where this user may not have probes.
fn needs_bpf() -> Result<(), Missing> {
    let probed = run(&["trace", "--level", "bpf", "--quiet", "--", "true"]);
    match probed.code {
        Some(0) => Ok(()),
        _ => Err(Missing::new(probed.stderr.trim().to_owned())),
    }
}

/// Traces a command and returns the figures.
fn trace(command: &[&str]) -> Value {
    trace_at("bpf", "best", command)
}

/// Traces a command at `level` with the kernel's interface `probes` (docs/trace.md), and returns the figures.
fn trace_at(level: &str, probes: &str, command: &[&str]) -> Value {
    let arguments = ["trace", "--level", level, "--quiet", "--json", "-", "--"];
    let mut framepath = framepath(&[&arguments, command].concat());
    framepath.env("FRAMEPATH_PROBES", probes);
    let ran = finish(framepath).ended(0);
    let figures: Value =
        serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {}", ran.stdout));
    assert_eq!(figures["trace"]["lost_events"], 0, "{command:?}");
    figures
}

/// Returns the names of the stages of a row.
fn stages(row: &Value) -> Vec<&str> {
    row["hops"].as_array().unwrap().iter().map(|hop| hop["hop"].as_str().unwrap()).collect()
}
