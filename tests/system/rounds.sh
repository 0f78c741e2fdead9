#!/usr/bin/env bash
# Fault rounds: a checker sends and receives while nodes are killed; nothing acknowledged may be lost,
# reordered or altered, and no committed offset may fall.
#
#   rounds.sh --rounds N [--seed S] [--layout 1m] [--kinds kill-master] [--seconds T]
#
# Prints the seed and a line per round; exit 1 when any round found something. The same seed repeats the
# choices (which fault, when), not the scheduling.
set -euo pipefail
. "$(dirname "$0")/../../deploy/lib.sh"

rounds= seed=$((RANDOM * 32768 + RANDOM)) layout=1m kinds=kill-master seconds=3
wrong() { printf 'rounds.sh: %s\n' "$*" >&2; exit 2; }
while [ $# -gt 0 ]; do
    case $1 in
    --rounds) rounds=${2:-} ;;
    --seed) seed=${2:-} ;;
    --layout) layout=${2:-} ;;
    --kinds) kinds=${2:-} ;;
    --seconds) seconds=${2:-} ;;
    -h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' "$0" | sed '$d'; exit 0 ;;
    *) wrong "unknown option $1" ;;
    esac
    shift 2
done
[[ $rounds =~ ^[1-9][0-9]*$ ]] || wrong "--rounds needs a number"
[ "$layout" = 1m ] || wrong "--layout: 1m is the only one"
[ "$kinds" = kill-master ] || wrong "--kinds: kill-master is the only one"
RANDOM=$seed

work=$(mktemp -d "${TMPDIR:-/tmp}/ternmq-rounds.XXXXXX")
export TERNMQ_HOME=$work/home
cluster=$TERNMQ_SOURCE/deploy/cluster.sh
trap '"$cluster" destroy --yes >/dev/null 2>&1 || echo "rounds.sh: could not stop the cluster" >&2; rm -rf "$work"' EXIT

"$cluster" up "$layout" -o mappedFileSizeCommitLog=16MiB -o maxMessageSize=1MiB -o mappedFileSizeConsumeQueue=40000 \
    >"$work/up" || die "the cluster did not start"
NAMESRV_ADDR=$(sed -n 's/^NAMESRV_ADDR=//p' "$work/up")
export NAMESRV_ADDR

number_of() { grep -o "\"$1\":[0-9]*" "$work/verdict" | head -n 1 | cut -d: -f2; }
printf 'seed %s\n' "$seed"
printf '%5s %-12s %7s %9s %5s %9s %8s %10s %11s %9s %s\n' round fault at_ms acked lost reordered altered duplicated redelivered regressed verdict

failed=0
total_acked=0
for ((round = 1; round <= rounds; round++)); do
    mode=batch
    [ $((RANDOM % 2)) -eq 0 ] || mode=sync
    at_ms=$((RANDOM % (seconds * 700) + 200))
    "$TERNMQ_BIN/mqbench" verify -t "Rounds$((round % 4))" --seconds "$seconds" --mode "$mode" --size 600 \
        --producers 2 --json >"$work/verdict" 2>"$work/errors" &
    checker=$!
    sleep "$((at_ms / 1000)).$(printf '%03d' $((at_ms % 1000)))"
    "$cluster" kill broker-a-0
    "$cluster" start broker-a-0
    verdict=ok
    wait "$checker" || verdict=FAILED
    [ "$verdict" = ok ] || { failed=$((failed + 1)); cat "$work/errors" "$work/verdict" >&2; }
    acked=$(number_of acked)
    total_acked=$((total_acked + ${acked:-0}))
    printf '%5d %-12s %7d %9s %5s %9s %8s %10s %11s %9s %s\n' "$round" "kill/$mode" "$at_ms" "${acked:--}" \
        "$(number_of lost)" "$(number_of reordered)" "$(number_of altered)" "$(number_of duplicated)" \
        "$(number_of redelivered)" "$(number_of offset_regressions)" "$verdict"
done

"$cluster" down
if ! "$TERNMQ_BIN/mqstore" verify "$TERNMQ_HOME/broker-a-0/store" >"$work/store" 2>&1; then
    failed=$((failed + 1))
    tail -n 20 "$work/store" >&2
fi
printf '%d rounds, %d messages acknowledged, %d failed\n' "$rounds" "$total_acked" "$failed"
[ "$failed" -eq 0 ]
