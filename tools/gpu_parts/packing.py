"""Where programs, libraries and interpreters are: in a build, or unpacked from what `tools/gpu pack` made. Packing:
stripped programs, the Debian libraries that they load, and compiled kernels, in one archive."""

import dataclasses
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build/release"
PACK_FOLDER = ROOT / ".gpu"
ARCHIVE = "pack.tar.xz"
FACTS = "pack.json"
KERNELS = "kernels"  # compiled for ARCHITECTURE, in the form of DRAFTSMITH_KERNEL_CACHE
ARCHITECTURE = "sm_90"  # of H100 and H200
COMPILE_S = 1200.0
# The tests that run on the device named by DRAFTSMITH_TEST_DEVICE.
DEVICE_TESTS = "tests/test_device"
# Programs with tests that are labelled gpu: suites named ...Gpu... or ...Cuda...
GPU_TESTS = ("tests/test_base", "tests/test_model", "tests/test_infer", "tests/test_train")
DECODING_BENCH = "bench/bench_device_decoding"
TRAINING_BENCH = "bench/bench_training_step"
CHECKS_BENCH = "bench/bench_device_checks"
KERNELS_BENCH = "bench/bench_device_kernels"
PROGRAMS = (DEVICE_TESTS, *GPU_TESTS, CHECKS_BENCH, KERNELS_BENCH, DECODING_BENCH, TRAINING_BENCH)
# Parts of the C library must fit the loader of the machine, which has newer ones; the C++ ones are newer there, too.
SYSTEM = re.compile(r"^(libc|libm|libpthread|libdl|librt|libresolv|libutil|libanl|libnsl|libstdc\+\+|libgcc_s)\.so")
LINE = re.compile(r"^\s*(\S+) => (not found|\S+)")


class Problem(Exception):
    """An error in the house's form: what, expected, found, hint."""

    def __init__(self, what: str, expected: str = "", found: str = "", hint: str = "") -> None:
        parts = [("expected", expected), ("found", found), ("hint", hint)]
        super().__init__("\n".join([what] + [f"  {name + ':':<9} {text}" for name, text in parts if text]))


@dataclasses.dataclass(frozen=True)
class Place:
    """Programs that can run here."""

    programs: pathlib.Path
    commit: str
    libraries: tuple[pathlib.Path, ...] = ()  # for LD_LIBRARY_PATH; none in a build, whose programs know their own
    kernels: pathlib.Path | None = None  # compiled ones that came along; None: each machine's own cache

    def need(self, name: str) -> str:
        """The path of a program that must be here."""
        if not (self.programs / name).is_file():
            raise Problem("a program is missing", name, f"not in {self.programs}",
                          "tools/build release, then tools/gpu pack")
        return str(self.programs / name)

    def environment(self) -> dict[str, str]:
        """Variables for our programs. Python must not get them: it has libraries of its own."""
        variables = {"DRAFTSMITH_KERNEL_CACHE": str(self.kernels)} if self.kernels else {}
        if self.libraries:
            already = os.environ.get("LD_LIBRARY_PATH", "")  # may lead to the driver
            variables["LD_LIBRARY_PATH"] = ":".join([*map(str, self.libraries), *([already] if already else [])])
        return variables


def find_place(build: pathlib.Path | None, dry: bool, folder: pathlib.Path) -> Place:
    """The build that was named; else the usual one for dry runs, and for others what was packed, if anything was."""
    archive = PACK_FOLDER / ARCHIVE
    if build or dry or not archive.is_file():
        return Place((build or BUILD).resolve(), git_commit())
    return unpacked_place(archive, folder)


def torch_libraries() -> tuple[pathlib.Path, ...]:
    """The folders of LibTorch and of NVIDIA's libraries beside it, without importing torch."""
    found = importlib.util.find_spec("torch")
    if not found or not found.origin:
        raise Problem("LibTorch was not found", f"a {sys.executable} with torch 2.11", "no module torch",
                      "run this with the interpreter that has torch first in PATH")
    torch = pathlib.Path(found.origin).parent
    nvidia = sorted(path for path in (torch.parent / "nvidia").glob("*/lib") if path.is_dir())
    first = [path for path in nvidia if path.parent.name.startswith("cu1")]
    return (torch / "lib", *first, *(path for path in nvidia if path not in first))


