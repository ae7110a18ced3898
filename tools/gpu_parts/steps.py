"""The steps of a run, and their plans: machine, tests, checks, speeds, Transformers."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import sys
from collections.abc import Callable

from gpu_parts import packing
from gpu_parts.packing import CHECKS_BENCH, DECODING_BENCH, KERNELS_BENCH, TRAINING_BENCH, Problem
from gpu_parts.running import (STRICT, Bench, Command, Context, Finished, Skipped, Step, benches, check, run_all,
                               run_records)

# Variables that turn fast ways off on purpose, or one that lets kernels begin when the ones ahead have ended.
KERNELS_OFF = {"DRAFTSMITH_KERNELS": "off"}
EAGER = {"DRAFTSMITH_GRAPHS": "off"}
IN_TURN = STRICT | {"DRAFTSMITH_PROGRAMMATIC_LAUNCH": "off"}

# ---- machine ----

MACHINE_S = 20.0  # to ask what machine this is
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


def machine(context: Context) -> dict:
    """GPU, processor and versions; empty where nothing is known."""
    context.deadline, context.at_once = float("inf"), 2
    smi = ["nvidia-smi", f"--query-gpu={SMI}", "--format=csv,noheader"] if shutil.which("nvidia-smi") else ["true"]
    asked, python = run_all(context, [Command(smi, limit_s=MACHINE_S), Command(
        [packing.peers_python() or sys.executable, "-c", SCRIPT], limit_s=MACHINE_S)])
    if asked.status == 0 and asked.output:
        context.gpu = dict(zip(SMI.split(","), map(str.strip, asked.output.splitlines()[0].split(","))))
    cpu = re.search(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return {"gpu": context.gpu, "cpu": cpu.group(1) if cpu else "unknown CPU", "cores": os.cpu_count(),
            "python": json.loads(python.output or "{}")}


def facts(context: Context) -> None:
    """Looks for missing libraries and shipped kernels, and wakes the clock."""
    place = context.place
    programs = [name for name in packing.PROGRAMS if (place.programs / name).is_file()]
    if not programs:
        place.need(packing.DEVICE_TESTS)
    words = ["warm"] if context.gpu else []
    finished = run_all(context, [
        Command([packing.peers_python() or sys.executable, "-c", SCRIPT, *words]),
        *(Command(["ldd", str(place.programs / name)], place.environment()) for name in programs)])
    lines = [line for one in finished[1:] for line in one.output.splitlines()]
    missing = sorted({line.split()[0] for line in lines if "not found" in line})
    if missing:
        raise Problem("libraries are missing", "none", ", ".join(missing))
    check(finished, "ldd or Python")
    if place.kernels and not any(place.kernels.glob("*.kernels")):
        raise Problem("no compiled kernels came along", f"files in {place.kernels}", "none, so each process compiles",
                      "tools/gpu pack where NVRTC is")


# ---- device suites ----

GPU_SUITES = "*Gpu*.*:*Cuda*.*"
# The others of the device program are about the stand-in accelerator, which takes the GPU's place in its process.
DEVICE_SUITES = "Device*.*"
DRY_TESTS = "*.OperatorsGiveTheCpusNumbers:*.GradientsAreTheCpus"  # which take a moment
RESULT = re.compile(r"\[ +(OK|FAILED|SKIPPED) +\] (\w[\w/]*\.[\w/]+)")
SUITE_S = 45.0  # of a suite's process


def tests_of(listing: str) -> dict[str, list[str]]:
    """Names of tests by suite, from --gtest_list_tests."""
    suites: dict[str, list[str]] = {}
    names: list[str] = []
    for line in (line.partition("#")[0].rstrip() for line in listing.splitlines()):
        if line.endswith(".") and not line.startswith(" "):
            names = suites.setdefault(line[:-1], [])
        elif line.startswith("  "):
            names.append(line.strip())
    return {suite: names for suite, names in suites.items() if names}


def suite_row(program: str, suite: str, tests: list[str], finished: Finished) -> dict:
    """What a suite's process printed of its tests: a crash or a kill loses none of the results before it."""
    ended = {name: result for result, name in RESULT.findall(finished.output)}
    failures = [name for name, result in ended.items() if result == "FAILED"]
    failures += [f"{name} ({finished.end})" for test in tests if (name := f"{suite}.{test}") not in ended]
    if finished.status != 0 and not failures:
        failures.append(f"{suite} ({finished.end} after its tests)")
    return {"program": pathlib.Path(program).name, "suite": suite, "tests": len(ended), "failed": len(failures),
            "skipped": list(ended.values()).count("SKIPPED"), "seconds": round(finished.seconds, 1),
            "failures": failures}


