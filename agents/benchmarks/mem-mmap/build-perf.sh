#!/bin/sh
# Builds the `perf` that mem-mmap, mem-copy and the counters use: one static file, which runs below any kernel.
#
#     build-perf.sh LINUX_SOURCE OUT
#
# LINUX_SOURCE is an unpacked kernel source of 7.3 or later (older ones have no `perf bench mem mmap`), for example
# Debian's package linux-source-7.3. Nothing is written there. OUT becomes the program; name it in agent.toml:
#
#     [programs]
#     perf = "/opt/tidemark/perf"
#
# Needed: make, gcc, flex, bison, the static C library, Python 3. It takes about 80 s on two cores.
set -eu

if [ $# -ne 2 ] || [ ! -f "$1/tools/perf/Makefile.perf" ]; then
	echo "usage: build-perf.sh LINUX_SOURCE OUT" >&2
	exit 2
fi
source=$(cd "$1" && pwd)
out=$2
objects=$(mktemp -d "${TMPDIR:-/tmp}/tidemark-perf.XXXXXX")
trap 'rm -rf "$objects"' EXIT INT TERM
mkdir "$objects/perf"

# Only what counting and `bench` need: each library that is left out is one less to have as a static archive. The target
# is `perf` alone, for the filters that would be shared objects cannot be linked statically.
make -s -C "$source/tools/perf" O="$objects/perf" -j"$(nproc)" LDFLAGS=-static EXTRA_CFLAGS=-Wno-error WERROR=0 \
	NO_LIBELF=1 NO_LIBDW=1 NO_LIBUNWIND=1 NO_LIBTRACEEVENT=1 NO_LIBPYTHON=1 NO_LIBPERL=1 NO_LIBBPF=1 \
	BUILD_BPF_SKEL=0 NO_LIBCRYPTO=1 NO_LIBNUMA=1 NO_SLANG=1 NO_GTK2=1 NO_LIBZSTD=1 NO_LZMA=1 NO_ZLIB=1 NO_LIBCAP=1 \
	NO_LIBAUDIT=1 NO_LIBBABELTRACE=1 NO_LIBPFM4=1 NO_LIBDEBUGINFOD=1 NO_DEMANGLE=1 NO_CAPSTONE=1 NO_LIBLLVM=1 \
	NO_JVMTI=1 NO_SDT=1 NO_AUXTRACE=1 NO_RUST=1 NO_BACKTRACE=1 \
	"$objects/perf/perf"

strip "$objects/perf/perf"
"$objects/perf/perf" bench mem mmap -f help | grep -q "populate" || {
	echo "the perf of this source has no 'bench mem mmap'" >&2
	exit 1
}
# Written beside it first, so that OUT is whole or not there.
cp "$objects/perf/perf" "$out.partial"
mv "$out.partial" "$out"
echo "$out: $("$out" --version), SHA-256 $(sha256sum "$out" | cut -d' ' -f1)"
