#!/usr/bin/env bash
# Fault rounds: a checker sends and receives while nodes die, hang and lose each other; nothing acknowledged may
# be lost, reordered or altered, no committed offset may fall, and afterwards the stores of each set agree.
#
#   rounds.sh --rounds N [--seed S] [--layout L] [--kinds K,…] [-o key=value]…
#
#   --layout L    as deploy/cluster.sh has them (1m-1s-sync)
#   --kinds K,…   kill-master, kill-slave, kill-both, pause-master, pause-slave, cut-link (between master and
#                 slave), cut-clients (clients and master); all that the layout and the machine allow. Cutting
#                 needs root and network namespaces; then every node and the clients have one of their own.
#   --check C     what is sent, and what else may not be: plain; orderly (read by members that come and go; messages
#                 of a queue that overlap); delayed (up to 5 s; early ones); transactional (asked about after 1 s;
#                 delivered ones that were not committed); filtered (ones that do not match, or are withheld);
#                 retry (listeners fail a third of the deliveries, four times at most; ones that are neither consumed
#                 nor dead letters, that come too often, or are dead too early)
#   -o key=value  for the brokers
#
# A round: 0.2 to 2 s of load, the fault, 0.2 to 3 s (a pause now and then up to 20 s), the fault undone, then
# until the cluster is in sync again. Kinds come in shuffled turns, so N = 3 × kinds has each three times.
# Prints the seed first, a row per round (back_ms: from undoing until in sync) and what the checker found. The
# same seed repeats the choices, not the scheduling. At the end the masters are killed once more, and the slaves
# alone must show everything; then all stores are verified and compared. Exit 1 when anything was found; the
# directory stays then.
#
# ASYNC_MASTER: a killed master comes back with its own disk, so what may be lost is what its slaves lacked at
# the kills; that lag is shown (lag_b), and with a lag of 0 nothing may be lost here either.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../deploy/lib.sh
. "$(dirname "$0")/../../deploy/lib.sh"
# shellcheck source-path=SCRIPTDIR source=netns.sh
. "$(dirname "$0")/netns.sh"

body_bytes=600
slack_ms=3000     # what a round takes beyond its plan, for how long the checker is told to send
sync_seconds=90   # until the cluster must be in sync again
all_checks=(plain orderly delayed transactional filtered retry)
all_kinds=(kill-master kill-slave kill-both pause-master pause-slave cut-link cut-clients)

rounds='' seed=$((RANDOM * 32768 + RANDOM)) layout=1m-1s-sync kinds='' check=plain overrides=()
wrong() { printf 'rounds.sh: %s; see rounds.sh --help\n' "$*" >&2; exit 2; }
while [ $# -gt 0 ]; do
    case $1 in
    --rounds) rounds=${2:-} ;;
    --seed) seed=${2:-} ;;
    --layout) layout=${2:-} ;;
    --kinds) kinds=${2:-} ;;
    --check) check=${2:-} ;;
    -o) overrides+=(-o "${2:-}") ;;
    -h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' "$0" | sed '$d'; exit 0 ;;
    *) wrong "unknown option $1" ;;
    esac
    [ $# -ge 2 ] || wrong "$1 needs a value"
    shift 2
done
[[ $rounds =~ ^[1-9][0-9]*$ ]] || wrong "--rounds needs a number"
[[ $seed =~ ^[0-9]+$ ]] || wrong "--seed needs a number"
[[ " ${all_checks[*]} " == *" $check "* ]] || wrong "--check: '$check' is none of ${all_checks[*]}"

cluster=$TERNMQ_SOURCE/deploy/cluster.sh
failed=0 finished=false checker='' client=()

# What the check asks of mqbench verify and of the brokers; its own findings, which must be 0, and figures.
check_options=() check_overrides=() check_findings=() check_figures=()
case $check in
orderly) check_options=(--orderly) check_findings=(overlapped) check_figures=(moves) ;;
delayed)
    check_options=(--delayed 5000) check_findings=(early) check_figures=(max_late_ms max_late_in_all_ms) ;;
transactional)
    check_options=(--transactional) check_findings=(wrongly_delivered) check_figures=(rolled_back checks abandoned)
    check_overrides=(-o transactionTimeOut=1000 -o transactionCheckInterval=1000) ;;
filtered)
    check_options=(--filter) check_findings=(wrongly_filtered)
    check_figures=(delivered_by_tag delivered_by_condition) ;;
retry)
    check_options=(--fail-rate 33) check_findings=(beyond_count wrongly_dead redelivered_unexplained)
    check_figures=(retried dead_lettered consumed_and_dead redelivered forked send_backs_unanswered) ;;
esac

# ---- what will be done: drawn first and from the seed alone ----

sets=(broker-a)
[[ $layout != 2* ]] || sets=(broker-a broker-b)
if no_netns=$(netns_available 2>&1); then netns=true; else netns=false; fi

