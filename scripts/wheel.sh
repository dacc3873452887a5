#!/usr/bin/env bash
# Makes a Python wheel in dist/ with libhone, libhone_network, those for devices and what they need beyond Debian's base inside, from
# the build in build/release or $HONE_BUILD_DIR. Needs pip and setuptools.
set -euo pipefail
cd "$(dirname "$0")/.."

build=${HONE_BUILD_DIR:-$PWD/build/release}
names=(libhone.so libhone_network.so libhone_opencl.so libhone_cuda.so)
for name in "${names[@]}"; do
  [[ -e $build/lib/$name ]] || { echo "wheel.sh: $build/lib/$name is not there; build hone first" >&2; exit 1; }
done
# What manylinux lets a wheel expect of any machine, and what it therefore does not bring.
expected='libc\.so|libm\.so|libdl\.so|librt\.so|libpthread\.so|libstdc\+\+\.so|libgcc_s\.so|ld-linux|linux-vdso|libz\.so'
libraries=$(ldd "${names[@]/#/$build/lib/}" | awk '$2 == "=>" {print $3}' | grep -vE "/($expected)" | sort -u | paste -sd:)
# Strips copies: the build's libraries keep their symbols.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$scratch/lib" "$scratch/extra"
for name in "${names[@]}"; do cp -L "$build/lib/$name" "$scratch/lib/"; done
extra=()
for library in ${libraries//:/ }; do
  cp -L "$library" "$scratch/extra/"
  extra+=("$scratch/extra/$(basename "$library")")
done
strip --strip-unneeded "$scratch"/lib/* "$scratch"/extra/* 2>/dev/null || true
cp -r python "$scratch/python"
rm -rf "$scratch/python/build" "$scratch/python"/*.egg-info
python=${PYTHON:-}
for each in python3 /usr/bin/python3; do
  [[ -z $python ]] && "$each" -c 'import setuptools, wheel, pip' 2>/dev/null && python=$each
done
[[ -n $python ]] || { echo "wheel.sh: no python3 has pip, setuptools and wheel (apt-get install python3-pip python3-setuptools python3-wheel)" >&2; exit 1; }
mkdir -p dist
HONE_BUILD_DIR=$scratch HONE_LIBRARIES=$(IFS=: && echo "${extra[*]:-}") \
  "$python" -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist "$scratch/python"
ls dist/hone-*.whl
