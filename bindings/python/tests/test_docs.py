# SPDX-License-Identifier: MIT OR Apache-2.0
"""The examples of docs/python.md run, and the stubs name what is there."""

import ast
import inspect
import pathlib
import re
import shutil
import subprocess
import sys

import framepath
import pytest

from conftest import CLIPS

PAGE = CLIPS.parent / "docs" / "python.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_an_example_runs(example, tmp_path):
    shutil.copy(CLIPS / "h264-180p8-container.mp4", tmp_path / "clip.mp4")
    ended = subprocess.run([sys.executable, "-W", "error", "-c", example], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stderr) == (0, ""), example


def test_the_page_has_examples():
    assert len(EXAMPLES) >= 3


def test_the_stubs_name_all_there_is():
    stubs = ast.parse(pathlib.Path(framepath.__file__).with_name("__init__.pyi").read_text())
    classes = {node.name: node for node in stubs.body if isinstance(node, ast.ClassDef)}
    functions = {node.name for node in stubs.body if isinstance(node, ast.FunctionDef)}
    assert set(framepath.__all__) == set(classes) | functions
    for name, node in classes.items():
        if name in {"Error", "PathError", "LossWarning"}:
            continue
        stubbed = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
        stubbed |= {part.target.id for part in node.body if isinstance(part, ast.AnnAssign)}
        there = {part for part in vars(getattr(framepath, name)) if not part.startswith("_")}
        public = {part for part in stubbed if not part.startswith("_")}
        if name == "TraceReport":
            # Set by its constructor.
            there |= set(inspect.signature(framepath.TraceReport.__init__).parameters) - {"self"}
        assert public == there, name


def test_arguments_are_those_of_the_stubs():
    stubs = ast.parse(pathlib.Path(framepath.__file__).with_name("__init__.pyi").read_text())
    for node in stubs.body:
        if isinstance(node, ast.FunctionDef):
            names = [argument.arg for argument in node.args.args + node.args.kwonlyargs]
            assert names == list(inspect.signature(getattr(framepath, node.name)).parameters), node.name
