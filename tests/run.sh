#!/usr/bin/env bash
# All tests: installs what is missing, builds, runs. Its last line is "N tests passed, M failed, K skipped".
#
#   run.sh [--fast] [--preset P] [--filter REGEX]
#     --fast         leave out the long ones (label "long")
#     --preset P     dev (default), release, asan or tsan
#     --filter R     only tests whose name matches
set -euo pipefail
. "$(dirname "$0")/../deploy/lib.sh"

preset=dev
select=()
while [ $# -gt 0 ]; do
    case $1 in
    --fast) select+=(-LE long) ;;
    --preset) preset=${2:?--preset needs a name}; shift ;;
    --filter) select+=(-R "${2:?--filter needs a pattern}"); shift ;;
    -h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' "$0" | sed '$d'; exit 0 ;;
    *) printf 'run.sh: unknown option %s\n' "$1" >&2; exit 2 ;;
    esac
    shift
done

install_packages "$TERNMQ_SOURCE/deploy/packages.txt" "$TERNMQ_SOURCE/tests/packages.txt"
build "$preset"

export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1:abort_on_error=1}
export LSAN_OPTIONS=${LSAN_OPTIONS:-suppressions=$TERNMQ_SOURCE/tests/lsan.supp:print_suppressions=0}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=1:second_deadlock_stack=1}
[ ! -f "$TERNMQ_SOURCE/tests/tsan.supp" ] || TSAN_OPTIONS+=:suppressions=$TERNMQ_SOURCE/tests/tsan.supp

jobs=$(($(nproc) + 1)) # many tests wait more than they work
report=$(mktemp)
trap 'rm -f "$report"' EXIT
status=0
ctest --test-dir "$TERNMQ_SOURCE/build/$preset" --output-on-failure --no-tests=error -j "$jobs" \
    --output-junit "$report" "${select[@]}" || status=$?

# The report spreads the attributes of <testsuite> over several lines.
attribute() { tr '\n\t' '  ' <"$report" | sed -n "s/.*<testsuite [^>]*[[:space:]]$1=\"\([0-9]*\)\".*/\1/p"; }
total=$(attribute tests)
failed=$(attribute failures)
skipped=$(attribute skipped)
disabled=$(attribute disabled)
skipped=$((skipped + disabled))
printf '%d tests passed, %d failed, %d skipped\n' $((total - failed - skipped)) "$failed" "$skipped"
exit $status
