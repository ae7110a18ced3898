"""Tests of tools/setup in a copy of the repository's tools, with made-up dpkg-query, apt-get, sudo, id and pip."""

import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# The made-up Python makes environments whose pip writes what it was asked for; PIP=fail stands for no network, PIP=warn for a
# failure that logs warnings only.
PYTHON = """#!/bin/bash
case "$1 $2" in
  "-c "*) exit 0 ;;
  "-m venv")
    mkdir -p "$3/bin" "$3/lib/python3.11/site-packages"
    cp "$0" "$3/bin/python"
    cp "$(dirname "$0")/pip" "$3/bin/pip" ;;
  "- "*) exit 1 ;;
esac
"""
PIP = """#!/bin/bash
echo "pip $*, temporary files in $TMPDIR" >>"$CALLS"
if [ "$PIP" = warn ]; then echo "WARNING: retrying" >&2; exit 1; fi
if [ "$PIP" = fail ]; then echo "ERROR: no connection" >&2; exit 1; fi
"""
DPKG_QUERY = """#!/bin/bash
cat "$INSTALLED"
"""
APT_GET = """#!/bin/bash
echo "apt-get $*" >>"$CALLS"
if [ "$APT" = fail ]; then echo "E: Unable to fetch some archives" >&2; exit 100; fi
seen=no
for word in "$@"; do
  [ "$seen" = no ] || case $word in -*) ;; *) echo "$word installed" >>"$INSTALLED" ;; esac
  [ "$word" != install ] || seen=yes
done
"""


def packages(name):
    lines = (ROOT / "tools" / name).read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


