/* SPDX-License-Identifier: MIT */
/* See again.h. */
#include "common/again.h"

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void test_again(const char *program, char *const argv[])
{
	const char *emulator = getenv("GDRCOPY_TEST_EMULATOR");
	char text[4096], *words[64], *word, *save = NULL;
	size_t n = 0, max = sizeof(words) / sizeof(words[0]);

	if (!emulator || !*emulator) {
		execv(program, argv);
		return;
	}
	snprintf(text, sizeof(text), "%s", emulator);
	for (word = strtok_r(text, " ", &save); word && n < max; word = strtok_r(NULL, " ", &save))
		words[n++] = word;
	for (size_t i = 0; n < max && (i == 0 || argv[i - 1]); i++)
		words[n++] = i ? argv[i] : (char *)(uintptr_t)program;
	if (n == max) {
		errno = E2BIG;
		return;
	}
	execvp(words[0], words);
}
