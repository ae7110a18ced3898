"""What the comparisons of bench/ share: programs that run one after another, machines, spreads."""

import ctypes.util
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-peers/bin/python"
PROGRAM = ROOT / "build/release/draftsmith"
LLAMA_CPP = "0.3.36"  # of llama-cpp-python
# GCC 12 drops stores that its intrinsic for AMX's configuration reads, and llama.cpp in q8_0 ends with a fault.
LLAMA_CPP_BUILD = "-DGGML_NATIVE=ON -DLLAVA_BUILD=OFF -DCMAKE_CXX_FLAGS=-fno-tree-dse"


def run(command, environment=None):
    """Returns the command's standard output; ends this program with its errors if it fails."""
    result = subprocess.run([str(word) for word in command], cwd=ROOT, capture_output=True, text=True,
                            env={**os.environ, **(environment or {})})
    if result.returncode != 0:
        sys.exit(f"error: {' '.join(map(str, command))} failed ({result.returncode}):\n{result.stdout}{result.stderr}")
    return result.stdout


def tokenized(model, file, special):
    """Returns the lines of a file as ids of a model's tokenizer, with its special tokens or without."""
    code = ("import sys, transformers\ntokenizer = transformers.AutoTokenizer.from_pretrained(sys.argv[1])\n"
            f"for line in open(sys.argv[2]): print(*tokenizer.encode(line.strip(), add_special_tokens={special}))")
    return run([PYTHON, "-c", code, model, file])


def set_up(targets):
    """Installs what is missing, with the peers, and builds the targets."""
    subprocess.run([ROOT / "tools/setup", "--with-peers"], check=True)
    subprocess.run([ROOT / "tools/build", "release", *targets], check=True)


def install_llama_cpp(python):
    """Installs llama.cpp beside an interpreter. It is compiled for this processor: 10 to 20 minutes on two cores."""
    run([python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", f"llama-cpp-python=={LLAMA_CPP}"],
        {"CMAKE_ARGS": LLAMA_CPP_BUILD})


def tcmalloc():
    """Returns the environment of a program that shall use TCMalloc, as ours do; ends this one if it is missing."""
    found = ctypes.util.find_library("tcmalloc_minimal")
    if not found:
        sys.exit("error: TCMalloc is missing\n  expected: libtcmalloc_minimal.so\n  hint:     tools/setup installs it")
    return {"LD_PRELOAD": found}


def add_common_options(parser, rounds):
    """Adds the flags that all comparisons have."""
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--no-build", action="store_true", help="programs are built and peers installed")
    parser.add_argument("--json", type=pathlib.Path, help="also write every number here")


def write_results(path, results):
    """Writes the results as JSON; does nothing without a path."""
    if path:
        path.write_text(json.dumps({"machine": machine(), **results}, indent=1) + "\n")


def run_in_turns(names, rounds, measure):
    """Returns {name: [measure(name) of each round]}. The order turns, so that none always runs first."""
    results = {name: [] for name in names}
    for number in range(rounds):
        for name in in_turns(results, number):
            results[name].append(measure(name))
    return results


def in_turns(names, number):
    """Returns the names in the order of a round."""
    names = list(names)
    first = number % len(names)
    return names[first:] + names[:first]


def machine():
    """Returns processor, commit and date in one line."""
    with open("/proc/cpuinfo") as file:
        model = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), "?")
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True).stdout
    return f"{model}, {os.cpu_count()} cores, commit {commit.strip()}, {datetime.date.today()}"


def spread(values, digits):
    """Returns the median, with the smallest and the largest value; a dash if there is none."""
    if not values:
        return "–"
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}–{max(values):.{digits}f})"


def table(head, rows):
    """Returns a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


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
        seconds = (time.monotonic() - self.start) * os.cpu_count()
        return (f"meanwhile other processes used {max(0, every - ours) / seconds:.0%} of the processors, "
                f"the host took {stolen / seconds:.0%}")
