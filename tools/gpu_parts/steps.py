"""The steps of a run, and their two plans: machine, checks, speeds, Transformers."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
import shutil
import sys

from gpu_parts import places
from gpu_parts.places import EAGER, KERNELS_OFF, Problem
from gpu_parts.running import Bench, Command, Context, Finished, Step, check, run_all, run_benches

# ---- machine ----

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

# ---- checks ----

GPU_SUITES = "*Gpu*.*:*Cuda*.*"
# The others of the device program are about the stand-in accelerator, which takes the GPU's place in its process.
DEVICE_SUITES = "Device*.*"
# Some tests of the device program that take a moment; a dry run checks that it runs, not the device code.
DRY_TESTS = "*.OperatorsGiveTheCpusNumbers:*.GradientsAreTheCpus"
RESULT = re.compile(r"\[ +(OK|FAILED|SKIPPED) +\] (\w[\w/]*\.[\w/]+)")
SUITE_S = 45.0  # of a suite's process


def run_checks(context: Context, words: list[str], limit_s: float, more: dict[str, str] | None = None) -> None:
    bench = Bench([context.place.need(places.CHECKS_BENCH), *words, "--device", context.own_device()],
                  context.place.environment() | (more or {}), limit_s)
    run_benches(context, [bench])
    if not context.data["records"]:
        raise Problem("no check ran", f"records of {places.CHECKS_BENCH}", "none")


def smoke(context: Context) -> None:
    """Decodes with tiny models: kernels found, steps recorded, equal ids."""
    run_checks(context, ["--checks", "smoke", "--dtypes", "fp32,bf16"], 25)


def shapes(context: Context) -> None:
    """Compares logits and ids at real shapes; speculation is lossless."""
    names = "tiny-t5,tiny-llama" if context.dry else "t5-large,llama-1b"
    run_checks(context, ["--checks", "shapes", "--dtypes", "fp32,bf16", "--shapes", names], 35)


# ---- device suites ----


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
    ended = {name: result for result, name in RESULT.findall(text_of(finished))}
    failures = [name for name, result in ended.items() if result == "FAILED"]
    missing = [name for test in tests if (name := f"{suite}.{test}") not in ended]
    end = finished.killed or f"exit status {finished.status}"
    if missing:
        others = f", {len(missing) - 1} more not run" if len(missing) > 1 else ""
        failures.append(f"{missing[0]} ({end}{others})")
    elif finished.status != 0 and not failures:
        failures.append(f"{suite} ({end} after its tests)")
    return {"program": pathlib.Path(program).name, "suite": suite, "tests": len(ended), "failed": len(failures),
            "skipped": list(ended.values()).count("SKIPPED"), "seconds": round(finished.seconds, 1),
            "failures": failures}


def suites(context: Context) -> None:
    """Runs the device's tests and those that need a GPU, a process a suite."""
    environment = context.place.environment() | {"OMP_NUM_THREADS": "1",
                                                 "DRAFTSMITH_TEST_DEVICE": context.own_device()}
    filters = {places.DEVICE_TESTS: DRY_TESTS if context.dry else DEVICE_SUITES}
    filters |= {name: GPU_SUITES for name in places.GPU_TESTS if not context.dry or context.place.has(name)}
    listings = run_all(context, [Command([context.place.need(name), "--gtest_list_tests", f"--gtest_filter={tests}"],
                                         environment) for name, tests in filters.items()])
    check(listings, "listing tests")
    found = [(name, suite, tests) for name, listing in zip(filters, listings)
             for suite, tests in tests_of(text_of(listing)).items()]
    if not any(name == places.DEVICE_TESTS for name, _, _ in found):
        raise Problem("no test of the device ran", f"tests {filters[places.DEVICE_TESTS]}", "none")
    chosen = [":".join(f"{suite}.{test}" for test in tests) if context.dry else f"{suite}.*"
              for _, suite, tests in found]
    finished = run_all(context, [Command([context.place.need(name), f"--gtest_filter={tests}"], environment, SUITE_S)
                                 for (name, _, _), tests in zip(found, chosen)])
    context.data["suites"] = [suite_row(*names, ended) for names, ended in zip(found, finished)]
    failures = [failure for row in context.data["suites"] for failure in row["failures"]]
    if failures:
        raise Problem("tests failed", "none", f"{len(failures)}: " + ", ".join(failures[:5]))

