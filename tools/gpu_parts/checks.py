"""Steps that check: versions and a first token, the device's tests, parity with Transformers, losslessness."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess

from gpu_parts import places, random_models
from gpu_parts.places import Problem
from gpu_parts.running import Bench, Context, Finished, check, run_all, run_benches, run_ours

PEER = places.ROOT / "bench/compare_device_peer.py"
SMI = "name,driver_version,memory.total,power.limit,clocks.max.sm"
GPU_SUITES = "*Gpu*.*:*Cuda*.*"
# The others of the device program are about the stand-in accelerator, which takes the GPU's place in its process.
DEVICE_SUITES = "Device*.*"
EAGER = {"DRAFTSMITH_GRAPHS": "off"}  # steps are not recorded as graphs
PROGRAMS = {"DRAFTSMITH_STEP_PROGRAMS": "on"}  # all layers of a step are one launch
# Some tests of the device program that take a moment; a dry run checks that it runs, not the device code.
DRY_TESTS = "*.OperatorsGiveTheCpusNumbers:*.InPlaceOperatorsChangeDeviceMemory:*.GradientsAreTheCpus"


def gpu_facts() -> dict[str, str]:
    """What nvidia-smi says of the first GPU; empty where there is none."""
    try:
        result = subprocess.run(["nvidia-smi", f"--query-gpu={SMI}", "--format=csv,noheader"], capture_output=True,
                                text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    first = result.stdout.splitlines()[:1] if result.returncode == 0 else []
    return dict(zip(SMI.split(","), (value.strip() for value in first[0].split(",")))) if first else {}


def python_versions(python: str) -> dict[str, str]:
    code = ("import importlib.metadata as m, json, platform; print(json.dumps({'python': platform.python_version(), "
            "**{n: m.version(n) for n in ('torch', 'transformers')}}))")
    result = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=60)
    return json.loads(result.stdout) if result.returncode == 0 else {}


# ---- smoke ----


def smoke(context: Context) -> None:
    """Versions, facts of the GPU, and a tiny random model's first tokens on the device."""
    program = str(context.place.need(places.PROGRAM))
    version = run_ours(context, [program, "--version"])
    context.data["version"] = next((line for line in version.splitlines() if "draftsmith" in line.lower()), "")
    context.data["gpu"] = gpu_facts()
    if context.place.python:
        context.data["python"] = python_versions(context.place.python)
    folder = context.work / "smoke"
    random_models.write_model(folder / "model", "t5", random_models.TINY)
    random_models.write_lines(folder / "sources", 1, 8, random_models.TINY.vocabulary, 1)
    words = generate_words(context, folder / "model", folder / "sources", "fp32", 8)
    (finished,) = run_all([(words, context.place.environment())], context.deadline, context.work)
    check([finished], "greedy decoding")
    context.data["ids"] = outputs_of(finished)[0]


def generate_words(context: Context, model: pathlib.Path, sources: pathlib.Path, dtype: str, tokens: int,
                   more: tuple[str, ...] = ("--method", "greedy")) -> list[str]:
    """A command that decodes exactly so many tokens a line."""
    return [str(context.place.need(places.PROGRAM)), "generate", "--model", str(model), "--input", str(sources),
            "--ids", "--json", "--quiet", "--device", context.device, "--dtype", dtype,
            "--min-new-tokens", str(tokens), "--max-new-tokens", str(tokens), *more]


def outputs_of(finished: Finished) -> list[list[int]]:
    assert finished.log is not None
    lines = finished.log.read_text().splitlines()
    found = [json.loads(line)["ids"] for line in lines if line.startswith('{"ids"')]
    if not found:
        raise Problem("generate printed no outputs", "a JSON object a line", " | ".join(lines[:3]))
    return found


# ---- device suites ----


