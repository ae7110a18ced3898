"""tools/gpu page: docs/results/gpu.md from the results of runs, in the form of the other pages of results."""

from __future__ import annotations

import statistics
import textwrap
from typing import Any

from gpu_parts import results as results_file
from gpu_parts import tables, verdicts
from gpu_parts.places import Problem


def machine_of(results: dict[str, Any]) -> str:
    machine = results["machine"]
    parts = [machine.get("gpu", {}).get("name") or machine.get("cpu", "unknown machine")]
    if driver := machine.get("gpu", {}).get("driver_version"):
        parts.append(f"driver {driver}")
    parts += [f"{name} {version}" for name in ("torch", "transformers")
              if (version := machine.get("python", {}).get(name))]
    return ", ".join(parts)


def problems_of(results: dict[str, Any]) -> list[str]:
    """What a reader must know of steps that did not end well, and of slower ways that were taken."""
    lines = []
    for step in results["steps"]:
        if step["status"] != "ok":
            problem = " ".join(step.get("problem", "").split())
            lines.append(f"* {step['title']}, {step['status']} after {step['seconds']:.0f} s: {problem[:300]}")
    lines += [f"* {name}: not run, the run was interrupted" for name in results_file.not_run(results)]
    warnings = [str(warning) for step in results["steps"] for record in step.get("data", {}).get("records", [])
                for warning in record.get("warnings") or []]
    return lines + [f"* A program warned: {' '.join(warning.split())[:300]}" for warning in dict.fromkeys(warnings)]


def wrapped(lines: list[str], width: int = 120) -> list[str]:
    """Lines of a list, none too wide."""
    return [part for line in lines for part in
            textwrap.wrap(line, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)]


def head_of(results: dict[str, Any]) -> str:
    return "\n".join([f"`{results['command']}` ·",
                      f"commit {results['commit']} · {machine_of(results)} · {results['date'][:10]}"])


def page(runs: list[dict[str, Any]], allow_dry: bool = False) -> str:
    """The page's text, of the two calls of a loan or of one. The figures of a dry run mean nothing: it has no page."""
    if any(results.get("dry") for results in runs) and not allow_dry:
        raise Problem("a dry run has no page", "the results of tools/gpu run on a machine with a GPU",
                      "sizes of a dry run, on a CPU")
    steps = [step for results in runs for step in results["steps"]]
    sections = ["# Decoding and training on a GPU"]
    if failed := [step["title"] for step in steps if results_file.marks(step)]:
        sections.append("\n".join(wrapped([f"**Checks failed ({', '.join(failed)}): the times below may be those of "
                                           "wrong numbers.**"])))
    sections += ["Every measure that Draftsmith has for a GPU.", *map(head_of, runs)]
    if problems := [line for results in runs for line in problems_of(results)]:
        sections.append("\n".join(["Not everything ran as planned:", "", *wrapped(problems)]))
    decided = verdicts.lines_of([record for step in steps for record in step.get("data", {}).get("records", [])])
    sections.append("\n".join(["## What the numbers decide", "", "The rules were written down before the run.", "",
                               *wrapped(decided)]))
    for step in steps:
        if made := tables.tables_of_step(step):
            sections += [f"## {step['title']}", *map(tables.markdown, made)]
    copies = [record["gb_per_second"] for step in steps for record in step.get("data", {}).get("records", [])
              if record.get("measure") == "copy"]
    sections.append("\n".join([
        "## How it is measured", "",
        *([f"* A copy on the device reads and writes {statistics.median(copies):,.0f} GB/s."] if copies else []),
        "* Weights are random and made on the device; speeds do not depend on them, outputs mean nothing.",
        "* Times are medians of 3 rounds or more, and end when the device is done or the tokens are on the host.",
        "* Our programs end with an error where a slower way than the named one would be taken.",
        "* `docs/results/README.md` explains the columns; `tools/gpu` and `bench/device_*.cpp` are the programs."]))
    return "\n\n".join(sections) + "\n"
