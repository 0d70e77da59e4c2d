#!/usr/bin/env bash
# Write the summaries in a folder as one comment on a pull request, or update that comment.
#
# usage: comment.sh FOLDER, with GH_TOKEN, GITHUB_API_URL, GITHUB_REPOSITORY, NUMBER (of the pull request) and ARTIFACT set
#
# The comment is found again by its hidden first line. A pull request of a fork has a token that may not write: the
# job's summary shows the same then, and this ends with status 0.
set -euo pipefail

folder=$1
most=60000 # characters; GitHub takes 65,536
marker="<!-- dsocr: $ARTIFACT -->"
api="$GITHUB_API_URL/repos/$GITHUB_REPOSITORY/issues"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

{
  echo "$marker"
  for file in summary.md bench.md; do
    [ ! -f "$folder/$file" ] || { cat "$folder/$file"; echo; }
  done
} > "$scratch/whole.md"
if [ "$(wc -l < "$scratch/whole.md")" -lt 2 ]; then
  echo "there is no summary in $folder, and so no comment"
  exit 0
fi
head -c "$most" "$scratch/whole.md" | iconv -c -f utf-8 -t utf-8 > "$scratch/body.md" || true
python3 -c 'import json, sys; print(json.dumps({"body": sys.stdin.read()}))' < "$scratch/body.md" > "$scratch/body.json"

# Print the status of a request; its answer goes into a file.
ask() {
  curl --silent --show-error --max-time 60 --output "$scratch/answer" --write-out '%{http_code}' \
    --header "Authorization: Bearer $GH_TOKEN" --header 'Accept: application/vnd.github+json' "$@" || echo 000
}

id=
for page in 1 2 3 4 5 6 7 8 9 10; do
  status=$(ask "$api/$NUMBER/comments?per_page=100&page=$page")
  [ "$status" = 200 ] || break
  id=$(MARKER=$marker python3 -c '
import json, os, sys
comments = json.load(sys.stdin)
own = [one["id"] for one in comments if (one["body"] or "").startswith(os.environ["MARKER"]) and one["user"]["type"] == "Bot"]
print(own[0] if own else "" if len(comments) == 100 else "none")' < "$scratch/answer")
  [ -z "$id" ] || break
done

if [ -n "$id" ] && [ "$id" != none ]; then
  status=$(ask --request PATCH --data-binary "@$scratch/body.json" "$api/comments/$id")
else
  status=$(ask --request POST --data-binary "@$scratch/body.json" "$api/$NUMBER/comments")
fi
case $status in
  20?) echo "comment written" ;;
  401 | 403 | 404) echo "::notice title=pytest-dsocr::no comment: this token may not write one; see the job's summary" ;;
  *)
    echo "::warning title=pytest-dsocr::no comment: the request ended with status $status"
    ;;
esac
