// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * move_pages CASE RUNS: what it costs to move anonymous memory from one NUMA node to another.
 *
 * CASE is SIZE-FROMtoTO, such as 64k-0to2: memory in folios of 4k, 64k or 2m goes from node FROM to node TO by
 * move_pages(2). Prints one JSON line for each run:
 *   {"case":"2m-0to1","metric":"time","value":1693.5000}
 * or, when the case cannot be measured here, one line that says why, and exits with 1.
 *
 * `time` is in nanoseconds per 4 KiB. A run is timed in slices, each with fresh memory (a folio that was moved before
 * may be split when it is moved again), and its value is their median. That the kernel gave folios of the size asked
 * for is read from /proc/kpageflags, that all pages moved, and that folios moved whole, is checked in each slice: a call
 * that moves nothing is quick.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096UL
#define HUGE (512 * PAGE)
#define AREA (4 * HUGE) /* moved in one slice */
#define PAGES (AREA / PAGE)
#define SLICES 7
#define MOST_NODES 1024

/* From the kernel's interface: <linux/mempolicy.h> and <linux/kernel-page-flags.h>. */
#define BIND 2
#define MOVE 2
#define FLAG_HEAD (1ULL << 15)
#define FLAG_TAIL (1ULL << 16)
#define PAGEMAP_PRESENT (1ULL << 63)
#define PAGEMAP_FRAME ((1ULL << 55) - 1)

static const char *case_name;
static size_t folio_bytes;
static int from_node, to_node;
/* The memory in its order: every folio's address, and every page's. */
static void *folios[PAGES], *pages[PAGES];
static size_t folio_count;
static char *room;
static size_t room_bytes;

__attribute__((format(printf, 1, 2), noreturn))
static void fail(const char *why, ...)
{
	va_list arguments;

	va_start(arguments, why);
	printf("{\"case\":\"%s\",\"error\":\"", case_name);
	vprintf(why, arguments);
	printf("\"}\n");
	va_end(arguments);
	exit(1);
}

static uint64_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ULL + (uint64_t)ts.tv_nsec;
}

/* Where each of the addresses is: `nodes` NULL asks, else it is where they shall go. Fails if one is not on `wanted`. */
static void ask_or_move(void **addresses, size_t count, const int *nodes, int wanted)
{
	static int status[PAGES];

	memset(status, 0xff, sizeof(status));
	if (syscall(SYS_move_pages, 0, count, addresses, nodes, status, MOVE) < 0)
		fail("move_pages to node %d: %s", wanted, strerror(errno));
	for (size_t i = 0; i < count; i++)
		if (status[i] != wanted)
			fail("page %zu of %zu is not on node %d: status %d", i, count, wanted, status[i]);
}

static double move_all(int node)
{
	static int nodes[PAGES];
	uint64_t start;

	for (size_t i = 0; i < folio_count; i++)
		nodes[i] = node;
	start = now();
	ask_or_move(folios, folio_count, nodes, node);
	return (double)(now() - start) / PAGES;
}

/* One 64-bit entry of a file in /proc with one entry for each page. */
static uint64_t entry_of(int file, uint64_t index, const char *name)
{
	uint64_t entry;

	if (pread(file, &entry, sizeof(entry), (off_t)(index * sizeof(entry))) != sizeof(entry))
		fail("cannot read %s", name);
	return entry;
}

static int open_proc(const char *name)
{
	int file = open(name, O_RDONLY | O_CLOEXEC);

	if (file < 0)
		fail("cannot open %s: %s", name, strerror(errno));
	return file;
}

/* Whether the page frames from `frame` on are exactly one folio of the size wanted. */
static int is_one_folio(int flags, uint64_t frame)
{
	size_t count = folio_bytes / PAGE;

	if (count == 1)
		return !(entry_of(flags, frame, "kpageflags") & (FLAG_HEAD | FLAG_TAIL));
	if (frame % count != 0 || !(entry_of(flags, frame, "kpageflags") & FLAG_HEAD))
		return 0;
	for (size_t i = 1; i < count; i++)
		if (!(entry_of(flags, frame + i, "kpageflags") & FLAG_TAIL))
			return 0;
	/* The next page may be beyond the end of memory; if it is there, it must not belong to a larger folio. */
	uint64_t next = 0;

	return pread(flags, &next, sizeof(next), (off_t)((frame + count) * sizeof(next))) != sizeof(next) ||
	       !(next & FLAG_TAIL);
}

static void check_folios(void)
{
	int map = open_proc("/proc/self/pagemap"), flags = open_proc("/proc/kpageflags");
	size_t count = folio_bytes / PAGE;

	for (size_t i = 0; i < PAGES; i += count) {
		uint64_t first = entry_of(map, (uintptr_t)pages[i] / PAGE, "pagemap");

		if (!(first & PAGEMAP_PRESENT) || !(first & PAGEMAP_FRAME))
			fail("page frames are hidden: needs root");
		for (size_t j = 1; j < count; j++)
			if (entry_of(map, (uintptr_t)pages[i + j] / PAGE, "pagemap") != first + j)
				fail("the kernel gave no folios of %zu bytes", folio_bytes);
		if (!is_one_folio(flags, first & PAGEMAP_FRAME))
			fail("the kernel gave no folios of %zu bytes", folio_bytes);
	}
	close(map);
	close(flags);
}

