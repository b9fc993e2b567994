# SPDX-License-Identifier: MIT OR Apache-2.0
"""Signals, forks, the end of the interpreter, and workers of other programs."""

import os
import signal
import subprocess
import sys

import framepath
import pytest

from conftest import clip, digest, framemd5, python


@pytest.mark.parametrize(
    "program",
    [
        "import framepath; frames = framepath.Path('test frames=0 rate=0.02 size=64x48').frames(); next(frames); print('ready', flush=True); next(frames)",
        "import framepath; print('ready', flush=True); framepath.run('test frames=0 rate=0.02 size=64x48 ! null')",
        "import framepath; print('ready', flush=True); framepath.run('test frames=0 rate=0.02 size=64x48', sink=print)",
        # A pipe that says nothing, and one that nobody opens.
        "import framepath; print('ready', flush=True); framepath.open('-')",
        "import framepath; print('ready', flush=True); framepath.open('-', host='process')",
        "import framepath; print('ready', flush=True); framepath.open('fifo')",
        "import framepath; print('ready', flush=True); framepath.Path('test frames=9 ! encode h264').append('mux fifo')",
    ],
)
def test_ctrl_c_ends_a_wait(program, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    silent, writer = os.pipe()
    # A shell's background jobs ignore SIGINT, and Python then leaves it ignored; a terminal's programs do not.
    child = subprocess.Popen(
        ["env", "--default-signal=INT", sys.executable, "-c", program],
        stdin=silent, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
    )
    assert child.stdout.readline() == "ready\n"
    child.send_signal(signal.SIGINT)
    _, error = child.communicate(timeout=60)
    os.close(silent)
    os.close(writer)
    assert "KeyboardInterrupt" in error
    assert child.returncode == -signal.SIGINT


def test_a_fork_leaves_the_parent_its_frames(host):
    frames = framepath.open(clip("h264-180p8-container.mp4"), host=host)
    first = next(frames)
    kept = [digest(first)]
    pid = os.fork()
    if pid == 0:
        # No exit handlers of pytest.
        try:
            next(frames)
        except RuntimeError as error:
            readable = digest(first) == kept[0] and "forked" in str(error)
            del frames, first
            os._exit(0 if readable else 2)
        os._exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    kept += [digest(frame) for frame in frames]
    assert kept == framemd5("h264-180p8-container.mp4")


@pytest.mark.parametrize("host", ["inline", "process"])
def test_the_interpreter_ends_with_frames_alive(host):
    program = f"""
import framepath, threading
frames = framepath.open({str(clip("h264-1080p8.h264"))!r}, host={host!r})
kept = [next(frames) for _ in range(3)]
view = kept[0].planes[0]
forever = framepath.Path("test frames=0 rate=0.02 size=64x48").frames()
next(forever)
threading.Thread(target=lambda: next(forever, None), daemon=True).start()
"""
    ended = python(program)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_close_ends_the_wait_of_another_thread():
    program = """
import framepath, threading
frames = framepath.Path("test frames=0 rate=0.02 size=64x48").frames()
next(frames)
results = []
waiting = threading.Thread(target=lambda: results.append(next(frames, None)))
waiting.start()
while waiting.native_id is None or open(f"/proc/self/task/{waiting.native_id}/stat").read().rsplit(") ", 1)[1][0] != "S":
    pass
assert frames.width == 64
frames.close()
waiting.join()
assert results == [None], results
"""
    ended = python(program)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_thousand_opens_and_closes_leave_nothing():
    program = f"""
import framepath, gc, os

def count():
    gc.collect()
    return [len(os.listdir(f"/proc/self/{{folder}}")) for folder in ("fd", "task")]

def memory():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

name = {str(clip("h264-180p8-high.h264"))!r}
for index in range(1050):
    frames = framepath.open(name)
    frame = next(frames)
    if index % 3 == 0:
        frames.close()
    del frames, frame
    if index == 50:
        before, resident = count(), memory()
assert count() == before, (count(), before)
assert memory() - resident < 64 << 20, memory() - resident
"""
    ended = python(program)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_worker_of_another_program_is_refused_by_name():
    program = f"import framepath; next(framepath.open({str(clip('vp9-180p8.ivf'))!r}, host='process'))"
    for worker, said in [("/bin/true", "framepath.Error"), ("/no/such/program", "FileNotFoundError")]:
        ended = python(program, FRAMEPATH_WORKER=worker)
        assert ended.returncode == 1 and worker in ended.stderr and said in ended.stderr, ended.stderr


def test_the_package_is_the_command_too():
    ended = subprocess.run([sys.executable, "-m", "framepath", "--version"], capture_output=True, text=True)
    assert ended.stdout.split() == ["framepath", framepath.__version__]


def test_frames_that_are_kept_need_few_descriptors():
    program = """
import framepath, os
kept = [(frame, frame.rgb()) for frame in framepath.Path("test frames=700 size=64x48").frames()]
assert len(kept) == 700
count = len(os.listdir("/proc/self/fd"))
assert count < 100, count
"""
    ended = python(program)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_workers_that_wait_are_dismissed():
    program = f"""
import framepath, os
assert sum(1 for _ in framepath.open({str(clip("vp9-180p8.ivf"))!r}, host="process")) == 30
own = [f"/proc/self/task/{{task}}/children" for task in os.listdir("/proc/self/task")]
assert any(open(name).read() for name in own)
framepath.dismiss_workers()
assert not any(open(name).read() for name in own)
"""
    ended = python(program)
    assert (ended.returncode, ended.stderr) == (0, "")
