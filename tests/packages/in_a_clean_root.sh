#!/usr/bin/env bash
# The Debian packages in a clean Debian 12 without a running systemd: they install, serve what the README shows, keep the cache
# over an upgrade, and go without leaving anything. As root; needs mmdebstrap and a Debian mirror. Takes some minutes, most of
# them for downloads; --keep ROOT.tar keeps the root that it begins with, or takes it from there.
set -euo pipefail
cd "$(dirname "$0")/../.."

kept=
[[ ${1:-} == --keep ]] && kept=${2:?}
((EUID == 0)) || { echo "[SKIP] only root makes roots"; exit 77; }
command -v mmdebstrap >/dev/null || { echo "[SKIP] no mmdebstrap"; exit 77; }

work=$(mktemp -d)
root=$work/root
daemon=
finish() {
  [[ -n $daemon ]] && kill "$daemon" 2>/dev/null && wait "$daemon" 2>/dev/null
  for place in dev/shm dev/null dev/urandom proc; do mountpoint -q "$root/$place" && umount "$root/$place"; done
  rm -rf --one-file-system "$work"
}
trap finish EXIT
step() { echo "== $*"; }
fail() { echo "FAILED: $*" >&2; exit 1; }
inside() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"; }

step "packages, and a second revision of them"
first=$(scripts/packages.sh --revision 1 | grep '^dist/')
second=$(scripts/packages.sh --revision 2 | grep '^dist/')
[[ $(wc -l <<<"$first") == 5 && $(wc -l <<<"$second") == 5 ]] || fail "five packages were expected: $first"
# hone-edge serves in honed's place.
edge=$(grep -E '^dist/(hone-edge|libhone|libhone-dev)_' <<<"$second")
first=$(grep -v '^dist/hone-edge_' <<<"$first")
second=$(grep -v '^dist/hone-edge_' <<<"$second")

