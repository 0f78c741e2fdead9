#!/usr/bin/env bash
# Cables are pulled, silently: master from slave, master from its clients, the master's host from everybody.
# Nothing acknowledged may be lost, and a consumer must go on from the slave within moments.
#
#   cut.sh      exit status 77: skipped, this machine has no network namespaces for us
#
#   1  the checker sends and receives while first the link of the set, then that of the clients is cut
#   2  a consumer is cut from the master while producers are not: it must follow the stream at the slave
#   3  a consumer reads a backlog when the master's host falls silent: it must get the rest from the slave
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../deploy/lib.sh
. "$(dirname "$0")/../../deploy/lib.sh"
# shellcheck source-path=SCRIPTDIR source=netns.sh
. "$(dirname "$0")/netns.sh"

gap_limit_ms=6000 # aimed at: 3000
sync_seconds=90
lines=600         # part 2: at 50 a second
backlog=20000     # part 3

if ! why=$(netns_available 2>&1); then
    echo "cut.sh: skipped: $why"
    exit 77
fi
work=$(mktemp -d "${TMPDIR:-/tmp}/ternmq-cut.XXXXXX")
export TERNMQ_HOME=$work/home
cluster=$TERNMQ_SOURCE/deploy/cluster.sh
failed=0
finished=false

# shellcheck disable=SC2317 # runs in the trap
cleanup() {
    if $finished && [ "$failed" -eq 0 ]; then
        "$cluster" destroy --yes >/dev/null 2>&1 || echo "cut.sh: could not stop the cluster" >&2
        netns_destroy
        rm -rf "$work"
    else
        "$cluster" down >/dev/null 2>&1 || echo "cut.sh: could not stop the cluster" >&2
        netns_destroy
        echo "cut.sh: stores and logs are kept in $work" >&2
    fi
}
trap cleanup EXIT
trap 'exit 1' INT TERM

good() { printf 'ok      %s\n' "$1"; }
bad() {
    printf 'FAILED  %s\n' "$1"
    failed=$((failed + 1))
}
client() { netns_exec clients "$TERNMQ_BIN/mqadmin" "$@" -n "$NAMESRV_ADDR"; }
in_sync() { "$cluster" wait "$sync_seconds" || { bad "in sync again $1"; exit 1; }; }

# Lines of stdin with the time of their arrival before each.
stamp() { while IFS= read -r line; do echo "${EPOCHREALTIME/[.,]/} $line"; done; }
# arrived FILE COUNT SECONDS: until the file has so many lines.
arrived() {
    local deadline=$((SECONDS + $3))
    until [ "$(wc -l <"$1")" -ge "$2" ]; do
        [ "$SECONDS" -lt "$deadline" ] || return 1
        sleep 0.02
    done
}

# judge FILE COUNT WHAT: lines 1 to COUNT all arrived, first occurrences in order, no pause above the limit.
judge() {
    local verdict
    verdict=$(awk -v count="$2" -v limit="$gap_limit_ms" '
        NR > 1 && $1 - before > gap { gap = $1 - before; at = $2 }
        { before = $1 }
        seen[$2]++ { again++; next }
        { if ($2 != last + 1 && !wrong) wrong = $2 " after " last; last = $2; total++ }
        END {
            printf "%d of %d lines, %d again, longest pause %d ms (before line %d)", total, count, again, gap / 1000, at
            if (total != count) printf "; LOST %d", count - total
            if (wrong) printf "; OUT OF ORDER: %s", wrong
            if (gap / 1000 > limit) printf "; TOO LONG, above %d ms", limit
        }' "$1")
    case $verdict in
    *LOST* | *ORDER* | *LONG*) bad "$3: $verdict" ;;
    *) good "$3: $verdict" ;;
    esac
}

consume() { # TOPIC GROUP
    netns_exec clients stdbuf -oL "$TERNMQ_BIN/mqadmin" consumeMessage -n "$NAMESRV_ADDR" -t "$1" -g "$2" --body-only \
        --idle-exit $((gap_limit_ms + 3000)) 2>>"$work/$1.errors"
}

