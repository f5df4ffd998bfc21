// SPDX-License-Identifier: MIT
/*
 * PID 1 of the guest. Mounts file systems; for each set-up loads both modules, runs the tests,
 * checks for leftovers, unloads, and reads the kernel's log. Prints TAP and "EXIT n", then powers
 * off.
 *
 * Set-ups come from the kernel's command line: rig.setups=GEN:MODE,..., rig.library=MODE,... A
 * module that has pinned by callback stays loaded, so such a set-up is the last of its boot
 * (rig.sh). Knows no test.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <sys/klog.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "rig.h"

struct rig rig = { .rounds = 200, .random_s = 5, .fuzz = 20000, .seed = 1, .gpl = true };

static const struct test *const groups[] = { tests_basic, tests_observe, tests_map,    tests_revoke,
					     tests_owner, tests_fault,	 tests_window, tests_race,
					     tests_fuzz,  tests_measure, tests_walk,   tests_pairs,
					     tests_node,  tests_reclaim };
enum verdict { PASS, FAIL, SKIPPED };
static unsigned int nr[3]; /* of each verdict */
static char setup_name[64];

/* @start: of now_us(); 0: no time */
static void report(enum verdict verdict, const char *name, long long start)
{
	nr[verdict]++;
	printf("%s %u - %s/%s%s%lld ms\n", verdict == FAIL ? "not ok" : "ok",
	       nr[PASS] + nr[FAIL] + nr[SKIPPED], setup_name, name,
	       verdict == SKIPPED ? " # SKIP " : " # ", start ? (now_us() - start) / 1000 : 0);
	fflush(stdout);
}

/* Whether nothing is pinned, reserved or allocated at this moment. @why: the counters. */
static bool balanced(char *why, size_t len)
{
	long pins = nr_pins(), users = driver_users();
	long memtypes = rig.gpl ? stat_of("memtypes") : 0;
	int gpu = prov_open();
	struct provider_info info = gpu_info(gpu);

	close(gpu);
	snprintf(why, len,
		 "driver: %ld pins, %ld users, %ld memory types; provider: %u pins, %u tables, "
		 "%u of %u pages free, %u errors",
		 pins, users, memtypes, info.pins, info.tables, info.pages_free, info.pages_total,
		 info.errors);
	return !pins && !users && !memtypes && !info.pins && !info.tables && !info.errors &&
	       info.pages_free == info.pages_total;
}

/* Reports a test: it passes if its exit code is 0 and it leaves nothing pinned. */
static void report_exit(const char *name, int code, long long start)
{
	char why[256];
	int i;

	/* A worker may drop a last reference a moment later. */
	for (i = 0; !code && !balanced(why, sizeof(why)); i++) {
		usleep(20000);
		if (i == 100) {
			printf("# left behind: %s\n", why);
			code = 1;
		}
	}
	if (code && code != SKIP_CODE)
		printf("# exit code %d\n", code);
	report(!code ? PASS : code == SKIP_CODE ? SKIPPED : FAIL, name, start);
}

/* rig.only= lists parts of test names. */
static bool wanted(const char *name)
{
	char only[sizeof(rig.only)], *part, *save;

	if ((!rig.pairs && !strcmp(name, "pairs")) ||
	    (!rig.sequences_s && !strcmp(name, "sequences")))
		return false;
	if (!rig.only[0])
		return true;
	strcpy(only, rig.only);
	for (part = strtok_r(only, ",", &save); part; part = strtok_r(NULL, ",", &save))
		if (strstr(name, part))
			return true;
	return false;
}