def counts_of(report: pathlib.Path) -> dict[str, int]:
    """Tests, failures and skipped ones of a GoogleTest report, and the names of those that failed."""
    suites = json.loads(report.read_text()).get("testsuites", [])
    cases = [case | {"suite": suite["name"]} for suite in suites for case in suite.get("testsuite", [])]
    ran = [case for case in cases if case.get("status") == "RUN"]
    return {"tests": len(ran), "skipped": sum(case.get("result") == "SKIPPED" for case in ran),
            "failures": [f"{case['suite']}.{case['name']}" for case in ran if "failures" in case]}


def test_command(context: Context, name: str, tests: str, shard: int, shards: int
                 ) -> tuple[list[str], dict[str, str], pathlib.Path]:
    report = context.work / f"{name.replace('/', '-')}-{shard}.json"
    environment = {**context.place.environment(), "GTEST_OUTPUT": f"json:{report}", "OMP_NUM_THREADS": "1",
                   "GTEST_TOTAL_SHARDS": str(shards), "GTEST_SHARD_INDEX": str(shard)}
    return [str(context.place.need(name)), f"--gtest_filter={tests}"], environment, report


def suite_row(name: str, finished: list[Finished], reports: list[pathlib.Path]) -> dict:
    """One row of a test program; shards that were killed or crashed count as failures."""
    row = {"program": pathlib.Path(name).name, "tests": 0, "failed": 0, "skipped": 0,
           "seconds": round(max(result.seconds for result in finished), 1), "failures": []}
    for result, report in zip(finished, reports):
        if report.is_file():
            counts = counts_of(report)
            row["tests"] += counts["tests"]
            row["skipped"] += counts["skipped"]
            row["failures"] += counts["failures"]
        if result.status is None:
            row["failures"].append("killed: out of time")
        elif result.status != 0 and not report.is_file():
            row["failures"].append(f"exit status {result.status} before any report: {result.output[-200:].strip()}")
    row["failed"] = len(row["failures"])
    return row


def run_suites(context: Context, name: str, tests: str, shards: int) -> None:
    commands, reports = [], []
    for shard in range(shards):
        words, environment, report = test_command(context, name, tests, shard, shards)
        if name == places.DEVICE_TESTS:
            environment["DRAFTSMITH_TEST_DEVICE"] = "standin" if context.device == "cpu" else "cuda"
        commands.append((words, environment))
        reports.append(report)
    finished = run_all(commands, context.deadline, context.work, at_once=shards)
    context.data["suites"].append(suite_row(name, finished, reports))


