#!/usr/bin/env python3
"""Puts libraries that torch does not bring into a wheel, with their licences.

    repair_wheel.py WHEEL FOLDER     writes the wheel below FOLDER and prints its tag
"""

import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile

# What torch and its CUDA wheels bring: found by RPATH, or loaded already where torch was imported.
TORCHS = ("libtorch*.so*", "libc10*.so*", "libshm.so*", "libgomp.so.1", "libcudart.so*", "libcublas*.so*", "libcupti.so*",
          "libnvrtc*.so*")
# auditwheel names a library libname-<8 hex digits of its hash>.so...
HASH = re.compile(r"-[0-9a-f]{8}(?=\.so|-|\.)")


def run(*command, **options):
    return subprocess.run([str(word) for word in command], check=True, text=True, **options)


def package_of(library):
    """The Debian package that the wheel's library was copied from."""
    name = HASH.sub("", library.name)
    found = subprocess.run(["dpkg", "-S", f"*/{platform.machine()}-linux-gnu/{name}"], capture_output=True, text=True).stdout
    packages = [line for line in found.splitlines() if not line.startswith("diversion")]
    if not packages:
        sys.exit(f"{library.name}: {name} is of no Debian package, so its licence is unknown")
    return re.split("[,:]", packages[0])[0]


def add_licences(wheel, folder):
    """Writes the wheel again with the copyright files of the packages whose libraries it carries."""
    run(sys.executable, "-m", "wheel", "unpack", "--dest", folder, wheel, stdout=subprocess.DEVNULL)
    unpacked = next(pathlib.Path(folder).iterdir())
    licences = next(unpacked.glob("*.dist-info")) / "licenses/libraries"
    licences.mkdir(parents=True)
    lines = []
    for library in sorted(unpacked.glob("*.libs/*")):
        package = package_of(library)
        shutil.copy(f"/usr/share/doc/{package}/copyright", licences / package)
        lines.append(f"{library.name}: Debian's {package}, licence in {package}\n")
    (licences / "README").write_text("Libraries in this wheel, and where their licences stand:\n\n" + "".join(lines))
    run(sys.executable, "-m", "wheel", "pack", "--dest-dir", wheel.parent, unpacked, stdout=subprocess.DEVNULL)


def main(wheel, folder):
    excluded = [word for name in TORCHS for word in ("--exclude", name)]
    with open("build/wheel-repair.log", "w") as log:
        run("auditwheel", "repair", *excluded, "--wheel-dir", folder, wheel, stdout=log, stderr=subprocess.STDOUT)
    repaired = next(pathlib.Path(folder).glob("*.whl"))
    with tempfile.TemporaryDirectory() as temporary:
        add_licences(repaired, temporary)
    print(repaired.stem.split("-", 2)[2])


if __name__ == "__main__":
    main(*sys.argv[1:])