static void run_test(const struct test *test)
{
	/* Only catches hangs: a loaded host may take several times as long as an idle one. */
	unsigned int seconds = (test->seconds ? test->seconds : 20) * (rig.debug ? 20 : 4);
	long long start = now_us();
	pid_t pid;
	int code;

	if (!(test->modes & rig.mode) || !wanted(test->name))
		return;
	rig.test = test->name;
	rig.arg = test->arg;
	fflush(stdout);
	pid = fork();
	if (!pid) {
		setpgid(0, 0);
		alarm(seconds);
		drv = drv_open();
		prov = prov_open();
		test->fn();
		fflush(stdout);
		_exit(0);
	}
	code = wait_child(pid);
	kill(-pid, SIGKILL);
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
	report_exit(test->name, code, start);
}

int load_module(const char *path, const char *params)
{
	int fd = open(path, O_RDONLY);
	int ret;

	if (fd < 0)
		return -errno;
	ret = syscall(SYS_finit_module, fd, params, 0) ? -errno : 0;
	close(fd);
	return ret;
}

/* clang-format off */
static const char *const alarms[] = {
	"BUG", "WARNING:", "KASAN", "UBSAN", "Oops", "possible circular", "possible recursive",
	"inconsistent lock", "suspicious RCU", "INFO: task", "general protection", "stack segment",
	"provider: ERROR", "memory leak", "refcount_t:", "sleeping function", "scheduling while",
	"Bad page", "bad page", "x86/PAT:", "Modules linked in", "unable to handle",
};
/* clang-format on */

/* Prints the log from the first alarm on. */
static bool log_is_clean(void)
{
	int size = klogctl(10, NULL, 0), n, shown = 0;
	char *log = malloc((size_t)size + 1);
	bool clean = true;
	size_t i;

	n = klogctl(4, log, size); /* read and clear */
	log[n > 0 ? n : 0] = 0;
	for_each_line(line, log) {
		for (i = 0; i < ARRAY_SIZE(alarms); i++)
			if (strstr(line, alarms[i]) && !strstr(line, "Debug kernel"))
				clean = false;
		if (!clean && shown++ < 60)
			printf("# dmesg: %s\n", line);
	}
	free(log);
	return clean;
}

static void kmemleak_scan(void)
{
	bool leaks;
	char *text;

	if (access("/sys/kernel/debug/kmemleak", W_OK))
		return;
	usleep(100000);
	write_text("/sys/kernel/debug/kmemleak", "scan");
	sleep(6); /* younger objects are not reported */
	write_text("/sys/kernel/debug/kmemleak", "scan");
	text = read_text("/sys/kernel/debug/kmemleak");
	leaks = text && strstr(text, "unreferenced");
	if (leaks)
		printf("# %.3000s\n", text);
	report(leaks ? FAIL : PASS, "kmemleak", 0);
	free(text);
	write_text("/sys/kernel/debug/kmemleak", "clear");
}

/*
 * Lockdep turns itself off at its first report, and silently for other reasons. While it was off it
 * checked no lock.
 */
static bool lockdep_is_live(const char *when)
{
	char *text = read_text("/proc/lockdep_stats");
	char *at = text ? strstr(text, "debug_locks:") : NULL;
	bool live = at && atoi(at + strlen("debug_locks:")) == 1;

	snprintf(setup_name, sizeof(setup_name), "%s", when);
	report(live ? PASS : FAIL, "lockdep-live", 0);
	free(text);
	return live;
}

/* Line coverage: the counters, in hex, for the host. */
static void gcov_dump(void)
{
	char *list = read_text("/gcov.list");

	for_each_line(path, list) {
		int fd = open(path, O_RDONLY);
		unsigned char buf[64];
		ssize_t n, i;

		if (fd < 0)
			continue;
		printf("GCOV %s\n", path);
		while ((n = read(fd, buf, sizeof(buf))) > 0) {
			printf("GCOVDATA ");
			for (i = 0; i < n; i++)
				printf("%02x", buf[i]);
			printf("\n");
		}
		printf("GCOVEND\n");
		close(fd);
	}
	free(list);
}

static enum mode mode_of(const char *name)
{
	return !strcmp(name, "persistent") ? PERSISTENT
	       : !strcmp(name, "callback") ? CALLBACK
					   : FALLBACK;
}

