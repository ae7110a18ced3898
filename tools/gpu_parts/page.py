"""The page docs/results/gpu.md, of the results of both calls of a loan: a table for each measure of a step."""

import json
import pathlib
import statistics
import textwrap
from typing import Any

from gpu_parts.packing import Problem

FORMAT = 1
Record = dict[str, Any]
# Keys that no table shows: they are the same in all records, or of no one's interest.
HIDDEN = ("measure", "device", "own_kernels", "recorded", "warnings", "kernels", "steps", "launch")
# Title, sentence and columns for each measure. A measure without an entry has all keys of its records.
MEASURES: dict[str, tuple[str, str, str]] = {
    "greedy": ("Greedy decoding", "Roofline: the time to read the weights once at a copy's bandwidth, over a step's.",
               "shape dtype batch way ms_per_step tokens_per_second with_encoder weight_mb roofline_share nodes"),
    "verification": ("Verification curves", "Time of a step of L tokens over that of one.",
                     "shape dtype batch way ms_of_one L=2 L=4 L=5 L=8 L=16"),
    "speculation": ("Speculation at known acceptance",
                    "Tokens are kept by coins of probability alpha; predicted from the run's own step times.",
                    "target drafter dtype batch way window alpha alpha_found cost_ratio tokens_per_run speedup "
                    "predicted measured_over_predicted"),
    "training": ("Training", "One micro-batch a step; MFU of the data sheet's dense bf16 peak; target tokens a second.",
                 "shape precision dropout rows ms_per_step tokens_per_second tflops mfu peak_memory_mb"),
    "peer decoding": ("Decoding with Transformers", 'Encoder included: compare with the column "with encoder".',
                      "program shape dtype batch ms_per_step tokens_per_second"),
    "peer training": ("Training with Transformers", "A plain loop: AdamW, clipping, the same sizes.",
                      "program shape precision dropout rows ms_per_step tokens_per_second"),
    "suites": ("Failed tests", "A process a suite; one that is killed or crashes counts as a failure.", ""),
}


def read(path: pathlib.Path) -> Record:
    try:
        results = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise Problem("the results cannot be read", str(path), str(error), "tools/gpu run writes them") from None
    if not isinstance(results, dict) or results.get("format") != FORMAT:
        raise Problem("the results are of another form", f"format {FORMAT}", str(path))
    return results


def prepared(record: Record) -> Record:
    """The record with what its run had turned off as `way`, and with the points of a curve as keys."""
    way = [record[key].replace("off", f"{key} off") for key in ("kernels", "steps", "launch") if key in record]
    curve = {f"L={length}": value for length, value in zip(record.get("tokens", []), record.get("relative", []))}
    shown = {key: value for key, value in record.items() if key not in HIDDEN}
    return shown | curve | {"way": ", ".join(way) or "default"}


def cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return "–" if value is None else f"{value:,}" if type(value) is int and value >= 10000 else str(value)


def table(measure: str, records: list[Record]) -> str:
    unknown = (f"Measure: {measure.replace('_', ' ')}", "As the program says it.", "")
    title, says, columns = MEASURES.get(measure, unknown)
    rows = [prepared(record) for record in records]
    keys = columns.split() or list(dict.fromkeys(key for row in rows for key in row))
    lines = [[key.replace("_", " ") for key in keys], ["---"] * len(keys)]
    lines += [[cell(row.get(key)) for key in keys] for row in rows]
    return "\n".join([f"### {title}", "", says, "", *(f"| {' | '.join(line)} |" for line in lines)])


def tables_of(step: Record) -> list[str]:
    """The tables of a step, without copies and layers in turn; checks and tests that passed have a line alone."""
    data = step.get("data", {})
    failed = [suite for suite in data.get("suites", []) if suite["failed"]]
    listed = {"suites": failed} if failed else {}
    for record in data.get("records", []):
        hidden = record["measure"] == "copy" or (record["measure"] == "linear_rows" and "launch" in record)
        if not hidden and record.get("passed") is not True:
            listed.setdefault(record["measure"], []).append(record)
    return [table(measure, records) for measure, records in listed.items()]


