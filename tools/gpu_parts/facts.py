"""The step that says where a run is: the machine, its versions, and whether our programs find their libraries."""

from __future__ import annotations

import json
import pathlib
import shutil
import sys

from gpu_parts import places
from gpu_parts.places import Problem
from gpu_parts.running import Command, Context, Finished, check, run_all

SMI = "name,driver_version,memory.total,power.limit,clocks.max.sm"
SCRIPT = pathlib.Path(__file__).with_name("device_facts.py")


def text_of(finished: Finished) -> str:
    return finished.log.read_text(errors="replace") if finished.log else ""


def gpu_facts(context: Context) -> dict[str, str]:
    """What nvidia-smi says of the first GPU; empty where there is none."""
    if not shutil.which("nvidia-smi"):
        return {}
    (finished,) = run_all(context, [Command(["nvidia-smi", f"--query-gpu={SMI}", "--format=csv,noheader"])])
    first = text_of(finished).splitlines()[:1] if finished.status == 0 else []
    return dict(zip(SMI.split(","), (value.strip() for value in first[0].split(",")))) if first else {}


def python_command(context: Context, *flags: str) -> Command:
    """A command that prints versions; with --warm it also wakes the GPU's clock, after torch was imported."""
    folders = map(str, context.place.libraries)
    return Command([context.place.python or sys.executable, str(SCRIPT), *flags, *folders])


def python_facts(finished: Finished) -> dict:
    """What such a command printed last."""
    lines = [line for line in text_of(finished).splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else {}


def libraries_missing(finished: Finished) -> list[str]:
    """Names of libraries that ldd did not find."""
    return [line.split()[0] for line in text_of(finished).splitlines() if "not found" in line]


def facts(context: Context) -> None:
    """Lists versions, missing libraries, shipped kernels; wakes the clock."""
    place = context.place
    programs = [name for name in places.PROGRAMS if place.has(name)]
    if not programs:
        place.need(places.PROGRAM)
    commands = [python_command(context, "--warm")]
    commands += [Command(["ldd", str(place.programs / name)], place.environment()) for name in programs]
    finished = run_all(context, commands)
    kernels = list(place.kernels.glob("*.kernels")) if place.kernels else []
    missing = {name: names for name, ended in zip(programs, finished[1:]) if (names := libraries_missing(ended))}
    context.data.update(gpu=context.gpu, programs=programs, missing_libraries=missing, **python_facts(finished[0]),
                        kernels={"files": len(kernels), "bytes": sum(file.stat().st_size for file in kernels)})
    if missing:
        raise Problem("libraries are missing", "none", "; ".join(f"{name}: {', '.join(names)}" for name, names in
                                                                 missing.items()))
    check(finished, "ldd or device_facts.py")
    if place.kernels and not kernels:
        raise Problem("no compiled kernels came along", f"files in {place.kernels}", "none, so each process compiles",
                      "tools/gpu pack where NVRTC is")