def suites(device: str, filters: dict[str, str]) -> Callable[[Context], None]:
    """The work of a step that runs tests of programs, a process a suite."""
    def work(context: Context) -> None:
        variables = {**context.place.environment(), **STRICT, "OMP_NUM_THREADS": "1", "DRAFTSMITH_TEST_DEVICE": device}
        listings = run_all(context, [
            Command([context.place.need(name), "--gtest_list_tests", f"--gtest_filter={tests}"], variables)
            for name, tests in filters.items()])
        check(listings, "listing tests")
        found = [(name, suite, tests) for name, listing in zip(filters, listings)
                 for suite, tests in tests_of(listing.output).items()]
        chosen = ["--gtest_filter=" + ":".join(f"{suite}.{test}" for test in tests) for _, suite, tests in found]
        commands = [Command([context.place.need(name), tests], variables, SUITE_S)
                    for (name, _, _), tests in zip(found, chosen)]
        rows = [suite_row(*names, ended) for names, ended in zip(found, run_all(context, commands))]
        context.data["suites"] = rows
        failures = [failure for row in rows for failure in row["failures"]]
        if failures or not rows:
            raise Problem("tests failed", "some, without failures", f"{len(failures)}: " + ", ".join(failures[:5]))
    return work


# ---- speeds ----

PEER = packing.ROOT / "bench/transformers_peer.py"


def peer(words: str, limit_s: float) -> Callable[[Context], None]:
    """The work of a step that runs Transformers."""
    def work(context: Context) -> None:
        python = packing.peers_python()
        if python is None:
            raise Skipped("no Python with torch and Transformers is here (tools/setup --with-peers)")
        run_records(context, [Command([python, str(PEER), *words.split()], limit_s=limit_s)], [{}])
    return work


def decoding(words: str, limit_s: float, variables: dict[str, str] = STRICT, **marks: str) -> Bench:
    return Bench(DECODING_BENCH, f"--device cuda {words}", limit_s, variables, marks)


def training(shape: str, dropout: str) -> Bench:
    """A step that reads and writes 8,192 tokens; the peak is that of an H100's dense bf16, by its data sheet."""
    return Bench(TRAINING_BENCH, f"--device cuda --shape {shape} --dropout {dropout} --rows 64 --source 128 "
                 "--target 128 --dtype bf16 --steps 5 --threads 0 --peak-tflops 989", 25)


FIRST_SPEEDS = "--dtype bf16 --batches 1 --lengths 1,2,5,8,16 --shapes"
SPECULATION = "--dtype bf16 --rounds 3 --pairs"

