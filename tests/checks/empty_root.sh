# Sourced. make_empty_root <folder>: a fresh Debian 12 root there, with this machine's package sources and certificates, in
# which /proc is mounted. remove_root <folder> takes it away. Needs root and debootstrap.

make_empty_root() {
    local root=$1 mirror file
    mkdir -p "$(dirname "$root")"
    mirror=$(awk '$1 == "deb" && $3 == "bookworm" { sub(/^\[.*\] /, "", $0); print $2; exit }' /etc/apt/sources.list 2>/dev/null || true)
    [ -n "$mirror" ] || mirror=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/*.sources 2>/dev/null | head -n 1)
    debootstrap --variant=minbase bookworm "$root" ${mirror:+"$mirror"} >"$root.log"
    for file in /etc/apt/sources.list /etc/apt/sources.list.d /etc/apt/apt.conf.d /etc/apt/auth.conf.d \
        /etc/apt/trusted.gpg.d /etc/resolv.conf /etc/ssl/certs /usr/local/share/ca-certificates; do
        [ -e "$file" ] && mkdir -p "$root$(dirname "$file")" && cp -rLT "$file" "$root$file"
    done
    mount -t proc proc "$root/proc"
}

remove_root() {
    umount "$1/proc" 2>/dev/null || true
    rm -rf --one-file-system "$1"
}
