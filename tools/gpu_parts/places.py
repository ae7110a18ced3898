"""Where programs, libraries and interpreters are: in a build, or unpacked from what `tools/gpu pack` made. Packing:
stripped programs, the Debian libraries that they load, and compiled kernels, in one archive."""

from __future__ import annotations

import dataclasses
import datetime
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

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
LAUNCHES_IN_TURN = {"DRAFTSMITH_PROGRAMMATIC_LAUNCH": "off"}  # kernels begin when the ones ahead have ended


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


# ---- tools/gpu pack ----

LIMIT_MB = 45.0
COMPILE_S = 1200.0
# Parts of the C library must fit the loader of the machine, which has newer ones; the C++ ones are newer there, too.
SYSTEM = re.compile(r"^(libc|libm|libpthread|libdl|librt|libresolv|libutil|libanl|libnsl|libstdc\+\+|libgcc_s)\.so")
LINE = re.compile(r"^\s*(\S+) => (not found|\S+)")


def wanted_programs(build: pathlib.Path) -> list[str]:
    """Names of all programs, relative to the build. Says at once which are not built."""
    names = list(PROGRAMS)
    missing = [name for name in names if not (build / name).is_file()]
    if missing:
        raise Problem("programs are not built", ", ".join(names), f"without {', '.join(missing)} in {build}",
                      "tools/build release")
    return names


def travels(name: str, path: str) -> bool:
    """Whether a library goes along: not the C library's parts, nor what comes with torch."""
    return not SYSTEM.match(name) and "/torch/lib/" not in path and "/nvidia/" not in path


def libraries_of(program: pathlib.Path) -> dict[str, pathlib.Path]:
    """The libraries that a program loads and that must travel, by the name it asks for."""
    listing = subprocess.run(["ldd", str(program)], capture_output=True, text=True)
    if listing.returncode != 0:
        raise Problem("a program's libraries cannot be listed", f"ldd {program}", listing.stderr.strip())
    found = {}
    for name, path in (match.groups() for match in map(LINE.match, listing.stdout.splitlines()) if match):
        if path == "not found":
            raise Problem("a library is missing", name, f"not found for {program}", "run tools/setup")
        if travels(name, path):
            found[name] = pathlib.Path(path).resolve()
    return found


def collect(build: pathlib.Path, programs: list[str], folder: pathlib.Path) -> list[str]:
    """Puts stripped programs and their libraries into a folder. Returns the files' names, in the archive's order."""
    libraries: dict[str, pathlib.Path] = {}
    for name in programs:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["strip", "--strip-all", "-o", str(target), str(build / name)], check=True)
        libraries.update(libraries_of(build / name))
    (folder / LIBRARIES).mkdir(exist_ok=True)
    for name, path in sorted(libraries.items()):
        shutil.copy(path, folder / LIBRARIES / name)
    return programs + [f"{LIBRARIES}/{name}" for name in sorted(libraries)]


def compile_kernels(build: pathlib.Path, folder: pathlib.Path) -> None:
    """Compiles all own kernels into the folder; no GPU is needed. Raises Problem, mostly for a lack of NVRTC."""
    shutil.rmtree(folder, ignore_errors=True)
    words = [str(build / KERNELS_BENCH), "--compile", str(folder), "--architecture", ARCHITECTURE]
    result = subprocess.run(words, capture_output=True, text=True, timeout=COMPILE_S)
    if result.returncode != 0 or not any(folder.glob("*.kernels")):
        found = (result.stderr or result.stdout).strip()[-800:] or f"exit status {result.returncode} and no file"
        raise Problem("kernels cannot be compiled", f"files in {folder}", found,
                      "install the wheel nvidia-cuda-nvrtc, or name the library in DRAFTSMITH_NVRTC")


def pack_facts(folder: pathlib.Path, names: list[str]) -> dict:
    return {"commit": git_commit(), "source": str(ROOT),
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "bytes": {name: (folder / name).stat().st_size for name in names}}


def pack(build: pathlib.Path, out: pathlib.Path, programs: list[str] | None = None, preset: int = 9,
         limit_mb: float = LIMIT_MB) -> tuple[pathlib.Path, dict]:
    """Writes out/pack.tar.xz, complete or not at all, with the kernels of out/kernels. Returns it and what it holds."""
    programs = programs if programs is not None else wanted_programs(build)
    out.mkdir(parents=True, exist_ok=True)
    archive = out / ARCHIVE
    archive.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as work:
        folder = pathlib.Path(work)
        names = collect(build, programs, folder)
        if (out / KERNELS).is_dir():
            shutil.copytree(out / KERNELS, folder / KERNELS)
            names += sorted(f"{KERNELS}/{file.name}" for file in (folder / KERNELS).iterdir())
        facts = pack_facts(folder, names)
        (folder / FACTS).write_text(json.dumps(facts, indent=1))
        partial = archive.with_name(archive.name + ".partial")
        with tarfile.open(partial, "w:xz", preset=preset) as tar:  # large presets find what programs have in common
            for name in [FACTS, *names]:
                tar.add(folder / name, arcname=name)
    megabytes = partial.stat().st_size / 2**20
    if megabytes > limit_mb:
        partial.unlink()
        raise Problem("the archive is too large to travel", f"at most {limit_mb:.0f} MiB", f"{megabytes:.1f} MiB",
                      "take a program out of tools/gpu_parts/places.py")
    os.replace(partial, archive)
    return archive, facts
