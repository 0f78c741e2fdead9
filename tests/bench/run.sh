#!/usr/bin/env bash
# The figures of docs/performance.md: the product against the least it could cost, interleaved in one run,
# so that a noisy machine disturbs both. Medians over the repetitions; ratios are what counts.
#
#   run.sh [--repeat N] [--seconds S]
set -euo pipefail
. "$(dirname "$0")/../../deploy/lib.sh"

repeat=5 seconds=3
while [ $# -gt 0 ]; do
    case $1 in
    --repeat) repeat=$2 ;;
    --seconds) seconds=$2 ;;
    *) sed -n '2,/^set /s/^# \{0,1\}//p' "$0" | sed '$d'; exit 2 ;;
    esac
    shift 2
done

build "$TERNMQ_PRESET"
build "$TERNMQ_PRESET" floor flush_floor
work=$(mktemp -d "${TMPDIR:-/var/tmp}/ternmq-bench.XXXXXX")
export TERNMQ_HOME=$work/home
cluster=$TERNMQ_SOURCE/deploy/cluster.sh
trap '"$cluster" destroy --yes >/dev/null 2>&1 || true; rm -rf "$work"' EXIT

median() { sort -g | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }
field() { grep -o "\"$1\":[0-9.]*" | head -n 1 | cut -d: -f2; }
floor_rate() { "$TERNMQ_BIN/floor" "$work/floor.dat" "$1" "$2" "$3" "$4" "$seconds" "tcp://127.0.0.1:$(free_port 0)" | grep -o '[0-9]* msg/s' | cut -d' ' -f1; }
bench() { "$TERNMQ_BIN/mqbench" "$@" --seconds "$seconds" --json; }

up() {
    "$cluster" destroy --yes >/dev/null 2>&1 || true
    "$cluster" up 1m -o flushDiskType="$1" >"$work/up"
    NAMESRV_ADDR=$(sed -n 's/^NAMESRV_ADDR=//p' "$work/up")
    export NAMESRV_ADDR
}

report() { # name, ours, yardstick, wanted
    printf '%-44s %12s %12s %8s   %s\n' "$1" "$2" "$3" "$(awk -v a="$2" -v b="$3" 'BEGIN { printf "%.2f", a / b }')" "$4"
}

printf '%s cores, kernel %s, %s; %s repetitions of %s s\n' "$(nproc)" "$(uname -r)" \
    "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)" "$repeat" "$seconds"
printf '%-44s %12s %12s %8s   %s\n' measure ours yardstick ratio wanted

up ASYNC_FLUSH
for ((i = 0; i < repeat; i++)); do
    bench echo --mode sync | field p50 >>"$work/echo"
    bench produce -t Sync --mode sync | field p50 >>"$work/sync"
    bench pingpong -t PingPong | field p50 >>"$work/pingpong"
done
report "sync send, 1 KiB, p50 us (bare echo)" "$(median <"$work/sync")" "$(median <"$work/echo")" "<= 1.4"
report "ping-pong, 1 KiB, p50 us (bare echo)" "$(median <"$work/pingpong")" "$(median <"$work/echo")" "<= 2.5"

for ((i = 0; i < repeat; i++)); do
    floor_rate combine 1024 1 128 >>"$work/floor1"
    bench produce -t Async --mode async | field messages_per_second >>"$work/async"
    floor_rate combine 1024 64 8 >>"$work/floor64"
    bench produce -t Batch1K --mode batch >"$work/json"
    field messages_per_second <"$work/json" >>"$work/batch"
    field p99 <"$work/json" >>"$work/batch_p99"
    floor_rate combine 100 64 8 >>"$work/floor100"
    bench produce -t Batch100 --mode batch --size 100 >"$work/json"
    field messages_per_second <"$work/json" >>"$work/batch100"
    field p99 <"$work/json" >>"$work/batch100_p99"
done
report "async 128 in flight, 1 KiB, msg/s (floor)" "$(median <"$work/async")" "$(median <"$work/floor1")" ">= 0.70"
report "batches of 64, 8 in flight, 1 KiB, msg/s (floor)" "$(median <"$work/batch")" "$(median <"$work/floor64")" ">= 0.40"
report "batches of 64, 8 in flight, 100 B, msg/s (floor)" "$(median <"$work/batch100")" "$(median <"$work/floor100")" ">= 0.40"
report "batches 1 KiB, p99 us (5000)" "$(median <"$work/batch_p99")" 5000 "< 1"
report "batches 100 B, p99 us (5000)" "$(median <"$work/batch100_p99")" 5000 "< 1"

for ((i = 0; i < repeat; i++)); do
    topic=Consume$i
    "$TERNMQ_BIN/mqbench" produce -t "$topic" --mode batch --count 400000 --json | field messages_per_second >>"$work/made"
    "$TERNMQ_BIN/mqbench" consume -t "$topic" --count 400000 --json | field messages_per_second >>"$work/consumed"
done
report "consuming from memory, 1 KiB, msg/s (producing)" "$(median <"$work/consumed")" "$(median <"$work/made")" ">= 1"

# The first segment of a store is only reserved, so that a broker is ready at once; those after it are zeroed
# ahead in idle time, as the yardstick's file is. So: let it prepare one, fill the first, then measure.
up SYNC_FLUSH
sleep 10
"$TERNMQ_BIN/mqbench" produce -t Warm --mode batch --size 4096 --count 270000 >/dev/null
for ((i = 0; i < repeat; i++)); do
    "$TERNMQ_BIN/flush_floor" "$work/flush.dat" 524288 "$seconds" | grep -o '[0-9]* MB/s' | cut -d' ' -f1 >>"$work/flush_floor"
    bench produce -t SyncFlush --mode batch | field mib_per_second | awk '{ print $1 * 1.048576 }' >>"$work/flush"
done
report "SYNC_FLUSH batches 64 x 1 KiB, MB/s (bare)" "$(median <"$work/flush")" "$(median <"$work/flush_floor")" ">= 0.60"

"$cluster" destroy --yes
up SYNC_FLUSH
sleep 3
for node in namesrv-1 broker-a-0; do
    pid=$("$cluster" status | awk -v node="$node" '$1 == node { print $4 }')
    rss=$(awk '/^VmRSS/ { print $2 }' "/proc/$pid/status")
    limit=$([ "$node" = namesrv-1 ] && echo 6144 || echo 10240)
    report "$node idle RSS, KiB (limit)" "$rss" "$limit" "<= 1"
done
