# SPDX-License-Identifier: MIT OR Apache-2.0
"""The ledger of a program that knows nothing of framepath, by the command ``framepath trace``."""

import json
import os
import pathlib
import subprocess
import tempfile


class TraceReport:
    """What ``framepath trace`` has found out about a program."""

    def __init__(self, summary, html, text, returncode):
        self.summary = summary
        """The command's JSON summary, as a dictionary."""
        self._html = html
        self.text = text
        """What the command has printed: the table, and the program's own messages."""
        self.returncode = returncode
        """Exit code of the command."""

    def html(self):
        """Return the report as an HTML page."""
        return self._html

    def _repr_html_(self):
        page = self._html.replace("&", "&amp;").replace('"', "&quot;")
        return f'<iframe srcdoc="{page}" style="width:100%;height:640px;border:0" sandbox="allow-scripts"></iframe>'

    def __str__(self):
        return self.text

    def __repr__(self):
        return f"<framepath.TraceReport: exit code {self.returncode}>"


def trace(command, *, options=(), timeout=None):
    """Run a program, a list of words, and return a ``TraceReport`` of its frames. Needs root, as ``framepath trace --help`` says.

    ``options`` are further options of ``framepath trace``. Raises ``framepath.Error`` if the command writes no report, and
    ``subprocess.TimeoutExpired`` after ``timeout`` seconds.
    """
    from . import Error, program

    if isinstance(command, (str, bytes)):
        raise TypeError("expected a list of words, such as ['ffmpeg', '-i', 'clip.mp4', '-f', 'null', '-']")
    with tempfile.TemporaryDirectory(prefix="framepath-") as folder:
        summary, page = (pathlib.Path(folder, name) for name in ("summary.json", "report.html"))
        words = [program(), "trace", "--json", str(summary), "--html", str(page), *options, "--"]
        ended = subprocess.run(
            [*words, *map(os.fspath, command)], capture_output=True, text=True, errors="replace", timeout=timeout
        )
        if not summary.is_file() or not summary.stat().st_size:
            raise Error(ended.stderr.strip() or f"framepath trace: exit code {ended.returncode}")
        html = page.read_text() if page.is_file() else ""
        return TraceReport(json.loads(summary.read_text()), html, ended.stdout + ended.stderr, ended.returncode)
