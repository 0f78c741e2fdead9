#!/usr/bin/env bash
# A cluster on this machine: nameservers and brokers as plain processes on loopback.
#
#   cluster.sh up LAYOUT [-o key=value]…   start it (or resume the same layout); waits until all are ready
#   cluster.sh down                        stop all nodes cleanly; stores stay
#   cluster.sh status [--json]             NODE ROLE ADDRESS PID STATE
#   cluster.sh kill NODE                   SIGKILL
#   cluster.sh stop NODE | start NODE      clean stop, start again
#   cluster.sh logs NODE                   the node's log
#   cluster.sh destroy --yes               stop all and delete the stores
#
# Layouts: 1m. State lies under $TERNMQ_HOME (default ~/.ternmq), a node's store in $TERNMQ_HOME/NODE/store.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

home=${TERNMQ_HOME:-$HOME/.ternmq}
ready_seconds=30

usage() {
    sed -n '2,/^set /s/^# \{0,1\}//p' "$0" | sed '$d'
}

wrong() {
    printf 'cluster.sh: %s; see cluster.sh --help\n' "$*" >&2
    exit 2
}

# ---- nodes: $home/nodes has a line "NODE ROLE PORT" each, nameservers first ----

nodes() { [ -f "$home/nodes" ] && cut -d' ' -f1 "$home/nodes" || true; }
field() { awk -v node="$1" -v n="$2" '$1 == node { print $n }' "$home/nodes"; }
known() { nodes | grep -qx -- "$1" || wrong "no node '$1' in $home"; }
pid_of() { cat "$home/$1/pid" 2>/dev/null || true; }
namesrv_list() {
    awk '$2 == "NAMESRV" { printf "%s127.0.0.1:%s", sep, $3; sep = ";" }' "$home/nodes"
}

layout_nodes() {
    case $1 in
    1m) echo "namesrv-1 NAMESRV 9876"; echo "broker-a-0 MASTER 10911" ;;
    *) wrong "unknown layout '$1' (1m)" ;;
    esac
}

state_of() {
    local pid
    pid=$(pid_of "$1")
    if ! running "$pid"; then echo dead
    elif grep -q " ready " "$home/$1/out" 2>/dev/null; then echo running
    else echo recovering
    fi
}

launch() {
    local node=$1 role port dir
    role=$(field "$node" 2)
    port=$(field "$node" 3)
    dir=$home/$node
    running "$(pid_of "$node")" && return
    mkdir -p "$dir"
    : >"$dir/out"
    local command
    if [ "$role" = NAMESRV ]; then
        command=("$TERNMQ_BIN/mqnamesrv" -o listenPort="$port" -o kvConfigPath="$dir/kvConfig.json")
    else
        local name=${node%-*}
        command=("$TERNMQ_BIN/mqbroker" -n "$(namesrv_list)" -o brokerName="$name" -o brokerId="${node##*-}"
            -o listenPort="$port" -o storePathRootDir="$dir/store")
        local override
        while read -r override; do [ -z "$override" ] || command+=(-o "$override"); done <"$home/overrides"
    fi
    setsid "${command[@]}" >"$dir/out" 2>>"$dir/log" </dev/null &
    echo $! >"$dir/pid"
    disown
}

await() {
    local node=$1 status=0
    wait_for_line "$home/$node/out" " ready " "$ready_seconds" "$(pid_of "$node")" || status=$?
    [ $status -eq 0 ] && return
    tail -n 5 "$home/$node/log" >&2
    if [ $status -eq 1 ]; then die "$node ended while starting; its log: $home/$node/log"; fi
    die "$node is not ready after ${ready_seconds} s; its log: $home/$node/log"
}

halt() {
    local node=$1 signal=$2 pid
    pid=$(pid_of "$node")
    running "$pid" || return 0
    kill -"$signal" "$pid"
    wait_gone "$pid" 10 || die "$node (pid $pid) does not end"
}

# ---- commands ----

