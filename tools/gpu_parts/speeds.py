"""Steps that measure: decoding, kernels, speculation, training, the peers, and what NVIDIA's tools see."""

from __future__ import annotations

import csv
import glob
import shutil
import statistics
import sysconfig

from gpu_parts import places
from gpu_parts.checks import PEER
from gpu_parts.facts import text_of
from gpu_parts.places import EAGER, KERNELS_OFF, Problem
from gpu_parts.running import Bench, Command, Context, Skipped, check, run_all, run_benches

# Dense bf16 TFLOP/s by the vendor's data sheets, for the share that training reaches.
PEAKS = {"H200": 989, "H100": 989, "A100": 312, "B200": 2250, "L40S": 362, "L4": 121}
TINY_DECODING = "--rounds 2 --new-tokens 10 --source 6 --copy-mb 8 --lengths 1,4 --alphas 0.8 --threads 1".split()
TINY_TRAINING = "--shapes tiny-t5 --rows 2 --source 8 --target 8 --rounds 1 --threads 1 --matrix 64".split()
LAUNCHES = 60  # that ncu looks at
NCU_METRICS = {"gpu__time_duration.sum": ("us", 1e-3), "dram__bytes.sum.per_second": ("gb_per_second", 1e-9)}


def peak_tflops(name: str) -> float:
    """The peak of a GPU of this name, 0 if it is unknown."""
    return next((float(peak) for part, peak in PEAKS.items() if part in name), 0.0)


def decoding_bench(context: Context, words: str, limit_s: float, off: dict[str, str] | None = None,
                   more: dict[str, str] | None = None, **marks: str) -> Bench:
    """A run of the decoding bench with flags in one text; `off` turns a fast way off, `more` are other variables."""
    environment = context.place.environment(off) | (more or {})
    return Bench([context.place.need(places.DECODING_BENCH), *words.split(), "--device", context.own_device()],
                 environment, limit_s, marks)


def tiny_bench(context: Context, measures: str, **marks: str) -> Bench:
    words = f"--measures {measures} --dtype fp32 --shapes tiny-t5,tiny-llama --pairs tiny-t5:tiny-t5-drafter"
    return decoding_bench(context, " ".join([words, *TINY_DECODING]), 30, **marks)


def speeds(context: Context) -> None:
    """Times greedy decoding and verification: default, kernels off, again."""
    measures = "greedy,verification"
    if context.dry:
        run_benches(context, [tiny_bench(context, measures, run="default")])
        return
    words = f"--measures {measures} --dtype bf16 --batches 1 --lengths 1,2,5,8,16"
    shapes = "--shapes t5-large,llama-1b,t5-small,t5-base"
    run_benches(context, [
        decoding_bench(context, f"{words} {shapes}", 25, run="default"),
        decoding_bench(context, f"{words} {shapes} --rounds 3", 25, KERNELS_OFF, kernels="off"),
        decoding_bench(context, f"{words} --shapes t5-large,llama-1b", 20, more=places.PROGRAMMATIC, launch="programmatic"),
        decoding_bench(context, f"{words} --shapes t5-large,llama-1b --rounds 3", 20, run="again")])


def kernels(context: Context) -> None:
    """Times a graph's node, linear_rows beside cuBLAS, and attention."""
    program, environment = context.place.need(places.KERNELS_BENCH), context.place.environment()
    measures = ["--measures", "nodes,linear_rows,attention", "--device", context.own_device()]
    if context.dry:
        run_benches(context, [Bench([program, *measures, "--dtype", "fp32", "--tiny"], environment)])
        return
    run_benches(context, [
        Bench([program, *measures, "--dtype", "bf16"], environment, 15),
        Bench([program, *measures, "--dtype", "bf16", "--rounds", "3"], environment | places.PROGRAMMATIC, 15,
              {"launch": "programmatic"})])


def decoding(context: Context) -> None:
    """Times larger batches, Llama-8B, fp32, fp16 and eager steps."""
    measures = "--measures greedy,verification"
    if context.dry:
        tiny = tiny_bench(context, "greedy,verification")
        run_benches(context, [tiny, tiny_eager(context, "greedy")])
        return
    bf16 = f"{measures} --dtype bf16"
    run_benches(context, [
        decoding_bench(context, f"{bf16} --batches 4,16,64 --shapes t5-large", 25),
        decoding_bench(context, f"{bf16} --batches 1,16 --shapes llama-8b", 30),
        decoding_bench(context, f"{bf16} --batches 1,16 --shapes llama-1b", 15),
        decoding_bench(context, f"{bf16} --batches 4,16,64 --shapes t5-small", 20),
        decoding_bench(context, f"{bf16} --shapes t5-large", 20, EAGER, steps="eager"),
        decoding_bench(context, f"{measures} --dtype fp32 --shapes t5-large", 15),
        decoding_bench(context, f"{measures} --dtype fp16 --shapes t5-large", 15)])


def tiny_eager(context: Context, measures: str) -> Bench:
    return decoding_bench(context, " ".join([f"--measures {measures} --dtype fp32 --shapes tiny-t5", *TINY_DECODING]),
                          30, EAGER, steps="eager")


