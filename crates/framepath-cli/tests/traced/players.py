#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Programs with GStreamer pipelines. What comes to the last element is written to a file, as gray pictures.

Usage: players.py seeks|hand-over CLIP OUTPUT
  seeks      a player that seeks ten times before it plays
  hand-over  two pipelines: the program takes each buffer from the first one and gives it to the second one
"""

import sys

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstApp", "1.0")
from gi.repository import Gst, GstApp  # noqa: E402,F401

LIMIT = 20 * Gst.SECOND
GRAY = "videoconvert ! video/x-raw,format=GRAY8 ! fakesink name=end sync=false"


def write_at(end, output):
    """Writes what comes to the element `end`."""

    def write(_, info):
        buffer = info.get_buffer()
        output.write(buffer.extract_dup(0, buffer.get_size()))
        return Gst.PadProbeReturn.OK

    end.get_static_pad("sink").add_probe(Gst.PadProbeType.BUFFER, write)


def wait_for_end(pipeline):
    message = pipeline.get_bus().timed_pop_filtered(LIMIT, Gst.MessageType.EOS | Gst.MessageType.ERROR)
    assert message and message.type == Gst.MessageType.EOS, message and message.parse_error()


def seeks(clip, output):
    player = Gst.ElementFactory.make("playbin")
    player.set_property("uri", Gst.filename_to_uri(clip))
    sink = Gst.parse_bin_from_description(GRAY, True)
    player.set_property("video-sink", sink)
    write_at(sink.get_by_name("end"), output)
    player.set_state(Gst.State.PAUSED)
    assert player.get_state(LIMIT)[0] == Gst.StateChangeReturn.SUCCESS
    for number in range(10):
        flags = Gst.SeekFlags.FLUSH | Gst.SeekFlags.ACCURATE
        assert player.seek_simple(Gst.Format.TIME, flags, (number + 1) % 3 * Gst.SECOND)
        assert player.get_state(LIMIT)[0] == Gst.StateChangeReturn.SUCCESS
    player.set_state(Gst.State.PLAYING)
    wait_for_end(player)
    player.set_state(Gst.State.NULL)


def hand_over(clip, output):
    first = Gst.parse_launch(
        f"filesrc location={clip} ! qtdemux ! h264parse ! avdec_h264 ! appsink name=sink sync=false"
    )
    second = Gst.parse_launch(f"appsrc name=source format=time ! queue ! {GRAY}")
    write_at(second.get_by_name("end"), output)
    source, sink = second.get_by_name("source"), first.get_by_name("sink")
    first.set_state(Gst.State.PLAYING)
    while sample := sink.emit("pull-sample"):
        source.set_property("caps", sample.get_caps())
        second.set_state(Gst.State.PLAYING)
        source.emit("push-buffer", sample.get_buffer())
    source.emit("end-of-stream")
    wait_for_end(second)
    for pipeline in (first, second):
        pipeline.set_state(Gst.State.NULL)


Gst.init(None)
with open(sys.argv[3], "wb") as output:
    {"seeks": seeks, "hand-over": hand_over}[sys.argv[1]](sys.argv[2], output)
