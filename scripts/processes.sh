# Sourced by the scripts that start and stop servers for tests.
# shellcheck shell=bash

fail() { echo "$(basename "$0"): $*" >&2; exit 1; }
say() { echo "$(basename "$0"): $*" >&2; }

last_words() { grep '[[:alnum:]]' -- "$1" | tail -n 1; }

# await SECONDS COMMAND...: polls until the command succeeds; fails at the bound.
await() {
    local until=$((SECONDS + $1))
    shift
    until "$@"; do
        ((SECONDS < until)) || return 1
        sleep 0.1
    done
}

# end PID NAME [SIGNAL]: asks the process to stop (TERM), insists after ten seconds. A pid that
# now belongs to another program is left alone.
end() {
    local pid=$1 signal=${3:-TERM}
    [[ -n $pid && $(cat "/proc/$pid/comm" 2>/dev/null) == "${2:0:15}" ]] || return 0
    kill -CONT "$pid" 2>/dev/null || true
    kill -"$signal" "$pid" 2>/dev/null || true
    gone() { [[ ! -e /proc/$pid || $(cut -d' ' -f3 "/proc/$pid/stat" 2>/dev/null) == Z ]]; }
    await 10 gone && return 0
    kill -KILL "$pid" 2>/dev/null || true
    await 5 gone || fail "$2 (process $pid) does not end."
}
