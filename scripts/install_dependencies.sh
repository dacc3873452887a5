#!/usr/bin/env bash
# Installs what hone needs on Debian 12, as root or through sudo: all of it, or with --build-only what programs and libraries
# are built with, not what tests and checks them; with --edge only what the preset "edge" needs, with --edge-arm64 what builds
# and tries the preset "edge-arm64" on another machine. Does nothing where it is there already.
set -euo pipefail

packages=(
  # build
  cmake ninja-build g++ pkg-config ccache git ca-certificates
  # libraries
  llvm-19-dev liblld-19-dev libzstd-dev zlib1g-dev librocksdb-dev libboost1.81-dev libcereal-dev libexpected-dev
  libonnx-dev libprotobuf-dev protobuf-compiler libfmt-dev libb2-dev libsodium-dev libseccomp-dev libtomlplusplus-dev
  nlohmann-json3-dev libcli11-dev libxgboost-dev opencl-headers libvulkan-dev glslang-dev spirv-tools
  # scripts
  python3 procps
)
# What the preset "edge" needs: headers for any machine, and libraries of the machine.
edge_headers=(cmake ninja-build pkg-config ca-certificates libboost1.81-dev libcereal-dev libexpected-dev libfmt-dev python3)
edge_libraries=(libb2-dev libsodium-dev libzstd-dev)
foreign=
case ${1:-} in
  --build-only) ;;
  --edge) packages=("${edge_headers[@]}" g++ "${edge_libraries[@]}") ;;
  --edge-arm64)
    foreign=arm64
    packages=("${edge_headers[@]}" g++-aarch64-linux-gnu qemu-user "${edge_libraries[@]/%/:arm64}" libstdc++6:arm64) ;;
  # tests, sanitizers and checks
  "") packages+=(libgtest-dev libgmock-dev clang-19 lld-19 libclang-rt-19-dev clang-format-19 clang-tidy-19
                 python3-numpy python3-setuptools python3-pip python3-venv ocl-icd-libopencl1 pocl-opencl-icd
                 mesa-vulkan-drivers oclgrind vulkan-validationlayers mount) ;;
  *) echo "usage: scripts/install_dependencies.sh [--build-only | --edge | --edge-arm64]" >&2; exit 2 ;;
esac

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
if [[ -n $foreign ]] && ! dpkg --print-foreign-architectures | grep -qx "$foreign"; then
  "${as_root[@]}" dpkg --add-architecture "$foreign"
fi
echo "Installing ${#missing[@]} packages: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -q
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"
