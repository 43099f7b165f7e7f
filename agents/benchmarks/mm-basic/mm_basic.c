// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * mm_basic CASE RUNS: what basic memory operations cost on the running kernel.
 *
 * Prints one JSON line for each run:
 *   {"case":"fault-4k","metric":"time","value":2168.4021}
 * or, when the case cannot be measured here, one line that says why, and exits with 1:
 *   {"case":"fault-thp","error":"the kernel gave no huge pages"}
 *
 * `time` is in nanoseconds per operation: per 4 KiB page for the faults and the copy, per round of
 * mmap, first read and munmap for mmap-munmap. A run is timed in slices and its value is their median:
 * a timer tick or the work that the kernel puts off for later falls into one slice or another by chance,
 * which would show as a small difference between kernels that are alike.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096UL
#define HUGE (512 * PAGE)
#define SLICES 16
#define FAULT_PAGES 64UL /* each per slice */
#define COW_PAGES 32UL
#define COPY_PAGES 64UL
#define MMAP_ROUNDS 25UL
#define MMAP_BYTES (16 * PAGE)
#define THP_SLICES 4 /* of one huge page */

/* A measured time must be this many times longer than the step of the clock. */
#define STEPS_NEEDED 100

static const char *case_name;
static uint64_t step;
static double slices[SLICES];
static size_t slice_count;
static uint64_t slice_start;

static void fail(const char *why)
{
	printf("{\"case\":\"%s\",\"error\":\"%s\"}\n", case_name, why);
	exit(1);
}

static uint64_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ULL + (uint64_t)ts.tv_nsec;
}

/* The smallest step seen between two readings: jiffies would show as milliseconds. */
static uint64_t clock_step(void)
{
	uint64_t best = UINT64_MAX;

	for (int i = 0; i < 5; i++) {
		uint64_t start = now(), next;

		do
			next = now();
		while (next == start);
		if (next - start < best)
			best = next - start;
	}
	return best;
}

static void start_slices(void)
{
	slice_count = 0;
	slice_start = now();
}

/* A slice of `operations` is over and the next begins. */
static void end_slice(double operations)
{
	uint64_t spent = now() - slice_start;

	if (spent < step * STEPS_NEEDED)
		fail("the clock is too coarse");
	slices[slice_count++] = (double)spent / operations;
	slice_start = now();
}

static int compare(const void *left, const void *right)
{
	double a = *(const double *)left, b = *(const double *)right;

	return (a > b) - (a < b);
}

static double median_slice(void)
{
	qsort(slices, slice_count, sizeof(slices[0]), compare);
	return (slices[(slice_count - 1) / 2] + slices[slice_count / 2]) / 2;
}

static long faults(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_minflt;
}