possible() {
    case $1 in
    cut-*) $netns || { echo "rounds.sh: $1 skipped: $no_netns" >&2; return 1; } ;;
    esac
    case $1 in
    kill-slave | kill-both | pause-slave | cut-link) [ "$layout" != 1m ] ;;
    esac
}

choose_kinds() {
    local kind
    chosen=()
    for kind in ${kinds//,/ }; do
        [[ " ${all_kinds[*]} " == *" $kind "* ]] || wrong "--kinds: '$kind' is none of ${all_kinds[*]}"
    done
    for kind in "${all_kinds[@]}"; do
        [ -z "$kinds" ] || [[ ",$kinds," == *",$kind,"* ]] || continue
        if possible "$kind"; then chosen+=("$kind"); fi
    done
    [ ${#chosen[@]} -gt 0 ] || die "none of the kinds can be done here"
}

between() { drawn=$(($1 + RANDOM % ($2 - $1 + 1))); }

draw_plan() {
    local round turn=() at
    for ((round = 1; round <= rounds; round++)); do
        [ ${#turn[@]} -gt 0 ] || turn=("${chosen[@]}")
        between 0 $((${#turn[@]} - 1)); at=$drawn
        plan_kind[round]=${turn[at]}
        turn=("${turn[@]:0:at}" "${turn[@]:at+1}")
        between 0 $((${#sets[@]} - 1)); plan_set[round]=${sets[drawn]}
        between 200 2000; plan_at[round]=$drawn
        between 200 3000; plan_hold[round]=$drawn
        between 0 3
        [[ ${plan_kind[round]} != pause-* || $drawn -ne 0 ]] || { between 3000 20000; plan_hold[round]=$drawn; }
    done
}

# ---- the faults ----

pid_of() { cat "$TERNMQ_HOME/$1/pid"; }

# Bytes that the set's slaves lack, as its master sees it.
ha_values() { # KEY SET, as its master says
    local host=()
    ! $netns || host=(ip netns exec "$(netns_name "$2-0")")
    timeout 2 "${host[@]}" "$TERNMQ_BIN/mqadmin" haStatus -b "${address[$2-0]}" --json 2>/dev/null | json_values "$1"
}
lag_of() { ha_values lagBytes "$1" | awk '{ sum += $1 } END { print sum + 0 }'; }

# In sync, said of now: every master has heard its slave since then. After a cut TCP is silent for as long again,
# and meanwhile nobody has noticed; a master that dies then was alone with what it promised last.
in_sync_since() { # MS
    local set asked age deadline=$((SECONDS + sync_seconds))
    if [ "$layout" != 1m ]; then
        for set in "${sets[@]}"; do
            until asked=$(now_ms) && age=$(ha_values heardAgeMs "$set" | sort -n | head -n 1) && [ -n "$age" ] &&
                [ $((asked - age)) -ge "$1" ]; do
                [ "$SECONDS" -lt "$deadline" ] || { echo "rounds.sh: $set does not hear its slave" >&2; return 1; }
                sleep 0.05
            done
        done
    fi
    "$cluster" wait "$sync_seconds"
}

# The fault itself. A node that does not die in time ends the run: nothing after it would mean anything.
inject() {
    case $1 in
    kill-master) "$cluster" kill "$2-0" ;;
    kill-slave) "$cluster" kill "$2-1" ;;
    kill-both) "$cluster" kill "$2-0" "$2-1" ;;
    pause-master) kill -STOP "$(pid_of "$2-0")" ;;
    pause-slave) kill -STOP "$(pid_of "$2-1")" ;;
    cut-link) netns_cut "$2-0" "$2-1" ;;
    cut-clients) netns_cut "$2-0" clients ;;
    esac
}
undo() {
    case $1 in
    kill-master) "$cluster" start "$2-0" ;;
    kill-slave) "$cluster" start "$2-1" ;;
    kill-both) "$cluster" start "$2-0" "$2-1" ;;
    pause-master) kill -CONT "$(pid_of "$2-0")" ;;
    pause-slave) kill -CONT "$(pid_of "$2-1")" ;;
    cut-link) netns_heal "$2-0" "$2-1" ;;
    cut-clients) netns_heal "$2-0" clients ;;
    esac
}

pause_ms() { sleep "$(($1 / 1000)).$(printf '%03d' $(($1 % 1000)))"; }

# ---- the checker: one for as many rounds as its sending phase lasts ----

segment=0 load_end=0
total_acked=0 total_lost=0 allowed_lost=0

