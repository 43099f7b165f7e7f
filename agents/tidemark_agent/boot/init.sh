#!/bin/busybox sh
# The first program of a measured kernel: shows which kernel this is, runs the cases, restarts.
# What it says stands between lines with the nonce of this boot, so that nothing else on the console can be taken for it.
b=/bin/busybox
$b mount -t proc proc /proc
$b mount -t sysfs sysfs /sys
nonce=none
for word in $($b cat /proc/cmdline); do
	case $word in tidemark.nonce=*) nonce=${word#tidemark.nonce=} ;; esac
done

section() {
	name=$1
	shift
	echo
	echo "@@$nonce begin $name"
	"$@" 2>&1
	status=$?
	# Programs may leave a line unfinished; the end stands on a line of its own.
	echo
	echo "@@$nonce end $name $status"
}

# From here on only emergencies of the kernel may come between the lines of the proof and of the measurements.
$b dmesg -n 1
section hello echo ready
section boot_id $b cat /proc/sys/kernel/random/boot_id
section notes $b hexdump -v -e '32/1 "%02x" "\n"' /sys/kernel/notes
section release $b uname -r
section cmdline $b cat /proc/cmdline
section memory $b grep MemTotal /proc/meminfo
section online $b cat /sys/devices/system/cpu/online
section cpuinfo $b cat /proc/cpuinfo
section clock $b cat /sys/devices/system/clocksource/clocksource0/current_clocksource

# Huge pages are asked for by the case that wants them; a small machine starts with them off.
[ -e /sys/kernel/mm/transparent_hugepage/enabled ] && echo madvise > /sys/kernel/mm/transparent_hugepage/enabled

number=0
while read -r seconds program name runs; do
	section case-$number $b timeout -s KILL "$seconds" "$program" "$name" "$runs"
	# Killed: by the time limit, or by the kernel for want of memory.
	[ "$status" = 137 ] && section oom-$number $b grep -w oom_kill /proc/vmstat
	number=$((number + 1))
done < /cases
section bye echo done
$b reboot -f
