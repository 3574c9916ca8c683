#!/usr/bin/env bash
# packages.sh <folder with the .deb files> <program.c> <work folder>
# Installs the packages in a fresh Debian 12 root and builds, with nothing but a C compiler and pkg-config, a program there.
# Needs root, debootstrap and Debian's packages.
set -euo pipefail
debs=$1 program=$2 work=$3
root="$work/root"
cleanup() { umount "$root/proc" 2>/dev/null || true; rm -rf "$root"; }
trap cleanup EXIT
rm -rf "$work"
mkdir -p "$work"
mirror=$(awk '$1 == "deb" && $3 == "bookworm" { sub(/^\[.*\] /, "", $0); print $2; exit }' /etc/apt/sources.list 2>/dev/null || true)
[ -n "$mirror" ] || mirror=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/*.sources 2>/dev/null | head -n 1)
debootstrap --variant=minbase bookworm "$root" ${mirror:+"$mirror"} >"$work/debootstrap.log"
for file in /etc/apt/sources.list /etc/apt/sources.list.d /etc/apt/apt.conf.d /etc/apt/auth.conf.d /etc/apt/trusted.gpg.d \
    /etc/resolv.conf /etc/ssl/certs; do
    [ -e "$file" ] && mkdir -p "$root$(dirname "$file")" && cp -rLT "$file" "$root$file"
done
mount -t proc proc "$root/proc"
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