def suites(context: Context) -> None:
    """The device's tests in shards, then the tests that need a GPU of other programs."""
    context.data["suites"] = []
    tests = DRY_TESTS if context.dry else DEVICE_SUITES
    shards = 1 if context.dry else max(1, min(8, (os.cpu_count() or 1) // 2))
    run_suites(context, places.DEVICE_TESTS, tests, shards)
    for name in places.GPU_TESTS:
        if not context.dry or context.place.find(name):
            run_suites(context, name, GPU_SUITES, 1)
    rows = context.data["suites"]
    if not rows[0]["tests"]:
        raise Problem("no test of the device ran", f"tests {tests} of {places.DEVICE_TESTS}", "none")
    failures = [failure for row in rows for failure in row["failures"]]
    if failures:
        raise Problem("tests failed", "none", f"{len(failures)}: " + ", ".join(failures[:5]))


# ---- parity and losslessness ----


def dtypes(context: Context) -> tuple[str, ...]:
    return ("fp32", "bf16") if context.dry else ("fp32", "bf16", "fp16")


def models(context: Context) -> pathlib.Path:
    """Random models and lines of ids, made once a run. The T5's drafter is smaller and its weights are others."""
    folder = context.work / "models"
    if folder.exists():
        return folder
    sizes = random_models.TINY if context.dry else random_models.SMALL
    partial = context.work / "models.partial"
    for name, family, size, seed in (("t5", "t5", sizes, 1), ("t5-drafter", "t5", random_models.dataclasses.replace(
            sizes, width=sizes.width // 2, layers=1), 2), ("llama", "llama", sizes, 1)):
        random_models.write_model(partial / name, family, size, seed)
    lines, longest = (3, 10) if context.dry else (32, 64)
    for name in ("t5", "llama"):
        random_models.write_lines(partial / f"{name}.sources", lines, longest, sizes.vocabulary, 3)
        random_models.write_lines(partial / f"{name}.targets", lines, longest, sizes.vocabulary, 4)
    partial.rename(folder)
    return folder


def new_tokens(context: Context) -> int:
    return 12 if context.dry else 64


def at_once(context: Context) -> int:
    return 2 if context.dry else 4


def parity(context: Context) -> None:
    """Greedy ids and teacher-forced logits beside Transformers' of the same directory, type and device."""
    python = context.need_python()
    folder = models(context)
    commands, names = [], []
    for model in ("t5", "llama"):
        for dtype in dtypes(context):
            commands.append(generate_words(context, folder / model, folder / f"{model}.sources", dtype,
                                           new_tokens(context)))
            commands.append([str(context.place.need(places.PROGRAM)), "logits", "--model", str(folder / model),
                             "--source", str(folder / f"{model}.sources"), "--target", str(folder / f"{model}.targets"),
                             "--ids", "--quiet", "--device", context.device, "--dtype", dtype,
                             "--out", str(folder / f"{model}.{dtype}.h5")])
            names.append(f"{model}.{dtype}")
    environment = context.place.environment()
    finished = run_all([(words, environment) for words in commands], context.deadline, context.work, at_once(context))
    check(finished, "generate or logits")
    for name, result in zip(names, finished[::2]):
        (folder / f"{name}.ids.json").write_text(json.dumps(outputs_of(result)))
    run_benches(context, [Bench([python, str(PEER), "parity", str(folder), "--dtypes", ",".join(dtypes(context))])])


def lossless(context: Context) -> None:
    """Share of lines on which methods give greedy decoding's ids, by type and batch; eager and step programs beside recorded steps."""
    folder = models(context)
    drafting = ("--drafter", str(folder / "t5-drafter"), "--temperature", "0")
    greedy = ("--method", "greedy")
    methods = {"greedy": greedy, "greedy, eager": greedy, "greedy, step programs": greedy,
               "speculative": ("--method", "speculative", "--window", "4", *drafting),
               "assisted": ("--method", "assisted", *drafting)}
    if context.dry:
        methods = {name: methods[name] for name in ("greedy", "speculative")}
    switches = {"eager": EAGER, "step programs": PROGRAMS}
    runs = [(dtype, batch, method) for dtype in dtypes(context)[:1 if context.dry else 3]
            for batch in ((1,) if context.dry else (1, 16)) for method in methods]
    commands = [(generate_words(context, folder / "t5", folder / "t5.sources", dtype, new_tokens(context),
                                (*methods[method], "--batch-size", str(batch))),
                 context.place.environment() | switches.get(method.rpartition(", ")[2], {}))
                for dtype, batch, method in runs]
    finished = run_all(commands, context.deadline, context.work, at_once(context))
    outputs = {run: outputs_of(result) for run, result in zip(runs, finished) if result.status == 0}
    context.data["records"] = lossless_rows(outputs)
    check(finished, "generate")


def lossless_rows(outputs: dict[tuple[str, int, str], list[list[int]]]) -> list[dict]:
    """Lines equal to greedy decoding of the same batch, and of batch 1."""
    rows = []
    for (dtype, batch, method), ids in outputs.items():
        same, single = outputs.get((dtype, batch, "greedy")), outputs.get((dtype, 1, "greedy"))
        if (batch, method) == (1, "greedy") or same is None or single is None:
            continue
        rows.append({"dtype": dtype, "batch": batch, "method": method, "lines": len(ids),
                     "equal_to_greedy": sum(a == b for a, b in zip(ids, same)),
                     "equal_to_greedy_of_one": sum(a == b for a, b in zip(ids, single))})
    return rows

