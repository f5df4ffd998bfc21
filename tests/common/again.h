/* SPDX-License-Identifier: MIT */
/*
 * User-mode emulation of another architecture: GDRCOPY_TEST_EMULATOR, words separated by blanks, is
 * how a program is started under it, since the kernel cannot. It knows nothing of the tests.
 */
#ifndef TEST_COMMON_AGAIN_H
#define TEST_COMMON_AGAIN_H

/* Starts a program in the place of this one. As execv(): returns only on failure, errno set. */
void test_again(const char *program, char *const argv[]);

#endif