class Setup(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)
        (self.root / "tools").mkdir()
        for name in ("setup", "packages.txt", "packages-test.txt", "requirements.txt", "requirements-peers.txt"):
            shutil.copy(ROOT / "tools" / name, self.root / "tools" / name)
        self.bin = self.root / "bin"
        self.bin.mkdir()
        self.calls, self.installed = self.root / "calls", self.root / "installed"
        self.calls.write_text("")
        self.set_installed(packages("packages.txt") + packages("packages-test.txt"))
        self.add_program("python3", PYTHON)
        self.add_program("pip", PIP)
        self.add_program("dpkg-query", DPKG_QUERY)
        self.add_program("apt-get", APT_GET)
        self.add_program("id", "#!/bin/bash\necho 0\n")
        self.add_program("df", "#!/bin/bash\necho header; echo disk 0 0 $((${FREE_GB:-50} << 20)) 0% /\n")

    def tearDown(self):
        self.folder.cleanup()

    def add_program(self, name, text):
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def set_installed(self, names):
        self.installed.write_text("".join(f"{name}:amd64 installed\n" for name in names))

    def run_setup(self, *arguments, **environment):
        base = {"PATH": f"{self.bin}:/usr/bin:/bin", "CALLS": str(self.calls), "INSTALLED": str(self.installed)}
        result = subprocess.run([self.root / "tools/setup", *arguments], env={**base, **environment},
                                stdin=subprocess.DEVNULL, capture_output=True, text=True)
        calls = self.calls.read_text()
        self.calls.write_text("")
        return result, calls

    def test_installs_once_and_does_nothing_the_second_time(self):
        self.set_installed([])
        first, calls = self.run_setup()
        self.assertEqual(first.returncode, 0, first.stderr)
        for name in packages("packages.txt"):
            self.assertIn(name, calls)
        self.assertIn("-r tools/requirements.txt", calls)
        self.assertNotIn("requirements-peers", calls)
        second, calls = self.run_setup()
        self.assertEqual((second.returncode, second.stdout, second.stderr, calls), (0, "", "", ""))

    def test_installs_only_the_packages_that_are_missing(self):
        self.set_installed([name for name in packages("packages.txt") if name not in ("cmake", "libicu-dev")])
        result, calls = self.run_setup()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("--no-install-recommends cmake libicu-dev\n", calls)

    def test_a_package_also_counts_under_the_names_that_it_provides(self):
        self.set_installed([name for name in packages("packages.txt") if name not in ("libfmt-dev", "libtcmalloc-minimal4")])
        with open(self.installed, "a") as file:
            file.write("libtcmalloc-minimal4t64:amd64 installed other, libtcmalloc-minimal4 (= 2.16-1)\n")
            file.write("formats:amd64 config-files libfmt-dev (= 9)\n")
        result, calls = self.run_setup()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("--no-install-recommends libfmt-dev\n", calls)

    def test_peers_share_the_torch_of_the_first_environment(self):
        result, calls = self.run_setup("--with-peers")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("requirements-peers.txt", calls)
        site = self.root / ".venv-peers/lib/python3.11/site-packages"
        target = (site / "torch_of_venv.pth").read_text().strip()
        self.assertEqual((site / target).resolve(), (self.root / ".venv/lib/python3.11/site-packages").resolve())
        second, calls = self.run_setup("--with-peers")
        self.assertEqual((second.returncode, second.stdout, calls), (0, "", ""))

    def test_a_changed_requirement_is_installed(self):
        self.run_setup()
        with open(self.root / "tools/requirements.txt", "a") as file:
            file.write("another==1.0\n")
        result, calls = self.run_setup()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("-r tools/requirements.txt", calls)

    def assert_one_message(self, result, *parts):
        self.assertEqual(result.returncode, 2, result.stdout + result.stderr)
        self.assertEqual(result.stderr.count("error:"), 1, result.stderr)
        for part in parts:
            self.assertIn(part, result.stderr)
        self.assertFalse((self.root / ".venv").exists())
        self.assertFalse((self.root / ".venv-peers").exists())

    def test_without_rights_names_everything_missing_and_the_command(self):
        self.set_installed([])
        self.add_program("id", "#!/bin/bash\necho 1000\n")
        self.add_program("sudo", "#!/bin/bash\nexit 1\n")
        result, calls = self.run_setup("--with-peers")
        self.assertEqual(calls, "")
        names = packages("packages.txt") + packages("packages-test.txt")
        self.assert_one_message(result, "sudo refuses", "torch==2.11.0", "transformers==5.23.0",
                                "apt-get install --no-install-recommends -y " + " ".join(names))

    def test_without_network_for_packages_names_everything_missing(self):
        self.set_installed([])
        result, _ = self.run_setup(APT="fail")
        names = " ".join(packages("packages.txt"))
        self.assert_one_message(result, "apt-get failed", "Unable to fetch", "torch==2.11.0", names)

    def test_without_network_for_wheels_names_them_and_leaves_no_half_environment(self):
        result, _ = self.run_setup("--with-peers", PIP="fail")
        self.assert_one_message(result, "pip failed", "no connection", "torch==2.11.0", "transformers==5.23.0")
        self.assertNotIn("Debian", result.stderr)

    def test_a_small_disk_is_found_before_anything_is_fetched(self):
        self.set_installed([])
        for free in ("3", "8"):
            result, calls = self.run_setup(FREE_GB=free)
            self.assertEqual(calls, "")
            self.assert_one_message(result, free + " GB of disk are free", "LIBTORCH=/path")
            self.assertNotIn("index", result.stderr)

    def test_downloads_lie_on_the_disk_that_was_looked_at(self):
        for free, cached in (("9", False), ("50", True)):
            result, calls = self.run_setup(FREE_GB=free)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn(f"temporary files in {self.root}/.venv/downloads", calls)
            self.assertEqual("--no-cache-dir" not in calls, cached, calls)
            self.assertFalse((self.root / ".venv/downloads").exists())
            shutil.rmtree(self.root / ".venv")

    def test_an_installer_that_only_warns_cuts_no_message_short(self):
        result, _ = self.run_setup(PIP="warn")
        self.assert_one_message(result, "pip failed", "torch==2.11.0", "the Python packages need an index")

    def test_the_chosen_python_may_have_spaces_in_its_path(self):
        other = self.root / "a b"
        other.mkdir()
        shutil.copy(self.bin / "pip", other / "pip")
        (other / "python").write_text(PYTHON + "# the chosen one\n")
        (other / "python").chmod(0o755)
        result, _ = self.run_setup(PYTHON=str(other / "python"))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("the chosen one", (self.root / ".venv/bin/python").read_text())

    def test_an_environment_without_stamp_is_made_anew(self):
        self.run_setup()
        (self.root / ".venv/draftsmith-stamp").unlink()
        (self.root / ".venv/half").write_text("left by a killed run")
        result, calls = self.run_setup()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("requirements.txt", calls)
        self.assertFalse((self.root / ".venv/half").exists())

    def test_another_libtorch_is_used_instead_of_the_wheel(self):
        header = self.root / "libtorch/include/torch/csrc/api/include/torch/torch.h"
        header.parent.mkdir(parents=True)
        header.write_text("")
        for variables in ({"LIBTORCH": str(self.root / "libtorch")},
                          {"CMAKE_PREFIX_PATH": f"/nowhere:{self.root}/libtorch"}):
            result, calls = self.run_setup(**variables)
            self.assertEqual((result.returncode, calls), (0, ""), result.stderr)
            self.assertFalse((self.root / ".venv").exists())

    def test_a_libtorch_that_is_none_is_an_error(self):
        result, calls = self.run_setup(LIBTORCH="/nowhere")
        self.assertEqual(calls, "")
        self.assert_one_message(result, "/nowhere", "torch/csrc/api/include/torch/torch.h")


if __name__ == "__main__":
    unittest.main()
