"""tools/gpu pack: stripped programs and the Debian libraries that they load, in one archive."""

from __future__ import annotations

import dataclasses
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
from gpu_parts.running import Context, run_ours

LIMIT_MB = 45.0
# Parts of the C library must fit the loader of the machine, which has newer ones; the C++ ones are newer there, too.
SYSTEM = re.compile(r"^(libc|libm|libpthread|libdl|librt|libresolv|libutil|libanl|libnsl|libstdc\+\+|libgcc_s)\.so")
LINE = re.compile(r"^\s*(\S+) => (not found|\S+)")


def wanted_programs(build: pathlib.Path) -> list[str]:
    """Names of all programs, relative to the build. Says at once which are not built."""
    names = [places.PROGRAM, places.DEVICE_TESTS, *places.GPU_TESTS, places.DECODING_BENCH, places.TRAINING_BENCH]
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


def facts_of(folder: pathlib.Path, names: list[str]) -> dict:
    return {"commit": places.git_commit(), "source": str(places.ROOT),
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "bytes": {name: (folder / name).stat().st_size for name in names}}


def write_archive(folder: pathlib.Path, names: list[str], archive: pathlib.Path, preset: int) -> None:
    """Writes the archive, complete or not at all. The large presets find what programs have in common."""
    partial = archive.with_name(archive.name + ".partial")
    with tarfile.open(partial, "w:xz", preset=preset) as tar:
        for name in names:
            tar.add(folder / name, arcname=name)
    os.replace(partial, archive)


def check_size(megabytes: float, limit_mb: float, sizes: dict[str, int]) -> None:
    if megabytes <= limit_mb:
        return
    largest = sorted(sizes, key=sizes.__getitem__, reverse=True)[:3]
    listed = ", ".join(f"{name} ({sizes[name] / 2**20:.0f} MiB unpacked)" for name in largest)
    raise Problem("the archive is too large to travel", f"at most {limit_mb:.0f} MiB", f"{megabytes:.1f} MiB; {listed}",
                  "take a program out of tools/gpu_parts/packing.py")


def pack(build: pathlib.Path, out: pathlib.Path, programs: list[str] | None = None, preset: int = 9,
         limit_mb: float = LIMIT_MB) -> tuple[pathlib.Path, dict]:
    """Writes out/pack.tar.xz. Returns it and what it holds. An archive that is too large is removed."""
    programs = programs if programs is not None else wanted_programs(build)
    out.mkdir(parents=True, exist_ok=True)
    archive = out / places.ARCHIVE
    archive.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as work:
        folder = pathlib.Path(work)
        names = collect(build, programs, folder)
        facts = facts_of(folder, names)
        (folder / places.FACTS).write_text(json.dumps(facts, indent=1))
        write_archive(folder, [places.FACTS, *names], archive, preset)
    try:
        check_size(archive.stat().st_size / 2**20, limit_mb, facts["bytes"])
    except Problem:
        archive.unlink()
        raise
    return archive, facts


def report(archive: pathlib.Path, facts: dict) -> None:
    for name, size in facts["bytes"].items():
        print(f"{size / 2**20:8.1f} MiB  {name}")
    print(f"{archive.stat().st_size / 2**20:8.1f} MiB  {archive}, of {LIMIT_MB:.0f}; commit {facts['commit']}")


def rehearse(context: Context) -> None:
    """Packs a small program, unpacks it and runs it with the libraries that travel: the way of a real run."""
    name = places.GPU_TESTS[0]
    context.place.need(name)
    archive, facts = pack(context.place.programs, context.work / "packed", [name], preset=0)
    place = places.unpacked_place(archive, context.work / "unpacked", context.need_python())
    words = [str(place.need(name)), "--gtest_list_tests", "--gtest_filter=DeviceGpu.*"]
    output = run_ours(dataclasses.replace(context, place=place), words)
    if "DeviceGpu." not in output:
        raise Problem("an unpacked program does not list its tests", "the suite DeviceGpu", output[-200:])
    context.data["pack"] = {"bytes": archive.stat().st_size, "files": sorted(facts["bytes"])}
