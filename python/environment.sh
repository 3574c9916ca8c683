# Sourced by ./dev: Python environments for the package and its tests, and torch in them.

torch_version=2.13.0

# make_environment <folder> <interpreter> <folder of the package>: an empty one; its programs find the package in the tree.
# Made anew for another interpreter.
make_environment() {
    local folder=$1 interpreter=$2 package=$3 base site
    base=$("$interpreter" -c 'import sys; print(sys.version, sys.base_prefix)')
    [ "$(cat "$folder/.base" 2>/dev/null || true)" = "$base" ] && return 0
    rm -rf "$folder"
    mkdir -p "${folder%/*}"
    step "environment ${folder##*/}" "$interpreter" -m venv "$folder"
    site=$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    echo "$package" >"$site/pccl-tree.pth"
    echo "$base" >"$folder/.base"
}

# install_requirements <folder> <file>: once for each content of the file.
install_requirements() {
    local folder=$1 file=$2 wanted stamp
    stamp="$folder/.${file//\//-}"
    wanted=$(sha1sum <"$file")
    [ "$(cat "$stamp" 2>/dev/null || true)" = "$wanted" ] && return 0
    step "install $file into ${folder##*/}" "$folder/bin/pip" install --quiet -r "$file"
    echo "$wanted" >"$stamp"
}

has_torch() { "$1/bin/python" -I -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is None)'; }

# install_torch <folder>: the build of torch for the CPU, and the data of the examples with it, if pip finds that build. A torch
# that is there already and not from here stays. Nothing remembers a failure, so the next call tries again.
install_torch() {
    local folder=$1 index=() log="$logs/install-torch.log"
    if has_torch "$folder"; then
        [ -f "$folder/.torch" ] || return 0
        [ "$(cat "$folder/.torch")" != "$torch_version" ] || return 0
    fi
    [ -z "${PCCL_TORCH_INDEX_URL:-}" ] || index=(--extra-index-url "$PCCL_TORCH_INDEX_URL")
    mkdir -p "$logs"
    say "torch for the CPU, if pip finds it: about 1.2 GB on the disk"
    # Builds for the CPU alone have this local version. Without it pip would take the build with CUDA: several GB, which some
    # versions of pip fetch even in a dry run.
    if "$folder/bin/pip" install --quiet --retries 1 "${index[@]}" "torch==$torch_version+cpu" scikit-learn >"$log" 2>&1; then
        echo "$torch_version" >"$folder/.torch"
        say "torch $torch_version is installed"
    elif [ -n "${PCCL_TORCH_INDEX_URL:-}" ]; then
        tail -n 5 "$log" >&2
        misuse "PCCL_TORCH_INDEX_URL=$PCCL_TORCH_INDEX_URL: torch==$torch_version+cpu could not be installed from there"
    elif ! has_torch "$folder"; then
        say "$(torch_hint)"
    fi
}

torch_hint() {
    printf '%s' "torch is not installed, because pip finds no build for the CPU (build/log/install-torch.log has its words); what" \
        " needs torch is skipped. To have it, set PCCL_TORCH_INDEX_URL to the index of CPU builds that PyTorch's install page" \
        " names"
}