# What decides most comes first.
FIRST = (
    Step("facts", "Machine and versions", 15, facts, at_once=8),
    Step("smoke", "First tokens of tiny models", 25, benches(
        Bench(CHECKS_BENCH, "--device cuda --shapes tiny-t5,tiny-llama", 25)), "stop"),
    Step("suites", "Tests on the device", 60, suites(
        "cuda", {packing.DEVICE_TESTS: DEVICE_SUITES, **dict.fromkeys(packing.GPU_TESTS, GPU_SUITES)}), "mark", 8),
    Step("shapes", "Checks at real shapes", 35, benches(
        Bench(CHECKS_BENCH, "--device cuda --shapes t5-large,llama-1b", 35)), "mark"),
    Step("speeds", "Speed of decoding", 55, benches(
        decoding(f"{FIRST_SPEEDS} t5-large,llama-1b,t5-small,t5-base", 25),
        decoding(f"{FIRST_SPEEDS} t5-large,llama-1b,t5-small,t5-base --rounds 3", 25, KERNELS_OFF, kernels="off"),
        decoding(f"{FIRST_SPEEDS} t5-large,llama-1b", 20, IN_TURN, launch="in turn"))),
    Step("kernels", "Kernels alone", 20, benches(
        Bench(KERNELS_BENCH, "--device cuda --dtype bf16", 15),
        Bench(KERNELS_BENCH, "--device cuda --dtype bf16 --rounds 3", 15, IN_TURN, {"launch": "in turn"}))),
)
REST = (
    Step("decoding", "Larger batches and other types", 110, benches(
        decoding("--dtype bf16 --batches 4,16,64 --shapes t5-large", 25),
        decoding("--dtype bf16 --batches 1,16 --shapes llama-8b", 30),
        decoding("--dtype bf16 --batches 1,16 --shapes llama-1b", 15),
        decoding("--dtype bf16 --batches 4,16,64 --shapes t5-small", 20),
        decoding("--dtype bf16 --shapes t5-large", 20, EAGER, steps="eager"),
        decoding("--dtype fp32 --shapes t5-large", 15),
        decoding("--dtype fp16 --shapes t5-large", 15))),
    Step("speculation", "Speculation", 50, benches(
        decoding(f"{SPECULATION} t5-large:t5-small --pair-batches 1,16 --alphas 0.6,0.8", 30),
        decoding(f"{SPECULATION} llama-8b:llama-1b --alphas 0.8", 30))),
    Step("training", "Training", 50, benches(*(training(shape, dropout) for shape in ("t5-small", "t5-large")
                                               for dropout in ("0", "0.1")))),
    Step("peer", "Transformers", 60, peer(
        "decoding --device cuda --shapes t5-large,t5-small --batches 1 --rounds 3", 60)),
    Step("peer_training", "Training with Transformers", 30, peer(
        "training --device cuda --shapes t5-small,t5-large --batches 64 --source 128 --target 128 --rounds 3", 30)),
)
# Every program once. Each has time beside other work on two cores.
DRY_S = 200.0
DRY = (
    Step("facts", "Machine and versions", DRY_S, facts, at_once=2),
    Step("smoke", "First tokens of tiny models", DRY_S, benches(
        Bench(CHECKS_BENCH, "--device standin --shapes tiny-t5,tiny-llama", DRY_S)), "stop"),
    Step("suites", "Tests on the device", DRY_S, suites("standin", {packing.DEVICE_TESTS: DRY_TESTS}), "mark", 2),
    Step("kernels", "Kernels alone", DRY_S, benches(
        Bench(KERNELS_BENCH, "--device standin --dtype fp32 --tiny", DRY_S))),
    Step("decoding", "Decoding", DRY_S, benches(
        Bench(DECODING_BENCH, "--device standin --dtype fp32 --shapes tiny-t5,tiny-llama "
              "--pairs tiny-t5:tiny-t5-drafter --rounds 2 --new-tokens 10 --source 6 --lengths 1,4 --alphas 0.8", DRY_S))),
    Step("training", "Training", DRY_S, benches(
        Bench(TRAINING_BENCH, "--device cpu --shape tiny-t5 --rows 2 --source 8 --target 8 --steps 1", DRY_S))),
    Step("peer", "Transformers", DRY_S, peer(
        "decoding --device cpu --shapes tiny-t5 --batches 1 --rounds 1 --source 6 --new-tokens 4 --dtype fp32", DRY_S)),
    Step("peer_training", "Training with Transformers", DRY_S, peer(
        "training --device cpu --shapes tiny-t5 --batches 1 --rounds 1 --source 6 --target 8 --dtype fp32", DRY_S)),
)
PLANS = {"first": FIRST, "rest": REST, "dry": DRY}


def chosen(plan: str | None, names: str | None) -> tuple[Step, ...]:
    """The steps of a plan, or those named by "a,b" in its order."""
    if plan is None:
        raise Problem("--plan is missing", "first or rest: a loan's first call, and its second", "no plan")
    wanted = names.split(",") if names else [step.name for step in PLANS[plan]]
    unknown = set(wanted) - {step.name for step in PLANS[plan]}
    if unknown:
        raise Problem("--steps: unknown step", ", ".join(step.name for step in PLANS[plan]), ", ".join(sorted(unknown)))
    return tuple(step for step in PLANS[plan] if step.name in wanted)
