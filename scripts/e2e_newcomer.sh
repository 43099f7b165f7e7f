#!/usr/bin/env bash
# The quick start of the README in a bare Debian 12: `make e2e-newcomer`, as root.
#
#   scripts/e2e_newcomer.sh [--user root|sudo] [--demo "--once"]
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
        *) echo "usage: scripts/e2e_newcomer.sh [--user root|sudo] [--demo ARGS]" >&2; exit 2 ;;
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
    mkdir -p "$CACHE"
    say "a bare Debian 12 from $mirror"
    debootstrap --variant=minbase --include=ca-certificates bookworm "$CACHE/debian" "${mirror:-http://deb.debian.org/debian}" \
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

say "as ${user}: make demo ARGS=$demo"
started=$SECONDS
# A root of its own, not a chroot: user namespaces are refused in those, and builds are shut off by them.
status=0
unshare --mount --pid --fork --kill-child --propagation private bash -c '
    set -e
    mount --bind "$1" "$1"
    cd "$1"
    mkdir -p .before
    for name in null zero full random urandom tty; do touch "dev/$name"; mount --bind "/dev/$name" "dev/$name"; done
    mkdir -p dev/shm dev/pts
    mount -t tmpfs tmpfs dev/shm
    mount -t devpts devpts dev/pts
    [ -e dev/fd ] || [ -L dev/fd ] || ln -s /proc/self/fd dev/fd
    mount -t proc proc proc
    mount --rbind /sys sys
    pivot_root . .before
    umount -l /.before
    exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 /newcomer "$2" "$3"
' newcomer "$root" "$user" "$demo" </dev/null || status=$?
say "status $status after $((SECONDS - started)) s, load $(cut -d ' ' -f 1 /proc/loadavg)"
exit "$status"
