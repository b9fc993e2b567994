# SPDX-License-Identifier: MIT OR Apache-2.0
"""Frames and their memory."""

import gc
import threading
import warnings

import framepath
import numpy
import pytest

from conftest import CLIPS, clip, digest, framemd5

# Pictures of more than one size have a hash for each; an image sequence and raw files are other sources.
DECODED = sorted(file.name for file in CLIPS.iterdir() if file.suffix in {".h264", ".hevc", ".ivf", ".mp4", ".mkv", ".webm"})


@pytest.mark.parametrize("name", DECODED)
def test_all_clips_have_the_samples_that_the_command_decodes(name, host):
    with framepath.open(clip(name), host=host) as frames:
        hashes = [digest(frame) for frame in frames]
    assert hashes == framemd5(name)
    assert frames.copied_bytes == 0


def test_planes_are_views_without_a_copy():
    frames = framepath.open(clip("h264-180p8-high.h264"))
    frame = next(frames)
    y, u, v = frame.planes
    assert (y.shape, u.shape, v.shape) == ((180, 320), (90, 160), (90, 160))
    assert y.dtype == numpy.uint8 and not y.flags.writeable and not y.flags.owndata
    assert numpy.shares_memory(y, frame.planes[0])
    assert memoryview(frame.plane(0)).readonly
    with pytest.raises(ValueError):
        y[0, 0] = 1
    with pytest.raises(IndexError):
        frame.plane(3)
    # The rows of a cropped picture have other samples between them.
    wide = next(framepath.open(clip("h264-98x58p8-cropped.h264"))).plane(0)
    assert wide.strides[0] > wide.shape[1]
    assert not memoryview(wide).c_contiguous and memoryview(wide).tobytes() == frame_bytes(wide)


def frame_bytes(plane):
    array = numpy.asarray(plane)
    return b"".join(row.tobytes() for row in array)


def test_samples_of_more_than_8_bits_are_words():
    y, u, _ = next(framepath.open(clip("hevc-180p10.hevc"))).planes
    assert y.dtype == numpy.uint16 and y.shape == (180, 320) and u.shape == (90, 160)
    assert int(y.max()) > 255


@pytest.mark.parametrize(
    ("format", "shapes"),
    [
        ("rgb24", [(48, 64, 3)]),
        ("nv12", [(48, 64), (24, 32, 2)]),
        ("yuyv", [(48, 64, 2)]),
        ("bgra", [(48, 64, 4)]),
        ("grey", [(48, 64)]),
        ("p010", [(48, 64), (24, 32, 2)]),
    ],
)
def test_each_format_has_its_shape(format, shapes):
    frames = framepath.Path(f"test frames=1 size=64x48 format=rgba ! convert format={format}").frames()
    assert [plane.shape for plane in next(frames).planes] == shapes


def test_a_view_keeps_the_memory_of_its_frame(host):
    frames = framepath.open(clip("h264-180p8-high.h264"), host=host)
    first = next(frames).planes[0]
    before = first.copy()
    assert sum(1 for _ in frames) > 20
    frames.close()
    del frames
    gc.collect()
    assert (first == before).all()


def test_a_list_of_all_frames_has_copies(host):
    frames = framepath.open(clip("h264-180p8-container.mp4"), host=host)
    kept = list(frames)
    assert [digest(frame) for frame in kept] == framemd5("h264-180p8-container.mp4")
    assert frames.copied_bytes == (len(kept) - 4) * 320 * 180 * 3 // 2
    assert [frame.number for frame in kept] == sorted(frame.number for frame in kept) or len(kept) == 30


def test_times_and_seeks_are_exact(host):
    frames = framepath.open(clip("h264-180p8-container.mp4"), host=host)
    all_frames = [(frame.time, digest(frame)) for frame in frames]
    assert all(frame[0] is not None for frame in all_frames)
    for time, hashed in [all_frames[17], all_frames[3], all_frames[-1], all_frames[0]]:
        frame = frames.at(time)
        assert (frame.time, digest(frame)) == (time, hashed)
        # The iteration goes on behind it.
        following = next(frames, None)
        index = [entry[0] for entry in all_frames].index(time)
        assert (following and digest(following)) == (all_frames[index + 1][1] if index + 1 < len(all_frames) else None)
    assert frames.at(1e6) is None
    with pytest.raises(ValueError):
        frames.seek(-1)
    with pytest.raises(ValueError):
        frames.seek(float("nan"))
    started = framepath.open(clip("h264-180p8-container.mp4"), host=host, start=all_frames[20][0])
    assert digest(next(started)) == all_frames[20][1]
    assert (frames.width, frames.height, frames.rate, frames.duration) == (320, 180, 30.0, 1.0)
    assert framepath.open(clip("h264-180p8-high.h264"), host=host).duration is None
    with pytest.raises(ValueError, match="1e\\+300 s|1e300 s"):
        frames.at(1e300)


def test_rgb_is_one_writable_array(host):
    frames = framepath.open(clip("h264-180p8-high.h264"), host=host)
    frame = next(frames)
    rgb = frame.rgb()
    assert rgb.shape == (180, 320, 3) and rgb.dtype == numpy.uint8 and rgb.flags.writeable
    assert frames.copied_bytes == rgb.nbytes
    again = frame.rgb()
    rgb[:] = 0
    assert again.any()
    # More pictures than the pool has, all different memory.
    pictures = [frame.rgb() for _ in range(20)]
    pictures[0][:] = 7
    assert all((picture == again).all() for picture in pictures[1:])


