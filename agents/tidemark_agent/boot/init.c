// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The first program of a measured kernel: shows which kernel this is, runs the cases, restarts. It is all that there is
 * beside the benchmarks, so that no program of another architecture has to be on the host.
 *
 * What it says stands between lines with the nonce of this boot, so that nothing else on the console can be taken for it:
 *
 *	@@NONCE begin NAME
 *	...
 *	@@NONCE end NAME STATUS
 *
 * STATUS is 0, an errno value, or as shells write it how a case ended (128 + N when signal N killed it).
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/klog.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#define NONCE_WORD "tidemark.nonce="
#define NOTE_BYTES_PER_LINE 32
#define SET_CONSOLE_LEVEL 8
#define EMERGENCIES_ONLY 1
#define NOT_STARTED 127
#define KILLED (128 + SIGKILL)

static char nonce[64] = "none";

static void begin(const char *name)
{
	printf("\n@@%s begin %s\n", nonce, name);
	fflush(stdout);
}

/* Programs may leave a line unfinished; the end stands on a line of its own. */
static void end(const char *name, int status)
{
	printf("\n@@%s end %s %d\n", nonce, name, status);
	fflush(stdout);
}

static void say(const char *name, const char *text)
{
	begin(name);
	puts(text);
	end(name, 0);
}

/* Shows a file, or of it only the lines that begin with `only`. */
static void show(const char *name, const char *path, const char *only)
{
	char line[4096];
	FILE *file = fopen(path, "r");
	int status = file ? 0 : errno;

	begin(name);
	while (file && fgets(line, sizeof(line), file))
		if (!only || !strncmp(line, only, strlen(only)))
			fputs(line, stdout);
	if (file)
		fclose(file);
	end(name, status);
}

static void show_bytes(const char *name, const char *path)
{
	unsigned char bytes[NOTE_BYTES_PER_LINE];
	FILE *file = fopen(path, "r");
	int status = file ? 0 : errno;
	size_t count;

	begin(name);
	while (file && (count = fread(bytes, 1, sizeof(bytes), file)) > 0) {
		for (size_t i = 0; i < count; i++)
			printf("%02x", bytes[i]);
		putchar('\n');
	}
	if (file)
		fclose(file);
	end(name, status);
}

static void set(const char *path, const char *value)
{
	int file = open(path, O_WRONLY);

	if (file < 0)
		return;
	if (write(file, value, strlen(value)) < 0)
		perror(path);
	close(file);
}

static void read_nonce(void)
{
	char line[4096] = "";
	FILE *file = fopen("/proc/cmdline", "r");

	if (!file)
		return;
	if (fgets(line, sizeof(line), file))
		for (char *word = strtok(line, " \n"); word; word = strtok(NULL, " \n"))
			if (!strncmp(word, NONCE_WORD, strlen(NONCE_WORD)))
				snprintf(nonce, sizeof(nonce), "%s", word + strlen(NONCE_WORD));
	fclose(file);
}

static void say_release(void)
{
	struct utsname about;

	if (uname(&about) == 0)
		say("release", about.release);
}

static void become(char *program, char *name, char *runs)
{
	char *words[] = { program, name, runs, NULL };
	sigset_t none;
	int nothing = open("/dev/null", O_RDONLY);

	setsid();
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (nothing >= 0)
		dup2(nothing, STDIN_FILENO);
	dup2(STDOUT_FILENO, STDERR_FILENO);
	execv(program, words);
	fprintf(stderr, "%s: %s\n", program, strerror(errno));
	_exit(NOT_STARTED);
}

/* Collects what has ended, orphans too; whether `wanted` is among them. */
static int has_ended(pid_t wanted, int *status)
{
	int one, found = 0;
	pid_t pid;

	while ((pid = waitpid(-1, &one, WNOHANG)) > 0)
		if (pid == wanted) {
			*status = one;
			found = 1;
		}
	return found;
}

/* SIGCHLD is blocked, so that one that comes between the look and the wait is not lost. */
static int run(long seconds, char *program, char *name, char *runs)
{
	struct timespec start, now, left = { 0 };
	sigset_t children;
	int status = 0;
	pid_t pid;

	sigemptyset(&children);
	sigaddset(&children, SIGCHLD);
	sigprocmask(SIG_BLOCK, &children, NULL);
	clock_gettime(CLOCK_MONOTONIC, &start);
	pid = fork();
	if (pid == 0)
		become(program, name, runs);
	if (pid < 0)
		return NOT_STARTED;
	while (!has_ended(pid, &status)) {
		clock_gettime(CLOCK_MONOTONIC, &now);
		left.tv_sec = seconds - (now.tv_sec - start.tv_sec);
		if (left.tv_sec <= 0) {
			kill(pid, SIGKILL);
			waitpid(pid, &status, 0);
			break;
		}
		sigtimedwait(&children, NULL, &left);
	}
	/* Everything but this program: what a case leaves behind must not disturb the next one. */
	kill(-1, SIGKILL);
	while (waitpid(-1, NULL, 0) > 0)
		;
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static void run_cases(FILE *cases)
{
	char line[512], section[32];

	for (int number = 0; fgets(line, sizeof(line), cases); number++) {
		char *seconds = strtok(line, " \n"), *program = strtok(NULL, " \n");
		char *name = strtok(NULL, " \n"), *runs = strtok(NULL, " \n");
		int status;

		if (!runs)
			continue;
		snprintf(section, sizeof(section), "case-%d", number);
		begin(section);
		status = run(atol(seconds), program, name, runs);
		end(section, status);
		/* Killed: by the time limit, or by the kernel for want of memory. */
		if (status == KILLED) {
			snprintf(section, sizeof(section), "oom-%d", number);
			show(section, "/proc/vmstat", "oom_kill ");
		}
	}
}

int main(void)
{
	FILE *cases;

	mount("proc", "/proc", "proc", 0, NULL);
	mount("sysfs", "/sys", "sysfs", 0, NULL);
	read_nonce();
	/* From here on only emergencies of the kernel may come between the lines of the proof and of the measurements. */
	klogctl(SET_CONSOLE_LEVEL, NULL, EMERGENCIES_ONLY);
	say("hello", "ready");
	show("boot_id", "/proc/sys/kernel/random/boot_id", NULL);
	show_bytes("notes", "/sys/kernel/notes");
	say_release();
	show("cmdline", "/proc/cmdline", NULL);
	show("memory", "/proc/meminfo", "MemTotal");
	show("online", "/sys/devices/system/cpu/online", NULL);
	show("cpuinfo", "/proc/cpuinfo", NULL);
	show("clock", "/sys/devices/system/clocksource/clocksource0/current_clocksource", NULL);
	/* Huge pages are asked for by the case that wants them; a small machine starts with them off. */
	set("/sys/kernel/mm/transparent_hugepage/enabled", "madvise");
	cases = fopen("/cases", "r");
	if (cases)
		run_cases(cases);
	say("bye", "done");
	tcdrain(STDOUT_FILENO);
	reboot(RB_AUTOBOOT);
	return 1;
}
