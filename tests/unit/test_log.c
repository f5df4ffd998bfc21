// SPDX-License-Identifier: MIT
/* Error texts, log levels, structs that grow, and the environment that decides on them. */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/again.h"
#include "common/resources.h"
#include "common/unit.h"
#include "common/wrap.h"
#include "base/env.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "barcopy.h"

static void one_of_each(void)
{
	gdri_log_init();
	gdri_log(GDRI_LOG_DEBUG, "d%d", 1);
	gdri_log(GDRI_LOG_INFO, "i%d", 2);
	gdri_log(GDRI_LOG_WARN, "w%d", 3);
	gdri_log(GDRI_LOG_ERROR, "e%d", 4);
}

/* In a child, which has not read the environment yet: what is logged at that level. */
static int level_is(void *row)
{
	const char *const *r = row;

	if (r[0])
		setenv("GDRCOPY_ENABLE_LOGGING", r[0], 1);
	if (r[1])
		setenv("GDRCOPY_LOG_LEVEL", r[1], 1);
	ck_assert_str_eq(unit_stderr_of(one_of_each), r[2]);
	return 0;
}

static void levels(void)
{
#define ERRORS	 "GDRCOPY ERR: e4\n"
#define WARNINGS "GDRCOPY WARN: w3\n" ERRORS
	static const char *rows[][3] = {
		/* enabled, level, what is written */
		{ NULL, NULL, "" },
		{ NULL, "1", "" },
		/* Without a level, errors alone, as in GDRCopy. */
		{ "1", NULL, ERRORS },
		{ "1", "1", "GDRCOPY DBG: d1\nGDRCOPY INFO: i2\n" WARNINGS },
		{ "1", "2", "GDRCOPY INFO: i2\n" WARNINGS },
		{ "1", "3", WARNINGS },
		{ "1", "4", ERRORS },
		{ "1", "0", ERRORS },
		{ "1", "5", ERRORS },
		{ "1", "12", ERRORS },
		{ "1", "-1", ERRORS },
	};

	for (size_t i = 0; i < COUNT(rows); i++)
		ck_assert_msg(!unit_in_child(level_is, rows[i]), "level %s", rows[i][1]);
}

static const char *said;

static void say_it(void)
{
	gdri_log_init();
	gdri_log(GDRI_LOG_ERROR, "%s", said);
}

/* What a terminal takes for a command reaches neither a text nor the log. */
static void controls(void)
{
	static const struct {
		const char *text, *plain;
	} rows[] = {
		{ "a b~", "a b~" },
		{ "\033[31m\a\n\t\177", "?[31m????" },
		/* C1: as UTF-8, and as a byte alone */
		{ "\302\233x\302\200\302\237", "??x????" },
		{ "\233x\200\377", "?x??" },
		{ "\302\240 \303\251 \342\202\254 \360\237\230\200", "\302\240 \303\251 \342\202\254 \360\237\230\200" },
		/* longer than needed, cut off, beyond the last character */
		{ "\300\233 \340\202\233 \360\200\202\233", "?? ??? ????" },
		{ "\342\202", "??" },
		{ "\303", "?" },
		{ "\365\200\200\200", "????" },
	};
	char line[200];

	for (size_t i = 0; i < COUNT(rows); i++) {
		gdri_error_set(EIO, "%s", rows[i].text);
		ck_assert_str_eq(barcopy_last_error(), rows[i].plain);
		said = rows[i].text;
		snprintf(line, sizeof(line), "GDRCOPY ERR: %s\n", rows[i].plain);
		ck_assert_str_eq(unit_stderr_of(say_it), line);
	}
	setenv("GDRCOPY_BACKEND", "\033]0;x\a", 1);
	ck_assert_ptr_null(gdr_open());
	ck_assert_ptr_nonnull(strstr(barcopy_last_error(), "\"?]0;x?\""));
}

