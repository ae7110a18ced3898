"""Steps that check: own kernels and recorded steps, the device's tests, real shapes."""

from __future__ import annotations

import pathlib
import re

from gpu_parts import places
from gpu_parts.facts import text_of
from gpu_parts.places import Problem
from gpu_parts.running import Bench, Command, Context, Finished, check, run_all, run_benches

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
    # The numbers of programmatic launches, which the speeds time, too.
    run_checks(context, ["--checks", "smoke", "--dtypes", "fp32,bf16"], 15, places.PROGRAMMATIC)


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
