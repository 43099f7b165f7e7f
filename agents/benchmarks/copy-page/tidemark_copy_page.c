// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The primitives below all copies in the kernel: copy_page() by size, memcpy() by size and alignment.
 *
 * Which instructions they are is chosen at boot by the CPU's flags, each by another one, so that a change from one to
 * the other is good for some CPUs and bad for others.
 */
#include <linux/highmem.h>

#include "tidemark_bench.h"

static int pass_copy_page(const struct tm_set *set)
{
	unsigned int i, round;
	size_t at;

	for (round = 0; round < set->repeats; round++)
		for (i = 0; i < set->count; i++)
			for (at = 0; at < set->size; at += PAGE_SIZE)
				copy_page(tm_to(set, &set->pairs[i]) + at, tm_from(set, &set->pairs[i]) + at);
	return 0;
}

static int pass_memcpy(const struct tm_set *set)
{
	unsigned int i, round;

	for (round = 0; round < set->repeats; round++)
		for (i = 0; i < set->count; i++)
			memcpy(tm_to(set, &set->pairs[i]), tm_from(set, &set->pairs[i]), set->size);
	return 0;
}

static const struct tm_function functions[] = {
	{ "copy_page", pass_copy_page, .whole_pages = true },
	{ "memcpy", pass_memcpy },
	{ }
};

static bool copied(const struct tm_set *set, const struct tm_pair *pair)
{
	return !memcmp(tm_to(set, pair), tm_from(set, pair), set->size);
}

static const struct tm_benchmark tm_benchmark = {
	.functions = functions,
	.has_source = true,
	.done = copied,
};

MODULE_DESCRIPTION("Tidemark: time of copy_page and memcpy by size and alignment");
