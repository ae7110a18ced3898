"""What the comparisons and curves of bench/ share: programs that run one after another, machines, spreads."""

import datetime
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-peers/bin/python"


class Failed(Exception):
    """A program that ended with an error, and what it wrote."""


def output_of(command, environment=None):
    """Returns the command's standard output; raises Failed with its errors."""
    result = subprocess.run([str(word) for word in command], cwd=ROOT, capture_output=True, text=True,
                            env={**os.environ, **(environment or {})})
    if result.returncode != 0:
        raise Failed(f"{' '.join(map(str, command))} failed ({result.returncode}):\n{result.stdout}{result.stderr}")
    return result.stdout


def run(command, environment=None):
    """Returns the command's standard output; ends this program with its errors if it fails."""
    try:
        return output_of(command, environment)
    except Failed as error:
        sys.exit(f"error: {error}")


def set_up(targets, peers=False, requirements=(), environment=None):
    """Installs what is missing, with the peers of these requirements into .venv-peers, and builds the targets."""
    subprocess.run([ROOT / "tools/setup", *(["--with-peers"] if peers else [])], check=True)
    subprocess.run([ROOT / "tools/build", "release", *targets], check=True)
    for name in requirements:
        run([PYTHON, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "-r", ROOT / "tools" / name],
            environment)


def in_turns(names, number):
    """Returns the names in the order of a round: the order turns, so that none always runs first."""
    names = list(names)
    first = number % len(names)
    return names[first:] + names[:first]


def machine():
    """Returns processor, commit and date in one line."""
    with open("/proc/cpuinfo") as file:
        model = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), "?")
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True).stdout
    return f"{model}, {os.cpu_count()} cores, commit {commit.strip()}, {datetime.date.today()}"


def processor_flags():
    """Returns the processor's features as Linux names them: avx512f, avx512_bf16, ..."""
    with open("/proc/cpuinfo") as file:
        return set(next((line.split(":")[1].split() for line in file if line.startswith("flags")), []))


def spread(values, digits):
    """Returns the median, with the smallest and the largest value."""
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}–{max(values):.{digits}f})"


def processor_seconds():
    """Returns processor seconds since the start: (of every process, taken by the machine's host, of our children)."""
    with open("/proc/stat") as file:
        user, nice, system, _, _, irq, softirq, steal = map(int, file.readline().split()[1:9])
    tick = os.sysconf("SC_CLK_TCK")
    own = os.times()
    ours = own.user + own.system + own.children_user + own.children_system
    return (user + nice + system + irq + softirq) / tick, steal / tick, ours


class Disturbance:
    """How much of the machine others use from now on: with more than a few percent, speeds mean little."""

    def __init__(self):
        self.before, self.start = processor_seconds(), time.monotonic()

    def line(self):
        every, stolen, ours = (new - old for old, new in zip(self.before, processor_seconds()))
        share = 100 / ((time.monotonic() - self.start) * os.cpu_count())
        return (f"meanwhile other processes used {max(0, every - ours) * share:.0f} % of the processors, "
                f"the host took {stolen * share:.0f} %")
