// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Copying folios between nodes, with hot and with cold caches, as page migration does it.
 *
 * Which of folio_copy() and folio_mc_copy() modules may use depends on the kernel: its builder says so by
 * TIDEMARK_HAS_NAME. copy_highpage() is what folio_copy() calls for each page; it is there on all kernels and is a
 * function of its own here, so that figures of two functions are never taken for each other.
 */
#include <linux/highmem.h>

#include "tidemark_bench.h"

#ifdef TIDEMARK_HAS_FOLIO_COPY
static int pass_folio_copy(const struct tm_set *set)
{
	unsigned int i, round;

	for (round = 0; round < set->repeats; round++)
		for (i = 0; i < set->count; i++)
			folio_copy(set->pairs[i].to, set->pairs[i].from);
	return 0;
}
#endif

#ifdef TIDEMARK_HAS_FOLIO_MC_COPY
static int pass_folio_mc_copy(const struct tm_set *set)
{
	unsigned int i, round;
	int error = 0;

	for (round = 0; round < set->repeats; round++)
		for (i = 0; i < set->count; i++)
			error |= folio_mc_copy(set->pairs[i].to, set->pairs[i].from);
	return error ? -EIO : 0;
}
#endif

static int pass_copy_highpage(const struct tm_set *set)
{
	unsigned int i, round;
	long page, pages;

	for (round = 0; round < set->repeats; round++) {
		for (i = 0; i < set->count; i++) {
			pages = folio_nr_pages(set->pairs[i].from);
			for (page = 0; page < pages; page++)
				copy_highpage(folio_page(set->pairs[i].to, page),
					      folio_page(set->pairs[i].from, page));
		}
	}
	return 0;
}

static const struct tm_function functions[] = {
#ifdef TIDEMARK_HAS_FOLIO_COPY
	{ "folio_copy", pass_folio_copy, .whole_pages = true },
#endif
#ifdef TIDEMARK_HAS_FOLIO_MC_COPY
	{ "folio_mc_copy", pass_folio_mc_copy, .whole_pages = true },
#endif
	{ "copy_highpage", pass_copy_highpage, .whole_pages = true },
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

MODULE_DESCRIPTION("Tidemark: time of folio copies by node, size and cache");
