#!/usr/bin/env bash
# consume.sh <find_package|pkg_config|static|fetch_content> <cmake> <build folder> <source folder> <work folder>
# Builds and runs the program of a user against an installed tree (or, with fetch_content, the sources).
set -euo pipefail
mode=$1 cmake=$2 build=$3 source=$4 work=$5
consumers="$source/tests/consumers"
rm -rf "$work"
mkdir -p "$work"
prefix="$work/prefix"

if [ "$mode" != fetch_content ]; then
    "$cmake" --install "$build" --prefix "$prefix" >"$work/install.log"
    # An installed tree may be moved: nothing in it may name the place it was made for.
    mv "$prefix" "$work/moved"
    prefix="$work/moved"
    libdir=$(dirname "$(find "$prefix" -name libpccl.so)")
fi
case $mode in
    find_package)
        "$cmake" -G Ninja -S "$consumers/find_package" -B "$work/build" -DCMAKE_PREFIX_PATH="$prefix" >"$work/configure.log"
        "$cmake" --build "$work/build" >"$work/build.log"
        "$work/build/program" ;;
    pkg_config)
        export PKG_CONFIG_PATH="$libdir/pkgconfig"
        # shellcheck disable=SC2046
        cc -std=c99 -Wall -Wextra -Wpedantic -Werror "$consumers/program.c" -o "$work/program" \
            $(pkg-config --cflags --libs pccl)
        LD_LIBRARY_PATH="$libdir" "$work/program"
        [ "$(pkg-config --modversion pccl)" = "$(head -n 1 "$source/VERSION")" ] ;;
    static)
        export PKG_CONFIG_PATH="$libdir/pkgconfig"
        # shellcheck disable=SC2046
        cc -std=c99 -Wall -Wextra -Wpedantic -Werror "$consumers/program.c" -o "$work/program" \
            $(pkg-config --cflags pccl) "$libdir/libpccl.a" $(pkg-config --static --libs pccl | sed 's/-lpccl\b//')
        "$work/program"
        others=$(nm --defined-only --extern-only "$libdir/libpccl.a" | awk 'NF == 3 && $3 !~ /^pccl/ { print $3 }')
        [ -z "$others" ] || { printf 'libpccl.a shows more than the interface:\n%s\n' "$others" | head; exit 1; } ;;
    fetch_content)
        "$cmake" -G Ninja -S "$consumers/fetch_content" -B "$work/build" -DCMAKE_BUILD_TYPE=Release \
            -DFETCHCONTENT_SOURCE_DIR_PCCL="$source" >"$work/configure.log"
        "$cmake" --build "$work/build" --target program >"$work/build.log"
        "$(find "$work/build" -name program -type f -perm -u+x)" ;;
    *) echo "consume.sh: unknown way $mode" >&2; exit 2 ;;
esac
