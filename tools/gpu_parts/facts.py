"""The step that says where a run is: the machine, its versions, and whether our programs find their libraries."""

from __future__ import annotations

import json
import shutil
import sys

from gpu_parts import places
from gpu_parts.places import Problem
from gpu_parts.running import Command, Context, Finished, check, run_all

SMI = "name,driver_version,memory.total,power.limit,clocks.max.sm"
# Prints versions; then with "warm" multiplies matrices for a second, until the GPU's clock must have risen. It is a
# process of its own, since importing torch may fail or take long.
SCRIPT = """
import importlib.metadata, json, platform, sys, time
def version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
print(json.dumps({"python": platform.python_version(), "torch": version("torch"),
                  "transformers": version("transformers")}), flush=True)
if "warm" in sys.argv:
    import torch
    matrix = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    end = time.monotonic() + 1
    while time.monotonic() < end:
        for _ in range(50):
            matrix @ matrix
        torch.cuda.synchronize()
"""


def text_of(finished: Finished) -> str:
    return finished.log.read_text(errors="replace") if finished.log else ""


def gpu_facts(context: Context) -> dict[str, str]:
    """What nvidia-smi says of the first GPU; empty where there is none."""
    if not shutil.which("nvidia-smi"):
        return {}
    (finished,) = run_all(context, [Command(["nvidia-smi", f"--query-gpu={SMI}", "--format=csv,noheader"])])
    first = text_of(finished).splitlines()[:1] if finished.status == 0 else []
    return dict(zip(SMI.split(","), (value.strip() for value in first[0].split(",")))) if first else {}


def python_command(context: Context, *words: str) -> Command:
    """A command that prints versions; with "warm" it also wakes the GPU's clock."""
    return Command([context.place.python or sys.executable, "-c", SCRIPT, *words])


def python_facts(finished: Finished) -> dict:
    """What such a command printed."""
    return json.loads(next((line for line in text_of(finished).splitlines() if line.startswith("{")), "{}"))


def libraries_missing(finished: Finished) -> list[str]:
    """Names of libraries that ldd did not find."""
    return [line.split()[0] for line in text_of(finished).splitlines() if "not found" in line]


def facts(context: Context) -> None:
    """Lists versions, missing libraries, shipped kernels; wakes the clock."""
    place = context.place
    programs = [name for name in places.PROGRAMS if place.has(name)]
    if not programs:
        place.need(places.DEVICE_TESTS)
    commands = [python_command(context, *(["warm"] if context.gpu and not context.dry else []))]
    commands += [Command(["ldd", str(place.programs / name)], place.environment()) for name in programs]
    finished = run_all(context, commands)
    kernels = list(place.kernels.glob("*.kernels")) if place.kernels else []
    missing = {name: names for name, ended in zip(programs, finished[1:]) if (names := libraries_missing(ended))}
    context.data.update(gpu=context.gpu, programs=programs, missing_libraries=missing, kernels=len(kernels),
                        **python_facts(finished[0]))
    if missing:
        raise Problem("libraries are missing", "none",
                      "; ".join(f"{name}: {', '.join(names)}" for name, names in missing.items()))
    check(finished, "ldd or Python")
    if place.kernels and not kernels:
        raise Problem("no compiled kernels came along", f"files in {place.kernels}", "none, so each process compiles",
                      "tools/gpu pack where NVRTC is")
