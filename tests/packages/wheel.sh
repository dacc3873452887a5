#!/usr/bin/env bash
# The Python wheel in a clean Debian 12 that has Python, pip and NumPy and nothing of hone's: it installs, and both libraries
# load. As root; needs mmdebstrap and a Debian mirror. --keep ROOT.tar keeps the root that it begins with, or takes it from there.
set -euo pipefail
cd "$(dirname "$0")/../.."

kept=
[[ ${1:-} == --keep ]] && kept=${2:?}
((EUID == 0)) || { echo "[SKIP] only root makes roots"; exit 77; }
command -v mmdebstrap >/dev/null || { echo "[SKIP] no mmdebstrap"; exit 77; }
work=$(mktemp -d)
root=$work/root
trap 'mountpoint -q "$root/proc" && umount "$root/proc"; rm -rf --one-file-system "$work"' EXIT
fail() { echo "FAILED: $*" >&2; exit 1; }
inside() { chroot "$root" env -i PATH=/usr/bin:/bin HOME=/root LC_ALL=C.UTF-8 "$@"; }

rm -f dist/hone-*.whl
wheel=$(scripts/wheel.sh)
[[ $(wc -l <<<"$wheel") == 1 ]] || fail "one wheel was expected: $wheel"
case $wheel in
  *-py3-none-manylinux_*_"$(uname -m)".whl) ;;
  *) fail "the wheel says it is for $wheel" ;;
esac
# The promise of its name: no symbol of a newer glibc than it says.
promised=$(sed -E 's/.*manylinux_2_([0-9]+)_.*/\1/' <<<"$wheel")
mkdir "$work/wheel" && (cd "$work/wheel" && python3 -m zipfile -e "$OLDPWD/$wheel" .)
needed=$(objdump -T "$work"/wheel/hone/lib*.so* | grep -oE 'GLIBC_2\.[0-9]+' | sort -uV | tail -1 | sed 's/GLIBC_2\.//')
((needed <= promised)) || fail "it needs glibc 2.$needed and says 2.$promised"

mirror=${HONE_DEBIAN_MIRROR:-http://deb.debian.org/debian}
if [[ -n $kept && -e $kept ]]; then
  mkdir "$root" && tar -C "$root" --exclude './dev/*' -xf "$kept"
else
  mmdebstrap --quiet --variant=apt --include=python3-pip,python3-numpy bookworm "$root" "$mirror"
  [[ -z $kept ]] || tar -C "$root" --exclude './dev/*' -cf "$kept" .
fi
mkdir -p "$root/proc" && mount -t proc proc "$root/proc"
[[ -z $(find "$root/usr" -name 'libprotobuf*' -o -name 'libhone*') ]] || fail "the root is not clean"
cp "$wheel" "$root/tmp/"
inside python3 -m pip install --quiet --no-index --break-system-packages --root-user-action=ignore "/tmp/$(basename "$wheel")" || fail "pip"
cat >"$root/tmp/use.py" <<'PYTHON'
import hone

try:
    hone.kernel("matmul(M=8,N=8,K=8)")
    raise SystemExit("there is no honed, and a kernel")
except hone.Error as error:
    assert "there is no honed" in str(error), error  # libhone said so
try:
    hone.Session("/tmp/none.onnx")
    raise SystemExit("there is no file, and a session")
except hone.Error as error:
    assert "libhone_network" not in str(error), error  # which said so
    print(error)
for device, words in (("cuda:0", "libcuda.so.1"), ("opencl", "libOpenCL.so.1")):
    try:
        hone.kernel("matmul(M=8,N=8,K=8)", device=device)
        raise SystemExit("there is no driver, and a kernel")
    except hone.Error as error:
        assert words in str(error), error
from hone import library
for name in ("opencl", "cuda"):
    library.find(f"HONE_{name.upper()}_LIBRARY", f"hone_{name}")  # which the wheel brought
PYTHON
inside python3 /tmp/use.py || fail "it does not work"
inside python3 -m pip uninstall --quiet --yes --break-system-packages --root-user-action=ignore hone
[[ -z $(find "$root/usr" -name 'libhone*') ]] || fail "it left something"
echo "$(basename "$wheel"): installed, loaded, removed; needs glibc 2.$needed"
