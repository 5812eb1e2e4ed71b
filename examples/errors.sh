# Of log lines in JSON on standard input: how many errors each service had, and the slowest request of all.
set -euo pipefail

tee lines.jsonl | jq --raw-output 'select(.level == "error") | .service' | sort | uniq --count | sort --numeric --reverse |
    awk '{print $2 ": " $1}'
jq --slurp --raw-output 'max_by(.ms) | "slowest: \(.service), \(.ms) ms"' lines.jsonl
