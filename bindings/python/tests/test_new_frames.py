# SPDX-License-Identifier: MIT OR Apache-2.0
"""Stages whose functions return arrays for new frames."""

import ctypes
import gc
import re
import sys
import threading

import framepath
import numpy
import pytest

from conftest import clip, digest, python

FORMATS = ["grey", "grey16", "ya8", "yuv420p", "yuv422p10", "yuva444p12", "nv12", "p010", "yuyv", "rgb24", "bgra", "gbrp", "gbrap10"]


def source(format, frames=3, size="64x48"):
    return f"test frames={frames} size={size} format=rgba ! convert format={format}"


def taken(function, format="grey", path=None, named=None):
    """Frames behind a stage."""
    return list(framepath.Path(path or source(format)).stage(function, format=named).frames())


def error_of(function, format="grey", named=None):
    """Exception that ends a run in which a stage has the function."""
    with pytest.raises((TypeError, ValueError)) as raised:
        framepath.Path(source(format)).stage(function, format=named).append("null").run()
    return raised.value


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("size", ["64x48", "33x17"])
def test_arrays_become_the_planes_of_a_frame(format, size):
    expected = []

    def invert(frame):
        planes = [~plane for plane in frame.planes]
        expected.append([plane.copy() for plane in planes])
        return planes if frame.number % 2 else tuple(planes)

    frames = taken(invert, path=source(format, size=size))
    assert [frame.format for frame in frames] == [format] * 3
    for frame, planes in zip(frames, expected, strict=True):
        assert f"{frame.width}x{frame.height}" == size
        assert [plane.shape for plane in frame.planes] == [plane.shape for plane in planes]
        assert all((got == plane).all() for got, plane in zip(frame.planes, planes, strict=True))
        assert not any(plane.flags.writeable for plane in frame.planes)


def test_a_frame_keeps_its_times_and_number():
    seen = []

    def same(frame):
        seen.append((frame.number, frame.pts, frame.time))
        return frame.planes

    path = f"file {framepath.quote(str(clip('h264-180p8-container.mp4')))} ! decode"
    frames = taken(same, path=path)
    assert [(frame.number, frame.pts, frame.time) for frame in frames] == seen and len(seen) == 30
    assert [digest(frame) for frame in frames] == [digest(frame) for frame in framepath.Path(path).frames()]


def test_the_ledger_counts_one_copy():
    path = "test frames=5 size=64x48 format=yuv420p"
    report = framepath.Path(path).stage(lambda frame: frame.planes).append("null").run()
    assert report.copied_bytes == 5 * 64 * 48 * 3 // 2
    assert report.table.to_dict()["frames"] == [5, 5, 5]
    # Columns that are not side by side count as often, and RGB of a frame is one more copy.
    grey = framepath.Path(path).stage(lambda frame: frame.planes[0][:, ::2], format="grey")
    assert grey.append("null").run().copied_bytes == 5 * 32 * 48
    drawn = framepath.Path(path).stage(lambda frame: frame.rgb(), format="rgb24")
    assert drawn.append("null").run().copied_bytes == 2 * 5 * 64 * 48 * 3
    for none in [lambda frame: frame, lambda frame: None if frame.number else frame]:
        assert framepath.Path(path).stage(none).sink(lambda frame: None).run().copied_bytes == 0
    # The fifth frame that is kept is a copy.
    kept = []
    assert framepath.run(path, sink=kept.append).copied_bytes == 64 * 48 * 3 // 2 and len(kept) == 5


def test_a_named_format_and_another_size():
    frames = taken(lambda frame: frame.rgb()[:20, :30], "nv12", named="RGB24")
    assert [(frame.width, frame.height, frame.format) for frame in frames] == [(30, 20, "rgb24")] * 3
    frames = taken(lambda frame: (frame.planes[0], frame.planes[1][..., 0], frame.planes[1][..., 1]), "nv12", named="yuv420p")
    expected = framepath.Path(source("nv12") + " ! convert format=yuv420p").frames()
    assert [digest(frame) for frame in frames] == [digest(frame) for frame in expected]
    grey = taken(lambda frame: frame if frame.number else frame.planes[0], "grey", named="grey")
    assert len(grey) == 3


