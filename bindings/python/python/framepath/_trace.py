# SPDX-License-Identifier: MIT OR Apache-2.0
"""The ledger of a program that knows nothing of framepath, by the command ``framepath trace``."""

class TraceReport:
    """What ``framepath trace`` has found out about a program."""

    def __init__(self, summary, csv, text, returncode):
        self.summary = summary
        """The command's JSON summary, as a dictionary."""
        self.csv = csv
        """The ledger of the frames: a line per frame and stage; empty without frames."""
        self.text = text
        """What the command has printed: the table, and the program's own messages."""
        self.returncode = returncode
        """Exit code of the command."""

    def __str__(self):
        return self.text

    def __repr__(self):
        return f"<framepath.TraceReport: exit code {self.returncode}>"


def trace(command, *, options=(), timeout=None):
    """Run a program, a list of words, and return a ``TraceReport`` of its frames. Root sees the causes of waits; other users see less.

    ``options`` are further options of ``framepath trace``. Raises ``framepath.Error`` if the command writes no report, and
    ``subprocess.TimeoutExpired`` after ``timeout`` seconds.
    """
    # Here, because the package is loaded five times faster without them.
    import json
    import os
    import pathlib
    import subprocess
    import tempfile

    from . import Error, program

    if isinstance(command, (str, bytes)):
        raise TypeError("expected a list of words, such as ['ffmpeg', '-i', 'clip.mp4', '-f', 'null', '-']")
    with tempfile.TemporaryDirectory(prefix="framepath-") as folder:
        summary, csv = (pathlib.Path(folder, name) for name in ("summary.json", "frames.csv"))
        words = [program(), "trace", "--json", str(summary), "--csv", str(csv), *options, "--"]
        ended = subprocess.run(
            [*words, *map(os.fspath, command)], capture_output=True, text=True, errors="replace", timeout=timeout
        )
        if not summary.is_file() or not summary.stat().st_size:
            raise Error(ended.stderr.strip() or f"framepath trace: exit code {ended.returncode}")
        rows = csv.read_text() if csv.is_file() else ""
        return TraceReport(json.loads(summary.read_text()), rows, ended.stdout + ended.stderr, ended.returncode)
