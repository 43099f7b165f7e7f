/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the kernel-module benchmarks have in common: requests, memory, cold caches, slices, the answer.
 *
 * This file counts for the version of each benchmark whose benchmark.toml names it as shared.
 *
 * The module shows DEBUGFS/NAME/functions, the functions that this kernel has, and DEBUGFS/NAME/run, for root
 * only. A request such as
 *
 *	function=folio_copy size=2m direction=0to1 cache=cold evict=64m
 *
 * is written to `run` in one write, which does the measurement and fails if that did; reading the same open
 * file gives one line, "time NS" with the time for each 4 KiB in nanoseconds, or "error WHY".
 *
 * Nothing here can hang the machine: what a request can ask for is bounded, loops give way to other tasks, and
 * a deadly signal ends them. Memory that is short is an error, never a reason to kill other processes.
 */
#ifndef TIDEMARK_BENCH_H
#define TIDEMARK_BENCH_H

#include <linux/ctype.h>
#include <linux/debugfs.h>
#include <linux/fs.h>
#include <linux/kernel.h>
#include <linux/ktime.h>
#include <linux/log2.h>
#include <linux/math64.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/nodemask.h>
#include <linux/numa.h>
#include <linux/sched/signal.h>
#include <linux/seq_file.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/sort.h>
#include <linux/string.h>
#include <linux/topology.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>

#ifdef CONFIG_HIGHMEM
#error "Memory must have an address in the kernel: 64-bit kernels only."
#endif

/* One slice moves this much; one run's value is the median of its slices. */
#define TM_SLICE_BYTES SZ_2M
#define TM_UNIT_BYTES SZ_4K
#define TM_MOST_SLICES 64
#define TM_SLICES 15
#define TM_LARGEST SZ_2M
#define TM_LARGEST_EVICT SZ_1G
#define TM_CACHE_LINE 64
#define TM_LONGEST_REQUEST 256

/* One piece of memory to copy from (unless the benchmark has no sources) and one to write to. */
struct tm_pair {
	struct folio *from;
	struct folio *to;
};

/* What a slice works on: `repeats` times each of the `count` pairs, `size` bytes of it from the offsets on. */
struct tm_set {
	struct tm_pair *pairs;
	unsigned int count;
	unsigned int repeats;
	size_t size;
	size_t from_offset;
	size_t to_offset;
};

struct tm_function {
	const char *name;
	/* Do one slice; 0 or -errno. The time of this call is what is measured. */
	int (*pass)(const struct tm_set *set);
	/* It knows nothing smaller than a page, and no offsets. */
	bool whole_pages;
};

/* What a module gives: its functions, ended by one without a name, and the proof that they did their work. */
struct tm_benchmark {
	const struct tm_function *functions;
	bool has_source;
	bool (*done)(const struct tm_set *set, const struct tm_pair *pair);
};

static const struct tm_benchmark tm_benchmark;

struct tm_request {
	const struct tm_function *function;
	unsigned long long size;
	unsigned long long from_offset;
	unsigned long long to_offset;
	unsigned long long evict;
	unsigned int slices;
	int from_node;
	int to_node;
	bool cold;
};

/* One open file: the answer to its last request. */
struct tm_answer {
	char text[128];
};

static DEFINE_MUTEX(tm_mutex);
static struct dentry *tm_directory;

static inline void *tm_from(const struct tm_set *set, const struct tm_pair *pair)
{
	return folio_address(pair->from) + set->from_offset;
}

static inline void *tm_to(const struct tm_set *set, const struct tm_pair *pair)
{
	return folio_address(pair->to) + set->to_offset;
}

__printf(3, 4)
static int tm_fail(struct tm_answer *answer, int error, const char *why, ...)
{
	size_t used = scnprintf(answer->text, sizeof(answer->text), "error ");
	va_list arguments;

	va_start(arguments, why);
	used += vscnprintf(answer->text + used, sizeof(answer->text) - used, why, arguments);
	va_end(arguments);
	scnprintf(answer->text + used, sizeof(answer->text) - used, "\n");
	return error;
}

/* Requests. */

static int tm_read_size(const char *value, unsigned long long *size)
{
	char *end;

	if (!isdigit(*value))
		return -EINVAL;
	*size = memparse(value, &end);
	return *end ? -EINVAL : 0;
}

