#!/usr/bin/env bash
# Is every C file formatted as .clang-format says? --fix formats them.
set -euo pipefail
cd "$(dirname "$0")/.."

formatter=$(command -v clang-format-14 || command -v clang-format || true)
[ -n "$formatter" ] || { echo 'format.sh: clang-format 14 is missing: apt-get install clang-format' >&2; exit 1; }
mapfile -t files < <(git ls-files --cached --others --exclude-standard '*.[ch]')
if [ "${1:-}" = --fix ]; then
    "$formatter" -i "${files[@]}"
else
    "$formatter" --dry-run --Werror "${files[@]}"
    printf 'format: %d files\n' "${#files[@]}"
fi
