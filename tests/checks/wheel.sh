#!/usr/bin/env bash
# wheel.sh <wheel> <work folder>
# Installs the wheel in a fresh Debian 12 root that has Python and numpy and nothing to build with, and uses it there: a
# master, two peers, its programs, the time of its import. Needs root, debootstrap and Debian's packages.
set -euo pipefail
wheel=$1 work=$2
root="$work/root"
. "$(dirname "$0")/empty_root.sh"
trap 'remove_root "$root"' EXIT
rm -rf "$work"
make_empty_root "$root"
cp "$wheel" "$(dirname "$0")/wheel_user.py" "$root/tmp/"
chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive sh -euc '
    apt-get -qq update
    apt-get -qq install -y --no-install-recommends python3-venv python3-numpy >/tmp/install.log 2>&1 || { tail -n 20 /tmp/install.log; exit 1; }
    for package in libprotobuf-lite32 libminiupnpc17 libsqlite3-dev libboost1.81-dev g++; do
        ! dpkg -s $package >/dev/null 2>&1 || { echo "$package is installed: this root shows nothing"; exit 1; }
    done
    python3 -m venv --system-site-packages /tmp/venv
    /tmp/venv/bin/pip install --quiet --no-index /tmp/*.whl
    cd /
    /tmp/venv/bin/python /tmp/wheel_user.py
'
echo "wheel: installed and used"
