#!/usr/bin/env bash
# A cluster on this machine: nameservers and brokers as plain processes on loopback.
#
#   cluster.sh up LAYOUT [-o key=value]…   start it (or resume the same layout); waits until all are ready
#   cluster.sh down                        stop all nodes cleanly; stores stay
#   cluster.sh status [--json]             NODE ROLE ADDRESS PID STATE
#   cluster.sh kill NODE…                  SIGKILL
#   cluster.sh stop NODE… | start NODE…    clean stop, start again (all, then waits until they are ready)
#   cluster.sh wait [SECONDS]              until every master takes writes with all its slaves in sync, and every
#                                          nameserver that runs knows every broker that runs (60)
#   cluster.sh env                         for eval "$(cluster.sh env)": NAMESRV_ADDR, and PATH to the programs
#   cluster.sh logs NODE                   the node's log
#   cluster.sh destroy --yes               stop all and delete the stores
#
# Layouts: 1m, 1m-1s-async, 1m-1s-sync, 2m-2s-async, 2m-2s-sync, 2n-2m-2s-sync (n nameservers, m masters,
# s slaves; sync: SYNC_MASTER). Nodes: namesrv-1, broker-a-0 (the master of set broker-a), broker-a-1 (its
# slave), … States: running; recovering (serves, but a master takes no writes yet, or a slave has nothing in
# common with its master); dead.
#
# State lies under $TERNMQ_HOME (default ~/.ternmq), a node's store in $TERNMQ_HOME/NODE/store. Ports are the
# usual ones where they are free, and a cluster keeps the ones it got. -o is read at each start of a broker.
#
# A file $TERNMQ_HOME/hosts, made before the first up, places nodes elsewhere: lines "NODE ADDRESS COMMAND…"
# start the node through COMMAND and let it listen on ADDRESS (the tests do so with network namespaces).
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"

home=$(realpath -m "${TERNMQ_HOME:-$HOME/.ternmq}")
ports_file=${HOME:-/tmp}/.ternmq-ports # "PORT HOME" a line: ports that this user's clusters got
[ -w "${ports_file%/*}" ] || ports_file=${TMPDIR:-/tmp}/.ternmq-ports-$UID
ready_seconds=30

usage() {
    sed -n '2,/^set /s/^# \{0,1\}//p' "$0" | sed '$d'
}

wrong() {
    printf 'cluster.sh: %s; see cluster.sh --help\n' "$*" >&2
    exit 2
}

# ---- nodes: $home/nodes has a line "NODE ROLE PORT HA_PORT" each, nameservers first ----

nodes() { if [ -f "$home/nodes" ]; then cut -d' ' -f1 "$home/nodes"; fi; }
nodes_of() { if [ -f "$home/nodes" ]; then awk -v role="$1" '$2 == role { print $1 }' "$home/nodes"; fi; }
field() { awk -v node="$1" -v n="$2" '$1 == node { print $n }' "$home/nodes"; }
known() {
    [ $# -gt 0 ] || wrong "which node?"
    local node
    for node; do nodes | grep -qx -- "$node" || wrong "no node '$node' in $home"; done
}

# The line of $home/hosts: "ADDRESS COMMAND…".
host_of() {
    local line=
    [ ! -f "$home/hosts" ] || line=$(awk -v node="$1" '$1 == node { sub(/^[^ ]+ +/, ""); print }' "$home/hosts")
    echo "${line:-127.0.0.1}"
}
address_of() { local host; read -r host _ <<<"$(host_of "$1")"; echo "$host:$(field "$1" 3)"; }

namesrv_list() {
    local node list=
    for node in $(nodes_of NAMESRV); do list+=";$(address_of "$node")"; done
    echo "${list#;}"
}

# The node's process, if it runs: a number that the system gave to another program since then is not it.
pid_of() {
    local pid
    pid=$(cat "$home/$1/pid" 2>/dev/null) || return 0
    if [ -n "$pid" ] && grep -qaF -- "=$home/$1/" "/proc/$pid/cmdline" 2>/dev/null; then echo "$pid"; fi
}

layout_nodes() {
    local namesrvs=1 sets=a slaves=1
    case $1 in
    1m) slaves=0 ;;
    1m-1s-async | 1m-1s-sync) ;;
    2m-2s-async | 2m-2s-sync) sets="a b" ;;
    2n-2m-2s-sync) namesrvs=2 sets="a b" ;;
    *) wrong "unknown layout '$1' (1m, 1m-1s-async, 1m-1s-sync, 2m-2s-async, 2m-2s-sync, 2n-2m-2s-sync)" ;;
    esac
    local n set port=10911
    for ((n = 1; n <= namesrvs; n++)); do echo "namesrv-$n NAMESRV $((9875 + n)) 0"; done
    for set in $sets; do
        echo "broker-$set-0 MASTER $port $((port + 1))"
        for ((n = 1; n <= slaves; n++)); do
            port=$((port + 10))
            echo "broker-$set-$n SLAVE $port $((port + 1))"
        done
        port=$((port + 10))
    done
}

