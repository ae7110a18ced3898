"""tools/gpu pack: stripped programs, the Debian libraries that they load, and compiled kernels, in one archive."""

from __future__ import annotations

import datetime
import json
import os
import pathlib
import re
import shutil
import subprocess
import tarfile
import tempfile

from gpu_parts import places
from gpu_parts.places import Problem

LIMIT_MB = 45.0
COMPILE_S = 1200.0
# Parts of the C library must fit the loader of the machine, which has newer ones; the C++ ones are newer there, too.
SYSTEM = re.compile(r"^(libc|libm|libpthread|libdl|librt|libresolv|libutil|libanl|libnsl|libstdc\+\+|libgcc_s)\.so")
LINE = re.compile(r"^\s*(\S+) => (not found|\S+)")


def wanted_programs(build: pathlib.Path) -> list[str]:
    """Names of all programs, relative to the build. Says at once which are not built."""
    names = list(places.PROGRAMS)
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
    (folder / places.LIBRARIES).mkdir(exist_ok=True)
    for name, path in sorted(libraries.items()):
        shutil.copy(path, folder / places.LIBRARIES / name)
    return programs + [f"{places.LIBRARIES}/{name}" for name in sorted(libraries)]


def compile_kernels(build: pathlib.Path, folder: pathlib.Path) -> None:
    """Compiles all own kernels into the folder; no GPU is needed. Raises Problem, mostly for a lack of NVRTC."""
    shutil.rmtree(folder, ignore_errors=True)
    words = [str(build / places.KERNELS_BENCH), "--compile", str(folder), "--architecture", places.ARCHITECTURE]
    result = subprocess.run(words, capture_output=True, text=True, timeout=COMPILE_S)
    if result.returncode != 0 or not any(folder.glob("*.kernels")):
        found = (result.stderr or result.stdout).strip()[-800:] or f"exit status {result.returncode} and no file"
        raise Problem("kernels cannot be compiled", f"files in {folder}", found,
                      "install the wheel nvidia-cuda-nvrtc, or name the library in DRAFTSMITH_NVRTC")


def facts_of(folder: pathlib.Path, names: list[str]) -> dict:
    return {"commit": places.git_commit(), "source": str(places.ROOT),
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "bytes": {name: (folder / name).stat().st_size for name in names}}


def pack(build: pathlib.Path, out: pathlib.Path, programs: list[str] | None = None, preset: int = 9,
         limit_mb: float = LIMIT_MB) -> tuple[pathlib.Path, dict]:
    """Writes out/pack.tar.xz, complete or not at all, with the kernels of out/kernels. Returns it and what it holds."""
    programs = programs if programs is not None else wanted_programs(build)
    out.mkdir(parents=True, exist_ok=True)
    archive = out / places.ARCHIVE
    archive.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as work:
        folder = pathlib.Path(work)
        names = collect(build, programs, folder)
        if (out / places.KERNELS).is_dir():
            shutil.copytree(out / places.KERNELS, folder / places.KERNELS)
            names += sorted(f"{places.KERNELS}/{file.name}" for file in (folder / places.KERNELS).iterdir())
        facts = facts_of(folder, names)
        (folder / places.FACTS).write_text(json.dumps(facts, indent=1))
        partial = archive.with_name(archive.name + ".partial")
        with tarfile.open(partial, "w:xz", preset=preset) as tar:  # large presets find what programs have in common
            for name in [places.FACTS, *names]:
                tar.add(folder / name, arcname=name)
    megabytes = partial.stat().st_size / 2**20
    if megabytes > limit_mb:
        partial.unlink()
        raise Problem("the archive is too large to travel", f"at most {limit_mb:.0f} MiB", f"{megabytes:.1f} MiB",
                      "take a program out of tools/gpu_parts/places.py")
    os.replace(partial, archive)
    return archive, facts


def report(archive: pathlib.Path, facts: dict) -> None:
    for name, size in facts["bytes"].items():
        if not name.startswith(places.KERNELS + "/"):
            print(f"{size / 2**20:8.1f} MiB  {name}")
    print(f"{archive.stat().st_size / 2**20:8.1f} MiB  {archive}, of {LIMIT_MB:.0f}; commit {facts['commit']}")
