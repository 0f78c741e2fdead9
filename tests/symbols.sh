#!/usr/bin/env bash
# Is every global symbol defined in one library only? Brokers, nameservers and clients share a process in
# tests, and a static link would silently take the wrong one of two functions of the same name.
#
#   symbols.sh LIBRARY.a…
set -euo pipefail

twice=$(for library in "$@"; do
    nm -g --defined-only "$library" 2>/dev/null | awk -v library="${library##*/}" \
        'NF == 3 && $2 ~ /^[TDBR]$/ { print $3, library }'
done | sort -u | awk '{ count[$1]++; where[$1] = where[$1] " " $2 }
    END { for (symbol in count) if (count[symbol] > 1) print symbol ":" where[symbol] }')
if [ -n "$twice" ]; then
    printf 'defined twice:\n%s\n' "$twice"
    exit 1
fi
printf 'symbols: %d libraries, none defined twice\n' $#
