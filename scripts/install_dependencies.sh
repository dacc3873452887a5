#!/usr/bin/env bash
# Installs what hone needs to build and test on Debian 12, as root or through sudo. Does nothing where it is there already.
set -euo pipefail

packages=(
  # build
  cmake ninja-build g++ clang-19 lld-19 libclang-rt-19-dev pkg-config ccache git ca-certificates
  # libraries
  llvm-19-dev liblld-19-dev libzstd-dev zlib1g-dev librocksdb-dev libboost1.81-dev libcereal-dev libexpected-dev
  libonnx-dev libprotobuf-dev protobuf-compiler libfmt-dev libb2-dev libseccomp-dev libtomlplusplus-dev nlohmann-json3-dev libcli11-dev libxgboost-dev
  # tests and scripts
  libgtest-dev libgmock-dev clang-format-19 python3 python3-numpy python3-setuptools python3-pip procps
)

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
done
if ((${#missing[@]} == 0)); then exit 0; fi

as_root=()
if ((EUID != 0)); then
  command -v sudo >/dev/null || { echo "install_dependencies.sh: run it as root, or install sudo: ${missing[*]} are missing" >&2; exit 1; }
  as_root=(sudo)
fi
echo "Installing ${#missing[@]} packages: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -q
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"