bring_up() {
    local nodes=(namesrv-1 broker-a-0 broker-a-1)
    netns_create "${nodes[@]}" clients producers
    mkdir -p "$TERNMQ_HOME"
    netns_hosts_file "$TERNMQ_HOME/hosts" "${nodes[@]}"
    "$cluster" up 1m-1s-sync -o mappedFileSizeCommitLog=64MiB >"$work/up" || die "the cluster did not start"
    NAMESRV_ADDR=$(sed -n 's/^NAMESRV_ADDR=//p' "$work/up")
    in_sync "at the start"
    for topic in Live Backlog; do client updateTopic -c DefaultCluster -t "$topic" -r 1 -w 1 >/dev/null; done
}

checker_rides_through_cuts() {
    local status=0 verifier
    netns_exec clients "$TERNMQ_BIN/mqbench" verify -n "$NAMESRV_ADDR" -t Checked --seconds 20 --size 600 \
        --json >"$work/verdict" 2>"$work/verify.errors" &
    verifier=$!
    sleep 2
    netns_cut broker-a-0 broker-a-1
    sleep 4
    netns_heal broker-a-0 broker-a-1
    in_sync "after the set's link was cut"
    sleep 1
    netns_cut broker-a-0 clients
    sleep 4
    netns_heal broker-a-0 clients
    wait "$verifier" || status=$?
    if [ $status -eq 0 ]; then
        good "set cut, clients cut: acked $(json_values acked <"$work/verdict"), none lost, longest pause: sending\
 $(json_values send <"$work/verdict") ms, receiving $(json_values receive <"$work/verdict") ms"
    else
        bad "set cut, clients cut: exit status $status: $(cat "$work/verdict" "$work/verify.errors")"
    fi
    in_sync "after the clients were cut"
}

feed() {
    local i
    for ((i = 1; i <= lines; i++)); do
        echo $i
        sleep 0.02
    done
}
consumer_follows_at_the_slave() {
    local consumer producer
    : >"$work/live"
    consume Live live | stamp >>"$work/live" &
    consumer=$!
    feed | netns_exec producers "$TERNMQ_BIN/mqadmin" sendMessage -n "$NAMESRV_ADDR" -t Live --lines >"$work/sent" &
    producer=$!
    arrived "$work/live" 50 30 || bad "the consumer gets nothing even before the cut"
    netns_cut broker-a-0 clients
    wait "$producer" || bad "producers that reach the master cannot send: $(cat "$work/sent")"
    wait "$consumer" || bad "the consumer ended: $(tail -n 1 "$work/Live.errors")"
    judge "$work/live" "$lines" "consumer cut from the master"
    netns_heal broker-a-0 clients
    in_sync "after the consumer was cut"
}

consumer_ends_backlog_at_the_slave() {
    local consumer
    : >"$work/backlog"
    seq "$backlog" | client sendMessage -t Backlog --lines >/dev/null
    # The reader is slow until the master is silent, so that most of the backlog is still at the brokers.
    consume Backlog backlog | while IFS= read -r line; do
        echo "${EPOCHREALTIME/[.,]/} $line"
        [ -e "$work/silent" ] || sleep 0.005
    done >>"$work/backlog" &
    consumer=$!
    arrived "$work/backlog" 100 30 || bad "the consumer gets nothing even before the cut"
    local host
    for host in namesrv-1 broker-a-1 clients producers; do netns_cut broker-a-0 "$host"; done
    : >"$work/silent"
    wait "$consumer" || bad "the consumer ended: $(tail -n 1 "$work/Backlog.errors")"
    judge "$work/backlog" "$backlog" "master's host silent"
    netns_heal_all
    in_sync "after the master's host was silent"
}

bring_up
checker_rides_through_cuts
consumer_follows_at_the_slave
consumer_ends_backlog_at_the_slave
finished=true
[ "$failed" -eq 0 ]
