# For tools/container and tools/platforms, which source this file: root file systems of Debian, made by debootstrap, and
# commands in them. Needs root, as debootstrap and chroot do.
#
# Mounts are made in a namespace of their own and end with the command, so that a root can be removed at any time.

fail() { printf 'error: %s\n' "$1" >&2; shift; [ $# = 0 ] || printf '%s\n' "$@" >&2; exit 2; }
step() { printf '\n== %s\n' "$*"; }

check_root_tools() {
  [ "$(id -u)" = 0 ] || fail "roots are made by debootstrap and chroot" "  expected: root" "  found:    $(id -un)" \
    "  hint:     run it with sudo"
  command -v debootstrap >/dev/null || fail "there is no debootstrap" "  hint:     apt-get install debootstrap"
}

# The mirror that this machine's apt uses, or debootstrap's own.
debian_mirror() {
  grep -hoE '(URIs: |^deb .*)https?://[^ ]*/debian/?( |$)' /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null |
    grep -oE 'https?://[^ ]*' | head -n 1 || true
}

# make_root SUITE DIR: a minimal Debian of that suite in the new folder DIR. It is kept as SUITE.tar beside DIR for the
# next one. debootstrap waits for the disk after each package, so it works in memory.
make_root() {
  local suite=$1 root=$2 base
  [ ! -e "$root" ] || fail "$root is there already" "  hint:     remove it, or name another folder"
  base=$(dirname "$root")/$suite.tar
  mkdir -p "$root"
  if [ ! -f "$base" ]; then
    unshare --mount bash -euc '
      mount -t tmpfs -o size=2g tmpfs "$1"
      debootstrap --variant=minbase "$2" "$1" ${4:+"$4"} >"$3.log"
      tar -C "$1" --exclude="./proc/*" --exclude="./sys/*" --exclude="./var/cache/apt/archives/*.deb" -cf "$3.part" .
    ' make_root "$root" "$suite" "$base" "$(debian_mirror)"
    mv "$base.part" "$base"
  fi
  tar -C "$root" -xf "$base"
  echo force-unsafe-io >"$root/etc/dpkg/dpkg.cfg.d/unsafe-io"
  lend_network "$root"
}

# What a root needs of this machine to reach the registries; return_network takes it away again.
lend_network() {
  cp /etc/resolv.conf "$1/etc/resolv.conf"
  cp /etc/ssl/certs/ca-certificates.crt "$1/etc/machine-certificates.crt"
  apt-config dump | grep -E '^Acquire::(Check-|https?::Proxy)' >"$1/etc/apt/apt.conf.d/99machine" || true
}
return_network() {
  rm -f "$1/etc/machine-certificates.crt" "$1/etc/apt/apt.conf.d/99machine"
  : >"$1/etc/resolv.conf"
}

# Names of variables that pip and apt read.
machine_environment() {
  local name
  for name in PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_DEFAULT_TIMEOUT http_proxy https_proxy no_proxy; do
    [ -z "${!name:-}" ] || printf '%s\n' "$name=${!name}"
  done
  printf '%s\n' PIP_CERT=/etc/machine-certificates.crt PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
}

# in_root ROOT USER [NAME=VALUE...] COMMAND...: runs a command in the root. USER is a name or number there.
# root_binds: an array of FOLDER:FOLDER-IN-ROOT, mounted for the command.
root_binds=()
in_root() {
  local root=$1 user=$2 environment bind
  shift 2
  mapfile -t environment < <(machine_environment)
  for bind in "${root_binds[@]}"; do mkdir -p "$root${bind#*:}"; done
  unshare --mount --pid --fork --kill-child bash -euc '
    root=$1 user=$2 binds=$3
    shift 3
    mount -t proc proc "$root/proc"
    mount --rbind /dev "$root/dev"
    for bind in $binds; do mount --bind "${bind%%:*}" "$root${bind#*:}"; done
    exec chroot --userspec="$user" "$root" "$@"
  ' in_root "$root" "$user" "${root_binds[*]}" env -i "${environment[@]}" "HOME=$(home_of "$root" "$user")" "$@"
}

home_of() { awk -F : -v user="$2" '$1 == user || $3 == user {print $6; exit}' "$1/etc/passwd"; }

install_in_root() {
  local root=$1
  shift
  in_root "$root" root DEBIAN_FRONTEND=noninteractive sh -c \
    'apt-get -q update && apt-get -q install -y --no-install-recommends "$@"' sh "$@" >"$root.apt.log" 2>&1 || {
    tail -n 5 "$root.apt.log" >&2
    fail "apt-get failed in $root" "  see:      $root.apt.log"
  }
}

# copy_sources DIR: the files of this working tree that git knows, or would.
copy_sources() {
  mkdir -p "$1"
  git ls-files -z --cached --others --exclude-standard | xargs -0 ls -d 2>/dev/null | tar -cf - -T - | tar -C "$1" -xf -
}

# use_ccache FOLDER: later commands in roots compile through it.
use_ccache() {
  mkdir -p "$1"
  root_binds+=("$(realpath "$1"):/ccache")
}
