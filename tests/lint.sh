#!/usr/bin/env bash
# The house's walls: who may include whom, which file may touch which library, and functions and words that
# have no place in the source. Prints each breach; exit 1 when there is one.
set -euo pipefail
cd "$(dirname "$0")/.."

breaches=0
breach() {
    printf '%s\n' "$1"
    breaches=$((breaches + 1))
}

# Files (pattern) TAB what they may include with quotes or from <tern/…> (pattern). The first match counts.
include_rules() {
    cat <<'E2'
include/tern/.*	tern/.*
lib/base/.*	base/.*|tern/(error|export)\.h
lib/rpc/.*	(base|rpc)/.*|proto/ternmq\.pb-c\.h|tern/(error|export)\.h
lib/client/.*	(base|rpc|client|tern)/.*
broker/store/.*	base/.*|broker/store/.*
broker/ha/.*	(base|rpc)/.*|broker/(ha|store)/.*
broker/(topics|groups|offsets|offset_journal|members|pull_stats|long_poll|ack_wait|named_table|broker_config|store_identity).*	base/.*|broker/.*
broker/.*	(base|rpc|broker)/.*
namesrv/.*	(base|rpc|namesrv)/.*
tools/mqstore/.*	base/.*|broker/store/.*|tools/mqstore/.*
tools/.*	(base|rpc|client|tern|tools)/.*
docs/examples/.*	tern/.*
E2
}

# Library header (pattern) TAB the only files that may include it.
library_walls() {
    cat <<'E2'
nng/.*	lib/rpc/link_nng[a-z_]*\.[ch]|tools/mqbench/echo\.c
protobuf-c/.*	lib/rpc/frame\.[ch]
yaml\.h	lib/base/config[a-z_]*\.[ch]
lz4frame\.h|zstd\.h	lib/client/compress\.c
isa-l.*	lib/base/[a-z_]*\.c|lib/client/compress\.c|broker/store/[a-z_]*\.c|tools/mqbench/verify_body\.c
md5\.h	lib/client/allocate_hash\.c
jansson\.h	lib/base/json\.[ch]|broker/[a-z_]*\.[ch]|namesrv/[a-z_]*\.[ch]|tools/.*\.[ch]
E2
}

# Pattern TAB why it may not occur.
forbidden() {
    cat <<'E2'
\b(strcpy|strcat|sprintf|vsprintf|gets|atoi|atol|alloca)\(	an unbounded or unchecked function
\b(TODO|FIXME|XXX|HACK)\b	unfinished work
E2
}

mapfile -t files < <(git ls-files --cached --others --exclude-standard 'include/*.h' 'lib/*.[ch]' \
    'broker/*.[ch]' 'namesrv/*.[ch]' 'tools/*.[ch]' 'docs/examples/*.c')

mapfile -t rules < <(include_rules)
for file in "${files[@]}"; do
    allowed=
    for rule in "${rules[@]}"; do
        if [[ $file =~ ^(${rule%%$'\t'*})$ ]]; then
            allowed=${rule#*$'\t'}
            break
        fi
    done
    [ -n "$allowed" ] || { breach "$file: its folder has no rule in tests/lint.sh"; continue; }
    while IFS=: read -r number path; do
        [[ $path =~ ^($allowed)$ ]] || breach "$file:$number: may not include $path"
    done < <(sed -nE '/^#include ("|<tern\/)/{=;s/^#include ["<]([^">]*)[">].*/\1/p}' "$file" | paste -d: - -)
done

while IFS=$'\t' read -r header owners; do
    while IFS=: read -r file number _; do
        [[ $file =~ ^($owners)$ ]] || breach "$file:$number: this library stays behind $owners"
    done < <(grep -nE "^#include <$header>" "${files[@]}")
done < <(library_walls)

while IFS=$'\t' read -r pattern why; do
    while IFS=: read -r file number _; do
        breach "$file:$number: $why"
    done < <(grep -nE "$pattern" "${files[@]}")
done < <(forbidden)

if [ "$breaches" -gt 0 ]; then
    printf 'lint: %d breaches\n' "$breaches"
    exit 1
fi
printf 'lint: %d files, no breach\n' "${#files[@]}"
