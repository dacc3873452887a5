#!/usr/bin/env bash
# Runs clang-tidy (.clang-tidy) on the C++ sources that changed since BASE: without it, since the branch left main, or on
# main the last commit. What a changed header is included by is not looked at again: its own findings show wherever one of
# the changed sources includes it. Some 10 s a file.
set -euo pipefail
cd "$(dirname "$0")/.."

tidy=${CLANG_TIDY:-clang-tidy-19}
command -v "$tidy" >/dev/null || { echo "check_tidy.sh: $tidy is missing; scripts/install_dependencies.sh installs it" >&2; exit 1; }
if (($# > 1)); then echo "usage: scripts/check_tidy.sh [BASE]" >&2; exit 2; fi
base=${1:-$(git merge-base HEAD main 2>/dev/null || true)}
if [[ -z $base || $(git rev-parse "$base^{commit}") == $(git rev-parse HEAD) ]]; then base=HEAD~1; fi

build=build/release
[[ -f $build/compile_commands.json ]] || cmake --preset release >/dev/null
files=()
while IFS= read -r -d '' file; do
  # Sources that this configuration builds; a program that needs what is not installed has no command.
  grep -qF "\"$PWD/$file\"" "$build/compile_commands.json" && files+=("$file")
done < <(git diff -z --name-only --diff-filter=d "$base" -- '*.cc')
echo "clang-tidy: ${#files[@]} files changed since $(git log -1 --format='%h %s' "$base")"
((${#files[@]} == 0)) && exit 0
printf '%s\0' "${files[@]}" | xargs -0 -n 1 -P "$(nproc)" "$tidy" -p "$build" --quiet --warnings-as-errors='*'
