"""Steps that measure: decoding, kernels, speculation, training, and Transformers."""

from __future__ import annotations

from gpu_parts import places
from gpu_parts.places import EAGER, KERNELS_OFF
from gpu_parts.running import Bench, Context, run_benches

PEER = places.ROOT / "bench/compare_device_peer.py"
# Dense bf16 TFLOP/s by the vendor's data sheets, for the share that training reaches.
PEAKS = {"H200": 989, "H100": 989, "A100": 312, "B200": 2250, "L40S": 362, "L4": 121}
TINY_DECODING = "--rounds 2 --new-tokens 10 --source 6 --copy-mb 8 --lengths 1,4 --alphas 0.8 --threads 1".split()
TINY_TRAINING = "--shape tiny-t5 --rows 2 --source 8 --target 8 --steps 1 --threads 1".split()


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
    """Times greedy decoding and verification: default, kernels off."""
    measures = "greedy,verification"
    if context.dry:
        run_benches(context, [tiny_bench(context, measures, run="default")])
        return
    words = f"--measures {measures} --dtype bf16 --batches 1 --lengths 1,2,5,8,16"
    shapes = "--shapes t5-large,llama-1b,t5-small,t5-base"
    run_benches(context, [
        decoding_bench(context, f"{words} {shapes}", 25, run="default"),
        decoding_bench(context, f"{words} {shapes} --rounds 3", 25, KERNELS_OFF, kernels="off"),
        decoding_bench(context, f"{words} --shapes t5-large,llama-1b", 20, more=places.PROGRAMMATIC,
                       launch="programmatic")])


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
        run_benches(context, [tiny, decoding_bench(context, " ".join(
            ["--measures greedy --dtype fp32 --shapes tiny-t5", *TINY_DECODING]), 30, EAGER, steps="eager")])
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
    """Times steps that read and write 8,192 tokens."""
    words = [context.place.need(places.TRAINING_BENCH), "--device", context.device()]
    environment = context.place.environment()
    if context.dry:
        run_benches(context, [Bench([*words, *TINY_TRAINING], environment)])
        return
    words += ["--rows", "64", "--source", "128", "--target", "128", "--dtype", "bf16", "--steps", "5", "--threads", "0",
              "--peak-tflops", str(peak_tflops(context.gpu.get("name", "")))]
    run_benches(context, [Bench([*words, "--shape", shape, "--dropout", dropout], environment, 25)
                          for shape in ("t5-small", "t5-large") for dropout in ("0", "0.1")])


# ---- Transformers ----


def run_peer(context: Context, words: str, limit_s: float) -> None:
    """Runs Transformers; in a dry run with sizes that take a moment."""
    if context.dry:
        words += " --shapes tiny-t5 --rounds 1 --source 6 --target 8 --new-tokens 4 --dtype fp32 --precision fp32"
        words += " --batches 1"
    run_benches(context, [Bench([context.need_python(), str(PEER), *words.split(), "--device", context.device()],
                                limit_s=limit_s)])


def peer(context: Context) -> None:
    """Times greedy decoding with Transformers, operator by operator."""
    run_peer(context, "decoding --shapes t5-large,t5-small --batches 1 --rounds 3", 60)


def peer_training(context: Context) -> None:
    """Times a training loop with Transformers at the same sizes."""
    run_peer(context, "training --shapes t5-small,t5-large --batches 64 --source 128 --target 128 --rounds 3", 30)