def test_the_hops_behind_get_the_declared_format(tmp_path):
    file = tmp_path / "inverted.webm"
    path = framepath.Path(source("yuv420p", frames=10)).stage(lambda frame: [255 - plane for plane in frame.planes])
    report = path.append(f"encode vp8 crf=4 ! mux {framepath.quote(str(file))}").run()
    assert report.frames == 10
    with framepath.open(file) as frames:
        got = [frame.planes[0].astype(int) for frame in frames]
    original = [frame.planes[0] for frame in framepath.Path(source("yuv420p", frames=10)).frames()]
    assert len(got) == 10
    assert all(abs(plane - (255 - before)).mean() < 6 for plane, before in zip(got, original, strict=True))


def test_boxes_on_rgb_are_encoded(tmp_path):
    file = tmp_path / "boxes.webm"

    def box(frame):
        picture = frame.rgb()
        picture[16:32, 16:32] = (255, 0, 0)
        return picture

    path = framepath.Path("test frames=10 size=64x48 format=yuv420p").stage(box, format="rgb24")
    path.append(f"convert format=yuv420p ! encode vp8 crf=4 ! mux {framepath.quote(str(file))}").run()
    with framepath.open(file, format="rgb24") as frames:
        boxes = [frame.planes[0][20:28, 20:28].reshape(-1, 3).mean(axis=0) for frame in frames]
    assert len(boxes) == 10
    assert all(red > 220 and green < 40 and blue < 40 for red, green, blue in boxes)


def test_colours_are_those_of_the_stage_convert():
    # The conversion back to YUV depends on them.
    for way in [("yuv420p", "rgb24", "yuv444p"), ("grey", "rgb24", "yuv444p"), ("rgba", "yuv444p", "rgb24")]:
        start, middle, end = way
        converted = list(framepath.Path(f"{source(start)} ! convert format={middle}").frames())
        path = framepath.Path(source(start)).stage(lambda frame: converted[frame.number].planes, format=middle)
        got = [digest(frame) for frame in path.append(f"convert format={end}").frames()]
        expected = framepath.Path(f"{source(start)} ! convert format={middle} ! convert format={end}").frames()
        assert got == [digest(frame) for frame in expected], way


def test_arrays_with_any_strides():
    pixels = numpy.arange(48 * 64 * 3, dtype=numpy.uint32).reshape(48, 64, 3).astype(numpy.uint8)
    wide = numpy.zeros((96, 130, 6), numpy.uint8)
    wide[::2, 1:129:2, ::2] = pixels
    frozen = pixels.copy()
    frozen.flags.writeable = False
    arrays = [
        pixels,
        frozen,
        numpy.asfortranarray(pixels),
        pixels[::-1].copy()[::-1],
        pixels[:, ::-1].copy()[:, ::-1],
        pixels[..., ::-1].copy()[..., ::-1],
        pixels.transpose(1, 0, 2).copy().transpose(1, 0, 2),
        wide[::2, 1:129:2, ::2],
        numpy.pad(pixels, ((0, 0), (3, 5), (0, 0)))[:, 3:67],
        memoryview(pixels.tobytes()).cast("B", (48, 64, 3)),
        (ctypes.c_uint8 * 3 * 64 * 48).from_buffer_copy(pixels),
        (pixels,),
        [pixels],
    ]
    for array in arrays:
        assert (taken(lambda frame: array, "rgb24")[0].planes[0] == pixels).all(), array
    row = numpy.arange(64, dtype=numpy.uint8)
    assert (taken(lambda frame: numpy.broadcast_to(row, (48, 64)))[2].planes[0] == row).all()
    assert (taken(lambda frame: frame.plane(0))[2].planes[0] == taken(lambda frame: frame)[2].planes[0]).all()
    # The views are of the frame's own memory.
    flipped = taken(lambda frame: [plane[::-1, ::-1] for plane in frame.planes], "nv12")
    for frame, before in zip(flipped, taken(lambda frame: frame, "nv12"), strict=True):
        assert all((got == plane[::-1, ::-1]).all() for got, plane in zip(frame.planes, before.planes, strict=True))


