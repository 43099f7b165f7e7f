#!/usr/bin/env bash
# The quick start of the README in a bare Debian 12, or the guide for Debian: `make e2e-newcomer`, as root.
#
#   scripts/e2e_newcomer.sh [--user root|sudo] [--demo "--once"]
#   scripts/e2e_newcomer.sh --user systemd        every block of docs/operations/install-debian.md, below a systemd
#
# The Debian is a folder with nothing but git, make and (for `sudo`) a user who may use it; it has mounts and processes of
# its own, and the network of this host. The commit that is checked out is what runs. Nothing of it stays but its log.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

user=sudo demo=--once
while [ $# -gt 0 ]; do
    case "$1" in
        --user) user=$2; shift 2 ;;
        --demo) demo=$2; shift 2 ;;
        *) echo "usage: scripts/e2e_newcomer.sh [--user root|sudo|systemd] [--demo ARGS]" >&2; exit 2 ;;
    esac
done
[ "$(id -u)" = 0 ] || { echo "newcomer: it mounts, so it is for root" >&2; exit 2; }

readonly CACHE=$PWD/.cache/newcomer
readonly CERTIFICATES=/etc/ssl/certs/ca-certificates.crt
say() { printf 'newcomer: %s\n' "$*"; }

make_debian() {
    command -v debootstrap >/dev/null || { say "debootstrap is missing: apt-get install debootstrap" >&2; exit 2; }
    local mirror
    mirror=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Identifier: Packages' |
        awk '$2 == "bookworm" && $3 == "main" { print $1; exit }')
    [ -n "$mirror" ] || { say "apt of this host has no sources of Debian 12" >&2; exit 2; }
    mkdir -p "$CACHE"
    say "a bare Debian 12 from $mirror"
    debootstrap --variant=minbase --include=ca-certificates bookworm "$CACHE/debian" "$mirror" \
        >"$CACHE/debootstrap.log"
    tar -C "$CACHE/debian" -cf "$CACHE/debian.part" .
    rm -rf "$CACHE/debian"
    mv "$CACHE/debian.part" "$CACHE/debian.tar"
}

[ -f "$CACHE/debian.tar" ] || make_debian
mkdir -p .local
root=$(mktemp -d "$PWD/.local/newcomer-XXXXXX")
trap 'rm -rf --one-file-system "$root"' EXIT
chmod 755 "$root"
tar -C "$root" -xf "$CACHE/debian.tar"
# What this host needs to reach the registries, a newcomer behind the same proxy needs too.
cp "$CERTIFICATES" "$root$CERTIFICATES"
cp /etc/resolv.conf "$root/etc/resolv.conf"
mkdir -p "$root/srv/tidemark"
git archive HEAD | tar -C "$root/srv/tidemark" -xf -

cat >"$root/newcomer" <<'INSIDE'
#!/bin/sh
# Inside: git and make come by hand, as the README says; then its commands, word for word.
set -eu
user=$1 demo=$2
export PIP_CERT=/etc/ssl/certs/ca-certificates.crt npm_config_cafile=/etc/ssl/certs/ca-certificates.crt
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends git make sudo >/dev/null
cd /srv/tidemark
if [ "$user" = root ]; then
    make demo ARGS="$demo"
else
    useradd --create-home --shell /bin/bash ada
    echo 'ada ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/ada
    chown -R ada: /srv/tidemark
    keep=PIP_CERT,npm_config_cafile
    sudo -u ada --preserve-env=$keep sh -c "sudo scripts/setup.sh --packages && make demo ARGS='$demo'"
fi
echo "disk: $(du -sxm / 2>/dev/null | cut -f1) MB in all, $(du -sxm /srv/tidemark | cut -f1) MB of it in the checkout"
INSIDE
chmod 755 "$root/newcomer"