/* Fresh memory, not yet touched. Pieces smaller than a huge page keep the kernel from giving one for 64k. */
static void map_memory(void)
{
	size_t piece = folio_bytes == HUGE ? HUGE : HUGE / 2, count = AREA / piece;
	int advice = folio_bytes == PAGE ? MADV_NOHUGEPAGE : MADV_HUGEPAGE;
	char *at;

	room_bytes = (2 * count + 1) * piece;
	room = mmap(NULL, room_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (room == MAP_FAILED)
		fail("no memory to map");
	at = (char *)(((uintptr_t)room + piece - 1) & ~(piece - 1));
	folio_count = 0;
	for (size_t i = 0; i < count; i++, at += 2 * piece) {
		if (mprotect(at, piece, PROT_READ | PROT_WRITE) != 0)
			fail("mprotect: %s", strerror(errno));
		/* A kernel without huge pages refuses the advice, which is right for folios of one page. */
		if (madvise(at, piece, advice) != 0 && advice == MADV_HUGEPAGE)
			fail("the kernel has no huge pages");
		for (size_t j = 0; j < piece; j += PAGE)
			pages[(i * piece + j) / PAGE] = at + j;
		for (size_t j = 0; j < piece; j += folio_bytes)
			folios[folio_count++] = at + j;
	}
}

static void bind_to(int node)
{
	unsigned long mask[MOST_NODES / (8 * sizeof(unsigned long))] = { 0 };

	mask[(size_t)node / (8 * sizeof(mask[0]))] |= 1UL << ((size_t)node % (8 * sizeof(mask[0])));
	if (syscall(SYS_set_mempolicy, BIND, mask, MOST_NODES) != 0)
		fail("cannot take memory from node %d: %s", node, strerror(errno));
}

static void unbind(void)
{
	if (syscall(SYS_set_mempolicy, 0, NULL, 0) != 0)
		fail("set_mempolicy: %s", strerror(errno));
}

static uint64_t mark_of(size_t page)
{
	return 0x7469646500000000ULL + page;
}

/* Every page holds its own number, in its first and its last word. */
static void write_marks(void)
{
	for (size_t i = 0; i < PAGES; i++) {
		uint64_t *words = pages[i];

		words[0] = words[PAGE / sizeof(*words) - 1] = mark_of(i);
	}
}

static void check_marks(void)
{
	for (size_t i = 0; i < PAGES; i++) {
		const uint64_t *words = pages[i];

		if (words[0] != mark_of(i) || words[PAGE / sizeof(*words) - 1] != mark_of(i))
			fail("page %zu lost its contents", i);
	}
}

static int compare(const void *left, const void *right)
{
	double a = *(const double *)left, b = *(const double *)right;

	return (a > b) - (a < b);
}

/* Nanoseconds per 4 KiB for memory that was never moved before. */
static double run_slice(void)
{
	double time;

	map_memory();
	bind_to(from_node);
	write_marks();
	unbind();
	ask_or_move(pages, PAGES, NULL, from_node);
	check_folios();
	time = move_all(to_node);
	ask_or_move(pages, PAGES, NULL, to_node);
	check_folios();
	check_marks();
	munmap(room, room_bytes);
	return time;
}

static double run(void)
{
	double slices[SLICES];

	for (size_t i = 0; i < SLICES; i++)
		slices[i] = run_slice();
	qsort(slices, SLICES, sizeof(slices[0]), compare);
	if (slices[SLICES / 2] <= 0)
		fail("the clock is too coarse");
	return slices[SLICES / 2];
}

static int read_case(const char *name)
{
	char size[4];
	int used = 0;

	if (sscanf(name, "%3[0-9km]-%dto%d%n", size, &from_node, &to_node, &used) != 3 || name[used])
		return 0;
	folio_bytes = !strcmp(size, "4k") ? PAGE : !strcmp(size, "64k") ? 16 * PAGE : !strcmp(size, "2m") ? HUGE : 0;
	return folio_bytes && from_node >= 0 && from_node < MOST_NODES && to_node >= 0 && to_node < MOST_NODES &&
	       from_node != to_node;
}

int main(int argc, char **argv)
{
	long runs = argc == 3 ? strtol(argv[2], NULL, 10) : 0;

	if (argc != 3 || !read_case(argv[1]) || runs < 1 || runs > 100000) {
		fprintf(stderr, "usage: move_pages SIZE-FROMtoTO RUNS\nsizes: 4k 64k 2m\n");
		return 2;
	}
	case_name = argv[1];
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (sysconf(_SC_PAGESIZE) != (long)PAGE)
		fail("the kernel's pages are not of 4 KiB");
	for (long i = 0; i < runs; i++)
		printf("{\"case\":\"%s\",\"metric\":\"time\",\"value\":%.4f}\n", case_name, run());
	return 0;
}