@pytest.mark.parametrize("size", [(48, 64), (1, 1), (1, 64), (48, 1)])
def test_samples_of_16_bits_in_any_byte_order(size):
    samples = (numpy.arange(size[0] * size[1]).reshape(size) * 77 + 5).astype(numpy.uint16)
    for array in [samples, samples.astype("<u2"), samples.astype(">u2"), samples.astype(">u2")[::-1].copy()[::-1]]:
        got = taken(lambda frame: array, "grey16")[0].planes[0]
        assert got.dtype == numpy.uint16 and (got == samples).all()


def zeros(*shape, dtype=numpy.uint8):
    return numpy.zeros(shape, dtype)


@pytest.mark.parametrize(
    ("format", "returned", "kind", "text"),
    [
        ("yuv420p", (zeros(180, 320), zeros(90, 161), zeros(90, 160)), ValueError, "plane 1: expected 90 x 160 samples of 8 bits, got 90 x 161 samples of 8 bits"),
        ("yuv420p", (zeros(180, 320), zeros(90, 160), zeros(90, 160, 1)), ValueError, "plane 2: expected 90 x 160 samples of 8 bits, got 90 x 160 x 1"),
        ("yuv420p", (zeros(180, 320), "u", "v"), TypeError, "plane 1: expected 90 x 160 samples of 8 bits, got <class 'str'>, which is no array"),
        ("yuv420p", zeros(180, 320, 3), ValueError, r"expected a tuple of 3 arrays, one for each plane of yuv420p, got 1 .*numpy.ndarray.*format="),
        ("yuv420p", (zeros(180, 320), zeros(90, 160)), ValueError, r"expected a tuple of 3 arrays.*got 2 \(<class 'tuple'>\)"),
        ("grey", (), ValueError, "expected one array, for the plane of grey, got 0"),
        ("grey", [[1, 2], [3, 4]], ValueError, "expected one array.*got 2"),
        ("grey", [[1, 2]], TypeError, "plane 0: expected rows x columns samples of 8 bits, got <class 'list'>"),
        ("grey", zeros(48, 64, dtype=numpy.uint16), ValueError, "plane 0: expected rows x columns samples of 8 bits, got 48 x 64 samples of 16 bits"),
        ("grey", zeros(48, 64, dtype=numpy.int8), ValueError, "got 48 x 64 signed integers of 8 bits"),
        ("grey", zeros(48, 64, dtype=bool), ValueError, "got 48 x 64 booleans"),
        ("grey", zeros(48, 64, dtype=numpy.float32), ValueError, "got 48 x 64 floats of 32 bits"),
        ("grey", zeros(48, 64, dtype="S1"), ValueError, "got 48 x 64 items of the format \"1s\""),
        ("grey", zeros(48, 64, dtype="u1,u1"), ValueError, "got 48 x 64 items of the format \"T{"),
        ("grey", zeros(48, 64, dtype=object), ValueError, "got 48 x 64 items of the format \"O\""),
        ("grey", zeros(48, 64, 3), ValueError, "got 48 x 64 x 3 samples"),
        ("grey", zeros(*[1] * 40), ValueError, "got 1 x 1 x 1 x"),
        ("grey", bytes(48 * 64), ValueError, "got 3072 samples of 8 bits"),
        ("grey", numpy.uint8(3), ValueError, "plane 0: expected rows x columns samples of 8 bits, got <class 'numpy.uint8'>: BufferError"),
        ("grey", zeros(0, 64), ValueError, "picture size 64x0 is outside 1x1 to"),
        ("grey", zeros(1, 20000), ValueError, "picture size 20000x1 is outside"),
        ("grey16", zeros(48, 64), ValueError, "expected rows x columns samples of 16 bits, got 48 x 64 samples of 8 bits"),
        ("rgb24", zeros(48, 64, 4), ValueError, "plane 0: expected rows x columns x 3 samples of 8 bits, got 48 x 64 x 4 samples of 8 bits"),
        ("yuyv", zeros(48, 63, 2), ValueError, "plane 0: expected 48 x 64 x 2 samples of 8 bits, got 48 rows and 63 columns"),
        ("nv12", (zeros(48, 64), zeros(24, 64)), ValueError, "plane 1: expected 24 x 32 x 2 samples of 8 bits, got 24 x 64 samples"),
        ("grey", "a string", TypeError, "a stage returns the frame that it got, None to drop it, or arrays"),
        ("grey", 7, TypeError, "not <class 'int'>"),
        ("grey", {"plane": 1}, TypeError, "not <class 'dict'>"),
    ],
)
def test_other_objects_are_refused_by_name(format, returned, kind, text):
    error = error_of(lambda frame: returned, format)
    assert type(error) is kind and re.search(text, str(error)), error