/* An anonymous mapping whose address is a multiple of `align`; the slack around it is given back. */
static char *map_aligned(size_t bytes, size_t align, int advice)
{
	char *raw = mmap(NULL, bytes + align, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *area;

	if (raw == MAP_FAILED)
		fail("mmap failed");
	area = (char *)(((uintptr_t)raw + align - 1) & ~(align - 1));
	if (area > raw)
		munmap(raw, (size_t)(area - raw));
	munmap(area + bytes, (size_t)(raw + bytes + align - (area + bytes)));
	/* A kernel without huge pages refuses the advice, which is right for the cases that want none. */
	if (madvise(area, bytes, advice) != 0 && advice == MADV_HUGEPAGE)
		fail("the kernel has no huge pages");
	return area;
}

static void touch(volatile char *area, size_t bytes, size_t step)
{
	for (size_t at = 0; at < bytes; at += step)
		area[at] = 1;
}

static double run_fault_4k(void)
{
	size_t bytes = FAULT_PAGES * PAGE;
	char *area = map_aligned(SLICES * bytes, HUGE, MADV_NOHUGEPAGE);
	long before = faults();

	start_slices();
	for (size_t i = 0; i < SLICES; i++) {
		touch(area + i * bytes, bytes, PAGE);
		end_slice(FAULT_PAGES);
	}
	long seen = faults() - before;

	munmap(area, SLICES * bytes);
	if (seen < (long)(SLICES * FAULT_PAGES))
		fail("fewer faults than pages");
	return median_slice();
}

static double run_fault_thp(void)
{
	char *area = map_aligned(THP_SLICES * HUGE, HUGE, MADV_HUGEPAGE);
	long before = faults();

	/* Every small page is touched: without huge pages that is 512 times as many faults, never a quick lie. */
	start_slices();
	for (size_t i = 0; i < THP_SLICES; i++) {
		touch(area + i * HUGE, HUGE, PAGE);
		end_slice(HUGE / PAGE);
	}
	long seen = faults() - before;

	munmap(area, THP_SLICES * HUGE);
	if (seen > THP_SLICES + 8)
		fail("the kernel gave no huge pages");
	return median_slice();
}

/* Eight bytes at a time with a barrier: the same instructions on every CPU, unlike the C library's memcpy. */
static void copy_words(uint64_t *to, const uint64_t *from, size_t bytes)
{
	for (size_t i = 0; i < bytes / sizeof(*to); i++) {
		to[i] = from[i];
		__asm__ volatile("" ::: "memory");
	}
}

static double run_copy(void)
{
	size_t bytes = COPY_PAGES * PAGE;
	char *from = map_aligned(bytes, HUGE, MADV_NOHUGEPAGE);
	char *to = map_aligned(bytes, HUGE, MADV_NOHUGEPAGE);

	touch(from, bytes, PAGE);
	touch(to, bytes, PAGE);
	start_slices();
	for (size_t i = 0; i < SLICES; i++) {
		copy_words((uint64_t *)to, (const uint64_t *)from, bytes);
		end_slice(COPY_PAGES);
	}
	munmap(from, bytes);
	munmap(to, bytes);
	return median_slice();
}

static double run_mmap_munmap(void)
{
	char *area = map_aligned(HUGE, HUGE, MADV_NOHUGEPAGE);
	char *hole = area + HUGE / 2;

	/* The rounds work in a hole between two touched pages, so page tables stay and are no part of the time. */
	touch(area, HUGE, HUGE / 4);
	munmap(hole, MMAP_BYTES);
	char seen = 0;

	start_slices();
	for (size_t i = 0; i < SLICES * MMAP_ROUNDS; i++) {
		char *at = mmap(hole, MMAP_BYTES, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

		if (at != hole)
			fail("mmap failed");
		/* Reading maps the zero page: a fault and its undoing, but no page is cleared, which other cases measure. */
		seen |= *(volatile char *)at;
		munmap(at, MMAP_BYTES);
		if (i % MMAP_ROUNDS == MMAP_ROUNDS - 1)
			end_slice(MMAP_ROUNDS);
	}
	munmap(area, HUGE);
	if (seen != 0)
		fail("fresh memory was not zero");
	return median_slice();
}

static double run_cow_fault(void)
{
	size_t bytes = COW_PAGES * PAGE;
	char *area = map_aligned(SLICES * bytes, HUGE, MADV_NOHUGEPAGE);
	double *value = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int status = 1;

	if (value == MAP_FAILED)
		fail("mmap failed");
	touch(area, SLICES * bytes, PAGE);
	*value = 0;
	pid_t child = fork();

	if (child < 0)
		fail("fork failed");
	if (child == 0) {
		start_slices();
		for (size_t i = 0; i < SLICES; i++) {
			touch(area + i * bytes, bytes, PAGE);
			end_slice(COW_PAGES);
		}
		*value = median_slice();
		_exit(0);
	}
	if (waitpid(child, &status, 0) != child || status != 0 || *value == 0)
		fail("the child did not end well");
	double median = *value;

	munmap(area, SLICES * bytes);
	munmap(value, PAGE);
	return median;
}

static const struct {
	const char *name;
	double (*run)(void);
} cases[] = {
	{ "fault-4k", run_fault_4k },
	{ "fault-thp", run_fault_thp },
	{ "copy", run_copy },
	{ "mmap-munmap", run_mmap_munmap },
	{ "cow-fault", run_cow_fault },
};

/* Idle time, in which the kernel finishes what earlier runs made it put off, as freeing by RCU. */
static void settle(void)
{
	struct timespec pause = { .tv_nsec = 30 * 1000 * 1000 };

	nanosleep(&pause, NULL);
}

static int usage(void)
{
	fprintf(stderr, "usage: mm_basic CASE RUNS\ncases:");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		fprintf(stderr, " %s", cases[i].name);
	fputc('\n', stderr);
	return 2;
}

int main(int argc, char **argv)
{
	long runs = argc == 3 ? strtol(argv[2], NULL, 10) : 0;
	size_t which = 0, count = sizeof(cases) / sizeof(cases[0]);

	while (argc == 3 && which < count && strcmp(cases[which].name, argv[1]) != 0)
		which++;
	if (argc != 3 || which == count || runs < 1 || runs > 100000)
		return usage();
	case_name = cases[which].name;
	setvbuf(stdout, NULL, _IOLBF, 0);
	step = clock_step();
	for (long i = 0; i < runs; i++) {
		settle();
		double value = cases[which].run();

		printf("{\"case\":\"%s\",\"metric\":\"time\",\"value\":%.4f}\n", case_name, value);
	}
	return 0;
}