static int tm_read_function(const char *value, struct tm_request *request)
{
	const struct tm_function *function;

	for (function = tm_benchmark.functions; function->name; function++) {
		if (!strcmp(function->name, value)) {
			request->function = function;
			return 0;
		}
	}
	return -EOPNOTSUPP;
}

static int tm_read_direction(const char *value, struct tm_request *request)
{
	int used = 0;

	if (sscanf(value, "%dto%d%n", &request->from_node, &request->to_node, &used) != 2 || value[used])
		return -EINVAL;
	return 0;
}

static int tm_read_word(const char *key, const char *value, struct tm_request *request)
{
	if (!strcmp(key, "function"))
		return tm_read_function(value, request);
	if (!strcmp(key, "size"))
		return tm_read_size(value, &request->size);
	if (!strcmp(key, "from_offset"))
		return tm_read_size(value, &request->from_offset);
	if (!strcmp(key, "to_offset"))
		return tm_read_size(value, &request->to_offset);
	if (!strcmp(key, "evict"))
		return tm_read_size(value, &request->evict);
	if (!strcmp(key, "direction"))
		return tm_read_direction(value, request);
	if (!strcmp(key, "slices"))
		return kstrtouint(value, 10, &request->slices);
	if (!strcmp(key, "cache")) {
		request->cold = !strcmp(value, "cold");
		return request->cold || !strcmp(value, "hot") ? 0 : -EINVAL;
	}
	return -EINVAL;
}

static int tm_check_node(int node, struct tm_answer *answer)
{
	if (node < 0 || node >= MAX_NUMNODES || !node_state(node, N_MEMORY))
		return tm_fail(answer, -ENODEV, "node %d has no memory", node);
	return 0;
}

static int tm_check(struct tm_request *request, struct tm_answer *answer)
{
	if (!request->function)
		return tm_fail(answer, -EINVAL, "no function");
	if (request->size < TM_CACHE_LINE || request->size > TM_LARGEST || !is_power_of_2(request->size))
		return tm_fail(answer, -EINVAL, "size %llu is no power of two of 64 to 2m", request->size);
	if (request->from_offset >= PAGE_SIZE || request->to_offset >= PAGE_SIZE)
		return tm_fail(answer, -EINVAL, "offset larger than a page");
	if (request->size < PAGE_SIZE && (request->function->whole_pages || request->cold))
		return tm_fail(answer, -EOPNOTSUPP, "size %llu is less than a page of %lu", request->size, PAGE_SIZE);
	if (request->function->whole_pages && (request->from_offset || request->to_offset))
		return tm_fail(answer, -EINVAL, "%s knows no offsets", request->function->name);
	if (request->slices < 1 || request->slices > TM_MOST_SLICES)
		return tm_fail(answer, -EINVAL, "slices are not 1 to %d", TM_MOST_SLICES);
	if (request->cold && (request->evict < SZ_1M || request->evict > TM_LARGEST_EVICT))
		return tm_fail(answer, -EINVAL, "evict is not 1m to 1g");
	return tm_check_node(request->from_node, answer) ?: tm_check_node(request->to_node, answer);
}

static int tm_parse(char *text, struct tm_request *request, struct tm_answer *answer)
{
	char *word, *value;
	int error;

	*request = (struct tm_request){
		.slices = TM_SLICES,
		.from_node = numa_mem_id(),
		.to_node = numa_mem_id(),
	};
	while ((word = strsep(&text, "\n "))) {
		if (!*word)
			continue;
		value = strchr(word, '=');
		if (!value)
			return tm_fail(answer, -EINVAL, "%.40s has no value", word);
		*value++ = '\0';
		error = tm_read_word(word, value, request);
		if (error == -EOPNOTSUPP)
			return tm_fail(answer, error, "this kernel has no %.40s that modules can call", value);
		if (error)
			return tm_fail(answer, error, "%.40s=%.40s is not understood", word, value);
	}
	return tm_check(request, answer);
}

/* Memory. */

static struct folio *tm_allocate(size_t bytes, int node)
{
	/* From this node or not at all, and without the out-of-memory killer. */
	gfp_t flags = GFP_KERNEL | __GFP_THISNODE | __GFP_NOWARN | __GFP_RETRY_MAYFAIL;
	struct folio *folio = __folio_alloc_node(flags, get_order(bytes), node);

	if (folio && folio_nid(folio) != node) {
		folio_put(folio);
		return NULL;
	}
	return folio;
}

