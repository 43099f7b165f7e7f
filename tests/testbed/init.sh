#!/usr/bin/busybox sh
# The first process of a testbed machine: mounts, network, then /etc/testbed/start; the machine ends when that ends.
export PATH=/usr/sbin:/usr/bin HOME=/tmp LC_ALL=C
mount -t proc proc /proc
mount -t sysfs sysfs /sys
[ -e /dev/null ] || mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /tmp
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t debugfs debugfs /sys/kernel/debug
mount -t pstore pstore /sys/fs/pstore
ip link set lo up
if [ -e /sys/class/net/eth0 ]; then
    ip link set eth0 up
    ip addr add 10.0.2.15/24 dev eth0
    ip route add default via 10.0.2.2
fi
echo "testbed: up $(uname -r) after $(cut -d' ' -f1 /proc/uptime) s"
cd /
/etc/testbed/start </dev/null
echo "testbed: start ended with $?"
sync
poweroff -f
