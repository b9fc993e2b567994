# SPDX-License-Identifier: MIT OR Apache-2.0
"""``python -m framepath``: the command ``framepath``."""

import os
import sys

from . import program

def main():
    os.execv(program(), [program(), *sys.argv[1:]])


if __name__ == "__main__":
    main()
