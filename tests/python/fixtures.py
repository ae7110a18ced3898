"""What the tests of the Python package share: the recipe that it carries, trained once a process."""

import functools
import pathlib
import subprocess
import sys
import tempfile

import draftsmith

PROGRAM = [sys.executable, "-m", "draftsmith"]
_folder = tempfile.TemporaryDirectory()


@functools.cache
def trained():
    """The work directory of the tiny recipe, with a target, a drafter and a Tandem."""
    work = pathlib.Path(_folder.name) / "work"
    draftsmith.train(draftsmith.recipe("tiny"), work, until="tandem", quiet=True, device="cpu")
    return work


@functools.cache
def model():
    work = trained()
    return draftsmith.load(work / "target/model", drafter=work / "drafter/model", device="cpu")


@functools.cache
def texts():
    return (trained() / "language/test.src").read_text().splitlines()[:6]


def program(*arguments, status=0, **options):
    """The finished program; an AssertionError with its output if it ended with another status."""
    result = subprocess.run([*PROGRAM, *map(str, arguments)], capture_output=True, text=True, **options)
    assert result.returncode == status, f"{arguments}: {result.returncode}\n{result.stdout}\n{result.stderr}"
    return result


def python(code, *arguments, status=0, **options):
    """A finished Python that ran the code."""
    result = subprocess.run([sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, **options)
    assert result.returncode == status, f"{result.returncode}\n{result.stdout}\n{result.stderr}"
    return result
