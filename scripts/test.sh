#!/usr/bin/env bash
# Installs what is missing, builds hone and runs every test. Extra arguments go to ctest: scripts/test.sh -R Transfer
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/install_dependencies.sh
cmake --preset release -DHONE_WERROR=ON -DHONE_PRECOMPILE=ON
cmake --build --preset release
# One more at once than there are processors: many tests wait. Those that measure time run alone.
ctest --preset release --timeout 300 -j "$(($(nproc) + 1))" "$@"
