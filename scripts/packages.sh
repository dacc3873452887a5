#!/usr/bin/env bash
# Makes the Debian packages honed, hone-edge, libhone, libhone-dev and python3-hone in dist/. With --revision N, that revision of
# them. With --edge-arm64, hone-edge and libhone for arm64 instead, by Debian's cross compiler (scripts/install_dependencies.sh
# --edge-arm64).
set -euo pipefail
cd "$(dirname "$0")/.."

revision=1
options=(-DCMAKE_BUILD_TYPE=Release)
build=build/packages
while (($# > 0)); do
  case $1 in
    --revision) revision=${2:?}; shift 2 ;;
    --edge-arm64) build=build/packages-arm64 options=(--preset edge-arm64 -DCPACK_DEBIAN_PACKAGE_ARCHITECTURE=arm64); shift ;;
    *) echo "usage: scripts/packages.sh [--revision N] [--edge-arm64]" >&2; exit 2 ;;
  esac
done
cmake -S . -B "$build" -G Ninja "${options[@]}" -DCMAKE_INSTALL_PREFIX=/usr -DHONE_TESTS=OFF -DHONE_BENCH=OFF \
  -DHONE_PACKAGE_REVISION="$revision"
cmake --build "$build" --parallel "${HONE_JOBS:-$(nproc)}"
mkdir -p dist
packages=$(cd "$build" && umask 022 && cpack -G DEB -B "$PWD/cpack" >cpack.log 2>&1 && sed -n 's/^CPack: - package: \(.*\) generated\.$/\1/p' cpack.log) ||
  { cat "$build/cpack.log" >&2; exit 1; }
for package in $packages; do
  cp "$package" dist/
  echo "dist/$(basename "$package")"
done
