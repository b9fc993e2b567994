# SPDX-License-Identifier: MIT OR Apache-2.0
"""Decodes a file by one of the packages of `framepath lab python`, and prints the figures as one line of JSON.

    bench.py framepath|framepath-process|framepath-poisoned|bare|pyav|pyav-same-ffmpeg|opencv|decord FILE yuv|rgb THREADS

`pyav-same-ffmpeg` is the PyAV that `lab` built on the FFmpeg of framepath's wheel; `bare` is `framepath` without a look at the frames. In `framepath-poisoned`, packet 500 kills every decoder that gets it. The clocks run from the opening of the file to its end; the packages are loaded before.
"""

import json
import os
import resource
import sys
import time
import warnings


def cpu():
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(part.ru_utime + part.ru_stime for part in usage)


def framepath_frames(file, threads, decode, look):
    import framepath

    def run():
        count = 0
        path = f"file {framepath.quote(file)} ! decode {decode} threads={threads}"
        with warnings.catch_warnings(action="ignore"), framepath.Path(path).frames(ledger="off") as frames:
            for frame in frames:
                look(frame)
                count += 1
        # The kernel counts the time of processes that have been waited for.
        framepath.dismiss_workers()
        copied = frames.copied_bytes + frames.report.copied_bytes
        return count, copied

    return run, framepath.__version__


def pyav_frames(file, threads, look):
    import av

    def run():
        count = 0
        with av.open(file) as container:
            stream = container.streams.video[0]
            stream.codec_context.thread_count = threads
            stream.thread_type = "AUTO"
            for frame in container.decode(stream):
                look(frame)
                count += 1
        return count, None

    return run, av.__version__


def opencv_frames(file, threads):
    import cv2

    def run():
        count = 0
        video = cv2.VideoCapture(file, cv2.CAP_FFMPEG, [cv2.CAP_PROP_N_THREADS, threads])
        while video.read()[0]:
            count += 1
        return count, None

    return run, cv2.__version__


def decord_frames(file, threads):
    import decord

    def run():
        reader = decord.VideoReader(file, num_threads=threads)
        count = 0
        for frame in reader:
            frame.asnumpy()
            count += 1
        return count, None

    return run, decord.__version__


def main(package, file, mode, threads):
    threads = int(threads)
    own = {"yuv": lambda frame: frame.planes, "rgb": lambda frame: frame.rgb()}[mode]
    arrays = {"yuv": lambda frame: frame.to_ndarray(), "rgb": lambda frame: frame.to_ndarray(format="rgb24")}[mode]
    # Otherwise numpy's library for matrices starts threads, which first poll for tens of ms.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    import numpy

    if package == "pyav-same-ffmpeg":
        sys.path.insert(0, os.path.join(sys.prefix, package))
    run, version = {
        "framepath": lambda: framepath_frames(file, threads, "host=inline", own),
        "framepath-process": lambda: framepath_frames(file, threads, "host=process", own),
        "framepath-poisoned": lambda: framepath_frames(file, threads, "host=process fault=poison@500", own),
        "bare": lambda: framepath_frames(file, threads, "host=inline", lambda frame: None),
        "pyav": lambda: pyav_frames(file, threads, arrays),
        "pyav-same-ffmpeg": lambda: pyav_frames(file, threads, arrays),
        "opencv": lambda: opencv_frames(file, threads),
        "decord": lambda: decord_frames(file, threads),
    }[package]()
    begin, begin_cpu = time.monotonic_ns(), cpu()
    frames, copied = run()
    wall_ns, cpu_ns = time.monotonic_ns() - begin, round((cpu() - begin_cpu) * 1e9)
    print(json.dumps({"frames": frames, "wall_ns": wall_ns, "cpu_ns": cpu_ns, "copied_bytes": copied, "software": f"{package} {version}, numpy {numpy.__version__}"}))


try:
    main(*sys.argv[1:])
except ModuleNotFoundError as error:
    print(json.dumps({"missing": f"Python has no package `{error.name}`; bindings/python/lab"}))
except Exception as error:
    # Others' packages do not know all codecs.
    if sys.argv[1].startswith("framepath") or sys.argv[1] == "bare":
        raise
    print(json.dumps({"missing": f"{type(error).__name__}: {error}".splitlines()[0]}))
