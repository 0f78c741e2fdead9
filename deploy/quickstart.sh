#!/usr/bin/env bash
# From nothing to a working set of brokers, and proof that it keeps what it acknowledged: installs what is
# missing, builds, starts a nameserver, a SYNC_MASTER and its slave on loopback, pipes a real text file through
# a topic, kills the master half-way, goes on reading from the slave, brings the master back, sends and reads
# the rest, compares what came out with what went in. Then once more under load, with every acknowledged message
# checked, and at the end both stores are compared record by record. Exit status 0 only if all is well.
#
#   quickstart.sh [--keep]     --keep: leave the cluster running and its state in place
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"

keep=false
case ${1:-} in
"") ;;
--keep) keep=true ;;
-h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' "$0" | sed '$d'; exit 0 ;;
*) printf 'quickstart.sh: unknown option %s\n' "$1" >&2; exit 2 ;;
esac

install_packages "$TERNMQ_SOURCE/deploy/packages.txt"
build "$TERNMQ_PRESET" "${TERNMQ_PROGRAMS[@]}"

work=$(mktemp -d "${TMPDIR:-/tmp}/ternmq-quickstart.XXXXXX")
$keep || export TERNMQ_HOME=$work/home
home=${TERNMQ_HOME:-$HOME/.ternmq}
cluster=$TERNMQ_SOURCE/deploy/cluster.sh
mqadmin=$TERNMQ_BIN/mqadmin
layout=1m-1s-sync master=broker-a-0 slave=broker-a-1 # 1m-1s-sync: a send is answered when both have it on disk
checker=''
# shellcheck disable=SC2317 # runs in the trap
cleanup() {
    [ -z "$checker" ] || kill "$checker" 2>/dev/null || true
    $keep || "$cluster" destroy --yes >/dev/null 2>&1 || printf 'quickstart.sh: could not stop the cluster\n' >&2
    rm -rf "$work"
}
trap cleanup EXIT

# ---- the table ----

verdict=0
rows=()
row() { rows+=("$(printf '%-58s %s' "$1" "$2")"); }
bad() { row "$1" "$2"; verdict=1; }
# what was done, its figure, and whether it went well: row_if STATUS WHAT GOOD BAD
row_if() { if [ "$1" -eq 0 ]; then row "$2" "$3"; else bad "$2" "$4"; fi; }
finish() {
    printf '\n'
    printf '%s\n' "${rows[@]}"
    printf '%-58s %s\n' seconds "$((SECONDS - begin))"
    exit "$verdict"
}
# A step without which the rest means nothing; what it prints goes to a file.
must() {
    local what=$1
    shift
    "$@" >"$work/step" || { bad "$what" FAILED; finish; }
}

begin=$SECONDS
must "cluster started" "$cluster" up $layout -o mappedFileSizeCommitLog=256MiB
NAMESRV_ADDR=$(sed -n 's/^NAMESRV_ADDR=//p' "$work/step")
export NAMESRV_ADDR
must "slave in sync" "$cluster" wait 20
row "nameserver, SYNC_MASTER and slave started" "in sync"

# ---- a text through a topic, the master killed half-way ----

# A real text: the licences that every Debian has, else the project's own.
cat /usr/share/common-licenses/* >"$work/in" 2>/dev/null || true
[ -s "$work/in" ] || cat "$TERNMQ_SOURCE/LICENSE" "$TERNMQ_SOURCE"/docs/*.md >"$work/in"
lines=$(wc -l <"$work/in")
half=$((lines / 2)) quarter=$((lines / 4))
topic=Quickstart
! $keep || topic=Quickstart_$(date +%s) # the cluster may know an earlier run's
must "topic registered" "$mqadmin" updateTopic -c DefaultCluster -t "$topic" -r 1 -w 1

# shellcheck disable=SC2317 # called by must
send() { "$mqadmin" sendMessage -t "$topic" --lines; }
# receive COUNT TOTAL: the group's next lines, appended to what came out; TOTAL lines then.
receive() {
    "$mqadmin" consumeMessage -t "$topic" -g "$topic" --body-only -c "$1" --idle-exit 10000 \
        >>"$work/out" 2>>"$work/consumers"
    [ "$(wc -l <"$work/out")" -eq "$2" ]
}

must "first $half lines sent" send < <(head -n "$half" "$work/in")
row "first $half of $lines lines sent" acknowledged
status=0
receive "$quarter" "$quarter" || status=$?
row_if $status "first $quarter lines read from the master" ok "FAILED: $(tail -n 1 "$work/consumers")"

must "master killed" "$cluster" kill $master
row "master killed with SIGKILL" "$("$cluster" status | awk -v n=$master '$1 == n { print $5 }')"
status=0 since=$(now_ms)
receive $((half - quarter)) "$half" || status=$?
row_if $status "lines $((quarter + 1)) to $half read from the slave" "in $(($(now_ms) - since)) ms" \
    "FAILED: $(tail -n 1 "$work/consumers")"

since=$(now_ms)
must "master back" "$cluster" start $master
must "slave in sync again" "$cluster" wait 30
row "master back, slave in sync" "in $(($(now_ms) - since)) ms"
must "the other lines sent" send < <(tail -n +$((half + 1)) "$work/in")
row "other $((lines - half)) lines sent" acknowledged
status=0
receive $((lines - half)) "$lines" || status=$?
row_if $status "these read from the master" ok "FAILED: $(tail -n 1 "$work/consumers")"
if cmp -s "$work/in" "$work/out"; then
    row "$lines lines out = $lines lines in" identical
else
    bad "lines out: $(wc -l <"$work/out") of $lines" DIFFERENT
fi

# ---- under load: the checker sends for some seconds, in which the master dies and comes back ----

"$TERNMQ_BIN/mqbench" verify -t "${topic}Load" --seconds 6 --mode batch --batch 16 --size 512 --json >"$work/verify" &
checker=$!
sleep 2
must "master killed under load" "$cluster" kill $master
sleep 1
must "master back under load" "$cluster" start $master
status=0
wait "$checker" || status=$?
checker=''
figure() { json_values "$1" <"$work/verify" | head -n 1; }
row_if $status "messages acknowledged under load and a SIGKILL" "$(figure acked)" "FAILED: $(cat "$work/verify")"
row_if $status "of these lost, reordered or altered" 0 "lost $(figure lost)"
row "longest pause in receiving what was acknowledged" "$(figure max_wait_ms) ms"

# ---- both stores hold the same ----

must "slave in sync at the end" "$cluster" wait 30
must "cluster stopped" "$cluster" down
for node in $master $slave; do
    status=0
    "$TERNMQ_BIN/mqstore" verify "$home/$node/store" >"$work/store" 2>&1 || status=$?
    row_if $status "store of $node" whole "DAMAGED: $(head -n 1 "$work/store")"
done
status=0
"$TERNMQ_BIN/mqstore" diff "$home/$master/store" "$home/$slave/store" >"$work/diff" 2>&1 || status=$?
row_if $status "master's and slave's records" identical "DIFFERENT: $(head -n 1 "$work/diff")"

if $keep; then
    must "cluster started again" "$cluster" up $layout
    row "the cluster is running; stop it: deploy/cluster.sh down" "NAMESRV_ADDR=$NAMESRV_ADDR"
fi
finish