def test_frames_before_a_wrong_array_are_there():
    got = []
    with pytest.raises(ValueError, match="plane 0"):
        for frame in framepath.Path(source("grey", frames=9)).stage(lambda frame: zeros(4, 4) if frame.number < 5 else zeros(4)).frames():
            got.append(frame.number)
    assert got == [0, 1, 2, 3, 4]


def test_a_format_is_checked_at_once():
    path = framepath.Path("test frames=1")
    with pytest.raises(ValueError, match="format=\"rgb25\": no such pixel format; known: grey, .*, rgb24, "):
        path.stage(print, format="rgb25")
    with pytest.raises(TypeError):
        path.stage(print, format=24)
    with pytest.raises(TypeError):
        path.stage(print, "rgb24")
    # The path is as it was.
    assert repr(path.stage(lambda frame: None, format="gray8")) == "<framepath.Path test frames=1 ! python format=grey>"
    error = error_of(lambda frame: frame, "yuv420p", named="rgb24")
    assert type(error) is ValueError and "returned a frame of \"yuv420p\"; return an array, such as frame.rgb()" in str(error)


class Interface:
    """Names memory that is not there."""

    __array_interface__ = {"shape": (48, 64), "typestr": "|u1", "data": (16, False), "version": 3}


class Refuses:
    __array__ = None

    def __buffer__(self, flags):
        raise LookupError("no buffer today")


class Wrong:
    def __buffer__(self, flags):
        return "no memoryview"


def lying(length, shape, item=1, pointers=None):
    """A buffer with numbers of its own, of memory that stays."""
    memory = ctypes.create_string_buffer(1 << 16)
    sizes = (ctypes.c_ssize_t * len(shape))(*shape)
    strides = (ctypes.c_ssize_t * len(shape))(*[item * int(numpy.prod(shape[index + 1:])) for index in range(len(shape))])

    class Buffer(ctypes.Structure):
        _fields_ = [
            ("buf", ctypes.c_void_p), ("obj", ctypes.c_void_p), ("len", ctypes.c_ssize_t), ("itemsize", ctypes.c_ssize_t),
            ("readonly", ctypes.c_int), ("ndim", ctypes.c_int), ("format", ctypes.c_char_p), ("shape", ctypes.c_void_p),
            ("strides", ctypes.c_void_p), ("suboffsets", ctypes.c_void_p), ("internal", ctypes.c_void_p),
        ]

    suboffsets = pointers and ctypes.addressof(pointers)
    start = ctypes.addressof(memory)
    view = Buffer(start, None, length, item, 1, len(shape), b"B", ctypes.addressof(sizes), ctypes.addressof(strides), suboffsets, None)
    make = ctypes.pythonapi.PyMemoryView_FromBuffer
    make.restype, make.argtypes = ctypes.py_object, [ctypes.POINTER(Buffer)]
    LYING.append((memory, sizes, strides, view, pointers))
    return make(ctypes.byref(view))


LYING = []


def test_objects_that_lie_are_refused():
    for returned in [Interface(), (Interface(),)]:
        assert type(error_of(lambda frame: returned)) is TypeError
    # Python before 3.12 does not know __buffer__.
    if sys.version_info >= (3, 12):
        with pytest.raises(LookupError, match="today"):
            framepath.Path(source("grey")).stage(lambda frame: Refuses()).append("null").run()
        assert type(error_of(lambda frame: Wrong())) is TypeError
    else:
        assert type(error_of(lambda frame: Refuses())) is TypeError
    assert (taken(lambda frame: lying(48 * 64, (48, 64)))[0].planes[0] == 0).all()
    pointers = (ctypes.c_ssize_t * 2)(0, -1)
    for returned in [
        lambda: lying(48 * 64 - 1, (48, 64)),
        lambda: lying(1 << 62, (48, 64)),
        lambda: lying(48 * 64, (-48, -64)),
        lambda: lying(48 * 64 * 2, (48, 64), item=2),
        lambda: lying(0, (1 << 32, 1 << 32)),
        lambda: lying(48 * 64, (48, 64), pointers=pointers),
    ]:
        error = error_of(lambda frame: returned())
        assert type(error) is ValueError and "plane 0" in str(error), error
    released = memoryview(bytes(8)).cast("B", (2, 4))
    released.release()
    assert type(error_of(lambda frame: released)) is ValueError


