#!/usr/bin/env bash
# Runs every fuzz target for a while, from seeds made by seeds.py and what earlier runs kept under
# build/fuzz/corpus. A crash leaves its input there and ends the run.
#
#   run.sh [--seconds S]     per target (20)
set -euo pipefail
. "$(dirname "$0")/../../deploy/lib.sh"

seconds=20
[ "${1:-}" != --seconds ] || seconds=$2
install_packages "$TERNMQ_SOURCE/deploy/packages.txt" "$TERNMQ_SOURCE/tests/packages.txt" "$TERNMQ_SOURCE/.ci/packages.txt"
build fuzz
cd "$TERNMQ_SOURCE/build/fuzz"
python3 "$TERNMQ_SOURCE/tests/fuzz/seeds.py" corpus
for target in bin/fuzz_*; do
    name=${target#bin/fuzz_}
    mkdir -p "corpus/$name" "crashes/$name"
    if ! "$target" -max_total_time="$seconds" -rss_limit_mb=1024 -timeout=5 -max_len=65536 -print_final_stats=1 \
        -artifact_prefix="crashes/$name/" "corpus/$name" >"crashes/$name/log" 2>&1; then
        tail -n 40 "crashes/$name/log" >&2
        die "fuzz target $name failed; inputs in build/fuzz/crashes/$name"
    fi
    printf 'fuzz %-10s %s runs\n' "$name" "$(sed -n 's/^stat::number_of_executed_units: *//p' "crashes/$name/log")"
done
