"""What the comparisons and curves of bench/ share: programs that run one after another, machines, spreads."""

import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-peers/bin/python"


LIBRARY_FOLDERS = [f"/usr/lib/{platform.machine()}-linux-gnu", "/usr/lib64", "/usr/lib"]
# From this line on a page is written by hand, and stays when a program writes the page again.
BY_HAND = "<!-- Written by hand from here on. -->"


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


def tcmalloc():
    """Returns the environment of a program that shall use TCMalloc, as our own programs do; ends this program if it is
    not installed."""
    found = next((folder / "libtcmalloc_minimal.so.4" for folder in map(pathlib.Path, LIBRARY_FOLDERS)
                  if (folder / "libtcmalloc_minimal.so.4").exists()), None)
    if not found:
        sys.exit("error: TCMalloc is missing\n  expected: libtcmalloc_minimal.so.4 in one of "
                 f"{', '.join(LIBRARY_FOLDERS)}\n  hint:     tools/setup installs it")
    return {"LD_PRELOAD": str(found)}


def read_results(path):
    """Returns what an earlier call has written there; None if there is nothing."""
    return json.loads(path.read_text()) if path and path.exists() else None


def write_results(path, results):
    """Writes the results as JSON, for other calls and people; does nothing without a path."""
    if path:
        path.write_text(json.dumps(results, indent=1) + "\n")


def write_page(path, text):
    """Writes a page of docs/results; what was written by hand below its mark stays."""
    by_hand = ""
    if path.exists():
        _, mark, by_hand = path.read_text().partition(BY_HAND)
        by_hand = mark and f"\n{mark}{by_hand}"
    path.write_text(text.rstrip("\n") + "\n" + by_hand)


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


def machines(lines):
    """Returns several lines of machine() as one: commits and dates joined."""
    parts = [line.rsplit(", ", 2) for line in lines]
    places, commits, dates = (sorted({part[i] for part in parts}) for i in range(3))
    names = [commit.removeprefix("commit ") for commit in commits]
    return f"{'; '.join(places)}, commit{'s' if len(names) > 1 else ''} {', '.join(names)}, {', '.join(dates)}"


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

    def shares(self):
        """Returns the shares of the processors that other processes used and that the host took, from 0 to 1."""
        every, stolen, ours = (new - old for old, new in zip(self.before, processor_seconds()))
        seconds = (time.monotonic() - self.start) * os.cpu_count()
        return max(0, every - ours) / seconds, stolen / seconds

    def line(self):
        others, host = self.shares()
        return f"meanwhile other processes used {others:.0%} of the processors, the host took {host:.0%}"