# ---- speeds ----

PEER = places.ROOT / "bench/compare_device_peer.py"
# Dense bf16 TFLOP/s by the vendor's data sheets, for the share that training reaches.
PEAKS = {"H200": 989, "H100": 989, "A100": 312, "B200": 2250, "L40S": 362, "L4": 121}
TINY_DECODING = "--rounds 2 --new-tokens 10 --source 6 --copy-mb 8 --lengths 1,4 --alphas 0.8 --threads 1".split()
TINY_TRAINING = "--shape tiny-t5 --rows 2 --source 8 --target 8 --steps 1 --threads 1".split()


def peak_tflops(name: str) -> float:
    """The peak of a GPU of this name, 0 if it is unknown."""
    return next((float(peak) for part, peak in PEAKS.items() if part in name), 0.0)


def decoding_bench(context: Context, words: str, limit_s: float, off: dict[str, str] | None = None,
                   more: dict[str, str] | None = None, **marks: str) -> Bench:
    """A run of the decoding bench with flags in one text; `off` turns a fast way off, `more` are other variables."""
    environment = context.place.environment(off) | (more or {})
    return Bench([context.place.need(places.DECODING_BENCH), *words.split(), "--device", context.own_device()],
                 environment, limit_s, marks)


def tiny_bench(context: Context, measures: str, **marks: str) -> Bench:
    words = f"--measures {measures} --dtype fp32 --shapes tiny-t5,tiny-llama --pairs tiny-t5:tiny-t5-drafter"
    return decoding_bench(context, " ".join([words, *TINY_DECODING]), 30, **marks)


def speeds(context: Context) -> None:
    """Times greedy decoding and verification: default, kernels off."""
    measures = "greedy,verification"
    if context.dry:
        run_benches(context, [tiny_bench(context, measures, run="default")])
        return
    words = f"--measures {measures} --dtype bf16 --batches 1 --lengths 1,2,5,8,16"
    shapes = "--shapes t5-large,llama-1b,t5-small,t5-base"
    run_benches(context, [
        decoding_bench(context, f"{words} {shapes}", 25, run="default"),
        decoding_bench(context, f"{words} {shapes} --rounds 3", 25, KERNELS_OFF, kernels="off"),
        decoding_bench(context, f"{words} --shapes t5-large,llama-1b", 20, more=places.LAUNCHES_IN_TURN,
                       launch="in turn")])


def kernels(context: Context) -> None:
    """Times a graph's node, linear_rows beside cuBLAS, and attention."""
    program, environment = context.place.need(places.KERNELS_BENCH), context.place.environment()
    measures = ["--measures", "nodes,linear_rows,attention", "--device", context.own_device()]
    if context.dry:
        run_benches(context, [Bench([program, *measures, "--dtype", "fp32", "--tiny"], environment)])
        return
    run_benches(context, [
        Bench([program, *measures, "--dtype", "bf16"], environment, 15),
        Bench([program, *measures, "--dtype", "bf16", "--rounds", "3"], environment | places.LAUNCHES_IN_TURN, 15,
              {"launch": "in turn"})])


def decoding(context: Context) -> None:
    """Times larger batches, Llama-8B, fp32, fp16 and eager steps."""
    measures = "--measures greedy,verification"
    if context.dry:
        tiny = tiny_bench(context, "greedy,verification")
        run_benches(context, [tiny, decoding_bench(context, " ".join(
            ["--measures greedy --dtype fp32 --shapes tiny-t5", *TINY_DECODING]), 30, EAGER, steps="eager")])
        return
    bf16 = f"{measures} --dtype bf16"
    run_benches(context, [
        decoding_bench(context, f"{bf16} --batches 4,16,64 --shapes t5-large", 25),
        decoding_bench(context, f"{bf16} --batches 1,16 --shapes llama-8b", 30),
        decoding_bench(context, f"{bf16} --batches 1,16 --shapes llama-1b", 15),
        decoding_bench(context, f"{bf16} --batches 4,16,64 --shapes t5-small", 20),
        decoding_bench(context, f"{bf16} --shapes t5-large", 20, EAGER, steps="eager"),
        decoding_bench(context, f"{measures} --dtype fp32 --shapes t5-large", 15),
        decoding_bench(context, f"{measures} --dtype fp16 --shapes t5-large", 15)])


