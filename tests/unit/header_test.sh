#!/bin/sh
# Compiles each public header alone, as each language level that users may have, with all warnings as errors.
# Usage: header_test.sh C_COMPILER CXX_COMPILER INCLUDE_FOLDER
set -u
c_compiler=$1
cxx_compiler=$2
include_folder=$3
failures=0
for header in ccoip_inet.h ccoip.h pccl.h pccl/ext.h; do
    for level in c99 c11; do
        printf '#include "%s"\ntypedef int keep_unit_non_empty;\n' "$header" |
            "$c_compiler" -std=$level -Wall -Wextra -Wpedantic -Wstrict-prototypes -Werror -fsyntax-only \
                -I "$include_folder" -x c - || { echo "FAILED: $header as $level"; failures=1; }
    done
    for level in c++17 c++20; do
        printf '#include "%s"\n' "$header" |
            "$cxx_compiler" -std=$level -Wall -Wextra -Wpedantic -Werror -fsyntax-only \
                -I "$include_folder" -x c++ - || { echo "FAILED: $header as $level"; failures=1; }
    done
done
exit $failures
