# Shared by the scripts of deploy/ and tests/: packages, building, processes, ports, JSON. Sourced by bash.
# shellcheck shell=bash

TERNMQ_SOURCE=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
TERNMQ_PRESET=${TERNMQ_PRESET:-release}
TERNMQ_BIN=${TERNMQ_BIN:-$TERNMQ_SOURCE/build/$TERNMQ_PRESET/bin}

die() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

# install_packages FILE…: installs those listed that are missing, and says which.
install_packages() {
    command -v dpkg-query >/dev/null || die "this is no Debian: install the packages of $* yourself"
    local wanted missing=()
    while read -r wanted; do
        dpkg-query -W -f='${Status}' "$wanted" 2>/dev/null | grep -q 'ok installed' || missing+=("$wanted")
    done < <(sed 's/#.*//' "$@" | grep -o '[^[:space:]]\+')
    [ ${#missing[@]} -eq 0 ] && return
    printf 'installing Debian packages: %s\n' "${missing[*]}" >&2
    local sudo=()
    [ "$(id -u)" -eq 0 ] || sudo=(sudo)
    export DEBIAN_FRONTEND=noninteractive
    "${sudo[@]}" apt-get update -qq || die "apt-get update failed"
    "${sudo[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2 ||
        die "apt-get could not install: ${missing[*]}"
}

# What it takes to run a cluster: targets of build, without the tests.
# shellcheck disable=SC2034 # used by who sources this
TERNMQ_PROGRAMS=(mqnamesrv mqbroker mqadmin mqbench mqstore docs/examples/all)

# build PRESET [TARGET…]: configures and builds. Says so on stderr, unless all is built, and how far it is when that is
# a terminal; what the tools print is shown when they fail.
build() {
    local - preset=$1 targets=() status=0 log
    set -o pipefail
    shift
    [ $# -gt 0 ] && targets=(--target "$@")
    log=$(mktemp)
    in_source cmake --preset "$preset" >"$log" 2>&1 || status=$?
    if [ $status -eq 0 ] && ! in_source cmake --build --preset "$preset" "${targets[@]}" -- -n 2>&1 |
        grep 'no work to do' >/dev/null; then
        printf 'building preset %s in build/%s (the first time takes a few minutes) …\n' "$preset" "$preset" >&2
        in_source cmake --build --preset "$preset" "${targets[@]}" 2>&1 | build_progress "$log" || status=$?
    fi
    [ $status -eq 0 ] || tail -n 60 "$log" >&2
    rm -f "$log"
    [ $status -eq 0 ] || die "building preset $preset failed"
}

in_source() { (cd "$TERNMQ_SOURCE" && "$@"); }

# build_progress LOG: keeps what comes; of "[12/345] …" a terminal shows the figures.
build_progress() {
    local line
    [ -t 2 ] || { cat >>"$1"; return; }
    while IFS= read -r line; do
        printf '%s\n' "$line" >>"$1"
        [[ $line != \[*/*\]* ]] || printf '\r\033[K%s]' "${line%%]*}" >&2
    done
    printf '\r\033[K' >&2
}

# listening PORT: whether somebody does, on loopback.
listening() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# free_port [WANTED] ["TAKEN…"]: WANTED when nobody listens on it on loopback, else one that the system does
# not hand out by itself; none of TAKEN, a list between blanks.
free_port() {
    local wanted=${1:-0} taken=" ${2:-} " low high port
    if [ "$wanted" != 0 ] && [[ $taken != *" $wanted "* ]] && ! listening "$wanted"; then
        echo "$wanted"
        return
    fi
    read -r low high </proc/sys/net/ipv4/ip_local_port_range
    while :; do
        port=$((low - 1 - RANDOM % 8000)) # below the range that outgoing connections use
        [ "$port" -gt 1024 ] || port=$((high + 1 + RANDOM % 1000))
        [[ $taken != *" $port "* ]] && ! listening "$port" && { echo "$port"; return; }
    done
}

# wait_for_line FILE PATTERN SECONDS PID: until a line of FILE matches, PID ends, or the time is up.
wait_for_line() {
    local file=$1 pattern=$2 pid=$4 deadline=$((SECONDS + $3))
    while ! grep -q -- "$pattern" "$file" 2>/dev/null; do
        kill -0 "$pid" 2>/dev/null || return 1
        [ "$SECONDS" -lt "$deadline" ] || return 2
        sleep 0.02
    done
}

# running PID: is this process there and no zombie.
running() {
    [ -n "$1" ] && [ -r "/proc/$1/stat" ] && ! grep -q '^State:.Z' "/proc/$1/status" 2>/dev/null
}

# wait_gone PID SECONDS
wait_gone() {
    local deadline=$((SECONDS + $2))
    while running "$1"; do
        [ "$SECONDS" -lt "$deadline" ] || return 1
        sleep 0.02
    done
}

# now_ms: wall clock, for durations that are shown.
now_ms() { local t=${EPOCHREALTIME/[.,]/}; echo "${t%???}"; }

# json_values KEY: each value of the key in the JSON of stdin, a line each, texts without quotes.
json_values() {
    tr -d '\n' | grep -o "\"$1\"[[:space:]]*:[[:space:]]*\(\"[^\"]*\"\|[^][{},[:space:]\"]*\)" |
        sed 's/^"[^"]*"[[:space:]]*:[[:space:]]*//; s/^"\(.*\)"$/\1/' || true
}
