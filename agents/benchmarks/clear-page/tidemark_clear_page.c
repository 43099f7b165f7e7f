// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Clearing memory, page by page and, where the kernel knows how, in one go.
 *
 * clear_page() in a loop is what faults and huge faults do; clear_pages() came with the kernels that clear a huge page
 * as a whole, and is a function of its own here.
 */
#include <linux/highmem.h>

#include "tidemark_bench.h"

static int pass_clear_page(const struct tm_set *set)
{
	unsigned int i, round;
	size_t at;

	for (round = 0; round < set->repeats; round++)
		for (i = 0; i < set->count; i++)
			for (at = 0; at < set->size; at += PAGE_SIZE)
				clear_page(tm_to(set, &set->pairs[i]) + at);
	return 0;
}

#ifdef clear_pages
static int pass_clear_pages(const struct tm_set *set)
{
	unsigned int i, round;

	for (round = 0; round < set->repeats; round++)
		for (i = 0; i < set->count; i++)
			clear_pages(tm_to(set, &set->pairs[i]), set->size / PAGE_SIZE);
	return 0;
}
#endif

static const struct tm_function functions[] = {
	{ "clear_page", pass_clear_page, .whole_pages = true },
#ifdef clear_pages
	{ "clear_pages", pass_clear_pages, .whole_pages = true },
#endif
	{ }
};

static bool cleared(const struct tm_set *set, const struct tm_pair *pair)
{
	return !memchr_inv(tm_to(set, pair), 0, set->size);
}

static const struct tm_benchmark tm_benchmark = {
	.functions = functions,
	.done = cleared,
};

MODULE_DESCRIPTION("Tidemark: time of clearing pages by size and cache");
