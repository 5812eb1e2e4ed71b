# Sourced by the scripts beside it: the repository's root as working folder, and words to the person.
# shellcheck shell=bash
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { echo "==> $*" >&2; }
fail() { echo "error: $*" >&2; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

# Names a step, runs it, and says how long it took.
step() {
    local title=$1 started=$SECONDS
    shift
    say "$title"
    "$@" || fail "$title: failed after $((SECONDS - started)) s; the reason stands above."
    say "$title: done in $((SECONDS - started)) s"
}

# A check that could not run is named where it is skipped and again at the end.
skips=()
skip() {
    say "skipped: $*"
    skips+=("$*")
}

target_folder() {
    cargo metadata --format-version 1 --no-deps | sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p'
}