static void tm_free_set(struct tm_set *set)
{
	unsigned int i;

	for (i = 0; set->pairs && i < set->count; i++) {
		if (set->pairs[i].from)
			folio_put(set->pairs[i].from);
		if (set->pairs[i].to)
			folio_put(set->pairs[i].to);
	}
	kvfree(set->pairs);
}

/* No two words alike: a copy that takes the wrong bytes shows. */
static void tm_fill(struct folio *folio, u64 seed)
{
	u64 *words = folio_address(folio);
	size_t i;

	for (i = 0; i < folio_size(folio) / sizeof(*words); i++)
		words[i] = (seed << 32) | (i + 1);
}

static int tm_make_pair(const struct tm_request *request, struct tm_pair *pair, u64 number)
{
	if (tm_benchmark.has_source) {
		pair->from = tm_allocate(request->size + request->from_offset, request->from_node);
		if (!pair->from)
			return -ENOMEM;
		tm_fill(pair->from, 2 * number);
	}
	pair->to = tm_allocate(request->size + request->to_offset, request->to_node);
	if (!pair->to)
		return -ENOMEM;
	tm_fill(pair->to, 2 * number + 1);
	return 0;
}

static int tm_make_set(const struct tm_request *request, struct tm_set *set, struct tm_answer *answer)
{
	unsigned int i, uses = max_t(unsigned int, 1, TM_SLICE_BYTES / request->size);

	/* Hot: the same memory again and again. Cold: each piece once, for the second time it would be hot. */
	*set = (struct tm_set){
		.count = request->cold ? uses : 1,
		.repeats = request->cold ? 1 : uses,
		.size = request->size,
		.from_offset = request->from_offset,
		.to_offset = request->to_offset,
	};
	set->pairs = kvcalloc(set->count, sizeof(*set->pairs), GFP_KERNEL);
	if (!set->pairs)
		return tm_fail(answer, -ENOMEM, "no memory for %u pairs", set->count);
	for (i = 0; i < set->count; i++) {
		if (fatal_signal_pending(current))
			return tm_fail(answer, -EINTR, "killed");
		if (tm_make_pair(request, &set->pairs[i], i))
			return tm_fail(answer, -ENOMEM, "no memory of %llu bytes on nodes %d and %d",
				       request->size, request->from_node, request->to_node);
		cond_resched();
	}
	return 0;
}

/* Measuring. */

static int tm_evict(const u64 *lines, unsigned long long bytes)
{
	unsigned long long i;

	for (i = 0; i < bytes; i += TM_CACHE_LINE) {
		READ_ONCE(lines[i / sizeof(*lines)]);
		if (i % SZ_1M == 0) {
			if (fatal_signal_pending(current))
				return -EINTR;
			cond_resched();
		}
	}
	return 0;
}

static int tm_slice(const struct tm_request *request, const struct tm_set *set, const u64 *lines, u64 *time)
{
	u64 start;
	int error;

	if (fatal_signal_pending(current))
		return -EINTR;
	cond_resched();
	error = request->cold ? tm_evict(lines, request->evict) : 0;
	if (error)
		return error;
	/* The caller pins itself if it wants one CPU for all slices; within a slice this is not left to it. */
	migrate_disable();
	start = ktime_get_ns();
	error = request->function->pass(set);
	*time = ktime_get_ns() - start;
	migrate_enable();
	return error;
}

static int tm_prove(const struct tm_set *set, struct tm_answer *answer)
{
	unsigned int i;

	for (i = 0; i < set->count; i++) {
		if (!tm_benchmark.done(set, &set->pairs[i]))
			return tm_fail(answer, -EIO, "the memory does not hold what it should");
		cond_resched();
	}
	return 0;
}

static int tm_compare(const void *left, const void *right)
{
	u64 a = *(const u64 *)left, b = *(const u64 *)right;

	return a < b ? -1 : a > b;
}

static int tm_tell(u64 *times, const struct tm_request *request, const struct tm_set *set, struct tm_answer *answer)
{
	u64 bytes = (u64)set->size * set->count * set->repeats, whole;
	u32 rest;

	sort(times, request->slices, sizeof(*times), tm_compare, NULL);
	if (!times[request->slices / 2])
		return tm_fail(answer, -ERANGE, "the clock is too coarse");
	whole = div64_u64(times[request->slices / 2] * TM_UNIT_BYTES * 10000, bytes);
	whole = div_u64_rem(whole, 10000, &rest);
	scnprintf(answer->text, sizeof(answer->text), "time %llu.%04u\n", whole, rest);
	return 0;
}