static void say_long(void)
{
	char text[3000];

	memset(text, 'a', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	gdri_log_init();
	gdri_log(GDRI_LOG_ERROR, "%s", text);
}

static void long_message(void)
{
	size_t length = strlen(unit_stderr_of(say_long));

	ck_assert_uint_gt(length, 1000);
	ck_assert_uint_lt(length, 1400);
}

static void error_text(void)
{
	ck_assert_str_eq(barcopy_last_error(), "");
	ck_assert_int_eq(gdri_fail(ENODEV, "because %d", 7), -ENODEV);
	ck_assert_str_eq(barcopy_last_error(), "because 7");
	/* The former text may be an argument of the next. */
	ck_assert_int_eq(gdri_fail(EIO, "outer: %s", gdri_error_text()), -EIO);
	ck_assert_str_eq(barcopy_last_error(), "outer: because 7");
	gdri_error_clear();
	ck_assert_str_eq(barcopy_last_error(), "");
}

static void fail_why(void)
{
	gdri_log_init();
	(void)!gdri_fail(EIO, "why");
}

static void error_is_logged(void)
{
	ck_assert_str_eq(unit_stderr_of(fail_why), "GDRCOPY DBG: errno 5: why\n");
}

static void opens(void)
{
	ck_assert_int_eq(gdr_close(barcopy_open(BARCOPY_OPEN_ANY)), 0);
}

/* The open says which value of the environment it does not use. */
static void problem_is_logged(void)
{
	const char *text = unit_stderr_of(opens);

	ck_assert_msg(strstr(text, "GDRCOPY WARN: GDRCOPY_COPY_IMPL") != NULL, "%s", text);
}

static void *other_thread(void *arg)
{
	(void)arg;
	if (strcmp(barcopy_last_error(), ""))
		return "a new thread has another's text";
	(void)!gdri_fail(EIO, "theirs");
	return NULL;
}

static void error_per_thread(void)
{
	size_t heap = 0;

	(void)!gdri_fail(EIO, "mine");
	for (int i = 0; i < 110; i++) {
		ck_assert_ptr_null(unit_threads(1, other_thread, NULL, 0));
		heap = i == 10 ? resources_heap() : heap;
	}
	ck_assert_str_eq(barcopy_last_error(), "mine");
	ck_assert_uint_lt(resources_heap(), heap + 50 * 1024); /* a text ends with its thread */
}

/* Without memory for the text, the text says so; the next one is the cause again. */
static void no_memory_for_a_text(void)
{
	wrap_reset();
	wrap_fail("malloc", 1, ENOMEM);
	(void)!gdri_fail(EIO, "first");
	ck_assert_str_eq(barcopy_last_error(), "no memory for the cause");
	(void)!gdri_fail(EIO, "second");
	ck_assert_str_eq(barcopy_last_error(), "second");
	wrap_reset();
}

/* A failure in a thread's destructor that runs after the library's has a text of its own. */
static pthread_key_t later_key;
static char later_text[64];

static void fails_later(void *again)
{
	if (again == later_text) { /* once more, when all others have run */
		pthread_setspecific(later_key, "last");
		return;
	}
	ck_assert_str_eq(barcopy_last_error(), "");
	(void)!gdri_fail(EIO, "at the end");
	snprintf(later_text, sizeof(later_text), "%s", barcopy_last_error());
}

static void *has_a_text(void *arg)
{
	(void)!gdri_fail(EIO, "its own");
	pthread_setspecific(later_key, arg);
	return NULL;
}

static void fails_in_a_destructor(void)
{
	ck_assert_int_eq(pthread_key_create(&later_key, fails_later), 0);
	unit_threads(1, has_a_text, later_text, 0);
	ck_assert_str_eq(later_text, "at the end");
	pthread_key_delete(later_key);
}

/* A program that has used up the keys before the library was loaded: its own keep their values. */
__attribute__((constructor(101))) static void use_up_keys(void)
{
	pthread_key_t any;

	if (getenv("NO_KEYS"))
		while (!pthread_key_create(&any, NULL))
			;
}

/* The key that the library's constructor then gets. */
static pthread_key_t the_librarys;

__attribute__((constructor(102))) static void see_next_key(void)
{
	if (!getenv("NO_KEYS") && !pthread_key_create(&the_librarys, NULL))
		pthread_key_delete(the_librarys);
}

/*
 * Behind the library's destructors: no key of another's is deleted, and its own one is, or a thread
 * that ends after an unload would call what is no longer there.
 */
__attribute__((destructor(101))) static void keys_are_left(void)
{
	bool none = getenv("NO_KEYS"); /* for the library: key 0 is another's */
	bool is = !pthread_setspecific(none ? 0 : the_librarys, NULL);

	if (is != none)
		_exit(1);
}

static void no_key(void)
{
	void *first = pthread_getspecific(0);

	ck_assert_int_eq(pthread_key_create(&later_key, NULL), EAGAIN);
	(void)!gdri_fail(EIO, "without a key");
	ck_assert_str_eq(barcopy_last_error(), "without a key");
	ck_assert_ptr_eq(pthread_getspecific(0), first);
}

static void bounded_texts(void)
{
	struct gdri_text text = { .len = 0 }, full = { .len = 0 }, letters = { .len = 0 };
	char piece[301], all[sizeof(full.s) + 1] = "";

	gdri_text_add(&letters, "a");
	gdri_text_add(&letters, "%s", "");
	gdri_text_add(&letters, "b");
	ck_assert_str_eq(letters.s, "ab");
	ck_assert_uint_eq(letters.len, 2);
	memset(piece, 'b', 300);
	piece[300] = '\0';
	for (int i = 0; i < 10; i++)
		gdri_text_add(&text, "%s", piece);
	ck_assert_uint_eq(text.len, sizeof(text.s) - 1);
	ck_assert_uint_eq(strlen(text.s), sizeof(text.s) - 1);
	memset(all, 'c', sizeof(full.s)); /* one more than there is room for */
	gdri_text_add(&full, "%s", all);
	ck_assert_uint_eq(full.len, sizeof(full.s) - 1);
	for (int i = 0; i < 10; i++)
		(void)!gdri_fail(EIO, "%s%s", gdri_error_text(), piece);
	ck_assert_uint_eq(strlen(barcopy_last_error()), 1023);
}

/* A struct that has grown twice: from a, to b, to c. */
struct grown {
	size_t struct_size;
	uint64_t a, b, c;
};

enum { FIRST = offsetof(struct grown, b), SECOND = offsetof(struct grown, c) };

static void sized_in(void)
{
	static const struct {
		size_t size;
		int rc;
		uint64_t b, c;
	} rows[] = {
		/* An older caller's: members that it does not have are 0. */
		{ SECOND, 0, 2, 0 },
		{ FIRST, 0, 0, 0 },
		{ sizeof(struct grown), 0, 2, 3 },
		/* No release had a smaller one. */
		{ FIRST - 1, -EINVAL, 0, 0 },
		{ 0, -EINVAL, 0, 0 },
		/* More than a page: the size was never set. */
		{ 4097, -EINVAL, 0, 0 },
	};
	struct grown in = { 0, 1, 2, 3 }, ours;
	struct {
		struct grown known;
		uint64_t later;
	} newer = { { sizeof(newer), 1, 2, 3 }, 0 };

	for (size_t i = 0; i < COUNT(rows); i++) {
		in.struct_size = rows[i].size;
		ck_assert_int_eq(gdri_struct_in(&ours, sizeof(ours), FIRST, &in), rows[i].rc);
		ck_assert(rows[i].rc ||
			  (ours.a == 1 && ours.b == rows[i].b && ours.c == rows[i].c));
	}
	ck_assert_int_eq(gdri_struct_out(&ours, sizeof(ours), FIRST, &in), -EINVAL);
	/* A newer caller's: unknown members must be 0. */
	ck_assert_int_eq(gdri_struct_in(&ours, sizeof(ours), FIRST, &newer), 0);
	ck_assert(ours.a == 1 && ours.c == 3);
	newer.later = 1ULL << 63;
	ck_assert_int_eq(gdri_struct_in(&ours, sizeof(ours), FIRST, &newer), -EINVAL);
}

static void sized_out(void)
{
	struct grown out = { SECOND, 9, 9, 9 }, ours = { 77, 1, 2, 3 };
	struct {
		struct grown known;
		uint64_t later;
	} newer = { { sizeof(newer), 9, 9, 9 }, 9 };

	ck_assert_int_eq(gdri_struct_out(&ours, sizeof(ours), FIRST, &out), 0);
	ck_assert(out.struct_size == SECOND && out.a == 1 && out.b == 2 && out.c == 9);
	out.struct_size = FIRST - 1;
	out.a = 9;
	ck_assert_int_eq(gdri_struct_out(&ours, sizeof(ours), FIRST, &out), -EINVAL);
	ck_assert_int_eq(gdri_struct_check(&out, FIRST), -EINVAL);
	ck_assert(out.a == 9);
	ck_assert_int_eq(gdri_struct_out(&ours, sizeof(ours), FIRST, &newer), 0);
	ck_assert(newer.known.struct_size == sizeof(newer) && newer.known.c == 3 && !newer.later);
}

static void true_values(void)
{
	static const char *const values[] = { "", "0", "1", "yes" };

	ck_assert(!gdri_env_true("GDRCOPY_X"));
	for (size_t i = 0; i < COUNT(values); i++) {
		setenv("GDRCOPY_X", values[i], 1);
		ck_assert_int_eq(gdri_env_true("GDRCOPY_X"), i > 1);
	}
	ck_assert_str_eq(gdri_env("GDRCOPY_X"), "yes");
}

/* ---- a program with raised privileges ------------------------------------ */

enum { IGNORED = 0, FOLLOWED = 1, NOT_RAISED = 2 };

/* This program, started again by raised_privileges(). */
static int look_at_the_environment(void)
{
	if (!getauxval(AT_SECURE))
		return NOT_RAISED;
	return gdri_env("GDRCOPY_X") ? FOLLOWED : IGNORED;
}

static int as_nobody(void *program)
{
	char *argv[] = { program, "raised", NULL };

	setenv("GDRCOPY_X", "1", 1);
	setenv("GDRSIM_RM", "absent", 1); /* nothing is preloaded there */
	if (setgid(65534) || setuid(65534))
		return NOT_RAISED;
	execv(program, argv);
	return NOT_RAISED;
}

/* The environment is not followed by a set-uid program. */
static void raised_privileges(void)
{
	char dir[UNIT_DIR], path[UNIT_DIR + 8], command[PATH_MAX + 512], self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	int status;

	if (test_emulator_lacks("raised privileges", "AT_SECURE"))
		return;
	if (geteuid()) {
		SKIP("needs root");
	}
	unit_temp_dir(dir);
	ck_assert_int_eq(chmod(dir, 0711), 0);
	snprintf(path, sizeof(path), "%s/raised", dir);
	self[n < 0 ? 0 : n] = '\0';
	/* Only that user can run it. */
	snprintf(command, sizeof(command), "cp '%s' '%s' && chown 0:65534 '%s' && chmod 4710 '%s'",
		 self, path, path, path);
	ck_assert_int_eq(system(command), 0);
	status = unit_in_child(as_nobody, path);
	unit_remove_dir(dir);
	if (status == NOT_RAISED)
		SKIP("a set-uid program gets none here");
	else
		ck_assert_int_eq(status, IGNORED);
}

static const struct unit_test tests[] = {
	{ "levels", levels, "" },
	{ "a struct of another size comes in", sized_in, "" },
	{ "a struct of another size goes out", sized_out, "" },
	{ "a long message is cut", long_message, "GDRCOPY_ENABLE_LOGGING=1" },
	{ "control characters", controls, "GDRCOPY_ENABLE_LOGGING=1" },
	{ "the error's text", error_text, "" },
	{ "an error is logged at debug level", error_is_logged,
	  "GDRCOPY_ENABLE_LOGGING=1 GDRCOPY_LOG_LEVEL=1" },
	{ "a problem of the environment", problem_is_logged,
	  "GDRCOPY_ENABLE_LOGGING=1 GDRCOPY_LOG_LEVEL=3 GDRCOPY_COPY_IMPL=none" },
	{ "the text is the thread's own", error_per_thread, NULL },
	{ "no memory for a text", no_memory_for_a_text, "" },
	{ "a failure in a destructor", fails_in_a_destructor, "" },
	{ "no key is left", no_key, "NO_KEYS=1" },
	{ "texts are bounded", bounded_texts, NULL },
	{ "values that are true", true_values, NULL },
	{ "raised privileges", raised_privileges, NULL },
};

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "raised"))
		_exit(look_at_the_environment());
	return unit_main(argv, "error, log, env", tests, COUNT(tests));
}
