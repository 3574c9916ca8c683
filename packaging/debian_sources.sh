#!/usr/bin/env bash
# debian_sources.sh <folder> <source package>...
# Debian's sources of the installed versions, unpacked below the folder as <package>. Needs no root: apt works on lists of
# its own there, checks signatures as always, and dpkg-dev unpacks. What is there already is not fetched again.
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
        "${apt[@]}" source "$package"  # with Debian's patches
    )
    mv "$folder/apt/unpacked/$package"-*/ "$folder/$package"
done
