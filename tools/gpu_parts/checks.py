"""Steps that check: own kernels and recorded steps, the device's tests, real shapes, parity with Transformers."""

from __future__ import annotations

import json
import pathlib
import re

from gpu_parts import places, random_models
from gpu_parts.facts import text_of
from gpu_parts.places import Problem
from gpu_parts.running import Bench, Command, Context, Finished, check, run_all, run_benches

PEER = places.ROOT / "bench/compare_device_peer.py"
GPU_SUITES = "*Gpu*.*:*Cuda*.*"
# The others of the device program are about the stand-in accelerator, which takes the GPU's place in its process.
DEVICE_SUITES = "Device*.*"
# Some tests of the device program that take a moment; a dry run checks that it runs, not the device code.
DRY_TESTS = "*.OperatorsGiveTheCpusNumbers:*.InPlaceOperatorsChangeDeviceMemory:*.GradientsAreTheCpus"
RESULT = re.compile(r"\[ +(OK|FAILED|SKIPPED) +\] (\w[\w/]*\.[\w/]+)")
# Of parity in fp32: the largest difference of logits over the largest logit.
FP32_LOGITS = 1e-4
SUITE_S = 45.0  # of a suite's process
NO_GATE = "a share: own kernels, cuBLAS (over 16 rows) and Transformers round half types differently"


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


# ---- parity ----


def models(context: Context) -> pathlib.Path:
    """Makes random models and lines of ids."""
    folder = context.work / "models"
    sizes = random_models.TINY if context.dry else random_models.SMALL
    lines, longest = (3, 10) if context.dry else (8, 32)
    for name in ("t5", "llama"):
        random_models.write_model(folder / name, name, sizes, 1)
        random_models.write_lines(folder / f"{name}.sources", lines, longest, sizes.vocabulary, 3)
        random_models.write_lines(folder / f"{name}.targets", lines, longest, sizes.vocabulary, 4)
    return folder


def parity_words(context: Context, folder: pathlib.Path, model: str, dtype: str) -> list[list[str]]:
    """Two commands: one decodes exactly so many tokens a line, the other writes logits of given lines."""
    shared = ["--model", str(folder / model), "--ids", "--quiet", "--device", context.device(), "--dtype", dtype]
    sources, tokens = str(folder / f"{model}.sources"), "12" if context.dry else "32"
    program = context.place.need(places.PROGRAM)
    return [[program, "generate", *shared, "--input", sources, "--json", "--method", "greedy", "--batch-size", "8",
             "--min-new-tokens", tokens, "--max-new-tokens", tokens],
            [program, "logits", *shared, "--source", sources, "--target", str(folder / f"{model}.targets"),
             "--out", str(folder / f"{model}.{dtype}.h5")]]


def outputs_of(finished: Finished) -> list[list[int]]:
    lines = text_of(finished).splitlines()
    found = [json.loads(line)["ids"] for line in lines if line.startswith('{"ids"')]
    if not found:
        raise Problem("generate printed no outputs", "a JSON object a line", " | ".join(lines[:3]))
    return found


def parity(context: Context) -> None:
    """Compares ids and logits with Transformers': 8 lines, 32 tokens."""
    peer = [context.need_python(), str(PEER)]
    folder = models(context)
    names = [(model, dtype) for model in ("t5", "llama") for dtype in ("fp32", "bf16")]
    finished = run_all(context, [Command(words, context.place.environment()) for model, dtype in names
                                 for words in parity_words(context, folder, model, dtype)])
    check(finished, "generate or logits")
    for (model, dtype), result in zip(names, finished[::2]):
        (folder / f"{model}.{dtype}.ids.json").write_text(json.dumps(outputs_of(result)))
    run_benches(context, [Bench([*peer, "parity", str(folder), "--dtypes", "fp32,bf16", "--device", context.device()],
                                limit_s=30)])
    judge_parity(context.data["records"])


def judge_parity(records: list[dict]) -> None:
    """Adds to each record whether it passed. Raises Problem if one in fp32 did not."""
    for record in records:
        if record["dtype"] == "fp32":
            record["passed"] = (record["logits_difference"] <= FP32_LOGITS
                                and record["equal_lines"] == record["lines"])
        else:
            record["no_gate"] = NO_GATE
    failed = [f"{record['model']}: {record['equal_lines']} of {record['lines']} lines, logits differ by "
              f"{record['logits_difference']:.1e}" for record in records if record.get("passed") is False]
    if failed:
        raise Problem("outputs in fp32 differ from Transformers'", f"all lines, logits within {FP32_LOGITS}",
                      "; ".join(failed))
