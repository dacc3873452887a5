#!/usr/bin/env bash
# Installs what hone needs, builds it, and shows what it does: serves the kernels of ResNet-18 and BERT from a fresh cache,
# checks each against the reference, kills the daemon, and serves them again from disk.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/install_dependencies.sh --build-only
echo "Building …"
cmake --preset release -DHONE_TESTS=OFF -DHONE_PRECOMPILE=ON >/dev/null
cmake --build --preset release --target honed hone hone-builder hone-runner peak

work=$(mktemp -d)
chmod 700 "$work"
export XDG_CACHE_HOME="$work/cache" XDG_RUNTIME_DIR="$work/run"
mkdir -m 700 "$XDG_RUNTIME_DIR"
daemon=
finish() {
  [[ -z $daemon ]] || kill "$daemon" 2>/dev/null || true
  wait 2>/dev/null || true
  rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM

bin=$PWD/build/release/bin
start() {
  "$bin/honed" --no-idle --log error &
  daemon=$!
  for ((i = 0; i < 100; i++)); do
    "$bin/hone" --no-start status >/dev/null 2>&1 && return
    sleep 0.05
  done
  echo "quickstart.sh: honed did not come up; run it by hand to see why: $bin/honed" >&2
  exit 1
}

lists=(models/resnet18.kernels models/bert_128.kernels)
start
echo
echo "A fresh daemon with an empty cache. Its first answers:"
"$bin/hone" --no-start --json warm "${lists[@]}" >"$work/warm.json"
"$bin/hone" --no-start --json run "${lists[@]}" --threads 1 >"$work/run.json"
python3 scripts/quickstart_table.py "$work/warm.json" "$work/run.json" "$("$bin/peak")"

echo
echo "Killing honed with -9 and starting it again:"
{
  kill -9 "$daemon"
  wait "$daemon" || true
} 2>/dev/null  # the shell's own word about it
start
"$bin/hone" --no-start --json warm --no-compile "${lists[@]}" >"$work/again.json"
python3 - "$work/again.json" <<'PY'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
kernels, summary = rows[:-1], rows[-1]
hits = sum(1 for row in kernels if row.get("hit"))
print(f"{hits} of {len(kernels)} kernels served from disk, nothing compiled, in {summary['elapsed_s'] * 1e3:.0f} ms")
sys.exit(hits != len(kernels))
PY
