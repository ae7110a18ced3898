"""tools/gpu page: docs/results/gpu.md from a run's results, in the form of the other pages of results."""

from __future__ import annotations

from typing import Any

from gpu_parts import results as results_file
from gpu_parts import tables
from gpu_parts.places import Problem


def machine_of(results: dict[str, Any]) -> str:
    machine = results["machine"]
    parts = [machine.get("gpu", {}).get("name") or machine.get("cpu", "unknown machine")]
    if driver := machine.get("gpu", {}).get("driver_version"):
        parts.append(f"driver {driver}")
    parts += [f"{name} {machine['python'][name]}" for name in ("torch", "transformers") if name in
              machine.get("python", {})]
    return ", ".join(parts)


def problems_of(results: dict[str, Any]) -> list[str]:
    """What a reader must know of steps that did not end well."""
    lines = []
    for step in results["steps"]:
        if step["status"] != "ok":
            problem = " ".join(step.get("problem", "").split())
            lines.append(f"* {step['title']}, {step['status']} after {step['seconds']:.0f} s: {problem[:300]}")
    lines += [f"* {name}: not run, the run was interrupted" for name in results_file.not_run(results)]
    return lines


def wrapped(lines: list[str], width: int = 120) -> list[str]:
    """Lines of a list, none too wide."""
    import textwrap
    return [part for line in lines for part in
            textwrap.wrap(line, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)]


def page(results: dict[str, Any], allow_dry: bool = False) -> str:
    """The page's text. The figures of a dry run mean nothing, so it has no page."""
    if results.get("dry") and not allow_dry:
        raise Problem("a dry run has no page", "the results of tools/gpu run on a machine with a GPU",
                      "sizes of a dry run, on a CPU")
    head = ["# Decoding and training on a GPU", "",
            "Every measure that Draftsmith has for a GPU, of one run ·",
            f"`{results['command']}` ·",
            f"commit {results['commit']} · {machine_of(results)} · {results['date'][:10]}"]
    sections = ["\n".join(head)]
    problems = problems_of(results)
    if problems:
        sections.append("\n".join(["Not everything ran:", "", *wrapped(problems)]))
    for step in results["steps"]:
        sections += [tables.markdown(made) for made in tables.tables_of_step(step)]
    sections.append("\n".join([
        "## How it is measured", "",
        "* Weights are random and made on the device; speeds do not depend on them, outputs mean nothing.",
        "* Times are medians of 5 rounds or more, and end when the device is done or the tokens are on the host.",
        "* `docs/results/README.md` explains the columns; `tools/gpu` and `bench/device_*.cpp` are the programs."]))
    return "\n\n".join(sections) + "\n"
