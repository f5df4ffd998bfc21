// SPDX-License-Identifier: MIT
/* See unit.h. */
#include "unit.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/again.h"

/* There in a build with --coverage only: a child that leaves by _exit() has counted too. */
extern void __gcov_dump(void) __attribute__((weak));

enum { SKIPPED = 77 }; /* exit status of a process for a test that was skipped */
enum { ROWS = 1000 }; /* Check's index of a row: that of the test * ROWS + the row */

void (*unit_before)(void);
void (*unit_after)(void);
int unit_row;
const void *unit_arg;

static const struct unit_test *all;
static const char *running = "";
static char self[PATH_MAX];
static int *skips; /* shared with the processes that Check forks; NULL in one for a single test */
static bool skipped;

static void skip(const char *test, const char *emulator, const char *why)
{
	printf("SKIP %s: %s%s\n", test, emulator, why);
	fflush(stdout);
	skipped = true;
	if (skips)
		++*skips;
}

void unit_skip(const char *why)
{
	skip(running, "", why);
}

bool test_emulator_lacks(const char *test, const char *what)
{
	const char *emulator = getenv("GDRCOPY_TEST_EMULATOR");

	if (!emulator || !*emulator)
		return false;
	skip(test, "not under user-mode emulation: ", what);
	return true;
}

/* "$SIM" at the start of a value is the directory of the stand-ins. */
static void set_env(const char *name, const char *value)
{
	const char *dir = getenv("GDRSIM_DIR"), *asan = getenv("ASAN_OPTIONS");
	char text[PATH_MAX];

	if (!strncmp(value, "$SIM", 4)) {
		snprintf(text, sizeof(text), "%s%s", dir ? dir : ".", value + 4);
		value = text;
	}
	setenv(name, value, 1);
	if (strcmp(name, "LD_PRELOAD"))
		return;
	snprintf(text, sizeof(text), "%s%sverify_asan_link_order=0", asan ? asan : "",
		 asan ? ":" : "");
	setenv("ASAN_OPTIONS", text, 1);
}

