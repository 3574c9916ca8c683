#!/usr/bin/env bash
# packages.sh <folder with the .deb files> <program.c> <work folder>
# Installs the packages in a fresh Debian 12 root and builds, with nothing but a C compiler and pkg-config, a program there.
# Needs root, debootstrap and Debian's packages.
set -euo pipefail
debs=$1 program=$2 work=$3
root="$work/root"
. "$(dirname "$0")/empty_root.sh"
trap 'remove_root "$root"' EXIT
rm -rf "$work"
make_empty_root "$root"
cp "$debs"/*.deb "$program" "$root/tmp/"
chroot "$root" sh -euc '
    export DEBIAN_FRONTEND=noninteractive
    apt-get -qq update
    apt-get -qq install -y --no-install-recommends gcc libc6-dev pkg-config /tmp/*.deb >/tmp/install.log 2>&1 || { tail -n 20 /tmp/install.log; exit 1; }
    cd /tmp
    cc -std=c99 -Wall -Wextra -Wpedantic -Werror program.c $(pkg-config --cflags --libs pccl) -o program
    ./program
    cc -std=c99 program.c $(pkg-config --cflags pccl) -l:libpccl.a $(pkg-config --static --libs pccl | sed "s/-lpccl//") -o static
    ./static
    pccl-master --version
    ccoip_master --help >/dev/null
    sim-run --seeds 1..100
    test -e /usr/share/man/man1/pccl-master.1.gz -o -e /usr/share/man/man1/pccl-master.1
    apt-get -qq remove -y libpccl1 libpccl-dev pccl-tools >/dev/null
    ! find / -xdev -path /proc -prune -o -path /tmp -prune -o -name "*pccl*" -print | grep -v /var/lib/dpkg | grep . || { echo "the packages leave files behind"; exit 1; }
'
echo "packages: installed, used, removed"
