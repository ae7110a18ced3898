# For the tests of tools/wheel: a folder that is removed again, and bare environments in it. Sourced.
#
# Sets root (the repository), torch (the environment whose torch is used) and folder, the working directory.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
torch=$(realpath "$root/.venv")
torch_packages=$(echo "$torch"/lib/python3*/site-packages)
tools=$root/build/wheel-venv/bin
fail() { printf 'failed: %s\n' "$*" >&2; exit 1; }
step() { printf '\n== %s\n' "$*"; }
installed() { ls -A "$site" | grep -v __pycache__ | sort; }

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export PYTHONNOUSERSITE=1 PIP_DISABLE_PIP_VERSION_CHECK=1
unset PYTHONPATH LD_LIBRARY_PATH LIBTORCH
# As tools/wheel, so that ccache finds what that has compiled.
export CC=${CC:-cc} CXX=${CXX:-c++} CMAKE_BUILD_PARALLEL_LEVEL=${JOBS:-$(env -u OMP_NUM_THREADS nproc)}

# Makes the virtual environment `venv`, which sees the packages of .venv by links, in place of gigabytes of its own.
# Sets site, its folder of packages.
make_bare_environment() {
  local there name
  "$tools/python" -m venv venv
  site=$(venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  for there in "$torch_packages"/*; do
    name=$(basename "$there")
    case $name in __pycache__ | draftsmith*) continue ;; esac
    [ -e "$site/$name" ] || ln -s "$there" "$site/$name"
  done
}

# Starts the program, and imports the module from the environment, never from a FOLDER: use_package FOLDER...
use_package() {
  venv/bin/draftsmith --version
  venv/bin/python - "$@" <<'PYTHON'
import sys
import draftsmith
assert draftsmith.__file__.startswith(sys.prefix), draftsmith.__file__
assert not any(draftsmith.__file__.startswith(folder) for folder in sys.argv[1:]), draftsmith.__file__
print("import draftsmith:", draftsmith.__version__, "with", len(draftsmith.options()), "options; BLEU",
      draftsmith.score("bleu", ["a small cat sat there"], ["a small cat sat there"])["bleu"])
PYTHON
}

# Uninstalls the package; fails if it leaves anything of its own in the environment, where the file `before` has the names
# that `installed` printed before the package came.
remove_package() {
  step "pip uninstall"
  venv/bin/pip --quiet uninstall --yes draftsmith
  installed >after
  diff before after || fail "packages are left"
  [ ! -e venv/bin/draftsmith ] || fail "the command is left"
  echo "nothing is left"
}
