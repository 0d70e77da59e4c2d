#!/bin/sh
# A night on one machine: sh nightly.sh OUT HISTORY [OPTIONS of dsocr compare, for the pages]. OUT is a new folder. For example:
#   export DSOCR_SUBJECT=my_ocr:MyOcr DSOCR_PAGES=scans DSOCR_DEVICE=cuda DSOCR_DTYPE=bfloat16
#   VENDOR=vendor WORKERS=4 SHARDS=8 sh nightly.sh "out/$(date +%F)" nights --no-skip
# The status is the gravest: 1 wrong; 10 something could not run or end; 11 slower; 0.
# In a checkout of pytest-dsocr: SUITES=suites/.
set -u
out=$1 history=$2 status=0
shift 2
shards=${SHARDS:-1} workers=${WORKERS:-1} minutes=${MINUTES:-120} suites=${SUITES:---pyargs --tests=pytest_dsocr.suites.}
mkdir -p "$(dirname "$out")" && mkdir "$out" || exit 2

# ended STATUS: the gravest counts.
ended() {
  case $1:$status in
    0:* | *:1 | 11:1*) ;;
    1:* | 11:*) status=$1 ;;
    *) status=10 ;;
  esac
}

# part COMMAND...: at its limit it is interrupted, so that it writes what it has, and a minute later killed.
part() {
  of_part=0
  timeout -s INT -k 60 "${minutes}m" "$@" || of_part=$?
  echo "status $of_part: $*"
  ended "$of_part"
}

# What is of most worth comes first. Each of pytest's workers takes a GPU; shards that came to their end are kept.
dsocr doctor --json="$out/doctor.json" ${VENDOR:+--reference="$VENDOR"} || ended 10
for shard in $(seq "$shards"); do
  part dsocr compare --out="$out/pages-$shard" --shard="$shard/$shards" --allow-missing=vendor "$@" -- -n "$workers"
done
[ -z "${VENDOR:-}" ] || part dsocr compare --out="$out/live" --reference="$VENDOR" "$@" -- -n "$workers"
# Times want the machine for themselves. A baseline that is missing fails nothing; in the history the night is incomplete.
for suite in perf cost; do
  part dsocr compare --out="$out/$suite" --tests=$suites$suite -- -n 0
done

set --
for folder in "$out"/*/; do
  [ ! -e "$folder/dsocr.json" ] || set -- "$@" --add="$folder"
done
dsocr history "$history" --html="$history/index.html" "$@" || ended 10
exit "$status"