static void unload_one(const char *name)
{
	int i, ret = -EAGAIN;

	for (i = 0; i < 100 && ret; i++) {
		ret = delete_module_named(name);
		if (ret)
			usleep(20000);
	}
	if (ret) {
		printf("# rmmod %s: %d\n", name, ret);
		report(FAIL, "unload", 0);
	}
}

/* Unloads both modules, or checks that a driver that has pinned by callback refuses. */
static void unload(void)
{
	bool kept = driver_is_kept();

	if (kept && delete_module_named("gdrdrv") != -EAGAIN) {
		printf("# callback pins were made, and the module can be unloaded\n");
		report(FAIL, "unload", 0);
	} else if (!kept) {
		unload_one("gdrdrv");
		unload_one("provider");
	}
}

int load_driver(void)
{
	char path[64];

	snprintf(path, sizeof(path), "/mod/gdrdrv-%d%s.ko", rig.gen, rig.gpl ? "" : "-prop");
	return load_module(path, rig.mode == CALLBACK ? "use_persistent_mapping=0" : "");
}

int load_provider(const char *params)
{
	char path[64];

	snprintf(path, sizeof(path), "/mod/provider-%d.ko", rig.gen);
	return load_module(path, params);
}

/* Loads both modules and tests whether that succeeded. */
static bool load(const char *params)
{
	int ret = load_provider(params);

	if (!ret)
		ret = load_driver();
	if (!ret)
		return true;
	printf("# insmod: %d\n", ret);
	log_is_clean();
	report(FAIL, "load", 0);
	return false;
}

static void run_setup(const char *gen, const char *mode)
{
	unsigned int was[3] = { nr[PASS], nr[FAIL], nr[SKIPPED] };
	long long start = now_us();
	const struct test *test;
	size_t i;

	snprintf(setup_name, sizeof(setup_name), "%s-%s%s", gen, mode, rig.gpl ? "" : "-prop");
	rig.gen = atoi(gen);
	rig.mode = mode_of(mode);
	if (!load(rig.mode == FALLBACK ? "fail_persistent=524" : ""))
		return;
	for (i = 0; i < ARRAY_SIZE(groups); i++)
		for (test = groups[i]; test->name; test++)
			run_test(test);
	if (rig.debug && !access("/gcov.list", R_OK))
		gcov_dump();
	unload();
	kmemleak_scan();
	report(log_is_clean() ? PASS : FAIL, "dmesg", 0);
	printf("# set-up %s: %u passed, %u failed, %u skipped in %lld ms\n", setup_name,
	       nr[PASS] - was[PASS], nr[FAIL] - was[FAIL], nr[SKIPPED] - was[SKIPPED],
	       (now_us() - start) / 1000);
}

static const char *option(const char *line, const char *name, char *out, size_t len)
{
	const char *at = strstr(line, name);

	out[0] = 0;
	if (at) {
		at += strlen(name);
		snprintf(out, len, "%.*s", (int)strcspn(at, " \n"), at);
	}
	return out;
}

/* Prints a program's output, or only its last line, as TAP comments. */
static void show_output(const char *path, bool last_only)
{
	char *text = read_text(path), *last = NULL;

	for_each_line(line, text) {
		last = line;
		if (!last_only)
			printf("# %s\n", line);
	}
	if (last_only && last)
		printf("# %s: %s\n", setup_name, last);
	free(text);
}

static int run_shell(const char *line)
{
	pid_t pid;
	int code;

	fflush(stdout);
	pid = fork();
	if (!pid) {
		int out = open("/tmp/output", O_WRONLY | O_CREAT | O_TRUNC, 0600);

		dup2(out, STDOUT_FILENO);
		dup2(out, STDERR_FILENO);
		setpgid(0, 0);
		alarm(60 * (rig.debug ? 20 : 10)); /* only catches hangs */
		execl("/bin/busybox", "sh", "-c", line, (char *)NULL);
		_exit(127);
	}
	code = wait_child(pid);
	kill(-pid, SIGKILL); /* its children would disturb the next test */
	return code;
}

