"""tools/gpu rehearse --on debian13: what was packed, run dry in a Debian 13 with LibTorch of another Python."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess

from gpu_parts import places
from gpu_parts.places import Problem

SUITE = "trixie"
SOURCE = "/draftsmith"  # where this repository is in the root: not where the programs were compiled
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
PASSED = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_DEFAULT_TIMEOUT", "http_proxy", "https_proxy", "no_proxy")
REQUIRED = ("torch==2.11.0", "numpy")
# Mounts are made in a namespace of their own and end with the command.
IN_ROOT = """
root=$1 source=$2
shift 2
mkdir -p "$root$source_in_root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --bind -o ro "$source" "$root$source_in_root"
exec chroot "$root" /bin/sh -c 'cd "$source_in_root" && exec "$@"' sh "$@"
"""


def in_root(root: pathlib.Path, *words: str) -> int:
    """Runs a command in the root, in this repository. Returns its exit status."""
    passed = {name: os.environ[name] for name in PASSED if name in os.environ}
    environment = {**passed, "PIP_CERT": CERTIFICATES, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root",
                   "LANG": "C.UTF-8", "source_in_root": SOURCE}
    return subprocess.run(["unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", "-euc", IN_ROOT, "in_root",
                           str(root), str(places.ROOT), *words], env=environment).returncode


def must(status: int, what: str) -> None:
    if status != 0:
        raise Problem(f"{what} failed", "exit status 0", str(status), "its own words stand above")


def make_root(root: pathlib.Path) -> None:
    """Makes a Debian 13 whose Python has torch; it is kept for the next rehearsal. Downloads 3 GB."""
    if os.geteuid() != 0:
        raise Problem("a root is made by debootstrap and chroot", "root", f"user {os.geteuid()}", "run it with sudo")
    if not shutil.which("debootstrap"):
        raise Problem("there is no debootstrap", hint="apt-get install debootstrap")
    if not (root / "etc/debian_version").is_file():
        must(subprocess.run(["debootstrap", "--variant=minbase", "--include=python3-venv,ca-certificates", SUITE,
                             str(root)], stdout=subprocess.DEVNULL).returncode, "debootstrap")
    for file in ("/etc/resolv.conf", CERTIFICATES):  # of this machine, which reaches the registries
        shutil.copy(file, root / file[1:])
    if not (root / "opt/venv/complete").exists():
        must(in_root(root, "python3", "-m", "venv", "/opt/venv"), "python3 -m venv")
        must(in_root(root, "/opt/venv/bin/pip", "install", "--quiet", "--no-cache-dir", *REQUIRED), "pip install")
        (root / "opt/venv/complete").touch()


def debian13(root: pathlib.Path, archive: pathlib.Path, out: pathlib.Path) -> int:
    """Runs both plans dry from what was packed, in the root. Returns the exit status of that run."""
    if not archive.is_file():
        raise Problem("nothing was packed", str(archive), "no such file", "tools/gpu pack")
    root.mkdir(parents=True, exist_ok=True)
    make_root(root)
    shutil.copy(archive, root / "tmp" / places.ARCHIVE)
    shutil.rmtree(root / "tmp/out", ignore_errors=True)
    status = in_root(root, "/opt/venv/bin/python3", "tools/gpu", "run", "--dry", "--pack", f"/tmp/{places.ARCHIVE}",
                     "--out", "/tmp/out")
    shutil.copytree(root / "tmp/out", out, dirs_exist_ok=True)
    return status
