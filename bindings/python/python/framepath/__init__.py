# SPDX-License-Identifier: MIT OR Apache-2.0
"""Crash-proof, zero-copy video decoding, and a ledger of where each frame's time went.

    import framepath

    for frame in framepath.open("clip.mp4", host="process"):
        y, u, v = frame.planes

The functions and classes are documented in ``__init__.pyi`` (``help(framepath.open)`` shows it) and in docs/python.md.
"""

import os as _os

from . import _framepath
from ._framepath import Error, Frame, Frames, LossWarning, Path, PathError, Plane, Report, Table, dismiss_workers, quote
from ._trace import TraceReport, trace

__version__ = _framepath.__version__
__all__ = [
    "Error",
    "Frame",
    "Frames",
    "LossWarning",
    "Path",
    "PathError",
    "Plane",
    "Report",
    "Table",
    "TraceReport",
    "dismiss_workers",
    "open",
    "program",
    "quote",
    "run",
    "trace",
]


def program():
    """Return the path of the ``framepath`` command in this package: the program of the workers, and of ``python -m framepath``."""
    return _os.path.join(_os.path.dirname(_os.path.abspath(__file__)), "bin", "framepath")


# A worker of another version refuses, by name; FRAMEPATH_WORKER names another program.
_framepath.set_worker_program(program())


def open(file, *, host="inline", threads=None, format=None, start=None, ledger="times"):
    """Open a video and return its decoded frames, an iterator.

    ``file`` is a name in UTF-8, a path, or ``-`` for standard input. ``host="process"`` demuxes and decodes in sandboxed processes, whose
    crash costs no frame; ``host="inline"`` in threads of this process. ``threads`` is the decoder's number of threads, by default that
    of the processors. ``format`` converts the frames (for example ``"rgb24"``), by one counted copy. ``start`` is a time in seconds.
    ``ledger`` is the detail of the report: ``"off"``, ``"times"`` or ``"full"``.

    Raises ``FileNotFoundError``, ``ValueError`` for a wrong argument, and ``framepath.Error`` for all else.
    """
    if host not in ("inline", "process"):
        raise ValueError(f"host={host!r}: expected 'inline' or 'process'")
    name = _os.fsdecode(file)
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{file!r}: framepath opens only names that are UTF-8") from None
    text = f"file {quote(name)} ! decode host={host}"
    if threads is not None:
        text += f" threads={int(threads)}"
    if format is not None:
        text += f" ! convert format={quote(format)}"
    frames = Path(text).frames(ledger=ledger)
    if start is not None:
        frames.seek(start)
    return frames


def run(path, *, frames=None, sink=None, ledger="full"):
    """Run a path, given as text or as a ``Path``, to its end, and return its ``Report``.

    ``sink`` is a function that gets each frame; the text then has no sink. The run ends without an error if it returns ``False``. ``frames``
    is the number of frames after which the run ends. An exception of the function, and Ctrl-C, end the run and are raised here.
    """
    path = path if isinstance(path, Path) else Path(path)
    if sink is not None:
        path = path.sink(sink)
    return path.run(frames=frames, ledger=ledger)
