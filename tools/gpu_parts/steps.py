"""The steps of a run, and their plans: machine, tests, checks, speeds, Transformers."""

import json
import os
import pathlib
import re
import shutil
import sys
from collections.abc import Callable

from gpu_parts import packing
from gpu_parts.packing import CHECKS_BENCH, DECODING_BENCH, KERNELS_BENCH, TRAINING_BENCH, Problem
from gpu_parts.running import (STRICT, Command, Context, Finished, Skipped, Step, bench, benches, check, run_all,
                               run_records)

# Variables that turn fast ways off on purpose, or one that lets kernels begin when the ones ahead have ended.
KERNELS_OFF = {"DRAFTSMITH_KERNELS": "off"}
EAGER = {"DRAFTSMITH_GRAPHS": "off"}
IN_TURN = STRICT | {"DRAFTSMITH_PROGRAMMATIC_LAUNCH": "off"}

# ---- machine ----

MACHINE_S = 20.0  # to ask what machine this is
SMI = "name,driver_version,memory.total,power.limit,clocks.max.sm"
VERSIONS = ("import importlib.metadata, json; print(json.dumps({one.name: one.version for one in "
            "importlib.metadata.distributions() if one.name in ('torch', 'transformers')}))")


def machine(context: Context) -> dict:
    """GPU, processor and versions; empty where nothing is known."""
    context.deadline, context.at_once = float("inf"), 2
    smi = ["nvidia-smi", f"--query-gpu={SMI}", "--format=csv,noheader"] if shutil.which("nvidia-smi") else ["true"]
    asked, python = run_all(context, [Command(smi, limit_s=MACHINE_S), Command(
        [packing.peers_python() or sys.executable, "-c", VERSIONS], limit_s=MACHINE_S)])
    values = asked.output.splitlines()[0].split(",") if asked.status == 0 and asked.output else []
    versions = re.findall(r"^\{.*\}$", python.output, re.MULTILINE) or ["{}"]
    cpu = re.search(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return {"gpu": dict(zip(SMI.split(","), map(str.strip, values))), "cpu": cpu.group(1) if cpu else "unknown CPU",
            "cores": os.cpu_count(), "python": json.loads(versions[-1])}


# ---- device suites ----

GPU_SUITES = "*Gpu*.*:*Cuda*.*"
# The others of the device program are about the stand-in accelerator, which takes the GPU's place in its process.
DEVICE_SUITES = "Device*.*"
DRY_SUITES = "DeviceLinearRows.*:DeviceSampling.*"  # which take a moment
RESULT = re.compile(r"\[ +(OK|FAILED|SKIPPED) +\] (\w[\w/]*\.[\w/]+)")
SUITE_S = 80.0  # of a suite's process


def suite_row(program: str, suite: str, finished: Finished) -> dict:
    """What a suite's process printed of its tests: a crash or a kill loses none of the results before it."""
    ended = {name: result for result, name in RESULT.findall(finished.output)}
    failures = [name for name, result in ended.items() if result == "FAILED"]
    if finished.status is None or (finished.status != 0 and not failures):
        last = f", after {list(ended)[-1]}" if ended else ""
        failures.append(f"{suite} ({finished.end}{last})")
    return {"program": pathlib.Path(program).name, "suite": suite, "tests": len(ended), "failed": len(failures),
            "skipped": list(ended.values()).count("SKIPPED"), "seconds": round(finished.seconds, 1),
            "failures": failures}


def suites(device: str, filters: dict[str, str]) -> Callable[[Context], None]:
    """The work of a step that runs suites of programs, a process each. A filter is one of suites."""
    def work(context: Context) -> None:
        variables = {**context.place.environment(), **STRICT, "OMP_NUM_THREADS": "1", "DRAFTSMITH_TEST_DEVICE": device}
        listings = run_all(context, [
            Command([context.place.need(name), "--gtest_list_tests", f"--gtest_filter={tests}"], variables)
            for name, tests in filters.items()])
        check(listings, "listing tests")
        found = [(name, suite) for name, listing in zip(filters, listings)
                 for suite in re.findall(r"^(\S+)\.", listing.output, re.MULTILINE)]
        finished = run_all(context, [
            Command([context.place.need(name), f"--gtest_filter={suite}.*"], variables, SUITE_S)
            for name, suite in found])
        context.data["suites"] = [suite_row(*names, ended) for names, ended in zip(found, finished)]
        failures = [failure for row in context.data["suites"] for failure in row["failures"]]
        if failures or not found:
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
        run_records(context, [Command([python, str(PEER), *words.split()], limit_s=limit_s)])
    return work


def decoding(words: str, *more: object, **marks: str) -> Command:
    return bench(DECODING_BENCH, f"--device cuda {words}", *more, **marks)


def training(shape: str, dropout: str) -> Command:
    """A step that reads and writes 8,192 tokens; the peak is that of an H100's dense bf16, by its data sheet."""
    return bench(TRAINING_BENCH, f"--device cuda --shape {shape} --dropout {dropout} --rows 64 --source 128 "
                 "--target 128 --dtype bf16 --steps 5 --threads 0 --peak-tflops 989", 25)


FIRST_SPEEDS = "--dtype bf16 --batches 1 --lengths 1,2,5,8,16 --shapes"
SPECULATION = "--dtype bf16 --rounds 3 --pairs"

# What decides most comes first.
FIRST = (
    Step("smoke", "First tokens of tiny models", 25, benches(
        bench(CHECKS_BENCH, "--device cuda --shapes tiny-t5,tiny-llama", 25)), "stop"),
    Step("suites", "Tests on the device", 90, suites(
        "cuda", {packing.DEVICE_TESTS: DEVICE_SUITES, **dict.fromkeys(packing.GPU_TESTS, GPU_SUITES)}), "mark", 8),
    Step("shapes", "Checks at real shapes", 50, benches(
        bench(CHECKS_BENCH, "--device cuda --shapes t5-large,llama-1b", 35),
        bench(CHECKS_BENCH, "--device cuda --shapes marian,bart-base,qwen3-0.6b", 35)), "mark"),
    Step("speeds", "Speed of decoding", 65, benches(
        decoding(f"{FIRST_SPEEDS} t5-large,llama-1b,t5-small,t5-base", 25),
        decoding(f"{FIRST_SPEEDS} marian,bart-base,qwen3-0.6b", 25),
        decoding(f"{FIRST_SPEEDS} t5-large,llama-1b,t5-small,t5-base --rounds 3", 25, KERNELS_OFF, kernels="off"),
        decoding(f"{FIRST_SPEEDS} t5-large,llama-1b", 20, IN_TURN, launch="in turn"))),
    Step("kernels", "Kernels alone", 20, benches(
        bench(KERNELS_BENCH, "--device cuda --dtype bf16", 15),
        bench(KERNELS_BENCH, "--device cuda --dtype bf16 --rounds 3", 15, IN_TURN, launch="in turn"))),
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
    Step("smoke", "First tokens of tiny models", DRY_S, benches(
        bench(CHECKS_BENCH, "--device standin --shapes tiny-t5,tiny-llama", DRY_S)), "stop"),
    Step("suites", "Tests on the device", DRY_S, suites("standin", {packing.DEVICE_TESTS: DRY_SUITES}), "mark", 2),
    Step("kernels", "Kernels alone", DRY_S, benches(
        bench(KERNELS_BENCH, "--device standin --dtype fp32 --tiny", DRY_S))),
    Step("decoding", "Decoding", DRY_S, benches(
        bench(DECODING_BENCH, "--device standin --dtype fp32 --shapes tiny-t5,tiny-llama "
              "--pairs tiny-t5:tiny-t5-drafter --rounds 2 --new-tokens 10 --source 6 --lengths 1,4", DRY_S))),
    Step("training", "Training", DRY_S, benches(
        bench(TRAINING_BENCH, "--device cpu --shape tiny-t5 --rows 2 --source 8 --target 8 --steps 1", DRY_S))),
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