step "a clean root"
mirror=${HONE_DEBIAN_MIRROR:-http://deb.debian.org/debian}
if [[ -n $kept && -e $kept ]]; then
  mkdir "$root" && tar -C "$root" --exclude './dev/*' -xf "$kept"
else
  mmdebstrap --quiet --variant=apt bookworm "$root" "deb $mirror bookworm main" "deb $mirror bookworm-updates main" \
    "deb ${mirror/%debian/debian-security} bookworm-security main"
  [[ -z $kept ]] || tar -C "$root" --exclude './dev/*' -cf "$kept" .
fi
mkdir -p "$root/proc" "$root/dev/shm" "$root/packages"
touch "$root/dev/null" "$root/dev/urandom"
mount -t proc proc "$root/proc"
mount -t tmpfs tmpfs "$root/dev/shm"
mount --bind /dev/null "$root/dev/null"
mount --bind /dev/urandom "$root/dev/urandom"
[[ -e /etc/resolv.conf ]] && cp -L /etc/resolv.conf "$root/etc/resolv.conf"
[[ -e /etc/apt/apt.conf.d/proxy.conf ]] && cp /etc/apt/apt.conf.d/proxy.conf "$root/etc/apt/apt.conf.d/"
inside apt-get -q update >"$work/log" 2>&1 || fail "apt-get update: $(tail -5 "$work/log")"
# Before the list of files: what other packages leave is not ours.
inside apt-get -q -y --no-install-recommends install gcc libc6-dev pkg-config procps >"$work/log" 2>&1 || fail "$(tail -20 "$work/log")"

install_revision() {
  cp $1 "$root/packages/"
  inside apt-get -q -y --no-install-recommends install $(sed 's,^dist/,/packages/,' <<<"$1") >"$work/log" 2>&1 ||
    fail "installing: $(tail -30 "$work/log")"
  if grep -iE 'warning|error|failed' "$work/log" | grep -vE 'delaying package configuration|unpacking|setting up|get:|libgpg-error' -i; then
    fail "the installation complained"
  fi
}

# As systemd does it: root opens the socket, the first who connects starts honed, as hone.
serve() {
  inside install -d -m 0755 /run/hone
  chroot "$root" env -i PATH=/usr/bin:/bin HOME=/var/lib/hone systemd-socket-activate -l /run/hone/honed.sock \
    setpriv --reuid=hone --regid=hone --clear-groups --no-new-privs \
    /usr/bin/honed --cache /var/lib/hone --config /usr/share/hone/system.toml --no-idle 2>"$work/honed.log" &
  daemon=$!
  for _ in $(seq 100); do [[ -S $root/run/hone/honed.sock ]] && break || sleep 0.1; done
  chmod 0666 "$root/run/hone/honed.sock"
}
stop() {
  kill "$daemon"
  wait "$daemon" || fail "honed ended with $?: $(cat "$work/honed.log")"
  daemon=
  rm "$root/run/hone/honed.sock"
}
# Somebody on this machine.
as_user() {
  chroot "$root" setpriv --reuid=user --regid=user --clear-groups env -i PATH=/usr/bin:/bin HOME=/home/user LC_ALL=C.UTF-8 "$@" ||
    { tail -5 "$work/honed.log" >&2; return 1; }
}
expect() {
  local who=$1 pattern=$2
  shift 2
  "$who" "$@" >"$work/out" 2>&1 || fail "$*: $(cat "$work/out")"
  grep -q "$pattern" "$work/out" || fail "$*: not $pattern: $(cat "$work/out")"
}
# says PATTERN COMMAND…: the command, run by that somebody, succeeds and prints such a line; says_root: by root.
says() { expect as_user "$@"; }
says_root() { expect inside "$@"; }

step "install"
install_revision "$first"
for package in honed libhone libhone-dev python3-hone; do
  [[ $(inside dpkg-query -W -f '${Status} ${Version}' $package) == "install ok installed 0.1.0-1" ]] || fail "$package is not installed"
done
[[ $(inside stat -c '%U %a' /var/lib/hone) == "hone 700" ]] || fail "/var/lib/hone is not hone's"
[[ -L $root/etc/systemd/system/sockets.target.wants/honed.socket ]] || fail "honed.socket is not enabled"
for level in system user; do
  [[ -e $root/usr/lib/systemd/$level/honed.socket ]] || fail "no unit for $level"
  grep -q '^ExecStart=/usr/bin/honed' "$root/usr/lib/systemd/$level/honed.service" || fail "the unit for $level starts something else"
done
[[ -z $(inside ldd /usr/bin/honed /usr/bin/hone /usr/libexec/hone/hone-builder | grep 'not found') ]] || fail "a library is missing"

step "the README's examples"
inside useradd -m user
serve
says 'served *compiled now' hone get 'matmul(M=128,N=128,K=128,const=1)+bias'
says ' yes$' hone run 'conv2d(C=64,H=56,W=56,O=64,R=3,S=3,pad=1,const=1)+bias+relu' --threads 1
# Names that somebody gave are its owner's and root's; what a kernel computes, everybody's.
says 'kernel k(t0' hone ls
says_root conv2d hone ls
cat >"$root/packages/readme.py" <<'PYTHON'
import hone
import numpy

dense = hone.kernel("dense(M=1,N=1000,K=512,const=1)+bias+relu")
weights = numpy.random.rand(1000, 512).astype(numpy.float32)
dense.bind(weights, numpy.zeros(1000, numpy.float32))
y = dense(numpy.ones((1, 512), numpy.float32))
assert numpy.allclose(y, weights.sum(axis=1), rtol=1e-4), y
PYTHON
cat >"$root/packages/readme.c" <<'C'
#include <hone/hone.h>
#include <stdio.h>

static float x[512], weights[1000 * 512], bias[1000], y[1000];

int main(void) {
  for (int i = 0; i < 512; ++i) x[i] = 1;
  for (int i = 0; i < 1000 * 512; ++i) weights[i] = (float)(i / 512);
  hone_error error = HONE_ERROR_INIT;
  hone_client *client = hone_connect(NULL, &error);
  hone_kernel *kernel = client ? hone_get(client, "dense(M=1,N=1000,K=512,const=1)+bias", NULL, &error) : NULL;
  if (!kernel) return fprintf(stderr, "%s: %s\n", error.where, error.message), 1;
  hone_bind(kernel, 1, weights, &error);
  hone_bind(kernel, 2, bias, &error);
  void *buffers[] = {x, NULL, NULL, y};
  return hone_call(kernel, buffers, NULL) != 0 || y[999] != 999 * 512;
}
C
as_user python3 /packages/readme.py || fail "the example in Python"
inside sh -c 'gcc -o /packages/readme /packages/readme.c $(pkg-config --cflags --libs hone)' || fail "the example in C does not compile"
as_user /packages/readme || fail "the example in C"
stop

step "upgrade: the cache is kept"
inside install -d -o user -g user /packages/out
install_revision "$second"
[[ $(inside dpkg-query -W -f '${Version}' honed) == 0.1.0-2 ]] || fail "not upgraded"
serve
says 'served *from' hone get --no-compile 'matmul(M=128,N=128,K=128,const=1)+bias'
says 'keep it secret' hone keygen fleet --dir /packages/out
says_root 'with code' hone export -o /packages/out/small.bundle --artifacts --key /packages/out/fleet.key matmul
stop

step "remove: the cache stays; purge: nothing stays"
inside apt-get -q -y remove honed libhone libhone-dev python3-hone >"$work/log" 2>&1 || fail "$(tail -20 "$work/log")"
[[ -d $root/var/lib/hone/db ]] || fail "removing took the cache"
[[ ! -e $root/usr/bin/honed && ! -e $root/usr/libexec/hone ]] || fail "removing left programs"
inside dpkg --purge honed libhone >"$work/log" 2>&1 || fail "$(tail -20 "$work/log")"

step "a device: bundles in place of a compiler"
install_revision "$edge"
[[ -L $root/etc/systemd/system/sockets.target.wants/honed-edge.socket ]] || fail "honed-edge.socket is not enabled"
grep -q '^ExecStart=/usr/bin/honed-edge ' "$root/usr/lib/systemd/system/honed-edge.service" || fail "the unit starts something else"
[[ -z $(inside ldd /usr/bin/honed-edge /usr/libexec/hone/hone-runner | grep 'not found') ]] || fail "a library is missing"
inside install -m 0644 /packages/out/small.bundle /usr/share/hone/bundles.d
inside install -m 0644 /packages/out/fleet.pub /etc/hone/keys
cat >"$root/packages/device.c" <<'C'
#include <hone/hone.h>
#include <stdio.h>

static float a[128 * 128], b[128 * 128], bias[128], y[128 * 128];

int main(void) {
  for (int i = 0; i < 128 * 128; ++i) a[i] = 1, b[i] = (float)(i % 128);
  hone_error error = HONE_ERROR_INIT;
  hone_client *client = hone_connect(NULL, &error);
  hone_kernel *kernel = client ? hone_get(client, "matmul(M=128,N=128,K=128,const=1)+bias", NULL, &error) : NULL;
  if (!kernel) return fprintf(stderr, "%s: %s\n", error.where, error.message), 1;
  hone_bind(kernel, 1, b, &error);
  hone_bind(kernel, 2, bias, &error);
  void *buffers[] = {a, NULL, NULL, y};
  return hone_call(kernel, buffers, NULL) != 0 || y[127] != 127 * 128;
}
C
inside sh -c 'gcc -o /packages/device /packages/device.c $(pkg-config --cflags --libs hone)' || fail "a program in C does not compile"
inside install -d -m 0755 /run/hone
chroot "$root" env -i PATH=/usr/bin:/bin HOME=/ systemd-socket-activate -l /run/hone/honed.sock setpriv --reuid=nobody --regid=nogroup \
  --clear-groups --no-new-privs /usr/bin/honed-edge --any-user 2>"$work/honed.log" &
daemon=$!
for _ in $(seq 100); do [[ -S $root/run/hone/honed.sock ]] && break || sleep 0.1; done
chmod 0666 "$root/run/hone/honed.sock"
as_user /packages/device || fail "a program in C, on a device"
stop
inside apt-get -q -y purge hone-edge libhone libhone-dev >"$work/log" 2>&1 || fail "$(tail -20 "$work/log")"
[[ -e $root/usr/share/hone/bundles.d/small.bundle && -e $root/etc/hone/keys/fleet.pub ]] || fail "purging took what somebody put there"
rm -rf "$root/usr/share/hone" "$root/etc/hone"
rm -rf "$root/packages" "$root/run/hone"
inside userdel -r user >/dev/null 2>&1
left=$(cd "$root" && find . -xdev \( -iname '*hone*' -o -path '*/hone/*' \) -not -path './proc/*' -not -path './var/cache/*' -not -path './var/lib/apt/*' \
  -not -path './usr/share/zoneinfo/*' -not -path './usr/share/perl*' | grep -viE 'phone|honest' || true)
[[ -z $left ]] || fail "purging left: $left"
echo "installed, served, upgraded, removed, purged"