up() {
    [ $# -ge 1 ] || wrong "up needs a layout"
    local layout=$1
    shift
    local overrides=""
    while [ $# -gt 0 ]; do
        [ "$1" = -o ] && [ $# -ge 2 ] || wrong "unexpected argument '$1'"
        overrides+="$2"$'\n'
        shift 2
    done
    [ -x "$TERNMQ_BIN/mqbroker" ] || { install_packages "$TERNMQ_SOURCE/deploy/packages.txt"; build "$TERNMQ_PRESET"; }
    layout_nodes "$layout" >/dev/null
    mkdir -p "$home"
    if [ -f "$home/layout" ] && [ "$(cat "$home/layout")" != "$layout" ]; then
        die "$home holds layout $(cat "$home/layout"): cluster.sh destroy --yes first, or set TERNMQ_HOME"
    fi
    if [ ! -f "$home/nodes" ]; then
        local node role port
        layout_nodes "$layout" | while read -r node role port; do
            echo "$node $role $(free_port "$port")"
        done >"$home/nodes.new"
        mv "$home/nodes.new" "$home/nodes"
        echo "$layout" >"$home/layout"
    fi
    if [ -n "$overrides" ]; then
        local running_node
        for running_node in $(nodes); do
            [ "$(field "$running_node" 2)" = NAMESRV ] || ! running "$(pid_of "$running_node")" ||
                die "$running_node is running, and -o is read at a start: cluster.sh down first"
        done
    fi
    [ -n "$overrides" ] || [ ! -f "$home/overrides" ] || overrides=$(cat "$home/overrides")
    printf '%s' "$overrides" >"$home/overrides"
    [ -z "$overrides" ] || echo >>"$home/overrides"
    local node
    for node in $(nodes); do
        launch "$node"
        # Brokers register where a nameserver is up already, so those come first.
        [ "$(field "$node" 2)" != NAMESRV ] || await "$node"
    done
    for node in $(nodes); do await "$node"; done
    show
    printf 'NAMESRV_ADDR=%s\n' "$(namesrv_list)"
}

down() {
    local node
    for node in $(nodes | tac); do halt "$node" TERM; done
}

show() {
    local json=false node sep=""
    [ "${1:-}" = --json ] && json=true
    if $json; then printf '['; else printf '%-12s %-8s %-22s %-8s %s\n' NODE ROLE ADDRESS PID STATE; fi
    for node in $(nodes); do
        local pid address state
        pid=$(pid_of "$node")
        state=$(state_of "$node")
        [ "$state" != dead ] || pid=-
        address=127.0.0.1:$(field "$node" 3)
        if $json; then
            printf '%s{"node":"%s","role":"%s","address":"%s","pid":%s,"state":"%s"}' "$sep" "$node" \
                "$(field "$node" 2)" "$address" "${pid/#-/null}" "$state"
            sep=,
        else
            printf '%-12s %-8s %-22s %-8s %s\n' "$node" "$(field "$node" 2)" "$address" "$pid" "$state"
        fi
    done
    ! $json || printf ']\n'
}

destroy() {
    [ "${1:-}" = --yes ] || wrong "destroy deletes all stores under $home: say destroy --yes"
    [ -f "$home/nodes" ] || return 0
    down
    local node
    for node in $(nodes); do rm -rf "${home:?}/$node"; done
    rm -f "$home/nodes" "$home/layout" "$home/overrides"
    rmdir --ignore-fail-on-non-empty "$home"
}

case ${1:-} in
up) shift; up "$@" ;;
down) down ;;
status) shift; show "$@" ;;
kill) known "${2:-}"; halt "$2" KILL ;;
stop) known "${2:-}"; halt "$2" TERM ;;
start) known "${2:-}"; launch "$2"; await "$2" ;;
logs) known "${2:-}"; cat "$home/$2/log" ;;
destroy) shift; destroy "$@" ;;
-h | --help) usage ;;
*) wrong "unknown command '${1:-}'" ;;
esac
