# SPDX-License-Identifier: MIT OR Apache-2.0
"""Clips of the checkout, and what the command says about them."""

import hashlib
import os
import pathlib
import subprocess
import sys

import framepath
import pytest

CLIPS = pathlib.Path(__file__).parents[3] / "clips"


def clip(name):
    return CLIPS / name


def framemd5(name, options=""):
    """Hashes of a clip's decoded frames, by the command of the package."""
    path = f"file {framepath.quote(str(clip(name)))} ! decode {options} ! framemd5 -"
    lines = subprocess.run([framepath.program(), "run", "--quiet", path], capture_output=True, text=True, check=True).stdout
    return [line.split(",")[-1].strip() for line in lines.splitlines() if not line.startswith("#")]


def digest(frame):
    """Hash of a frame's samples, as the command's."""
    hashed = hashlib.md5()
    for plane in frame.planes:
        hashed.update(plane.tobytes())
    return hashed.hexdigest()


def python(program, **variables):
    """Run a program in an interpreter of its own."""
    environment = {**os.environ, **variables}
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, env=environment)


@pytest.fixture(params=["inline", "process"])
def host(request):
    return request.param