def speculation(context: Context) -> None:
    """Times speculation at known rates of acceptance."""
    measures = "drafting,speculation"
    if context.dry:
        run_benches(context, [tiny_bench(context, measures)])
        return
    words = f"--measures {measures} --dtype bf16 --rounds 3"
    run_benches(context, [
        decoding_bench(context, f"{words} --pairs t5-large:t5-small --pair-batches 1,16 --alphas 0.6,0.8", 30),
        decoding_bench(context, f"{words} --pairs llama-8b:llama-1b --alphas 0.8", 30)])


def training(context: Context) -> None:
    """Times steps that read and write 8,192 tokens."""
    words = [context.place.need(places.TRAINING_BENCH), "--device", context.device()]
    environment = context.place.environment()
    if context.dry:
        run_benches(context, [Bench([*words, *TINY_TRAINING], environment)])
        return
    words += ["--rows", "64", "--source", "128", "--target", "128", "--dtype", "bf16", "--steps", "5", "--threads", "0",
              "--peak-tflops", str(peak_tflops(context.gpu.get("name", "")))]
    run_benches(context, [Bench([*words, "--shape", shape, "--dropout", dropout], environment, 25)
                          for shape in ("t5-small", "t5-large") for dropout in ("0", "0.1")])


# ---- Transformers ----


def run_peer(context: Context, words: str, limit_s: float) -> None:
    """Runs Transformers; in a dry run with sizes that take a moment."""
    if context.dry:
        words += " --shapes tiny-t5 --rounds 1 --source 6 --target 8 --new-tokens 4 --dtype fp32 --precision fp32"
        words += " --batches 1"
    run_benches(context, [Bench([context.need_python(), str(PEER), *words.split(), "--device", context.device()],
                                limit_s=limit_s)])


def peer(context: Context) -> None:
    """Times greedy decoding with Transformers, operator by operator."""
    run_peer(context, "decoding --shapes t5-large,t5-small --batches 1 --rounds 3", 60)


def peer_training(context: Context) -> None:
    """Times a training loop with Transformers at the same sizes."""
    run_peer(context, "training --shapes t5-small,t5-large --batches 64 --source 128 --target 128 --rounds 3", 30)

# ---- the plans ----

# What decides most comes first.
DRY_LIMIT_S = 240.0  # of each step of a dry run, which must hold beside other work on two cores

FIRST = (
    Step("facts", "Machine and versions", 15, facts, at_once=8),
    Step("smoke", "First tokens of tiny models", 25, smoke, "stop"),
    Step("suites", "Tests on the device", 60, suites, "mark", 8),
    Step("shapes", "Checks at real shapes", 35, shapes, "mark"),
    Step("speeds", "Speed of decoding", 55, speeds),
    Step("kernels", "Kernels alone", 20, kernels),
)
REST = (
    Step("decoding", "Larger batches and other types", 110, decoding),
    Step("speculation", "Speculation", 50, speculation),
    Step("training", "Training", 50, training),
    Step("peer", "Transformers", 60, peer),
    Step("peer_training", "Training with Transformers", 30, peer_training),
)
PLANS = {"first": FIRST, "rest": REST}
# A loan is 900 s: two starts of at most 120 s, and 30 s of each call around its steps, leave this.
MOST_S = {"first": 250.0, "rest": 380.0}


def sum_of(name: str) -> float:
    return sum(step.limit_s for step in PLANS[name])


def chosen(plan: str | None, names: str | None, dry: bool) -> tuple[Step, ...]:
    """The steps of a plan, or those named by "a,b" in the plan's order. Dry runs and names need no plan."""
    if plan is None and not names and not dry:
        raise Problem("--plan is missing", "first or rest: a loan's first call, and its second",
                      "neither a plan nor --steps")
    steps = PLANS[plan] if plan else FIRST + REST
    if dry:
        steps = tuple(dataclasses.replace(step, limit_s=DRY_LIMIT_S) for step in steps)
    wanted = [name for name in (names or "").split(",") if name] or [step.name for step in steps]
    known = [step.name for step in steps]
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise Problem("--steps: unknown step", ", ".join(known), ", ".join(unknown))
    return tuple(step for step in steps if step.name in wanted)