/* In the child: the environment, then this program again with one test to run. */
static void exec_fresh(int index)
{
	char words[1024], number[16], *word, *save = NULL;

	snprintf(words, sizeof(words), "%s", all[index / ROWS].env);
	for (word = strtok_r(words, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
		char *value = strchr(word, '=');

		*value++ = '\0';
		set_env(word, value);
	}
	snprintf(number, sizeof(number), "%d", index);
	setenv("UNIT_FRESH", number, 1);
	if (fcntl(STDIN_FILENO, F_GETFD) == -1)
		open("/dev/null", O_RDONLY); /* Check and the stand-ins get others than 0 */
	test_again(self, (char *[]){ self, NULL });
	_exit(126);
}

static void run_here(int index)
{
	running = all[index / ROWS].name;
	unit_row = index % ROWS;
	unit_arg = all[index / ROWS].arg;
	if (unit_before && !all[index / ROWS].bare)
		unit_before();
	all[index / ROWS].fn();
	if (unit_after && !all[index / ROWS].bare)
		unit_after();
}

START_TEST(run)
{
	int status = -1;
	pid_t pid;

	if (!all[_i / ROWS].env) {
		run_here(_i);
		return;
	}
	pid = fork();
	if (!pid)
		exec_fresh(_i);
	ck_assert_int_gt(pid, 0);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED) {
		++*skips;
		return;
	}
	ck_assert_msg(WIFEXITED(status) && !WEXITSTATUS(status), "%s: %s %d (text above)",
		      all[_i / ROWS].name, WIFSIGNALED(status) ? "signal" : "exit",
		      WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}
END_TEST

START_TEST(run_fresh)
{
	close(STDIN_FILENO); /* 0 is then the first descriptor of the library, and as good as others */
	run_here(_i);
}
END_TEST

static int run_one(const char *suite_name, int index)
{
	Suite *suite = suite_create(suite_name);
	TCase *tc = tcase_create(all[index / ROWS].name);
	SRunner *runner;
	int failed;

	unsetenv("UNIT_FRESH");
	tcase_add_loop_test(tc, run_fresh, index, index + 1);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_set_fork_status(runner, CK_NOFORK);
	srunner_run_all(runner, CK_SILENT);
	failed = srunner_ntests_failed(runner);
	if (failed) {
		TestResult **results = srunner_failures(runner);

		fprintf(stderr, "%s: %s:%d: %s\n", all[index / ROWS].name, tr_lfile(results[0]),
			tr_lno(results[0]), tr_msg(results[0]));
		free(results);
	}
	srunner_free(runner);
	return failed ? EXIT_FAILURE : skipped ? SKIPPED : EXIT_SUCCESS;
}

/* The test of that name, in this process or what exec makes of it. */
static int run_named(const char *suite_name, char **argv, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (!strcmp(argv[1], all[i].name)) {
			int index = (int)i * ROWS + (argv[2] ? atoi(argv[2]) : 0);

			if (all[i].env)
				exec_fresh(index);
			return run_one(suite_name, index);
		}
	fprintf(stderr, "no test \"%s\"; there are:\n", argv[1]);
	for (size_t i = 0; i < count; i++)
		fprintf(stderr, "  %s\n", all[i].name);
	return EXIT_FAILURE;
}

int unit_main(char **argv, const char *suite_name, const struct unit_test *tests, size_t count)
{
	const char *one = getenv("UNIT_FRESH");
	int failed, checks;
	SRunner *runner;
	Suite *suite;

	all = tests;
	if (one && (size_t)atoi(one) / ROWS < count)
		return run_one(suite_name, atoi(one));
	if (!realpath(argv[0], self)) {
		perror(argv[0]);
		return EXIT_FAILURE;
	}
	if (argv[1])
		return run_named(suite_name, argv, count);
	suite = suite_create(suite_name);
	for (size_t i = 0; i < count; i++) {
		TCase *tc = tcase_create(tests[i].name);

		tcase_set_timeout(tc, 300);
		tcase_add_loop_test(tc, run, (int)i * ROWS,
				    (int)i * ROWS + (tests[i].rows ? tests[i].rows : 1));
		suite_add_tcase(suite, tc);
	}
	skips = mmap(NULL, sizeof(*skips), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	if (skips == MAP_FAILED) {
		perror("mmap");
		return EXIT_FAILURE;
	}
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV); /* forks unless CK_FORK=no */
	failed = srunner_ntests_failed(runner);
	checks = srunner_ntests_run(runner);
	srunner_free(runner);
	printf("%d passed, %d failed, %d skipped\n", checks - failed - *skips, failed, *skips);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

bool unit_quick(void)
{
	const char *text = getenv("GDRCOPY_TEST_QUICK");

	return text && *text && *text != '0';
}

void unit_temp_dir(char dir[UNIT_DIR])
{
	const char *in = getenv("TMPDIR");

	in = in && *in ? in : "/tmp";
	ck_assert_int_lt(snprintf(dir, UNIT_DIR, "%s/barcopy-test.XXXXXX", in), UNIT_DIR);
	ck_assert_ptr_nonnull(mkdtemp(dir));
}

void unit_remove_dir(const char *dir)
{
	char command[UNIT_DIR + 16];

	snprintf(command, sizeof(command), "rm -rf '%s'", dir);
	ck_assert_int_eq(system(command), 0);
}

const char *unit_stderr_of(void (*fn)(void))
{
	static char caught[4096];
	FILE *f = fdopen(memfd_create("stderr", MFD_CLOEXEC), "w+");
	int saved = dup(2);
	size_t n;

	ck_assert_ptr_nonnull(f);
	fflush(stderr);
	dup2(fileno(f), 2);
	fn();
	fflush(stderr);
	dup2(saved, 2);
	close(saved);
	rewind(f);
	n = fread(caught, 1, sizeof(caught) - 1, f);
	caught[n] = '\0';
	fclose(f);
	return caught;
}

static struct thread {
	pthread_t name;
	void *(*fn)(void *);
	void *arg;
	_Atomic pid_t id; /* once it runs */
	_Atomic bool ended;
} threads[64];
static unsigned int running_threads;

static void *run_thread(void *arg)
{
	struct thread *t = arg;
	void *answer;

	atomic_store(&t->id, gettid());
	answer = t->fn(t->arg);
	atomic_store(&t->ended, true);
	return answer;
}

void unit_start(unsigned int count, void *(*fn)(void *), void *arg, size_t step)
{
	for (unsigned int i = 0; i < count; i++) {
		struct thread *t = &threads[running_threads++];

		ck_assert_uint_le(running_threads, COUNT(threads));
		t->fn = fn;
		t->arg = (void *)((uintptr_t)arg + i * step);
		atomic_store(&t->id, 0);
		atomic_store(&t->ended, false);
		ck_assert_int_eq(pthread_create(&t->name, NULL, run_thread, t), 0);
	}
}

/* The state of /proc/PID/task/TID/stat, behind the name in parentheses; without the heap, whose calls tests count. */
static char state_of(pid_t id)
{
	char path[64], text[128] = "", *end;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)id);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	if (read(fd, text, sizeof(text) - 1) < 0)
		text[0] = '\0';
	close(fd);
	end = strrchr(text, ')');
	return end && end[1] ? end[2] : 0;
}

bool unit_blocks(void)
{
	struct thread *t = &threads[running_threads - 1];
	int asleep = 0;

	for (; asleep < 50 && !atomic_load(&t->ended); usleep(1000)) {
		pid_t id = atomic_load(&t->id);

		asleep = id && state_of(id) == 'S' ? asleep + 1 : 0;
	}
	return asleep == 50;
}

void *unit_join(void)
{
	void *answer = NULL;

	while (running_threads) {
		void *its;

		pthread_join(threads[--running_threads].name, &its);
		answer = its ? its : answer;
	}
	return answer;
}

void *unit_threads(unsigned int count, void *(*fn)(void *), void *arg, size_t step)
{
	unit_start(count, fn, arg, step);
	return unit_join();
}

static sigjmp_buf after_fault;

static void on_fault(int sig)
{
	siglongjmp(after_fault, sig);
}

int unit_touch(volatile void *at, bool store)
{
	struct sigaction action = { .sa_handler = on_fault }, bus, segv;
	volatile uint8_t *byte = at;
	int sig;

	sigaction(SIGBUS, &action, &bus);
	sigaction(SIGSEGV, &action, &segv);
	sig = sigsetjmp(after_fault, 1);
	if (!sig && store)
		*byte = 1;
	else if (!sig)
		(void)*byte;
	sigaction(SIGBUS, &bus, NULL);
	sigaction(SIGSEGV, &segv, NULL);
	return sig;
}

int unit_in_child(int (*fn)(void *), void *arg)
{
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (!pid) {
		int rc = fn(arg);

		if (__gcov_dump)
			__gcov_dump();
		_exit(rc);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return -1;
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