# Chooses ports and writes $home/nodes. What another cluster of this user got stays its own while that exists,
# running or not: it could not come back otherwise.
choose_ports() {
    local layout=$1 port other taken='' node role ha
    exec 9>>"$ports_file.lock"
    flock 9
    : >"$ports_file.new"
    if [ -f "$ports_file" ]; then
        while read -r port other; do
            if [ -f "$other/nodes" ] && [ "$other" != "$home" ]; then
                taken+=" $port"
                echo "$port $other" >>"$ports_file.new"
            fi
        done <"$ports_file"
    fi
    : >"$home/nodes.new"
    while read -r node role port ha; do
        if [ ! -f "$home/hosts" ]; then
            port=$(free_port "$port" "$taken")
            taken+=" $port"
            echo "$port $home" >>"$ports_file.new"
            if [ "$role" != NAMESRV ]; then
                ha=$(free_port "$ha" "$taken")
                taken+=" $ha"
                echo "$ha $home" >>"$ports_file.new"
            fi
        fi
        echo "$node $role $port $ha" >>"$home/nodes.new"
    done < <(layout_nodes "$layout")
    echo "$layout" >"$home/layout"
    mv "$home/nodes.new" "$home/nodes"
    mv "$ports_file.new" "$ports_file"
    exec 9>&-
}

# ---- what a broker says of its replication ----

# admin NODE SECONDS ARGUMENT…: mqadmin from where the node is; nothing when there is no answer in time.
admin() {
    local host seconds=$2
    read -ra host <<<"$(host_of "$1")"
    shift 2
    timeout "$seconds" "${host[@]:1}" "$TERNMQ_BIN/mqadmin" "$@" --json 2>/dev/null
}

# ha_view NODE: "STATE WRITABLE IN_SYNC" (open true 2: two slaves in sync, and there: a master that starts has
# slaves on record that it has not heard yet); nothing when it does not answer.
ha_view() {
    local json state writable in_sync
    json=$(admin "$1" 2 haStatus -b "$(address_of "$1")") || return 0
    state=$(json_values state <<<"$json" | head -n 1)
    writable=$(json_values writable <<<"$json" | head -n 1)
    in_sync=$(paste <(json_values inSync <<<"$json") <(json_values linkUp <<<"$json") |
        grep -cx "true[[:space:]]true" || true)
    [ -z "$state" ] || echo "${state// /_} ${writable:-false} $in_sync"
}

state_of() {
    local pid state=
    pid=$(pid_of "$1")
    if [ -z "$pid" ]; then echo dead && return; fi
    if ! grep -q " ready " "$home/$1/out" 2>/dev/null; then echo recovering && return; fi
    [ "$(field "$1" 2)" = NAMESRV ] || read -r state _ <<<"$(ha_view "$1")" || true
    case $state in
    recovering | detached) echo recovering ;;
    *) echo running ;; # without an answer nothing better is known than that it was ready
    esac
}

# ---- starting and stopping ----

