#!/usr/bin/env bash
# From nothing to a working broker, and proof that it keeps what it acknowledged: installs what is missing,
# builds, starts a nameserver and a broker (SYNC_FLUSH) on loopback, pipes a real text file through a topic,
# kills the broker with SIGKILL half-way and starts it again, compares what came out with what went in, then
# kills it once more under load and checks every acknowledged message.
#
#   quickstart.sh [--keep]     --keep: leave the cluster running and its state in place
set -euo pipefail
. "$(dirname "$0")/lib.sh"

keep=false
case ${1:-} in
"") ;;
--keep) keep=true ;;
-h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' "$0" | sed '$d'; exit 0 ;;
*) printf 'quickstart.sh: unknown option %s\n' "$1" >&2; exit 2 ;;
esac

install_packages "$TERNMQ_SOURCE/deploy/packages.txt"
printf 'building …\n' >&2
build "$TERNMQ_PRESET"

work=$(mktemp -d "${TMPDIR:-/tmp}/ternmq-quickstart.XXXXXX")
$keep || export TERNMQ_HOME=$work/home
cluster=$TERNMQ_SOURCE/deploy/cluster.sh
cleanup() {
    $keep || "$cluster" destroy --yes >/dev/null 2>&1 || printf 'quickstart.sh: could not stop the cluster\n' >&2
    rm -rf "$work"
}
trap cleanup EXIT

rows=()
row() { rows+=("$(printf '%-44s %s' "$1" "$2")"); }
begin=$SECONDS

"$cluster" up 1m -o mappedFileSizeCommitLog=256MiB >"$work/up" || die "the cluster did not start"
NAMESRV_ADDR=$(sed -n 's/^NAMESRV_ADDR=//p' "$work/up")
export NAMESRV_ADDR
mqadmin=$TERNMQ_BIN/mqadmin
row "nameserver and broker started" ok

# A real text: the licences that every Debian has, else the project's own.
cat /usr/share/common-licenses/* >"$work/in" 2>/dev/null || true
[ -s "$work/in" ] || cat "$TERNMQ_SOURCE/LICENSE" "$TERNMQ_SOURCE"/docs/*.md >"$work/in"
lines=$(wc -l <"$work/in")
half=$((lines / 2))
"$mqadmin" updateTopic -c DefaultCluster -t Quickstart -r 1 -w 1 >/dev/null
row "topic Quickstart registered" ok

head -n "$half" "$work/in" | "$mqadmin" sendMessage -t Quickstart --lines >/dev/null
row "first $half lines sent" acknowledged
"$cluster" kill broker-a-0
row "broker killed with SIGKILL" "$("$cluster" status | awk '$1 == "broker-a-0" { print $5 }')"
"$cluster" start broker-a-0
tail -n +$((half + 1)) "$work/in" | "$mqadmin" sendMessage -t Quickstart --lines >/dev/null
row "broker started again, other $((lines - half)) lines sent" acknowledged

"$mqadmin" consumeMessage -t Quickstart -g quickstart --body-only -c "$lines" --idle-exit 10000 >"$work/out" ||
    printf 'quickstart.sh: the consumer got fewer lines than were sent\n' >&2
if cmp -s "$work/in" "$work/out"; then
    row "$lines lines out = $lines lines in" identical
    verdict=0
else
    row "lines out: $(wc -l <"$work/out") of $lines" DIFFERENT
    verdict=1
fi

# Under load: the checker sends for a few seconds, in the middle of which the broker dies and comes back.
"$TERNMQ_BIN/mqbench" verify -t QuickstartLoad --seconds 6 --mode batch --size 512 --json >"$work/verify" &
checker=$!
sleep 2
"$cluster" kill broker-a-0
"$cluster" start broker-a-0
if wait "$checker"; then
    row "acknowledged under load and a SIGKILL" "$(grep -o '"acked":[0-9]*' "$work/verify" | cut -d: -f2)"
    row "of these lost, reordered or altered" 0
else
    row "checker" "FAILED: $(cat "$work/verify")"
    verdict=1
fi

printf '\n'
printf '%s\n' "${rows[@]}"
printf '%-44s %s\n' "seconds" "$((SECONDS - begin))"
$keep && printf '\nthe cluster is running; NAMESRV_ADDR=%s; stop it with deploy/cluster.sh down\n' "$NAMESRV_ADDR"
exit $verdict
