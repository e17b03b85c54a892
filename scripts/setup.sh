# Shared by ./demo and ./test: what they need, building, and cleaning up.
# Sourced, POSIX sh. The caller has set `root` to the repository's folder.

# What is missing so far: Debian packages, and words for a person.
missing_packages=
missing_tools=

# need_program NAME PACKAGE: notes PACKAGE if there is no program NAME.
need_program() {
    # ip and ethtool lie where an ordinary user's PATH does not lead.
    PATH=$PATH:/usr/sbin:/sbin command -v "$1" >/dev/null 2>&1 || note_missing "$1" "$2"
}

# need_file PATH PACKAGE: notes PACKAGE if there is no file PATH.
need_file() {
    [ -e "$1" ] || note_missing "$1" "$2"
}

note_missing() {
    missing_tools="$missing_tools $1"
    case " $missing_packages " in
    *" $2 "*) ;;
    *) missing_packages="$missing_packages $2" ;;
    esac
}

# What building Ashway and its handlers takes.
need_build_tools() {
    if ! command -v cargo >/dev/null 2>&1; then
        echo "error: there is no Rust toolchain" >&2
        echo "  hint: https://rustup.rs installs one; rust-toolchain.toml says which" >&2
        exit 2
    fi
    need_program cc gcc
    need_file /usr/include/stdio.h libc6-dev
    need_program clang-19 clang-19
    need_program wasm-ld-19 lld-19
}

# What running it in network namespaces takes.
need_network_tools() {
    need_program ip iproute2
    need_program ethtool ethtool
    need_program unshare util-linux
    # Any `nc` will do; the demonstration takes `socat` where there is none.
    command -v socat >/dev/null 2>&1 || need_program nc netcat-openbsd
}

# Installs what was noted as missing, if this is root; else says how, exit 2.
install_missing() {
    [ -n "$missing_packages" ] || return 0
    if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
        echo "error: missing:$missing_tools" >&2
        echo "  hint: apt-get install -y$missing_packages" >&2
        exit 2
    fi
    echo "Installing$missing_packages ..."
    # shellcheck disable=SC2086 # A list of packages.
    if ! { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q $missing_packages; }; then
        echo "error: cannot install$missing_packages" >&2
        exit 2
    fi
}

# Builds the programs and the handlers, with cargo's own progress.
build() {
    (
        cd "$root"
        echo "Building (the first time takes some minutes: Wasmtime is large) ..."
        cargo build --release
        cargo xtask handlers
    )
}

# run_and_clean COMMAND...: runs it, passes INT and TERM on, and removes what it
# made even if it was killed. Exits with its status.
run_and_clean() {
    "$@" &
    child=$!
    trap 'exit 130' INT
    trap 'exit 143' TERM
    trap 'status=$?; trap "" INT TERM; stop_child; exit $status' EXIT
    status=0
    wait "$child" || status=$?
    exit "$status"
}

# Everything a process makes carries its id: ashway-NAME-PID-... It stops its own
# children; what a kill left of its namespaces and folders goes here.
stop_child() {
    kill "$child" 2>/dev/null || true
    wait "$child" 2>/dev/null || true
    for space in /run/netns/ashway-*-"$child"-*; do
        [ -e "$space" ] && ip netns delete "${space##*/}"
    done
    rm -rf "${TMPDIR:-/tmp}"/ashway-*-"$child"-*
}
