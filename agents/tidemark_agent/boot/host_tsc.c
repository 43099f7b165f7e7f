// SPDX-License-Identifier: GPL-2.0-or-later
/* Prints the frequency of this host's time stamp counter in kHz: the median of five measurements of 20 ms. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <x86intrin.h>

#define TRIES 5
#define SPAN_NS 20000000ULL

static uint64_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC_RAW, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ULL + (uint64_t)ts.tv_nsec;
}

static int compare(const void *left, const void *right)
{
	double a = *(const double *)left, b = *(const double *)right;

	return (a > b) - (a < b);
}

int main(void)
{
	double khz[TRIES];

	for (int i = 0; i < TRIES; i++) {
		uint64_t start = now(), ticks = __rdtsc(), end;

		do
			end = now();
		while (end - start < SPAN_NS);
		khz[i] = (double)(__rdtsc() - ticks) * 1e6 / (double)(end - start);
	}
	qsort(khz, TRIES, sizeof(khz[0]), compare);
	printf("%.0f\n", khz[TRIES / 2]);
	return 0;
}