broker_role() {
    case $(field "$1" 2)/$(cat "$home/layout") in
    SLAVE/*) echo SLAVE ;;
    *-sync) echo SYNC_MASTER ;;
    *) echo ASYNC_MASTER ;;
    esac
}

launch() {
    local node=$1 dir=$home/$1 host command ha
    [ -z "$(pid_of "$node")" ] || return 0
    mkdir -p "$dir"
    : >"$dir/out"
    read -ra host <<<"$(host_of "$node")"
    if [ "$(field "$node" 2)" = NAMESRV ]; then
        command=("$TERNMQ_BIN/mqnamesrv" -o kvConfigPath="$dir/kvConfig.json")
    else
        ha=$(field "$node" 4)
        command=("$TERNMQ_BIN/mqbroker" -n "$(namesrv_list)" -o brokerName="${node%-*}" -o brokerId="${node##*-}"
            -o brokerRole="$(broker_role "$node")" -o haListenPort="${ha:-0}" -o storePathRootDir="$dir/store")
        local override
        while read -r override; do [ -z "$override" ] || command+=(-o "$override"); done <"$home/overrides"
    fi
    command+=(-o listenAddr="${host[0]}" -o listenPort="$(field "$node" 3)")
    setsid "${host[@]:1}" "${command[@]}" >"$dir/out" 2>>"$dir/log" </dev/null &
    echo $! >"$dir/pid"
    disown
}

await() {
    local node=$1 status=0
    wait_for_line "$home/$node/out" " ready " "$ready_seconds" "$(cat "$home/$node/pid")" || status=$?
    [ $status -eq 0 ] && return
    tail -n 5 "$home/$node/log" >&2
    if [ $status -eq 1 ]; then die "$node ended while starting; its log: $home/$node/log"; fi
    die "$node is not ready after ${ready_seconds} s; its log: $home/$node/log"
}

# Signals all, then waits until they have ended. A process that is held by SIGSTOP goes on to take it.
halt() {
    local signal=$1 node pid pids=()
    shift
    for node; do
        pid=$(pid_of "$node")
        [ -n "$pid" ] || continue
        kill -"$signal" "$pid" 2>/dev/null || true
        kill -CONT "$pid" 2>/dev/null || true
        pids+=("$pid")
    done
    for pid in "${pids[@]}"; do
        wait_gone "$pid" 20 || die "process $pid ($(tr '\0' ' ' <"/proc/$pid/cmdline" | cut -c1-200)) does not end"
    done
}

# Which brokers that run are not known to which nameserver that runs: nothing when all are. A broker that came first
# tries again soon, and a nameserver that was started again is told at the latest when all tell it anew.
unregistered() {
    local namesrv broker list
    for namesrv in $(nodes_of NAMESRV); do
        [ -n "$(pid_of "$namesrv")" ] || continue
        list=$(admin "$namesrv" 5 clusterList -n "$(address_of "$namesrv")") || true
        for broker in $(nodes_of MASTER) $(nodes_of SLAVE); do
            [ -n "$(pid_of "$broker")" ] || continue
            grep -qF "\"$(address_of "$broker")\"" <<<"$list" || printf ' %s(not registered with %s)' "$broker" "$namesrv"
        done
    done
}

# ---- commands ----

up() {
    [ $# -ge 1 ] || wrong "up needs a layout"
    local layout=$1
    shift
    local overrides=""
    while [ $# -gt 0 ]; do
        if [ "$1" != -o ] || [ $# -lt 2 ]; then wrong "unexpected argument '$1'"; fi
        overrides+="$2"$'\n'
        shift 2
    done
    (layout_nodes "$layout") >/dev/null || exit
    if [ ! -x "$TERNMQ_BIN/mqbroker" ]; then
        install_packages "$TERNMQ_SOURCE/deploy/packages.txt"
        build "$TERNMQ_PRESET" "${TERNMQ_PROGRAMS[@]}"
    fi
    mkdir -p "$home"
    if [ -f "$home/layout" ] && [ "$(cat "$home/layout")" != "$layout" ]; then
        die "$home holds layout $(cat "$home/layout"): cluster.sh destroy --yes first, or set TERNMQ_HOME"
    fi
    [ -f "$home/nodes" ] || choose_ports "$layout"
    local node
    if [ -n "$overrides" ]; then
        for node in $(nodes_of MASTER) $(nodes_of SLAVE); do
            [ -z "$(pid_of "$node")" ] ||
                die "$node is running, and -o is read at a start: cluster.sh down first"
        done
    fi
    [ -n "$overrides" ] || [ ! -f "$home/overrides" ] || overrides=$(cat "$home/overrides")
    printf '%s' "$overrides" >"$home/overrides"
    [ -z "$overrides" ] || echo >>"$home/overrides"
    for node in $(nodes); do launch "$node"; done
    for node in $(nodes); do await "$node"; done
    local deadline=$((SECONDS + ready_seconds))
    local missing
    while missing=$(unregistered) && [ -n "$missing" ]; do
        if [ "$SECONDS" -ge "$deadline" ]; then
            printf 'cluster.sh: after %d s:%s; cluster.sh status\n' "$ready_seconds" "$missing" >&2
            break
        fi
        sleep 0.1
    done
    show
    printf 'NAMESRV_ADDR=%s\n' "$(namesrv_list)"
}

# Slaves first, then masters, then nameservers: a master that is left alone notes so, and opens without them.
down() {
    local role
    for role in SLAVE MASTER NAMESRV; do
        # shellcheck disable=SC2046 # names without blanks
        halt TERM $(nodes_of "$role")
    done
}

start() {
    local node
    for node; do launch "$node"; done
    for node; do await "$node"; done
}

# Every master takes writes, has as many slaves in sync as the layout gives it, and all can be found. Shows what it
# waits for when the time is up.
wait_in_sync() {
    local limit=${1:-60} master state writable in_sync slaves missing
    [[ $limit =~ ^[1-9][0-9]*$ ]] || wrong "wait: '$limit' is no number of seconds"
    [ -f "$home/nodes" ] || wrong "no cluster in $home"
    local deadline=$((SECONDS + limit))
    while :; do
        missing=
        for master in $(nodes_of MASTER); do
            slaves=$(nodes_of SLAVE | grep -c "^${master%-*}-" || true)
            read -r state writable in_sync <<<"$(ha_view "$master")" || true
            if [ "$state/$writable" != open/true ] || [ "$in_sync" -lt "$slaves" ]; then
                missing+=" $master(${state:-no answer}, writable ${writable:--}, in sync ${in_sync:--} of $slaves)"
            fi
        done
        [ -n "$missing" ] || missing=$(unregistered)
        [ -n "$missing" ] || return 0
        [ "$SECONDS" -lt "$deadline" ] ||
            die "not ready after $limit s:$missing; mqadmin haStatus -n '$(namesrv_list)' tells more"
        sleep 0.05
    done
}

show() {
    local json=false node sep="" pid role address state
    [ "${1:-}" = --json ] && json=true
    if $json; then printf '['; else printf '%-12s %-8s %-22s %-8s %s\n' NODE ROLE ADDRESS PID STATE; fi
    for node in $(nodes); do
        state=$(state_of "$node")
        pid=$(pid_of "$node")
        role=$(field "$node" 2)
        address=$(address_of "$node")
        if $json; then
            printf '%s{"node":"%s","role":"%s","address":"%s","pid":%s,"state":"%s"}' "$sep" "$node" \
                "$role" "$address" "${pid:-null}" "$state"
            sep=,
        else
            printf '%-12s %-8s %-22s %-8s %s\n' "$node" "$role" "$address" "${pid:--}" "$state"
        fi
    done
    ! $json || printf ']\n'
}

environment() {
    [ -f "$home/nodes" ] || die "no cluster in $home: cluster.sh up LAYOUT first"
    printf 'export NAMESRV_ADDR=%q PATH=%q:"$PATH"\n' "$(namesrv_list)" "$TERNMQ_BIN"
}

destroy() {
    [ "${1:-}" = --yes ] || wrong "destroy deletes all stores under $home: say destroy --yes"
    [ -f "$home/nodes" ] || return 0
    down
    local node
    for node in $(nodes); do rm -rf "${home:?}/$node"; done
    rm -f "$home/nodes" "$home/layout" "$home/overrides" "$home/hosts"
    rmdir --ignore-fail-on-non-empty "$home"
}

verb=${1:-}
[ $# -eq 0 ] || shift
case $verb in
up) up "$@" ;;
down) down ;;
status) show "$@" ;;
kill) known "$@"; halt KILL "$@" ;;
stop) known "$@"; halt TERM "$@" ;;
start) known "$@"; start "$@" ;;
wait) wait_in_sync "$@" ;;
env) environment ;;
logs) known "$@"; cat "$home/$1/log" ;;
destroy) destroy "$@" ;;
-h | --help) usage ;;
*) wrong "unknown command '$verb'" ;;
esac
