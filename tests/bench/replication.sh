#!/usr/bin/env bash
# What replication costs and how fast it fails over: the second half of docs/performance.md. Whatever is compared
# is interleaved in one run; medians over the repetitions.
#
#   replication.sh [--repeat N] [--seconds S] [--kills N] [--only cost|cpu|catch-up|pause|kill]
set -euo pipefail
. "$(dirname "$0")/../../deploy/lib.sh"

repeat=5 seconds=3 kills=50 only=
while [ $# -gt 0 ]; do
    case $1 in
    --repeat) repeat=$2 ;;
    --seconds) seconds=$2 ;;
    --kills) kills=$2 ;;
    --only) only=$2 ;;
    *) sed -n '2,/^set /s/^# \{0,1\}//p' "$0" | sed '$d'; exit 2 ;;
    esac
    shift 2
done

build "$TERNMQ_PRESET"
work=$(mktemp -d "${TMPDIR:-/var/tmp}/ternmq-bench.XXXXXX")
export TERNMQ_HOME=$work/home
cluster=$TERNMQ_SOURCE/deploy/cluster.sh
paused=
trap '[ -z "$paused" ] || kill -CONT "$paused" 2>/dev/null || true; "$cluster" destroy --yes >/dev/null 2>&1 || true; rm -rf "$work"' EXIT

median() { sort -g | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }
field() { grep -oE "\"$1\": ?[0-9.e+]+" | head -n 1 | cut -d: -f2 | tr -d " "; }
within() { grep -o "\"$1\":{[^}]*}" | field "$2"; } # an object's number
bench() { "$TERNMQ_BIN/mqbench" "$@" --json; }
pid_of() { "$cluster" status | awk -v node="$1" '$1 == node { print $4 }'; }
cpu_ticks() { awk '{ print $14 + $15 }' "/proc/$1/stat"; }
wanted() { [ -z "$only" ] || [ "$only" = "$1" ]; }

up() {
    "$cluster" destroy --yes >/dev/null 2>&1 || true
    "$cluster" up "$@" >"$work/up"
    "$cluster" wait 60 >/dev/null
    NAMESRV_ADDR=$(sed -n 's/^NAMESRV_ADDR=//p' "$work/up")
    export NAMESRV_ADDR
}

report() { # name, ours, yardstick, wanted
    printf '%-52s %12s %12s %8s   %s\n' "$1" "$2" "$3" "$(awk -v a="$2" -v b="$3" 'BEGIN { if (b > 0) printf "%.2f", a / b; else print "-" }')" "$4"
}

printf '%s cores, kernel %s, %s; %s repetitions of %s s, %s kills\n' "$(nproc)" "$(uname -r)" \
    "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)" "$repeat" "$seconds" "$kills"
printf '%-52s %12s %12s %8s   %s\n' measure ours yardstick ratio wanted

# ---- what a synchronous copy costs

if wanted cost; then
    up 1m-1s-sync -o flushDiskType=ASYNC_FLUSH
    for ((i = 0; i < repeat; i++)); do
        bench echo --mode sync --seconds "$seconds" | field p50 >>"$work/echo"
        bench produce -t Sync --mode sync --seconds "$seconds" | field p50 >>"$work/sync"
        bench produce -t Batch --mode batch --seconds "$seconds" | field messages_per_second >>"$work/batch"
    done
    report "SYNC_MASTER, sync send, 1 KiB, p50 us (bare echo)" "$(median <"$work/sync")" "$(median <"$work/echo")" "<= 2.6"
    report "SYNC_MASTER, batches of 64 x 1 KiB, msg/s (100,000)" "$(median <"$work/batch")" 100000 ">= 1"
fi

# ---- what an asynchronous copy costs the master

master_cpu_us() { # per message of batches
    local pid before after messages
    pid=$(pid_of broker-a-0)
    before=$(cpu_ticks "$pid")
    messages=$(bench produce -t Cpu --mode batch --count 600000 | field messages)
    sleep 1
    after=$(cpu_ticks "$pid")
    awk -v t=$((after - before)) -v n="$messages" -v hz="$(getconf CLK_TCK)" 'BEGIN { printf "%.3f\n", t * 1e6 / hz / n }'
}

