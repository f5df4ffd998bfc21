/* SPDX-License-Identifier: MIT */
/*
 * User-mode emulation of another architecture: GDRCOPY_TEST_EMULATOR, words separated by blanks, is
 * how a program is started under it, since the kernel cannot. It knows nothing of the tests.
 */
#ifndef TEST_COMMON_AGAIN_H
#define TEST_COMMON_AGAIN_H

#include <stdbool.h>

/*
 * Is this emulated, so that a test cannot be run? Then says so, with what the emulator lacks, in
 * the line that tests/run.sh counts as a skip.
 */
bool test_emulator_lacks(const char *test, const char *what);

/* Starts a program in the place of this one. As execv(): returns only on failure, errno set. */
void test_again(const char *program, char *const argv[]);

#endif
