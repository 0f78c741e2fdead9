#!/usr/bin/env bash
# Are the reference pages what the programs print from their tables? --fix writes them.
#
#   reference.sh BIN_DIR [--fix]
set -euo pipefail
bin=$1
cd "$(dirname "$0")/.."

page() { # program
    case $1 in
    mqadmin) "$bin/mqadmin" --reference ;;
    completion) "$bin/mqadmin" --completion ;;
    *) printf '# %s: configuration\n\nPrinted from the configuration table by `%s --config-reference`.\n\n' "$1" "$1"
        printf 'Durations: `500ms`, `15s`, `10m`, `2h`, `3d`; a bare number is milliseconds unless its row says otherwise.\n'
        printf 'Sizes: bytes, or `64KiB`, `4MiB`, `1GiB`. Live: `mqadmin updateBrokerConfig` changes it in a running broker.\n\n'
        "$bin/$1" --config-reference | sed 's/[[:space:]]*$//' ;;
    esac
}

status=0
# Every request and code of the wire stands in the protocol's tables.
requests=$(sed -n '/^message Request {/,/^}/p' proto/ternmq.proto | sed -n 's/^    [A-Za-z]* \([a-z_]*\) = \([0-9]*\);.*/| \2 | \1 |/p')
codes=$(sed -n '/^enum Code {/,/^}/p' proto/ternmq.proto | sed -n 's/^  \([A-Z_]*\) = \([0-9]*\);.*/| \2 | \1 |/p')
while read -r row; do
    grep -qF -- "$row" docs/protocol.md && continue
    echo "docs/protocol.md has no row $row" >&2
    status=1
done <<<"$requests
$codes"

for what in mqnamesrv:docs/reference/mqnamesrv.md mqbroker:docs/reference/mqbroker.md \
    mqadmin:docs/reference/mqadmin.md completion:deploy/completion/mqadmin.bash; do
    file=${what#*:}
    if [ "${2:-}" = --fix ]; then
        page "${what%%:*}" >"$file"
    elif ! diff -u "$file" <(page "${what%%:*}"); then
        echo "$file is not what ${what%%:*} prints: tests/reference.sh BIN_DIR --fix" >&2
        status=1
    fi
done
exit $status
