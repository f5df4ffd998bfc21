// SPDX-License-Identifier: MIT
/*
 * explore                              lists the scenarios
 * explore SCENARIO SEED [COUNT [S]]    runs COUNT (1) seeds from SEED on, or for S CPU seconds, each
 *                                      in a process of its own; ends at the first that fails
 * explore --reduce SCENARIO SEED       the fewest switches with which that seed fails
 *
 * SCENARIO may be `all`: they take turns. Exits with 0, or 1 if a seed failed, whose number, stacks
 * and switches it prints. EXPLORE_PLAN= repeats switches, EXPLORE_PLAIN=1 makes each plain access a
 * point, EXPLORE_VERBOSE=1 prints the calls, EXPLORE_TURNS=1 the switches of a run that passes.
 *
 * A schedule depends on addresses, by which the library's tables hash. So the program runs at fixed
 * ones; where personality() is refused it says so, and a seed may give another schedule.
 */
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/process.h"
#include "explore/scenarios.h"

enum { FAILED = 1, USAGE = 2 };

static void on_signal(int sig)
{
	signal(sig, SIG_DFL);
	if (sig == SIGALRM)
		ex_fail("no point for %d s: a lock or a loop that is not the scheduler's",
			EX_STUCK_S);
	ex_fail("signal %d (%s)", sig, strsignal(sig));
}

static const struct scenario *find(const char *name, uint64_t seed)
{
	if (!strcmp(name, "all"))
		return &scenarios[seed % (uint64_t)scenario_count];
	for (int i = 0; i <= scenario_count; i++)
		if (!strcmp(scenarios[i].name, name))
			return &scenarios[i];
	fprintf(stderr, "explore: no scenario %s\n", name);
	exit(USAGE);
}

static const struct scenario *running;

/* Of one seed in 16; not with the node's stand-in, whose pin takes a lock of CUDA's stand-in. */
static void fork_first(int thread)
{
	/* A fork during the first open calls no handler of the library: see process.h. */
	while (!thread && !gdri_process_tag())
		ex_yield();
	if (!thread)
		scenario_fork();
	running->body(thread);
}

/*
 * In a process of its own: nothing of another seed is in the library's tables. On one CPU, since one
 * thread runs at a time: a switch to a thread of another CPU costs several times as much.
 */
static void __attribute__((noreturn)) run(const struct scenario *s, uint64_t seed)
{
	static const int signals[] = { SIGSEGV, SIGBUS, SIGABRT, SIGALRM };
	cpu_set_t here;

	CPU_ZERO(&here);
	CPU_SET(sched_getcpu(), &here);
	sched_setaffinity(0, sizeof(here), &here);

	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		signal(signals[i], on_signal);
	ex_begin(s->name, seed);
	scenario_forks = seed % 16 == 15;
	scenario_start(s);
	alarm(EX_STUCK_S);
	s->begin();
	running = s;
	ex_run(s->threads, scenario_forks ? fork_first : s->body);
	s->check();
	fflush(stdout);
	_exit(0);
}

/*
 * The exit status of this program with those arguments. It is executed anew, since a forked child
 * would share the stand-in of the resource manager, as processes share the real one.
 */
