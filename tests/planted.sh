# Sourced by the scripts that plant bugs: a copy of the tree, patches put into it and taken out again.
# The caller sets `root`, `work` (state, logs), `source` (the copy).

# bring_copy <path...>: the copy gets what git lists there; its folder build is left alone. Files that are the same keep their
# time, so little is built again. `state` names what was brought.
bring_copy() {
    local wanted="$work/wanted.txt" file
    mkdir -p "$source"
    git ls-files --cached --others --exclude-standard -- "$@" | sort -u |
        while read -r file; do [ -f "$file" ] && echo "$file"; done >"$wanted"
    while read -r file; do
        cmp -s "$file" "$source/$file" || { mkdir -p "$source/$(dirname "$file")" && cp "$file" "$source/$file"; }
    done <"$wanted"
    (cd "$source" && find . -path ./build -prune -o -type f -print | sed 's,^\./,,' | sort) | comm -23 - "$wanted" | while read -r file; do rm -f "$source/$file"; done
    state=$(while read -r file; do sha1sum "$file"; done <"$wanted" | sha1sum | cut -c 1-16)
}

# list_copied <pattern>: a name for the present state of the copied files whose path fits.
list_copied() { grep -P "$1" "$work/wanted.txt" | xargs sha1sum | sha1sum | cut -c 1-16; }

# field <patch> <name>: the line `Name: ...` at the head of a patch.
field() { sed -n "/^--- /q; s/^$2: //p" "$1" | head -n 1; }

# plant <patch>; false: it does not apply, see $work/apply.log. The ceiling keeps git apply from taking the paths as those of
# the repository around the copy.
plant() { (cd "$source" && GIT_CEILING_DIRECTORIES="$work" git apply --whitespace=nowarn "$1") 2>"$work/apply.log"; }

# pull_out <patch>: its files are those of the tree again.
pull_out() {
    local file
    for file in $(sed -n 's,^+++ b/\([^[:space:]]*\).*,\1,p' "$1"); do
        if [ -f "$root/$file" ]; then cp "$root/$file" "$source/$file"; else rm -f "$source/$file"; fi
    done
}
