#!/usr/bin/env bash
# bare.sh <tree> <work folder> [options of ./dev test]
# The first five minutes on another machine: `./dev demo` and `.ci/run` in a fresh Debian 12 root that has the sources and
# nothing else, with an empty environment and the package index that pip uses by itself. With options, `./dev test` and these
# take the place of `.ci/run`. Its mounts and processes end with this script. Needs root, debootstrap and the network.
# In braces: bash reads them whole, so that the script may change while it runs.
{
set -euo pipefail
tree=$1 work=$2
shift 2
# A namespace of its own for mounts and processes: whatever happens, nothing is left over, and nothing of this machine's /dev is
# below the folder that is removed.
if [ "${PCCL_BARE_INSIDE:-}" != 1 ]; then
    status=0
    PCCL_BARE_INSIDE=1 unshare --mount --pid --fork --kill-child "$BASH" "$0" "$tree" "$work" "$@" || status=$?
    rm -rf --one-file-system "$work/root"
    exit "$status"
fi
root="$work/root"
. "$(dirname "$0")/empty_root.sh"
rm -rf --one-file-system "$work"
make_empty_root "$root"
mkdir -p "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$root/dev/pts"
ln -sf pts/ptmx "$root/dev/ptmx"
mount -t tmpfs tmpfs "$root/dev/shm"
# Debian's installer writes this file, debootstrap does not.
printf '127.0.0.1 localhost\n::1 localhost\n' >"$root/etc/hosts"
# What the administrator of this machine has set for pip, but not what its users have.
[ ! -e /etc/pip.conf ] || cp -L /etc/pip.conf "$root/etc/pip.conf"
mkdir "$root/pccl"
(cd "$tree" && git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' file; do
    [ ! -f "$file" ] || printf '%s\0' "$file"
done | tar --null --files-from=- -cf -) | tar -C "$root/pccl" -xf -

bare() { echo "bare: $*"; chroot "$root" /usr/bin/env -i "$@"; }
bare /pccl/dev demo
if [ $# -gt 0 ]; then bare /pccl/dev test "$@"; else bare CI=true /pccl/.ci/run; fi
echo "bare: ./dev demo and $([ $# -gt 0 ] && echo "./dev test $*" || echo .ci/run) in an empty root"
exit
}