start_load() {
    local round=$1 total_ms=2000 mode=(--mode sync)
    for (( ; round <= rounds; round++)); do
        total_ms=$((total_ms + plan_at[round] + plan_hold[round] + slack_ms))
    done
    segment=$((segment + 1))
    case $check in
    delayed | transactional) ;; # travel alone
    *) [ $((segment % 2)) -eq 1 ] || mode=(--mode batch --batch 8) ;;
    esac
    timeout $((total_ms / 1000 + 300)) "${client[@]}" "$TERNMQ_BIN/mqbench" verify -n "$NAMESRV_ADDR" \
        -t "Rounds$segment" --seconds $((total_ms / 1000)) "${mode[@]}" "${check_options[@]}" \
        --size "$body_bytes" --producers 2 --drain 60 --state "$work/state$segment" --json >"$work/verdict$segment" 2>"$work/errors$segment" &
    checker=$!
    load_end=$(($(now_ms) + total_ms))
}

found() { json_values "$1" <"$work/verdict$segment" | head -n 1; }

# Waits for the checker and judges what it says.
finish_load() {
    local status=0 key value bad=''
    wait "$checker" || status=$?
    checker=''
    for key in acked lost reordered altered duplicated_unexplained offset_regressions "${check_findings[@]}"; do
        value=$(found "$key")
        [ -n "$value" ] || { bad+=" no verdict (exit status $status)"; break; }
        case $key in
        acked) total_acked=$((total_acked + value)); [ "$value" -gt 0 ] || bad+=" nothing acknowledged" ;;
        lost) total_lost=$((total_lost + value)) ;;
        *) [ "$value" -eq 0 ] || bad+=" $key $value" ;;
        esac
    done
    [ "$total_lost" -le "$allowed_lost" ] || bad+=" lost $total_lost, at most $allowed_lost may be"
    [ -n "$bad" ] || [ "$status" -eq 0 ] || [ "$total_lost" -gt 0 ] || bad=" exit status $status"
    local row
    row="checker $segment: acked $(found acked)  lost $(found lost)  reordered $(found reordered)"
    row+="  altered $(found altered)  offset_regressions $(found offset_regressions)"
    row+="  duplicated $(found duplicated) (unexplained $(found duplicated_unexplained))"
    row+="  unacked_but_present $(found unacked_but_present)  longest pause: sending $(found send) ms,"
    row+=" receiving $(found receive) ms, with something acknowledged to come $(found max_wait_ms) ms"
    for key in "${check_findings[@]}" "${check_figures[@]}"; do row+="  $key $(found "$key")"; done
    printf '%s%s\n' "$row" "${bad:+  FAILED:$bad}"
    [ -z "$bad" ] || { failed=$((failed + 1)); cat "$work/errors$segment" >&2; }
}

# ---- the run ----

# A failed run keeps its files; a run that was broken off, too.
cleanup() {
    [ -z "$checker" ] || kill "$checker" 2>/dev/null || true
    if $finished && [ "$failed" -eq 0 ]; then
        "$cluster" destroy --yes >/dev/null 2>&1 || echo "rounds.sh: could not stop the cluster" >&2
        netns_destroy
        rm -rf "$work"
    else
        "$cluster" down >/dev/null 2>&1 || echo "rounds.sh: could not stop the cluster" >&2
        netns_destroy
        printf 'rounds.sh: stores and logs are kept in %s (seed %s)\n' "$work" "$seed" >&2
    fi
}

bring_up() {
    mkdir -p "$TERNMQ_HOME"
    if $netns; then
        local hosts=(namesrv-1) set
        [[ $layout != 2n* ]] || hosts+=(namesrv-2)
        for set in "${sets[@]}"; do
            hosts+=("$set-0")
            [ "$layout" = 1m ] || hosts+=("$set-1")
        done
        netns_create "${hosts[@]}" clients
        netns_hosts_file "$TERNMQ_HOME/hosts" "${hosts[@]}"
        client=(ip netns exec "$(netns_name clients)")
    fi
    "$cluster" up "$layout" -o mappedFileSizeCommitLog=16MiB -o maxMessageSize=1MiB \
        -o mappedFileSizeConsumeQueue=40000 "${check_overrides[@]}" "${overrides[@]}" >"$work/up" ||
        die "the cluster did not start"
    NAMESRV_ADDR=$(sed -n 's/^NAMESRV_ADDR=//p' "$work/up")
    local node at
    while read -r node _ at _; do address[$node]=$at; done < <(sed '1d; /=/d' "$work/up")
    "$cluster" wait "$sync_seconds" || die "the cluster is not in sync at the start"
}