# What runs in the Debian has mounts and processes of its own, and a root of its own, not a chroot: user namespaces are
# refused in those, and builds are shut off by them.
inside() {
    unshare --mount --pid --cgroup --fork --kill-child --propagation private bash -c '
        set -e
        mount --bind "$1" "$1"
        cd "$1"
        shift
        mkdir -p .before
        for name in null zero full random urandom tty; do touch "dev/$name"; mount --bind "/dev/$name" "dev/$name"; done
        mkdir -p dev/shm dev/pts
        mount -t tmpfs tmpfs dev/shm
        mount -t devpts devpts dev/pts
        [ -e dev/fd ] || [ -L dev/fd ] || ln -s /proc/self/fd dev/fd
        mount -t proc proc proc
        if [ "$CGROUPS" = own ]; then
            mount -t sysfs sysfs sys
            mount -t cgroup2 cgroup2 sys/fs/cgroup
            mount -t tmpfs tmpfs run
        else
            mount --rbind /sys sys
        fi
        pivot_root . .before
        umount -l /.before
        exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 $WORDS "$@"
    ' inside "$root" "$@" </dev/null
}

# The guide's blocks for a first installation, as one script; the words in capitals are a newcomer's.
guide() {
    awk '/^## Upgrading/ { exit } /^```$/ { inside = 0 } inside { print } /^```sh$/ { inside = 1 }' docs/operations/install-debian.md |
        sed 's#REPOSITORY#/srv/repository.git#; s#PASSWORD=PASSWORD#PASSWORD=not-a-real-one-7#'
}

with_systemd() {
    # Its network is this host's.
    if ss -ltnH | awk '{ print $4 }' | grep -qE '^(127\.0\.0\.1|0\.0\.0\.0|\*):(8000|5432|6379)$'; then
        echo "newcomer: port 8000, 5432 or 6379 is taken on this host, and the guide needs it" >&2
        exit 2
    fi
    rm -r "$root/srv/tidemark"
    git clone --quiet --bare --depth 1 "file://$PWD" "$root/srv/repository.git"
    {
        printf 'trap "journalctl --no-pager -n 60 -u tidemark-web -u tidemark-worker@lab" ERR\nset -Eeuxo pipefail\nexport PIP_CERT=%s npm_config_cafile=%s DEBIAN_FRONTEND=noninteractive\n' "$CERTIFICATES" "$CERTIFICATES"
        # Nothing here has a memory controller: what a builder asks of its host is beside the guide.
        guide | sed 's#^TIDEMARK_DISPATCHER=local$#&\nTIDEMARK_BUILD_CGROUP=optional#'
        echo 'sleep 40; systemctl list-units --all --no-pager "tidemark*"; systemctl is-active tidemark-web tidemark-beat'
        echo 'for queue in sources builds lab detection reports upkeep; do systemctl is-active "tidemark-worker@$queue"; done'
        echo 'journalctl --no-pager --quiet -u "tidemark*" --priority err; tidemark-manage series --help >/dev/null'
    } >"$root/guide.sh"
    cat >"$root/etc/systemd/system/newcomer.service" <<'UNIT'
[Unit]
After=dbus.service

[Service]
Type=oneshot
ExecStart=/bin/bash /guide.sh
StandardOutput=file:/newcomer.log
StandardError=file:/newcomer.log
ExecStopPost=/bin/sh -c '[ "$EXIT_STATUS" = 0 ] && systemctl --no-block exit 0 || systemctl --no-block exit 1'
UNIT
    local group=/sys/fs/cgroup
    [ ! -d "$group/unified" ] || group=/sys/fs/cgroup/unified
    mkdir -p "$group/newcomer"
    (
        echo "$BASHPID" >"$group/newcomer/cgroup.procs"
        CGROUPS=own WORDS="container=other SYSTEMD_PROC_CMDLINE=systemd.unified_cgroup_hierarchy=1" \
            inside /lib/systemd/systemd --unit=newcomer.target
    ) || status=$?
    cat "$root/newcomer.log"
    find "$group/newcomer" -depth -type d -exec rmdir {} + 2>/dev/null || true
}

say "as ${user}"
started=$SECONDS
status=0
export CGROUPS=host WORDS=""
if [ "$user" = systemd ]; then
    inside sh -c "apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        systemd dbus curl procps >/dev/null"
    printf '[Unit]\nRequires=basic.target newcomer.service\nAfter=basic.target\n' >"$root/etc/systemd/system/newcomer.target"
    with_systemd
else
    inside /newcomer "$user" "$demo" || status=$?
fi
say "status $status after $((SECONDS - started)) s, load $(cut -d ' ' -f 1 /proc/loadavg)"
exit "$status"