def test_rgb_is_that_of_the_stage_convert():
    # Chroma of one colour each is the same by both ways, but for rounding.
    for format in ["yuv420p", "yuv422p", "yuv444p", "nv12", "yuv420p10", "grey"]:
        path = f"test frames=1 size=64x48 format=rgba ! convert format={format}"
        fast = next(framepath.Path(path).frames()).rgb().astype(int)
        slow = next(framepath.Path(f"{path} ! convert format=rgb24").frames()).planes[0].astype(int)
        assert abs(fast - slow).mean() < 6, format


def test_dlpack_says_that_frames_are_read_only():
    frame = next(framepath.open(clip("h264-180p8-high.h264")))
    plane = frame.plane(1)
    assert plane.__dlpack_device__() == (1, 0)
    with pytest.raises(BufferError):
        plane.__dlpack__()
    with pytest.raises(BufferError):
        plane.__dlpack__(stream=1, max_version=(1, 0))
    with pytest.raises(BufferError):
        plane.__dlpack__(max_version=(1, 0), dl_device=(2, 0))
    shared = plane.__dlpack__(max_version=(1, 1))
    assert "dltensor_versioned" in repr(shared)
    assert "dltensor" in repr(plane.__dlpack__(copy=True))
    del shared
    array = numpy.from_dlpack(plane)
    copied = numpy.from_dlpack(plane, copy=True)
    assert (array == frame.planes[1]).all() and (copied == array).all()
    del plane, frame
    gc.collect()
    assert (copied == array).all()
    copied[0, 0] ^= 1
    assert not (copied == array).all()


def test_a_poisoned_packet_costs_its_group_only():
    whole = framemd5("h264-180p8-container.mp4")
    path = f"file {framepath.quote(str(clip('h264-180p8-container.mp4')))} ! decode host=process fault=poison@12"
    frames = framepath.Path(path).frames()
    got = [digest(frame) for frame in frames]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        report = frames.close()
    assert report.lost > 0 and len(got) + report.lost == len(whole)
    assert set(got) <= set(whole)
    assert any(issubclass(warning.category, framepath.LossWarning) for warning in caught)


def test_a_killed_worker_loses_no_frame():
    whole = framemd5("h264-180p8-container.mp4")
    path = f"file {framepath.quote(str(clip('h264-180p8-container.mp4')))} ! decode host=process fault=crash@3,crash@14,crash@25"
    with framepath.Path(path).frames() as frames:
        assert [digest(frame) for frame in frames] == whole
    assert frames.report.lost == 0


def test_threads_have_iterators_of_their_own(host):
    expected = framemd5("h264-180p8-high.h264")
    results = [None] * 4

    def decode(index):
        results[index] = [digest(frame) for frame in framepath.open(clip("h264-180p8-high.h264"), host=host, threads=1)]

    threads = [threading.Thread(target=decode, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 4


def test_threads_share_an_iterator():
    frames = framepath.open(clip("h264-180p8-high.h264"))
    seen = []

    def take():
        for frame in frames:
            seen.append(digest(frame))

    threads = [threading.Thread(target=take) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == sorted(framemd5("h264-180p8-high.h264"))


def test_other_threads_run_while_a_frame_is_waited_for():
    counted, done = 0, threading.Event()

    def count():
        nonlocal counted
        while not done.is_set():
            counted += 1

    frames = framepath.Path("test frames=10 rate=20 size=64x48").frames()
    next(frames)
    thread = threading.Thread(target=count)
    thread.start()
    before = counted
    assert sum(1 for _ in frames) == 9
    after = counted
    done.set()
    thread.join()
    assert after > before


def test_wrong_arguments_are_said():
    with pytest.raises(FileNotFoundError, match="nothing.mp4"):
        framepath.open("nothing.mp4")
    with pytest.raises(FileNotFoundError):
        framepath.open("nothing.mp4", host="process")
    with pytest.raises(ValueError, match="host"):
        framepath.open(clip("vp9-180p8.ivf"), host="thread")
    with pytest.raises(TypeError):
        framepath.open(7)
    with pytest.raises(framepath.PathError, match="decode"):
        framepath.Path("file x ! decoed")
    with pytest.raises(framepath.PathError):
        framepath.open(clip("vp9-180p8.ivf"), format="no such format")
    with pytest.raises(ValueError, match="ledger"):
        framepath.open(clip("vp9-180p8.ivf"), ledger="all")
    frames = framepath.open(clip("vp9-180p8.ivf"))
    frames.close()
    assert next(frames, None) is None
    with pytest.raises(framepath.Error, match="closed"):
        frames.seek(0)
    for host, where in [("inline", ""), ("process", "in the worker: ")]:
        with pytest.raises(framepath.Error) as raised:
            framepath.open(__file__, host=host)
        assert str(raised.value) == f"file {__file__}: {where}cannot open: Invalid data found when processing input"
        with pytest.raises(FileNotFoundError, match="^file /no/such/file: cannot open: No such file or directory"):
            framepath.open("/no/such/file", host=host)