play_round() {
    local round=$1 kind=${plan_kind[$1]} set=${plan_set[$1]} lag=- begin verdict=ok back=-
    pause_ms "${plan_at[round]}"
    if [[ $kind = kill-master || $kind = kill-both ]] && [ "$layout" != 1m ]; then
        lag=$(lag_of "$set")
        [[ $layout != *-async ]] || allowed_lost=$((allowed_lost + (lag + body_bytes - 1) / body_bytes))
    fi
    inject "$kind" "$set" || return 1
    pause_ms "${plan_hold[round]}"
    begin=$(now_ms)
    if undo "$kind" "$set" && in_sync_since "$(now_ms)"; then
        back=$(($(now_ms) - begin))
    else
        verdict=FAILED
        failed=$((failed + 1))
    fi
    printf '%5d %-12s %-9s %6d %7d %8s %9s %s\n' "$round" "$kind" "$set" "${plan_at[round]}" \
        "${plan_hold[round]}" "$back" "$lag" "$verdict"
    [ "$verdict" = ok ]
}

# With no load left, every slave gets to its master's end.
drained() {
    local set deadline=$((SECONDS + 20))
    [ "$layout" != 1m ] || return 0
    for set in "${sets[@]}"; do
        until [ "$(lag_of "$set")" = 0 ]; do
            if [ "$SECONDS" -ge "$deadline" ]; then
                echo "rounds.sh: $set: without load, a slave still lacks $(lag_of "$set") bytes" >&2
                return 1
            fi
            sleep 0.1
        done
    done
}

# With every master dead, the slaves alone must show everything that was acknowledged, in order.
read_from_slaves() {
    local masters=("${sets[@]/%/-0}") n bad=0 options=("${check_options[@]}")
    [[ $check != orderly && $check != retry ]] || options=() # slaves have no members
    if [ "$layout" = 1m ] || [ "$total_lost" -gt 0 ]; then return 0; fi
    "$cluster" kill "${masters[@]}" || return 1
    for ((n = 1; n <= segment; n++)); do
        if timeout 300 "${client[@]}" "$TERNMQ_BIN/mqbench" verify -n "$NAMESRV_ADDR" -t "Rounds$n" \
            --size "$body_bytes" --state "$work/state$n" "${options[@]}" --from-slave --json \
            >"$work/slaves$n" 2>"$work/slave-errors$n"; then
            printf 'slaves alone: all %s of checker %d\n' "$(json_values acked <"$work/slaves$n")" "$n"
        else
            echo "slaves alone: FAILED, checker $n: $(cat "$work/slaves$n" "$work/slave-errors$n")" >&2
            bad=$((bad + 1))
        fi
    done
    "$cluster" start "${masters[@]}" && "$cluster" wait "$sync_seconds" && [ $bad -eq 0 ]
}

# check_store NAME COMMAND…: what mqstore says, when it is not content.
check_store() {
    local what=$1
    shift
    if ! "$TERNMQ_BIN/mqstore" "$@" >"$work/$1-$what" 2>&1; then
        failed=$((failed + 1))
        printf '%s: mqstore %s FAILED\n' "$what" "$1" >&2
        tail -n 20 "$work/$1-$what" >&2
    fi
}

check_stores() {
    local set node
    "$cluster" down || { failed=$((failed + 1)); return; }
    for node in "$TERNMQ_HOME"/broker-*; do check_store "${node##*/}" verify "$node/store"; done
    [ "$layout" != 1m ] || return 0
    for set in "${sets[@]}"; do
        check_store "$set" diff "$TERNMQ_HOME/$set-0/store" "$TERNMQ_HOME/$set-1/store"
    done
}

printf 'seed %s\n' "$seed"
RANDOM=$seed
chosen=() plan_kind=() plan_set=() plan_at=() plan_hold=() drawn=0
declare -A address
choose_kinds
draw_plan
work=$(mktemp -d "${TMPDIR:-/tmp}/ternmq-rounds.XXXXXX")
export TERNMQ_HOME=$work/home
trap cleanup EXIT
trap 'exit 1' INT TERM
bring_up

printf '%5s %-12s %-9s %6s %7s %8s %9s %s\n' round kind set at_ms hold_ms back_ms lag_b verdict
for ((round = 1; round <= rounds; round++)); do
    # The load must last through the whole round.
    if [ -n "$checker" ] &&
        [ $(($(now_ms) + plan_at[round] + plan_hold[round] + 500)) -gt "$load_end" ]; then
        finish_load
        "$cluster" wait "$sync_seconds" || { failed=$((failed + 1)); break; }
    fi
    [ -n "$checker" ] || start_load "$round"
    play_round "$round" || break
done
[ -z "$checker" ] || { kill -INT "$checker" 2>/dev/null || true; finish_load; } # it need not send any longer
{ "$cluster" wait "$sync_seconds" && drained && read_from_slaves; } || failed=$((failed + 1))
check_stores
finished=true
printf '%d rounds of layout %s, check %s, %d messages acknowledged, %d lost (%d allowed), %d failed\n' \
    $((round - 1)) "$layout" "$check" "$total_acked" "$total_lost" "$allowed_lost" "$failed"
[ "$failed" -eq 0 ]
