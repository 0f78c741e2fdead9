#!/usr/bin/env bash
# Installs into an empty prefix and builds a program against it, by pkg-config (shared and static) and by the
# CMake package, with what is installed only.
set -euo pipefail
. "$(dirname "$0")/../deploy/lib.sh"

install_packages "$TERNMQ_SOURCE/deploy/packages.txt"
build release
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix
cmake --install "$TERNMQ_SOURCE/build/release" --prefix "$prefix" >"$work/log" || { cat "$work/log"; die "install failed"; }

for program in mqnamesrv mqbroker mqadmin mqbench mqstore; do
    "$prefix/bin/$program" --version >/dev/null || die "$program does not run from the prefix"
done
for page in man1/mqadmin.1 man8/mqbroker.8; do [ -f "$prefix/share/man/$page" ] || die "$page is not installed"; done

cat >"$work/app.c" <<'APP'
#include <stdio.h>
#include <tern/tern.h>

int main(void)
{
    struct tern_message *message;
    if (tern_message_create("Orders", "x", 1, &message, NULL) != TERN_OK)
        return 1;
    printf("%s %s\n", tern_version(), tern_message_topic(message));
    tern_message_unref(message);
    return 0;
}
APP
pc=$(find "$prefix" -name ternmq.pc)
export PKG_CONFIG_PATH=${pc%/*}
lib=$(find "$prefix" -name libternmq.so)
# shellcheck disable=SC2046
cc -std=c11 -Wall -Werror -o "$work/shared" "$work/app.c" $(pkg-config --cflags --libs ternmq)
LD_LIBRARY_PATH=${lib%/*} "$work/shared"
# shellcheck disable=SC2046
cc -std=c11 -Wall -Werror -o "$work/static" "$work/app.c" $(pkg-config --cflags ternmq) "${lib%.so}.a" $(pkg-config --static --libs-only-l ternmq | sed 's/-lternmq//')
"$work/static"

mkdir "$work/cmake"
cp "$work/app.c" "$work/cmake/app.c"
cat >"$work/cmake/CMakeLists.txt" <<'APP'
cmake_minimum_required(VERSION 3.25)
project(app C)
find_package(TernMQ REQUIRED)
add_executable(app app.c)
target_link_libraries(app PRIVATE TernMQ::ternmq)
APP
cmake -S "$work/cmake" -B "$work/cmake/build" -DCMAKE_PREFIX_PATH="$prefix" >"$work/log" 2>&1 &&
    cmake --build "$work/cmake/build" >>"$work/log" 2>&1 || { cat "$work/log"; die "the CMake package does not work"; }
"$work/cmake/build/app"

exported=$(nm -D --defined-only "$lib" | awk '$2 ~ /^[TDBR]$/ { print $3 }' | grep -vc '^tern_' || true)
[ "$exported" -eq 0 ] || die "libternmq.so exports $exported symbols that are not tern_*"
echo "install: ok"
