"""The program that the package carries, as the command `draftsmith`. Imports no torch, which would take seconds."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import pathlib
import runpy
import sys

PACKAGES = pathlib.Path(__file__).resolve().parent


def main() -> None:
    """Becomes the program, with the same arguments. Refuses another torch than the one that it was built for."""
    series = runpy.run_path(str(PACKAGES / "draftsmith/_build_info.py"))["TORCH_SERIES"]
    spec = importlib.util.find_spec("torch")
    torch = pathlib.Path(spec.origin).resolve().parent if spec and spec.origin else None
    version = importlib.metadata.version("torch") if torch else ""
    if not version.startswith(series + "."):
        found = f"torch {version} in {torch}" if torch else "no torch"
        print(f"error: draftsmith was built for another torch\n  expected: torch {series}.*\n  found:    {found}\n"
              f"  hint:     pip install 'torch=={series}.*'", file=sys.stderr)
        raise SystemExit(2)
    environment = {"DRAFTSMITH_PYTHON": sys.executable, **os.environ}
    if torch.parent != PACKAGES:  # the program's own search path does not lead to torch's libraries
        folders = [torch / "lib", *sorted(torch.parent.glob("nvidia/cu1*/lib")), environment.get("LD_LIBRARY_PATH")]
        environment["LD_LIBRARY_PATH"] = os.pathsep.join(str(folder) for folder in folders if folder)
    sys.stdout.flush()
    os.execve(PACKAGES / "draftsmith/bin/draftsmith", ["draftsmith", *sys.argv[1:]], environment)
