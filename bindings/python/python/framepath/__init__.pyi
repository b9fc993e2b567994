# SPDX-License-Identifier: MIT OR Apache-2.0
import os
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Literal, final

import numpy
import numpy.typing
from typing_extensions import Buffer

__version__: str

class Error(Exception):
    """A path could not be started, or has failed. A file that is not there is a ``FileNotFoundError``."""

class PathError(ValueError):
    """The text of a path is not valid; the message says what is expected."""

class LossWarning(RuntimeWarning):
    """Frames were lost or damaged; the run went on. Given by ``Frames.close``, and when the frames are dropped."""

@final
class Plane:
    """A plane of a frame. It has the buffer protocol and DLPack, both read-only and without a copy.

    The shape is (rows, columns), or (rows, columns, samples) for a plane with several samples for each pixel, such as RGB24 (3) or the
    chroma of NV12 (2). Samples have 8 bits, or 16 for formats of more than 8. All views keep the frame's memory.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one row, column and sample to the next."""
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __dlpack__(
        self,
        *,
        stream: None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Return a capsule for other libraries, as ``numpy.from_dlpack`` and ``torch.from_dlpack`` call it.

        Raises ``BufferError`` for a consumer of a version before 1.0, which cannot know that the memory is read-only, unless it wants a
        copy.
        """

@final
class Frame:
    """A decoded frame. It and its views keep a buffer of the decoder; see ``Frames`` for programs that keep many."""

    @property
    def width(self) -> int: ...
    @property
    def height(self) -> int: ...
    @property
    def format(self) -> str:
        """Pixel format, such as ``"yuv420p"``."""
    @property
    def number(self) -> int:
        """Number of the frame's packet: packets count from 0 in the order of decoding, and go on counting after a seek.

        Pictures are shown in another order where the stream has B pictures: ``time`` says when.
        """
    @property
    def pts(self) -> int | None:
        """Presentation time in ticks of the stream; ``None`` if the stream has none."""
    @property
    def time(self) -> float | None:
        """Presentation time in seconds; ``None`` if the stream has none."""
    @property
    def is_damaged(self) -> bool:
        """True if the decoder has concealed parts of the picture, because the stream is damaged."""
    @property
    def planes(self) -> tuple[numpy.typing.NDArray[Any], ...]:
        """The planes as read-only arrays of numpy, without a copy. ``Plane`` has the shapes."""
    def plane(self, index: int) -> Plane:
        """Return a plane, from 0. Raises ``IndexError``."""
    def rgb(self) -> numpy.typing.NDArray[numpy.uint8]:
        """Return the picture as RGB: rows, columns, 3. The array is the program's own; the conversion counts as one copy.

        8-bit YUV repeats its chroma samples, as other packages do. The colours are those that the stream names; without a name BT.709 from
        1025 columns on, else BT.601.
        """
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> numpy.typing.NDArray[Any]:
        """Return the only plane of a packed or grey frame. Raises ``Error`` for a frame with several planes."""

@final
class Frames:
    """The frames of a running path, in the order of their presentation: an iterator and a context manager.

    The decoder works ahead in threads or processes of its own, and waits release the GIL, so that other threads run. Several threads may
    share an iterator. A program that keeps more than four frames of a path gets copies of further ones, which ``copied_bytes`` counts. After
    ``os.fork``, the child can read the frames that it has, and gets ``RuntimeError`` for further ones.
    """

    def __iter__(self) -> Frames: ...
    def __next__(self) -> Frame: ...
    def __enter__(self) -> Frames: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...
    def seek(self, seconds: float, *, exact: bool = True) -> None:
        """Go to a time, in seconds from the stream's start: the next frame is the first one that is not before it.

        With ``exact=False`` it is the keyframe at or before it, which is faster. Also works behind the last frame. Raises ``Error`` for a
        source that cannot seek, and ``ValueError`` for a negative time.
        """
    def at(self, seconds: float) -> Frame | None:
        """Seek, and return the next frame; ``None`` behind the last one."""
    def close(self) -> Report | None:
        """End the decoder and its processes, and return the report. Frames that the program has stay valid.

        Warns with ``LossWarning`` if frames were lost or damaged.
        """
    @property
    def report(self) -> Report | None:
        """The report; ``None`` before ``close``."""
    @property
    def copied_bytes(self) -> int:
        """Bytes that were copied because the program keeps many frames, or has called ``Frame.rgb``."""
    @property
    def width(self) -> int | None: ...
    @property
    def height(self) -> int | None: ...
    @property
    def rate(self) -> float | None:
        """Frames a second; ``None`` if the stream does not say it."""
    @property
    def duration(self) -> float | None:
        """Seconds from the start of the stream to its end, as the container declares it; ``None`` if it does not.

        Elementary streams, pipes and live streams have none.
        """

@final
class Path:
    """A path that is built from text and functions, and runs once."""

    def __init__(self, text: str) -> None:
        """Read the text of a path, such as ``"file clip.mp4 ! decode"``. Raises ``PathError``."""
    def append(self, text: str) -> Path:
        """Add hops behind the last one, such as ``"queue ! scale size=640x360"``."""
    def stage(
        self,
        function: Callable[[Frame], Frame | Buffer | numpy.typing.NDArray[Any] | Sequence[Buffer | numpy.typing.NDArray[Any]] | None],
        *,
        format: str | None = None,
    ) -> Path:
        """Add a function that gets each frame, and returns the frame to pass it on, arrays to pass on a new one, or ``None`` to drop it.

        The arrays are one for each plane, in the shapes of ``Plane``, or a single one for a format with one plane. They have the buffer
        protocol, samples of 8 bits, or of 16 for formats of more than 8, and any strides. ``format`` names the format of the new frames
        (for example ``"rgb24"``); by default it is that of the incoming frame. The first array gives the size. Time, number and duration
        are those of the incoming frame, and so are the colours, converted to a named format as by the stage ``convert``. The arrays are
        copied once, which ``Report.copied_bytes`` counts.

        Raises ``ValueError`` for an unknown format. The function is called in the thread of the hop before it. Its exceptions end the run,
        and are raised by ``run`` or the iterator; so are ``ValueError`` and ``TypeError`` for arrays that do not fit the format.
        """
    def sink(self, function: Callable[[Frame], Any]) -> Path:
        """End the path in a function that gets each frame; the run ends without an error if it returns ``False``."""
    def frames(self, *, ledger: Literal["off", "times", "full"] = "full") -> Frames:
        """Start a path without a sink, and return its frames."""
    def run(self, *, frames: int | None = None, ledger: Literal["off", "times", "full"] = "full") -> Report:
        """Run a path with a sink to its end, or for a number of frames. Ctrl-C ends it."""

@final
class Table:
    """A table with a row for each hop. pandas, polars, pyarrow and others read it by Arrow's PyCapsule interface.

    Columns with ``_us`` are microseconds: of the median frame for the causes, of all frames for ``wall_p50_us`` and ``wall_p99_us``, and the
    sum of all frames for ``cpu_us``. ``None`` is a figure that is not known.
    """

    @property
    def columns(self) -> list[str]: ...
    def to_dict(self) -> dict[str, list[Any]]: ...
    def __len__(self) -> int: ...
    def __arrow_c_schema__(self) -> Any: ...
    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...

@final
class Report:
    """The ledger of a run. ``str`` gives the command's table, and Jupyter shows the page."""

    @property
    def frames(self) -> int: ...
    @property
    def lost(self) -> int:
        """Number of lost frames; ``losses`` has the reasons."""
    @property
    def losses(self) -> list[str]: ...
    @property
    def notes(self) -> list[str]: ...
    @property
    def copied_bytes(self) -> int:
        """Bytes that the CPU has copied in the path, its functions' ``Frame.rgb`` included, without those that ``Frames.copied_bytes`` counts."""
    @property
    def wall(self) -> float:
        """Duration, seconds."""
    @property
    def cpu(self) -> float:
        """CPU time of the process and its workers, seconds."""
    @property
    def path(self) -> str: ...
    @property
    def table(self) -> Table: ...
    def json(self) -> str:
        """Return the summary that ``framepath run --json`` writes."""
    def _repr_html_(self) -> str: ...
    def html(self) -> str:
        """Return the page that ``framepath run --html`` writes."""

class TraceReport:
    """What ``framepath trace`` has found out about a program."""

    summary: dict[str, Any]
    csv: str
    text: str
    returncode: int

def open(
    file: str | os.PathLike[str],
    *,
    host: Literal["inline", "process"] = "inline",
    threads: int | None = None,
    format: str | None = None,
    start: float | None = None,
    ledger: Literal["off", "times", "full"] = "times",
) -> Frames: ...
def run(
    path: str | Path,
    *,
    frames: int | None = None,
    sink: Callable[[Frame], Any] | None = None,
    ledger: Literal["off", "times", "full"] = "full",
) -> Report: ...
def trace(command: Sequence[str | os.PathLike[str]], *, options: Iterable[str] = (), timeout: float | None = None) -> TraceReport: ...
def dismiss_workers() -> None: ...
def program() -> str: ...
def quote(word: str) -> str: ...
