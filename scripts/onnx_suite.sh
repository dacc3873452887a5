#!/usr/bin/env bash
# Runs ONNX's own backend suite through hone's Python module, as each version of the package `onnx` in
# tests/onnx_suite/floor.json ships it. Fails if a case is wrong or crashes, if fewer pass than stand there, or if a refusal
# does not say what of the model it is about.
# Needs the release build, and the package registry for a version that is not in build/onnx_suite yet.
set -euo pipefail
cd "$(dirname "$0")/.."

versions=$(python3 -c 'import json; print(*json.load(open("tests/onnx_suite/floor.json")))')
status=0
for version in $versions; do
  folder=build/onnx_suite/$version
  if [[ ! -f $folder/complete ]]; then
    rm -rf "$folder"
    python3 -m pip install --quiet --no-cache-dir --root-user-action ignore --target "$folder" "onnx==$version"
    touch "$folder/complete"
  fi
  echo "-- onnx $version"
  PYTHONPATH="$PWD/$folder" PYTHONDONTWRITEBYTECODE=1 \
    python3 tests/onnx_suite/suite.py --floor tests/onnx_suite/floor.json --json "$folder/verdicts.json" || status=1
done
exit $status