static int in_process(const char *name, uint64_t seed, const char *plan, bool quiet)
{
	char number[24];
	int status;
	pid_t pid;

	snprintf(number, sizeof(number), "%llu", (unsigned long long)seed);
	fflush(stdout);
	pid = fork();
	if (!pid) {
		if (plan)
			setenv("EXPLORE_PLAN", plan, 1);
		if (quiet && !freopen("/dev/null", "w", stderr))
			_exit(USAGE);
		execl("/proc/self/exe", "explore", name, number, NULL);
		_exit(USAGE);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return USAGE;
	if (WIFSIGNALED(status))
		fprintf(stderr, "explore: %s, seed %s: signal %d\n", name, number,
			WTERMSIG(status));
	return WIFEXITED(status) ? WEXITSTATUS(status) : FAILED;
}

static double cpu_seconds(void)
{
	struct rusage u;

	getrusage(RUSAGE_CHILDREN, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static int run_all(const char *name, uint64_t seed, uint64_t count, double seconds)
{
	uint64_t done = 0;

	for (; done < count && (!seconds || cpu_seconds() < seconds); done++) {
		const struct scenario *s = find(name, seed + done);

		if (in_process(s->name, seed + done, NULL, false)) {
			printf("explore: %s %llu failed, after %llu that passed\n", s->name,
			       (unsigned long long)(seed + done), (unsigned long long)done);
			return FAILED;
		}
	}
	printf("explore: %s, seeds %llu to %llu: %llu schedules, %.0f CPU s\n", name,
	       (unsigned long long)seed, (unsigned long long)(seed + done - 1),
	       (unsigned long long)done, cpu_seconds());
	return 0;
}

/* The switches that a failing run printed, in text. */
static bool read_turns(const char *name, uint64_t seed, const char *plan, char *text, size_t size)
{
	char command[512], *line = NULL, *at;
	size_t room = 0;
	bool found = false;
	FILE *f;

	snprintf(command, sizeof(command), "EXPLORE_QUIET=1 exec /proc/%d/exe %s %llu 2>&1",
		 (int)getpid(), name, (unsigned long long)seed);
	if (plan)
		setenv("EXPLORE_PLAN", plan, 1);
	f = popen(command, "r");
	unsetenv("EXPLORE_PLAN");
	while (f && getline(&line, &room, f) > 0) {
		at = strstr(line, "EXPLORE_PLAN='");
		if (at && strlen(at) < size) {
			strcpy(text, at + strlen("EXPLORE_PLAN='"));
			*strchrnul(text, '\'') = '\0';
			found = true;
		}
	}
	free(line);
	return f && pclose(f) && found;
}

/* Leaves out halves of the switches, then quarters and so on, as long as the run still fails. */
static int reduce(const char *name, uint64_t seed)
{
	enum { SIZE = 1 << 20 };
	char *plan = malloc(SIZE), *less = malloc(SIZE);
	size_t words = 1, drop;

	if (!plan || !less || !read_turns(name, seed, NULL, plan, SIZE)) {
		fprintf(stderr, "explore: %s, seed %llu does not fail\n", name,
			(unsigned long long)seed);
		return USAGE;
	}
	for (const char *p = plan; *p; p++)
		words += *p == ' ';
	for (drop = words / 2; drop; drop /= 2)
		for (size_t from = 0; from < words;) {
			size_t word = 0, length = 0, left = 0;

			for (const char *p = plan; *p; word++) {
				size_t n = strcspn(p, " ");

				if (word < from || word >= from + drop) {
					length += (size_t)sprintf(less + length, "%s%.*s",
								  left++ ? " " : "", (int)n, p);
				}
				p += n + (p[n] == ' ');
			}
			less[length] = '\0';
			if (left < words && in_process(name, seed, less, true) == FAILED) {
				strcpy(plan, less);
				words = left;
			} else {
				from += drop;
			}
		}
	printf("%zu switches: EXPLORE_PLAN='%s'\n", words, plan);
	return in_process(name, seed, plan, false);
}

static void at_fixed_addresses(char **argv)
{
	int now = personality(0xffffffff);

	if (now < 0 || !(now & ADDR_NO_RANDOMIZE)) {
		if (now >= 0 && personality((unsigned int)now | ADDR_NO_RANDOMIZE) >= 0)
			execv("/proc/self/exe", argv);
		fprintf(stderr, "explore: addresses are random here: a seed may not repeat\n");
	}
}

int main(int argc, char **argv)
{
	bool reduces = argc > 1 && !strcmp(argv[1], "--reduce");

	at_fixed_addresses(argv);
	argc -= reduces;
	argv += reduces;
	if (argc == 1 && !reduces) {
		for (int i = 0; i < scenario_count; i++)
			printf("%s\n", scenarios[i].name);
		return 0;
	}
	if (argc < 3 || argc > 5) {
		fprintf(stderr, "usage: explore [--reduce] SCENARIO SEED [COUNT [CPU_SECONDS]]\n");
		return USAGE;
	}
	if (reduces)
		return reduce(argv[1], strtoull(argv[2], NULL, 0));
	if (argc == 3)
		run(find(argv[1], strtoull(argv[2], NULL, 0)), strtoull(argv[2], NULL, 0));
	return run_all(argv[1], strtoull(argv[2], NULL, 0), strtoull(argv[3], NULL, 0),
		       argc > 4 ? strtod(argv[4], NULL) : 0);
}