def test_memory_may_change_during_the_copy():
    array = numpy.zeros((1080, 1920, 3), numpy.uint8)
    grown = bytearray(1080 * 1920)
    done = threading.Event()

    def change():
        value = 0
        while not done.is_set():
            value = (value + 1) % 256
            array[...] = value
            try:
                grown.extend(b"0")
                del grown[1080 * 1920:]
            except BufferError:
                # The copy has the memory.
                pass

    thread = threading.Thread(target=change)
    thread.start()
    try:
        path = framepath.Path("test frames=60 size=64x48 format=grey").stage(lambda frame: array[:, ::1 + frame.number % 2], format="rgb24")
        assert path.append("null").run().frames == 60

        def shares(frame):
            try:
                return memoryview(grown).cast("B", (1080, 1920))
            except TypeError:
                # The other thread has just made it longer.
                return None

        assert framepath.Path("test frames=60 size=64x48 format=grey").stage(shares).append("null").run().frames <= 60
    finally:
        done.set()
        thread.join()


def test_arrays_are_let_go():
    class Array(numpy.ndarray):
        alive = 0

        def __del__(self):
            Array.alive -= 1

    def new(frame):
        Array.alive += 1
        return zeros(48, 64).view(Array)

    assert framepath.Path(source("grey", frames=50)).stage(new).append("null").run().frames == 50
    gc.collect()
    assert Array.alive == 0


def test_a_stage_may_keep_all_frames():
    kept = []

    def keep(frame):
        kept.append(frame)
        return 255 - frame.planes[0]

    frames = taken(keep, path=source("grey", frames=50))
    assert len(kept) == len(frames) == 50
    assert all((frame.planes[0] == 255 - before.planes[0]).all() for frame, before in zip(frames, kept, strict=True))
    assert len({digest(frame) for frame in frames}) > 1


def test_functions_that_keep_frames_share_the_room():
    # More than the pool of the first stage has slots.
    program = """
import framepath
kept = []

def keeps(frame):
    kept.append(frame)
    return frame if frame.number % 3 else None

def new(frame):
    return 255 - frame.planes[0]

path = framepath.Path("test frames=60 size=64x48 format=grey").stage(new)
for part in [keeps, keeps, keeps]:
    path = path.stage(part)
taken = list(path.append("queue depth=30").stage(keeps).stage(new).append("queue depth=30").frames())
assert len(taken) == 40 and len(kept) == 60 + 3 * 40, (len(taken), len(kept))
"""
    ended = python(program)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_other_threads_run_while_a_stage_waits_for_room():
    # Its eight slots are all in the queue, and the sink needs the GIL to empty it.
    program = """
import framepath
got = []
path = framepath.Path("test frames=200 size=64x48 format=grey").stage(lambda frame: frame.planes[0] | 1).append("queue depth=64")
report = path.sink(lambda frame: got.append(int(frame.planes[0].min()) & 1)).run()
assert report.frames == 200 and got == [1] * 200
"""
    ended = python(program)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_thousand_sizes():
    sizes = [(1 + index * 37 % 211, 1 + index * 53 % 307) for index in range(1000)]

    def of_size(frame):
        return numpy.full(sizes[frame.number], frame.number % 256, numpy.uint8)

    path = framepath.Path("test frames=1000 size=16x16 format=grey").stage(of_size)
    for frame in path.frames():
        (plane,) = frame.planes
        assert plane.shape == sizes[frame.number] and (plane == frame.number % 256).all()
    assert frame.number == 999