def speculation(context: Context) -> None:
    """Times speculation at known rates of acceptance."""
    measures = "drafting,speculation"
    if context.dry:
        run_benches(context, [tiny_bench(context, measures)])
        return
    words = f"--measures {measures} --dtype bf16 --rounds 3"
    run_benches(context, [
        decoding_bench(context, f"{words} --pairs t5-large:t5-small --pair-batches 1,16 --alphas 0.6,0.8", 30),
        decoding_bench(context, f"{words} --pairs llama-8b:llama-1b --alphas 0.8", 30)])


def training(context: Context) -> None:
    """Times steps that read and write 8,192 tokens, and a product."""
    program, environment = context.place.need(places.TRAINING_BENCH), context.place.environment()
    device = ["--device", context.device()]
    if context.dry:
        run_benches(context, [Bench([program, *TINY_TRAINING, *device], environment)])
        return
    size = ["--rows", "64", "--source", "128", "--target", "128", "--precisions", "bf16", "--dropouts", "0,0.1",
            "--peak-tflops", str(peak_tflops(context.gpu.get("name", ""))), *device]
    run_benches(context, [
        Bench([program, *size, "--matrix", "8192", "--shapes", "t5-small"], environment, 25),
        Bench([program, *size, "--shapes", "t5-large"], environment, 30)])


# ---- Transformers ----


def run_peer(context: Context, words: str, limit_s: float) -> None:
    """Runs Transformers; in a dry run with sizes that take a moment."""
    if context.dry:
        words += " --shapes tiny-t5 --rounds 1 --source 6 --target 8 --new-tokens 4 --dtype fp32 --precision fp32"
        words += " --batches 1 --backend eager"
    run_benches(context, [Bench([context.need_python(), str(PEER), *words.split(), "--device", context.device()],
                                limit_s=limit_s)])


def peer(context: Context) -> None:
    """Times greedy decoding with Transformers, operator by operator."""
    run_peer(context, "decoding --shapes t5-large,t5-small --batches 1 --rounds 1", 40)


def peer_training(context: Context) -> None:
    """Times a training loop with Transformers at the same sizes."""
    run_peer(context, "training --shapes t5-small,t5-large --batches 64 --source 128 --target 128 --rounds 3", 30)


def peers_compiled(context: Context) -> None:
    """Times greedy decoding with Transformers' compiled step."""
    run_peer(context, "decoding --shapes t5-large --modes compiled --rounds 2", 95)


# ---- what tools see ----


def requests(context: Context) -> None:
    """Counts the host's launches, copies and waits of a token."""
    if context.dry:
        run_benches(context, [tiny_bench(context, "requests")])
        return
    words = ("--measures requests --dtype bf16 --rounds 2 --shapes t5-small,t5-large,llama-1b "
             "--pairs t5-large:t5-small")
    run_benches(context, [decoding_bench(context, words, 15), decoding_bench(context, words, 15, EAGER, steps="eager")])


def find_tool(name: str) -> str:
    """The path of one of NVIDIA's tools."""
    found = shutil.which(name)
    wheels = sysconfig.get_paths()["purelib"]
    patterns = [f"/usr/local/cuda*/bin/{name}", f"/opt/nvidia/*/*/{name}", f"{wheels}/nvidia/*/bin/{name}",
                f"{wheels}/triton/backends/nvidia/bin/{name}"]
    paths = [found] if found else [path for pattern in patterns for path in sorted(glob.glob(pattern))]
    if not paths:
        raise Skipped(f"{name} is neither in PATH nor beside CUDA")
    return paths[0]


def ncu(context: Context) -> None:
    """Reads the time and bandwidth of kernels in a replayed step."""
    context.need_gpu()
    bench = decoding_bench(context, "--measures greedy --dtype bf16 --shapes t5-large --rounds 1 --new-tokens 4 "
                           "--copy-mb 64", 20)
    words = [find_tool("ncu"), "--clock-control", "none", "--csv", "--page", "raw", "--print-units", "base",
             "--metrics", ",".join(NCU_METRICS), "--kernel-name", "regex:linear_rows|attend",
             "--launch-skip", "400", "--launch-count", str(LAUNCHES), *bench.words]
    (finished,) = run_all(context, [Command(words, bench.environment, bench.limit_s)])
    context.data["records"] = ncu_records(text_of(finished))
    check([finished], "ncu")
    if not context.data["records"]:
        raise Problem("ncu saw no kernel", "lines of linear_rows and attend", finished.output[-200:])


def ncu_records(text: str) -> list[dict]:
    """A record a kernel: launches, medians of time and of bytes a second."""
    lines = text.splitlines()
    head = next((number for number, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    rows = [row for row in csv.DictReader(lines[head:]) if (row["ID"] or "").isdigit()]
    records = []
    for kernel in dict.fromkeys(row["Kernel Name"] for row in rows):
        own = [row for row in rows if row["Kernel Name"] == kernel]
        record = {"measure": "ncu", "kernel": kernel, "launches": len(own)}
        for metric, (key, scale) in NCU_METRICS.items():
            record[key] = scale * statistics.median(float(row[metric].replace(",", "")) for row in own)
        records.append(record)
    return records


def sanitizer(context: Context) -> None:
    """Looks for wrong accesses to memory in a tiny decoding."""
    context.need_gpu()
    bench = tiny_bench(context, "greedy")
    words = [find_tool("compute-sanitizer"), "--tool", "memcheck", "--error-exitcode", "9", *bench.words]
    check(run_all(context, [Command(words, bench.environment, 10)]), "compute-sanitizer")
