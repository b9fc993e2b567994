# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs, functions as stages and sinks, and reports."""

import json
import os
import shutil

import framepath
import pyarrow
import pytest

from conftest import clip, digest, framemd5


def test_a_report_has_the_table_of_its_hops():
    report = framepath.run("test frames=20 size=64x48 ! queue depth=4 ! null")
    assert (report.frames, report.lost, report.losses, report.copied_bytes) == (20, 0, [], 0)
    assert report.wall > 0 and report.cpu > 0
    table = pyarrow.table(report.table)
    assert table.num_rows == 3 == len(report.table)
    assert table.column_names == report.table.columns
    assert table["hop"].to_pylist() == ["test size=64x48 frames=20", "queue depth=4", "null"]
    assert table["frames"].to_pylist() == [20, 20, 20]
    assert report.table.to_dict() == table.to_pydict()
    assert pyarrow.schema(report.table) == table.schema
    summary = json.loads(report.json())
    assert summary["rows"][0]["frames"] == 20
    # The causes are those of the command's summary.
    causes = summary["rows"][0]["causes_us"]
    for cause in ["compute", "queue", "wakeup", "unexplained"]:
        assert sum(value or 0 for value in table[f"{cause}_us"].to_pylist()) == pytest.approx(causes[cause], abs=0.01)
    assert "the median frame" in str(report) and "<svg" in report.html()
    assert report._repr_html_().startswith("<iframe srcdoc=") and "<script" not in report._repr_html_()[:200]


def test_a_function_is_the_sink_of_a_path():
    hashes = []
    path = f"file {framepath.quote(str(clip('h264-180p8-container.mp4')))} ! decode"
    report = framepath.run(path, sink=lambda frame: hashes.append(digest(frame)))
    assert hashes == framemd5("h264-180p8-container.mp4") and report.frames == len(hashes)
    taken = []
    report = framepath.run("test frames=100 size=64x48", sink=lambda frame: taken.append(frame.number) or len(taken) < 7)
    assert taken == list(range(7))
    assert framepath.run("test frames=100 size=64x48 ! null", frames=5).frames == 5


def test_a_function_is_a_stage_of_a_path():
    seen = []

    def even(frame):
        seen.append(frame.number)
        return frame if frame.number % 2 == 0 else None

    path = framepath.Path("test frames=10 size=64x48").stage(even).append("queue").sink(lambda frame: None)
    assert path.run().frames == 5 and seen == list(range(10))
    with pytest.raises(framepath.Error, match="once"):
        path.run()
    kept = framepath.Path("test frames=10 size=64x48").stage(even).frames()
    assert [frame.number for frame in kept] == [0, 2, 4, 6, 8]


def test_exceptions_of_functions_are_raised_as_they_are():
    class Special(Exception):
        pass

    def fails(frame):
        if frame.number == 3:
            raise Special("three")
        return frame

    with pytest.raises(Special, match="three"):
        framepath.run("test frames=10 size=64x48", sink=fails)
    with pytest.raises(Special):
        framepath.Path("test frames=10 size=64x48").stage(fails).append("null").run()
    taken = []
    with pytest.raises(Special):
        for frame in framepath.Path("test frames=10 size=64x48").stage(fails).frames():
            taken.append(frame.number)
    assert taken == [0, 1, 2]
    with pytest.raises(TypeError, match="returns the frame"):
        framepath.Path("test frames=10 size=64x48").stage(lambda frame: 7).append("null").run()
    with pytest.raises(TypeError):
        framepath.run("test frames=10 size=64x48", sink=7)
    with pytest.raises(TypeError):
        framepath.run("test frames=10 size=64x48", sink=lambda: None)


def test_a_sink_behind_a_sink_is_an_error():
    with pytest.raises(framepath.Error, match="sink"):
        framepath.run("test frames=1 ! null", sink=print)
    with pytest.raises(framepath.Error, match="no sink"):
        framepath.run("test frames=1")


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("ffmpeg"), reason="framepath trace needs root, and this test ffmpeg")
def test_a_traced_program_has_a_ledger():
    report = framepath.trace(["ffmpeg", "-v", "error", "-i", str(clip("h264-180p8-container.mp4")), "-f", "null", "-"])
    assert report.returncode == 0, report.text
    assert report.summary["rows"][0]["frames"] > 0 and report.csv
    with pytest.raises(TypeError):
        framepath.trace("ffmpeg -i clip.mp4")
    with pytest.raises(framepath.Error, match="no-such-program"):
        framepath.trace(["/no-such-program"])


def test_a_function_that_raises_stop_iteration_ends_in_an_error():
    numbers = iter([1, 2, 3])

    def third(frame):
        next(numbers)
        return frame

    path = framepath.Path("test frames=10 size=64x48").stage(third)
    with pytest.raises(RuntimeError, match="StopIteration") as raised:
        list(path.frames())
    assert isinstance(raised.value.__cause__, StopIteration)


def test_a_function_may_drop_every_frame():
    dropping = framepath.Path("test frames=10 size=64x48").stage(lambda frame: None)
    assert list(dropping.frames()) == []
    assert framepath.Path("test frames=10 size=64x48").stage(lambda frame: None).append("null").run().frames == 0


def test_names_that_cannot_be_text_are_told():
    with pytest.raises(ValueError, match="UTF-8"):
        framepath.open(b"\xff.mp4")
    with pytest.raises(FileNotFoundError):
        framepath.open(b"no-such-file.mp4")


def test_a_run_of_no_frames_is_refused():
    with pytest.raises(ValueError, match="at least 1"):
        framepath.run("test ! null", frames=0)
    assert framepath.run("test ! null", frames=1).frames == 1
