"""The plans: steps of the two calls of one loan, in their order. What decides most comes first."""

from __future__ import annotations

import dataclasses

from gpu_parts import checks, facts, speeds, tables
from gpu_parts.places import Problem
from gpu_parts.running import Step

DRY_LIMIT_S = 240.0  # of each step of a dry run, which must hold beside other work on two cores

FIRST = (
    Step("facts", "Machine and versions", 15, facts.facts, at_once=8),
    Step("smoke", "First tokens of tiny models", 25, checks.smoke, "stop"),
    Step("suites", "Tests on the device", 60, checks.suites, "mark", 8),
    Step("shapes", "Checks at real shapes", 35, checks.shapes, "mark"),
    Step("speeds", "Speed of decoding", 55, speeds.speeds),
    Step("kernels", "Kernels alone", 20, speeds.kernels),
)
REST = (
    Step("decoding", "Larger batches and other types", 110, speeds.decoding),
    Step("speculation", "Speculation", 50, speeds.speculation),
    Step("training", "Training", 50, speeds.training),
    Step("peer", "Transformers", 60, speeds.peer),
    Step("peer_training", "Training with Transformers", 30, speeds.peer_training),
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


def table_of(name: str) -> tables.Table:
    rows = [(step.name, f"{step.limit_s:.0f}", str(step.at_once), step.gate, (step.work.__doc__ or "").rstrip("."))
            for step in PLANS[name]]
    rows.append(("sum", f"{sum_of(name):.0f}", "", "", f"at most {MOST_S[name]:.0f}"))
    return tables.Table(f"--plan {name}", "", ("step", "s", "at once", "gate", "what it does"), tuple(rows))


def show() -> int:
    """Prints both plans. Returns 1 if the limits of one are too long for its call."""
    print("\n\n".join(tables.console(table_of(name)) for name in PLANS))
    return int(any(sum_of(name) > MOST_S[name] for name in PLANS))