def peers_python() -> str | None:
    """An interpreter with torch and Transformers: the peers' environment, or the one that runs this."""
    named = os.environ.get("DRAFTSMITH_PEERS_PYTHON") or str(ROOT / ".venv-peers/bin/python")
    if os.access(named, os.X_OK):
        return named
    return sys.executable if all(map(importlib.util.find_spec, ("torch", "transformers"))) else None


def git_commit() -> str:
    result = subprocess.run(["git", "-C", str(ROOT), "describe", "--always", "--dirty=+", "--exclude=*"],
                            capture_output=True, text=True)
    return result.stdout.strip() or "unknown"


def unpacked_place(archive: pathlib.Path, folder: pathlib.Path) -> Place:
    """Unpacks the archive and makes the path that its tests were compiled with lead to this repository."""
    with tarfile.open(archive) as tar:
        tar.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    facts = json.loads((folder / FACTS).read_text())
    source = pathlib.Path(facts["source"])
    if not source.exists():
        try:
            source.parent.mkdir(parents=True, exist_ok=True)
            source.symlink_to(ROOT)
        except OSError as error:
            print(f"note: {source} cannot be linked to {ROOT}, which fails some tests: {error}")
    (folder / KERNELS).mkdir(exist_ok=True)  # what was forgotten is compiled into it
    return Place(folder, facts["commit"], (*torch_libraries(), folder / "lib"), folder / KERNELS)


# ---- tools/gpu pack ----


def libraries_of(program: str) -> dict[str, pathlib.Path]:
    """The libraries that a program loads and that must travel, by the name it asks for: not the C library's parts, nor
    what comes with torch."""
    listing = subprocess.run(["ldd", program], capture_output=True, text=True, check=True)
    found = {}
    for name, path in (match.groups() for match in map(LINE.match, listing.stdout.splitlines()) if match):
        if path == "not found":
            raise Problem("a library is missing", name, f"not found for {program}", "run tools/setup")
        if not SYSTEM.match(name) and "/torch/lib/" not in path and "/nvidia/" not in path:
            found[name] = pathlib.Path(path).resolve()
    return found


def compile_kernels(build: pathlib.Path, folder: pathlib.Path) -> None:
    """Compiles all own kernels into the folder; no GPU is needed. Raises Problem, mostly for a lack of NVRTC."""
    shutil.rmtree(folder, ignore_errors=True)
    words = [Place(build, "").need(KERNELS_BENCH), "--compile", str(folder), "--architecture", ARCHITECTURE]
    result = subprocess.run(words, capture_output=True, text=True, timeout=COMPILE_S)
    if result.returncode != 0 or not any(folder.glob("*.kernels")):
        found = (result.stderr or result.stdout).strip()[-800:] or f"exit status {result.returncode} and no file"
        raise Problem("kernels cannot be compiled", f"files in {folder}", found,
                      "install the wheel nvidia-cuda-nvrtc, or name the library in DRAFTSMITH_NVRTC")


def pack(build: pathlib.Path, out: pathlib.Path, programs: tuple[str, ...], preset: int = 9) -> pathlib.Path:
    """Writes out/pack.tar.xz, complete or not at all, with the kernels of out/kernels. Returns it."""
    found = {name: Place(build, "").need(name) for name in programs}
    out.mkdir(parents=True, exist_ok=True)
    archive = out / ARCHIVE
    archive.unlink(missing_ok=True)
    partial = archive.with_name(archive.name + ".partial")
    with tempfile.TemporaryDirectory() as work:
        folder = pathlib.Path(work)
        (folder / "lib").mkdir()
        for name, program in found.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(["strip", "--strip-all", "-o", str(folder / name), program], check=True)
            for library, path in libraries_of(program).items():
                shutil.copy(path, folder / "lib" / library)
        (folder / FACTS).write_text(json.dumps({"commit": git_commit(), "source": str(ROOT)}))
        with tarfile.open(partial, "w:xz", preset=preset) as tar:  # large presets find what programs have in common
            for name in (FACTS, *programs, "lib"):
                tar.add(folder / name, arcname=name)
            if (out / KERNELS).is_dir():
                tar.add(out / KERNELS, arcname=KERNELS)
    os.replace(partial, archive)
    return archive
