"""The version that landed before this one, taken from git: its chart and its programs, as they were.

After each landing the commit is moved on, and the list of names made anew: docs/contributing.md.
"""

import os
import subprocess
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Final

import pytest

PREVIOUS: Final = "a9d08eda0a60330176769b9252261b1637cee9a5"
ROOT: Final = Path(__file__).parents[2]
GIT: Final = ("git", "-C", str(ROOT))
WHAT: Final = ("charts/devicemanager", "collectors", "devicemanager")


def previous_tree(folder: Path) -> Path:
    """A folder with that version's chart and packages: what a wheel of it holds, without a build.

    Skips the test where git does not have it: see :func:`git`.
    """
    with tarfile.open(fileobj=BytesIO(git("archive", "--format=tar", PREVIOUS, *WHAT))) as archive:
        archive.extractall(folder, filter="data")
    return folder


def git(*arguments: str) -> bytes:
    """What git printed.

    Skips the test where git does not have the commit, as in a shallow clone or in no clone at all; fails it in a
    whole clone where ``CI`` is set: the commit is none then.
    """
    done = subprocess.run([*GIT, *arguments], check=False, capture_output=True)
    if done.returncode:
        why = f"no commit {PREVIOUS[:7]}, which holds the version before: {done.stderr.decode().strip()}"
        shallow = subprocess.run([*GIT, "rev-parse", "--is-shallow-repository"], check=False, capture_output=True)
        if os.environ.get("CI") and shallow.stdout.strip() == b"false":
            pytest.fail(why)
        pytest.skip(why)
    return done.stdout