if wanted cpu; then
    up 1m-1s-async -o flushDiskType=ASYNC_FLUSH
    for ((i = 0; i < repeat; i++)); do
        master_cpu_us >>"$work/cpu_copied"
        "$cluster" stop broker-a-1 >/dev/null
        master_cpu_us >>"$work/cpu_alone"
        "$cluster" start broker-a-1 >/dev/null
        "$cluster" wait 120 >/dev/null
    done
    report "ASYNC_MASTER, its CPU us per message (no slave)" "$(median <"$work/cpu_copied")" "$(median <"$work/cpu_alone")" "<= 1.25"

    most=$(bench produce -t Lag --mode batch --seconds "$seconds" | field messages_per_second)
    bench produce -t Lag --mode batch --in-flight 1 --seconds $((seconds * 2)) >"$work/half" &
    half=$!
    while kill -0 "$half" 2>/dev/null; do
        "$TERNMQ_BIN/mqadmin" haStatus -b broker-a --json | field lagMs >>"$work/lag"
        sleep 0.1
    done
    wait "$half"
    report "lag ms, 9 of 10, at the rate given (of the most)" "$(sort -g "$work/lag" | awk '{ v[NR] = $1 } END { print v[int((NR * 9 + 9) / 10)] }')" 50 "<= 1"
    report "  that rate, msg/s (the most)" "$(field messages_per_second <"$work/half")" "$most" "about 0.5"
fi

# ---- a fresh slave

appended() { "$TERNMQ_BIN/mqadmin" haStatus -b broker-a --json | field appended; }

if wanted catch-up; then
    dd if=/dev/zero of="$work/dd" bs=1M count=3000 conv=fdatasync 2>"$work/dd.out"
    disk=$(awk '/copied/ { print $1 / 1e6 / $(NF - 3) }' "$work/dd.out")
    rm -f "$work/dd"
    up 1m-1s-async -o flushDiskType=ASYNC_FLUSH
    "$cluster" stop broker-a-1 >/dev/null
    bench produce -t Fill --mode batch --size 4096 --count 700000 >/dev/null
    bench produce -t Load --mode sync --producers 4 --seconds 600 >"$work/load" 2>/dev/null &
    load=$!
    sleep 1
    before=$(appended)
    sleep "$seconds"
    alone=$((($(appended) - before) / seconds))
    rm -rf "$TERNMQ_HOME/broker-a-1/store"
    before=$(appended)
    begin=$(date +%s%N)
    "$cluster" start broker-a-1 >/dev/null
    "$cluster" wait 300 >/dev/null
    end=$(date +%s%N)
    size=$(appended)
    kill "$load"
    wait "$load" || [ $? = 143 ] # as killed just now; anything else is a failure
    took_ms=$(((end - begin) / 1000000))
    report "fresh slave, MB/s (300, or half of the disk's)" "$((size / 1000 / took_ms))" \
        "$(awk -v d="$disk" 'BEGIN { h = d / 2; printf "%.0f", h < 300 ? h : 300 }')" ">= 1"
    report "  the master's appending meanwhile, bytes/s (without)" "$(((size - before) * 1000 / took_ms))" "$alone" ">= 0.70"
fi

# ---- a slave that hangs

if wanted pause; then
    up 1m-1s-sync -o flushDiskType=ASYNC_FLUSH
    bench produce -t Old --mode batch --count 400000 >/dev/null
    for ((i = 0; i < repeat; i++)); do
        bench consume -t Old --count 400000 | field messages_per_second >>"$work/free"
    done
    paused=$(pid_of broker-a-1)
    kill -STOP "$paused"
    bench produce -t Waits --mode sync --producers 8 --seconds 9 >"$work/waits"
    for ((i = 0; i < repeat; i++)); do
        bench consume -t Old --count 400000 | field messages_per_second >>"$work/hung"
    done
    kill -CONT "$paused"
    paused=
    begin=$(date +%s%N)
    "$cluster" wait 60 >/dev/null
    report "slave paused: sends that wait, p50 ms (syncFlushTimeout)" "$(awk -v us="$(field p50 <"$work/waits")" 'BEGIN { print us / 1000 }')" 5000 "0.8 to 1.2"
    report "slave paused: reading what is there, msg/s (without)" "$(median <"$work/hung")" "$(median <"$work/free")" ">= 0.80"
    report "  in sync again after, ms" "$(((($(date +%s%N) - begin)) / 1000000))" 5000 "< 1"
fi

# ---- a master that dies

if wanted kill; then
    up 2m-2s-sync
    for ((i = 0; i < kills; i++)); do
        "$TERNMQ_BIN/mqbench" verify -t Kill --seconds 4 --json >"$work/json" &
        checker=$!
        sleep "2.$((RANDOM % 10))"
        "$cluster" kill broker-a-0 >/dev/null
        wait "$checker" || { cat "$work/json"; exit 1; }
        field max_wait_ms <"$work/json" >>"$work/received"
        within max_gap_ms send <"$work/json" >>"$work/sent"
        "$cluster" start broker-a-0 >/dev/null
        "$cluster" wait 60 >/dev/null
    done
    second_worst() { sort -gr | sed -n 2p; }
    report "master killed: longest wait of a consumer, ms, median" "$(median <"$work/received")" 300 "<= 1"
    report "  the second worst of $kills" "$(second_worst <"$work/received")" 300 "<= 1"
    report "  longest pause of a producer, ms, median" "$(median <"$work/sent")" 300 "<= 1"
    report "  the second worst of $kills" "$(second_worst <"$work/sent")" 300 "<= 1"
fi
