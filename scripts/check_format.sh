#!/usr/bin/env bash
# Says where C and C++ sources differ from the project's format (.clang-format). With --fix, formats them.
set -euo pipefail
cd "$(dirname "$0")/.."

formatter=${CLANG_FORMAT:-clang-format-19}
command -v "$formatter" >/dev/null || { echo "check_format.sh: $formatter is missing; scripts/install_dependencies.sh installs it" >&2; exit 1; }
case ${1:-} in
  --fix) options=(-i) ;;
  "") options=(--dry-run --Werror) ;;
  *) echo "usage: scripts/check_format.sh [--fix]" >&2; exit 2 ;;
esac
git ls-files -z '*.cc' '*.h' '*.hpp' '*.c' | xargs -0 -n 64 -P "$(nproc)" "$formatter" "${options[@]}"