static int tm_measure(const struct tm_request *request, const struct tm_set *set, const u64 *lines,
		      struct tm_answer *answer)
{
	u64 times[TM_MOST_SLICES];
	unsigned int i;
	int error;

	/* The first slice is not counted: it brings caches and TLBs into their state and shows that the work is done. */
	error = tm_slice(request, set, lines, &times[0]);
	if (!error && tm_prove(set, answer))
		return -EIO;
	for (i = 0; i < request->slices && !error; i++)
		error = tm_slice(request, set, lines, &times[i]);
	if (error)
		return tm_fail(answer, error, "%s gave error %d", request->function->name, error);
	return tm_tell(times, request, set, answer);
}

static void *tm_eviction_buffer(const struct tm_request *request)
{
	void *lines;

	/* More than half of what is free would push the machine into reclaim, and the figures with it. */
	if (request->evict / PAGE_SIZE > si_mem_available() / 2)
		return NULL;
	lines = __vmalloc(request->evict, GFP_KERNEL | __GFP_NORETRY | __GFP_NOWARN);
	if (lines)
		memset(lines, 1, request->evict);
	return lines;
}

static int tm_run(char *text, struct tm_answer *answer)
{
	struct tm_request request;
	void *lines = NULL;
	struct tm_set set;
	int error;

	error = tm_parse(text, &request, answer);
	if (error)
		return error;
	answer->text[0] = '\0';
	if (request.cold) {
		lines = tm_eviction_buffer(&request);
		if (!lines)
			return tm_fail(answer, -ENOMEM, "no memory for an eviction buffer of %llu bytes", request.evict);
	}
	error = tm_make_set(&request, &set, answer);
	if (!error)
		error = tm_measure(&request, &set, lines, answer);
	tm_free_set(&set);
	vfree(lines);
	return error;
}

/* Files. */

static int tm_open(struct inode *inode, struct file *file)
{
	file->private_data = kzalloc(sizeof(struct tm_answer), GFP_KERNEL);
	return file->private_data ? 0 : -ENOMEM;
}

static int tm_release(struct inode *inode, struct file *file)
{
	kfree(file->private_data);
	return 0;
}

static ssize_t tm_write(struct file *file, const char __user *from, size_t size, loff_t *at)
{
	struct tm_answer *answer = file->private_data;
	char *text;
	int error;

	if (size > TM_LONGEST_REQUEST)
		return -E2BIG;
	text = memdup_user_nul(from, size);
	if (IS_ERR(text))
		return PTR_ERR(text);
	/* One at a time: two would measure each other. */
	error = mutex_lock_interruptible(&tm_mutex);
	if (!error) {
		error = tm_run(text, answer);
		mutex_unlock(&tm_mutex);
	}
	kfree(text);
	/* The answer is read from its start. */
	*at = 0;
	return error ?: size;
}

static ssize_t tm_read(struct file *file, char __user *to, size_t size, loff_t *at)
{
	struct tm_answer *answer = file->private_data;
	return simple_read_from_buffer(to, size, at, answer->text, strlen(answer->text));
}

static const struct file_operations tm_run_operations = {
	.owner = THIS_MODULE,
	.open = tm_open,
	.release = tm_release,
	.read = tm_read,
	.write = tm_write,
};

static int tm_functions_show(struct seq_file *file, void *unused)
{
	const struct tm_function *function;

	for (function = tm_benchmark.functions; function->name; function++)
		seq_printf(file, "%s\n", function->name);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(tm_functions);

static int __init tm_init(void)
{
	tm_directory = debugfs_create_dir(KBUILD_MODNAME, NULL);
	if (IS_ERR(tm_directory))
		return PTR_ERR(tm_directory);
	debugfs_create_file("functions", 0400, tm_directory, NULL, &tm_functions_fops);
	debugfs_create_file("run", 0600, tm_directory, NULL, &tm_run_operations);
	return 0;
}
module_init(tm_init);

static void __exit tm_exit(void)
{
	debugfs_remove_recursive(tm_directory);
}
module_exit(tm_exit);

MODULE_LICENSE("GPL");

#endif
