"""The program that the package carries, as the command `draftsmith`. Imports no torch, which would take seconds."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import pathlib
import runpy
import sys
from typing import NoReturn

PACKAGES = pathlib.Path(__file__).resolve().parent
PROGRAM = PACKAGES / "draftsmith/bin/draftsmith"


def refuse(series: str, found: str) -> NoReturn:
    """Ends with what the user should install."""
    print(f"error: draftsmith was built for another torch\n  expected: torch {series}.*\n  found:    {found}\n"
          f"  hint:     pip install 'torch=={series}.*'", file=sys.stderr)
    raise SystemExit(2)


def torch_folder() -> pathlib.Path:
    """The folder of the installed torch, whose libraries the program uses."""
    series = runpy.run_path(str(PACKAGES / "draftsmith/_build_info.py"))["TORCH_SERIES"]
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        refuse(series, "no torch")
    folder = pathlib.Path(found.origin).resolve().parent
    version = importlib.metadata.version("torch")
    if not version.startswith(series + "."):
        refuse(series, f"torch {version} in {folder}")
    return folder


def environment_with(torch: pathlib.Path) -> dict[str, str]:
    """The environment, with torch's libraries where the program's own search path does not lead to them."""
    environment = dict(os.environ)
    if torch.parent == PACKAGES:
        return environment
    folders = [torch / "lib", *sorted(torch.parent.glob("nvidia/cu1*/lib"))]
    known = environment.get("LD_LIBRARY_PATH")
    environment["LD_LIBRARY_PATH"] = os.pathsep.join([*map(str, folders), *([known] if known else [])])
    return environment


def main() -> None:
    """Becomes the program, with the same arguments."""
    environment = environment_with(torch_folder())
    sys.stdout.flush()
    os.execve(PROGRAM, ["draftsmith", *sys.argv[1:]], environment)