/*
 * Runs the commands of /rig.commands, one a line, # for a comment. A command passes if its exit
 * code is 0 and nothing is left pinned.
 */
static void run_commands(void)
{
	char *text = read_text("/rig.commands");

	for_each_line(line, text) {
		long long start = now_us();
		int code;

		if (line[0] == '#')
			continue;
		code = run_shell(line);
		if (code != SKIP_CODE)
			show_output("/tmp/output", !code);
		report_exit(line, code, start);
	}
	free(text);
}

static void run_command_setup(const char *mode)
{
	snprintf(setup_name, sizeof(setup_name), "library-580-%s", mode);
	rig.mode = mode_of(mode);
	rig.gen = 580;
	if (!load(""))
		return;
	run_commands();
	unload();
	report(log_is_clean() ? PASS : FAIL, "dmesg", 0);
}

static void mounts(void)
{
	static const char *const points[][2] = {
		{ "proc", "/proc" },	{ "sysfs", "/sys" },
		{ "devtmpfs", "/dev" }, { "debugfs", "/sys/kernel/debug" },
		{ "tmpfs", "/tmp" },	{ "tracefs", "/sys/kernel/tracing" },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(points); i++) {
		mkdir(points[i][1], 0755);
		mount(points[i][0], points[i][1], points[i][0], 0, NULL);
	}
}

int main(void)
{
	static const struct {
		const char *name;
		unsigned int *to;
	} numbers[] = { { "rig.rounds=", &rig.rounds },
			{ "rig.random=", &rig.random_s },
			{ "rig.fuzz=", &rig.fuzz },
			{ "rig.pairs=", &rig.pairs },
			{ "rig.sequences=", &rig.sequences_s },
			{ "rig.seed=", &rig.seed } };
	char text[512], *cmdline, *setup, *save;
	size_t i;

	mounts();
	freopen("/dev/console", "r+", stdin);
	freopen("/dev/console", "w", stdout);
	freopen("/dev/console", "w", stderr);
	cmdline = read_text("/proc/cmdline");
	for (i = 0; i < ARRAY_SIZE(numbers); i++)
		if (*option(cmdline, numbers[i].name, text, sizeof(text)))
			*numbers[i].to = (unsigned int)strtoul(text, NULL, 0);
	rig.debug = *option(cmdline, "rig.debug=", text, sizeof(text));
	rig.gpl = !*option(cmdline, "rig.prop=", text, sizeof(text));
	option(cmdline, "rig.only=", rig.only, sizeof(rig.only));
	if (rig.debug && !lockdep_is_live("boot"))
		log_is_clean(); /* prints what turned it off */
	klogctl(5, NULL, 0); /* earlier messages are not judged */
	/* Before the tests, which leave bytes in the BAR that the host checks. */
	if (!access("/rig.commands", R_OK)) {
		option(cmdline, "rig.library=", text, sizeof(text));
		for (setup = strtok_r(text, ",", &save); setup; setup = strtok_r(NULL, ",", &save))
			run_command_setup(setup);
	}
	option(cmdline, "rig.setups=", text, sizeof(text));
	for (setup = strtok_r(text, ",", &save); setup; setup = strtok_r(NULL, ",", &save)) {
		char *mode = strchr(setup, ':');

		CHECK(mode);
		*mode++ = 0;
		run_setup(setup, mode);
		rig.setup++;
	}
	if (rig.debug)
		lockdep_is_live("all");
	printf("TOTAL %u passed, %u failed, %u skipped\n", nr[PASS], nr[FAIL], nr[SKIPPED]);
	printf("EXIT %d\n", nr[FAIL] || !nr[PASS]);
	fflush(stdout);
	sync();
	reboot(RB_AUTOBOOT);
	return 0;
}
