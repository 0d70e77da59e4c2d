#!/usr/bin/env bash
# Runs of correct implementations: none may be called wrong. bash ci/nightly/clean_runs.sh [VENDOR_FOLDER]
# Each is a `dsocr compare`, into a folder of its own below clean-runs/; the status is 1 where one does not pass.
# With another Pillow: pip install --no-deps --target=older pillow==10.4.0, and PYTHONPATH=older in front of the first.
set -uo pipefail
vendor=${1:-} failed=0 number=0
suites=(--allow-missing=gpu --allow-missing=vendor)
parity=(--tests=suites/parity/test_case.py)

run() {
  number=$((number + 1))
  dsocr compare --out="clean-runs/$number" "$@" || { failed=1; echo "not clean: dsocr compare $*" >&2; }
}

run "${suites[@]}"
run "${suites[@]}" -- -n 2
run "${suites[@]}" --subject=engine:fast
run "${parity[@]}" --pages=all
run "${parity[@]}" --pages=all --attention=sdpa --reference-attention=eager
run "${parity[@]}" --pages=all --subject=engine:fast
run "${parity[@]}" --isolate
run "${parity[@]}" -- --randomly-seed=7
OMP_NUM_THREADS=4 run "${parity[@]}"
for seed in 1 7 random; do PYTHONHASHSEED=$seed run "${parity[@]}"; done
if [ -n "$vendor" ]; then
  run "${parity[@]}" --reference="$vendor" --max-new-tokens=12 --presets={tiny,small,base,large,gundam} \
    --prompts={markdown,ocr,free,figure,describe}
  # Full size, random weights, on a GPU: the engine against the vendor's code, page by page.
  run --pages=dev-3 --checkpoint=synthetic:full --device=cuda --dtype=bfloat16 --reference="$vendor" \
    --max-new-tokens=64 --allow-missing=snapshot --allow-missing=recording --allow-missing=baseline --allow-missing=timings -- -k test_case
fi
exit "$failed"