def passed_lines(step: Record) -> list[str]:
    """Sentences about the checks and the tests of a step that passed."""
    data = step.get("data", {})
    lines = []
    if checks := [record for record in data.get("records", []) if record.get("passed") is True]:
        largest: dict[str, float] = {}
        for record in checks:
            if record["check"].startswith("logits_"):
                largest[record["dtype"]] = max(largest.get(record["dtype"], 0.0), record["value"])
        differences = ", ".join(f"{dtype} {value:.1e}" for dtype, value in largest.items())
        shapes = ", ".join(dict.fromkeys(record["shape"] for record in checks))
        lines.append(f"{len(checks)} checks passed ({shapes}); logits differ by at most {differences} of the largest.")
    if suites := data.get("suites"):
        tests, failed, skipped = (sum(suite[key] for suite in suites) for key in ("tests", "failed", "skipped"))
        lines.append(f"Passed: {tests - failed - skipped}, skipped: {skipped}, failed: {failed}, in {len(suites)} suites.")
    return lines


def head_of(results: Record) -> str:
    """The command of a run, its commit, machine and date."""
    machine = results["machine"]
    gpu = machine["gpu"]
    parts = [gpu["name"], f"driver {gpu['driver_version']}"] if gpu else [machine["cpu"]]
    parts += [f"{name} {version}" for name in ("torch", "transformers") if (version := machine["python"].get(name))]
    return (f"`{results['command']}` ·\n"
            f"commit {results['commit']} · {', '.join(parts)} · {results['date'][:10]}")


def problems_of(results: Record) -> list[str]:
    """What a reader must know of steps that did not end well, and what programs warned of."""
    lines = [f"* {step['title']}, {step['status']} after {step['seconds']:.0f} s: "
             + " ".join(step["problem"].split())[:300] for step in results["steps"] if step["status"] != "ok"]
    done = [step["name"] for step in results["steps"]]
    lines += [f"* {name}: not run, the run was interrupted" for name in results["plan"] if name not in done]
    warnings = [str(warning) for step in results["steps"] for record in step["data"].get("records", [])
                for warning in record.get("warnings") or []]
    return lines + [f"* A program warned: {' '.join(warning.split())[:300]}" for warning in dict.fromkeys(warnings)]


def wrapped(lines: list[str]) -> str:
    return "\n".join(part for line in lines for part in textwrap.wrap(
        line, 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False))


def page(runs: list[Record]) -> str:
    """The page's text. The figures of a dry run mean nothing: it has no page."""
    if any(results["dry"] for results in runs):
        raise Problem("a dry run has no page", "the results of tools/gpu run on a machine with a GPU",
                      "sizes of a dry run, on a CPU")
    steps = [step for results in runs for step in results["steps"]]
    sections = ["# Decoding and training on a GPU"]
    if failed := [step["title"] for step in steps if step["gate"] != "-" and step["status"] != "ok"]:
        sections.append(wrapped([f"**Checks failed ({', '.join(failed)}): the times below may be those of wrong "
                                 "numbers.**"]))
    sections += ["Every measure that Draftsmith has for a GPU.", *map(head_of, runs)]
    if problems := [line for results in runs for line in problems_of(results)]:
        sections += ["Not everything ran as planned:", wrapped(problems)]
    for step in steps:
        parts = [part for part in (wrapped(passed_lines(step)), *tables_of(step)) if part]
        if parts:
            sections += [f"## {step['title']}", *parts]
    copies = [record["gb_per_second"] for step in steps for record in step["data"].get("records", [])
              if record["measure"] == "copy"]
    sections.append("\n".join([
        "## How it is measured", "",
        *([f"* A copy on the device reads and writes {statistics.median(copies):,.0f} GB/s."] if copies else []),
        "* Weights are random and made on the device; speeds do not depend on them, outputs mean nothing.",
        "* Times are medians of 3 rounds or more, and end when the device is done or the tokens are on the host.",
        "* Our programs end with an error where a slower way than the named one would be taken.",
        "* `docs/results/README.md` explains the columns; `tools/gpu` and `bench/device_*.cpp` are the programs."]))
    return "\n\n".join(sections) + "\n"
