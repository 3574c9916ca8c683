#!/usr/bin/env bash
# debian_sources.sh <folder> <source package>...
# Downloads the newest version of each source package from the Debian repositories that apt uses on this machine, and
# unpacks it to <folder>/<package>, with Debian's patches applied. Skips packages that exist there already. Needs
# dpkg-dev, but no root: apt keeps its lists and downloads in <folder>/apt. It checks signatures as usual.
set -euo pipefail
mkdir -p "$1"
folder=$(cd "$1" && pwd)
shift
missing=()
for package in "$@"; do
    [ -d "$folder/$package" ] || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

mkdir -p "$folder/apt/lists/partial" "$folder/apt/archives"
apt-get indextargets --format 'deb-src $(REPO_URI) $(CODENAME) $(COMPONENT)' 'Identifier: Packages' 'Origin: Debian' |
    sort -u >"$folder/apt/sources.list"
apt=(apt-get -qq -o Dir::Etc::SourceList="$folder/apt/sources.list" -o Dir::Etc::SourceParts=- -o APT::Sandbox::User=
    -o Dir::State::Lists="$folder/apt/lists" -o Dir::Cache="$folder/apt" -o Dir::Cache::Archives="$folder/apt/archives")
"${apt[@]}" update
for package in "${missing[@]}"; do
    rm -rf "$folder/apt/unpacked"
    mkdir "$folder/apt/unpacked"
    (
        cd "$folder/apt/unpacked"
        "${apt[@]}" source "$package"  # also unpacks and patches
    )
    mv "$folder/apt/unpacked/$package"-*/ "$folder/$package"
done
