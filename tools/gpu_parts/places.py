"""Where programs, libraries and interpreters are: in a build, or unpacked from what `tools/gpu pack` made."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tarfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build/release"
PACK_FOLDER = ROOT / ".gpu"
ARCHIVE = "pack.tar.xz"
FACTS = "pack.json"
LIBRARIES = "lib"
KERNELS = "kernels"  # compiled for ARCHITECTURE, in the form of DRAFTSMITH_KERNEL_CACHE
ARCHITECTURE = "sm_90"  # of H100 and H200
# The tests that run on the device named by DRAFTSMITH_TEST_DEVICE.
DEVICE_TESTS = "tests/test_device"
# Programs with tests that are labelled gpu: suites named ...Gpu... or ...Cuda...
GPU_TESTS = ("tests/test_base", "tests/test_model", "tests/test_infer", "tests/test_train")
DECODING_BENCH = "bench/bench_device_decoding"
TRAINING_BENCH = "bench/bench_training_step"
CHECKS_BENCH = "bench/bench_device_checks"
KERNELS_BENCH = "bench/bench_device_kernels"
PROGRAMS = (DEVICE_TESTS, *GPU_TESTS, CHECKS_BENCH, KERNELS_BENCH, DECODING_BENCH, TRAINING_BENCH)
# Variables that turn fast ways off on purpose.
KERNELS_OFF = {"DRAFTSMITH_KERNELS": "off"}
EAGER = {"DRAFTSMITH_GRAPHS": "off"}
PROGRAMMATIC = {"DRAFTSMITH_PROGRAMMATIC_LAUNCH": "on"}  # kernels begin before the ones ahead of them have ended


class Problem(Exception):
    """An error in the house's form: what, expected, found, hint."""

    def __init__(self, what: str, expected: str = "", found: str = "", hint: str = "") -> None:
        parts = [("expected", expected), ("found", found), ("hint", hint)]
        super().__init__("\n".join([what] + [f"  {name + ':':<9} {text}" for name, text in parts if text]))
        self.what = what


@dataclasses.dataclass(frozen=True)
class Place:
    """Programs that can run here."""

    programs: pathlib.Path
    libraries: tuple[pathlib.Path, ...]  # for LD_LIBRARY_PATH; none in a build, whose programs know their own
    python: str | None  # the interpreter with torch and Transformers; None: there is none
    commit: str
    kernels: pathlib.Path | None = None  # compiled ones that came along; None: each machine's own cache

    def has(self, name: str) -> bool:
        return (self.programs / name).is_file()

    def need(self, name: str) -> str:
        """The path of a program that must be here."""
        if not self.has(name):
            raise Problem("a program is missing", name, f"not in {self.programs}",
                          "tools/build release, then tools/gpu pack")
        return str(self.programs / name)

    def environment(self, off: dict[str, str] | None = None) -> dict[str, str]:
        """Variables for our programs: slower ways are errors unless `off` asks for one.

        Python must not get them: it has libraries of its own."""
        variables = dict(off) if off else {"DRAFTSMITH_STRICT_DEVICE": "1"}
        if self.kernels:
            variables["DRAFTSMITH_KERNEL_CACHE"] = str(self.kernels)
        if self.libraries:
            already = os.environ.get("LD_LIBRARY_PATH", "")  # may lead to the driver
            variables["LD_LIBRARY_PATH"] = ":".join([*map(str, self.libraries), *([already] if already else [])])
        return variables


def torch_libraries(python: str) -> tuple[pathlib.Path, ...]:
    """The folders of an interpreter's LibTorch and of NVIDIA's libraries beside it, without importing torch."""
    code = "import importlib.util, sys; s = importlib.util.find_spec('torch'); print(s.origin if s else '')"
    found = subprocess.run([python, "-c", code], capture_output=True, text=True)
    origin = found.stdout.strip()
    if not origin:
        raise Problem("LibTorch was not found", f"a {python} with torch 2.11", "no module torch",
                      "run this with the interpreter that has torch first in PATH")
    torch = pathlib.Path(origin).parent
    nvidia = sorted(path for path in (torch.parent / "nvidia").glob("*/lib") if path.is_dir())
    first = [path for path in nvidia if path.parent.name.startswith("cu1")]
    return (torch / "lib", *first, *(path for path in nvidia if path not in first))


def peers_python() -> str | None:
    """An interpreter with torch and Transformers: the peers' environment, or the one that runs this."""
    named = os.environ.get("DRAFTSMITH_PEERS_PYTHON") or str(ROOT / ".venv-peers/bin/python")
    if os.access(named, os.X_OK):
        return named
    if all(importlib.util.find_spec(name) for name in ("torch", "transformers")):
        return sys.executable
    return None


def git_commit() -> str:
    result = subprocess.run(["git", "-C", str(ROOT), "describe", "--always", "--dirty=+", "--exclude=*"],
                            capture_output=True, text=True)
    return result.stdout.strip() or "unknown"


def build_place(build: pathlib.Path) -> Place:
    return Place(build, (), peers_python(), git_commit())


def unpacked_place(archive: pathlib.Path, folder: pathlib.Path, python: str) -> Place:
    """Unpacks the archive and makes the path that its tests were compiled with lead to this repository."""
    with tarfile.open(archive) as tar:
        tar.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    facts = json.loads((folder / FACTS).read_text())
    link_source(pathlib.Path(facts["source"]))
    (folder / KERNELS).mkdir(exist_ok=True)  # what was forgotten is compiled into it
    libraries = (*torch_libraries(python), folder / LIBRARIES)
    return Place(folder, libraries, peers_python(), facts["commit"], folder / KERNELS)


def link_source(source: pathlib.Path) -> None:
    """Makes `source` a link to this repository where it may; tests that need it fail otherwise, and say so."""
    if source.exists() or source == ROOT:
        return
    try:
        source.parent.mkdir(parents=True, exist_ok=True)
        source.symlink_to(ROOT)
    except OSError as error:
        print(f"note: {source} cannot be linked to {ROOT}: {error}")
