/* SPDX-License-Identifier: MIT */
/* Random numbers of the tests, the same for the same seed. */
#ifndef TEST_COMMON_RANDOM_H
#define TEST_COMMON_RANDOM_H

/* Returns the next number of the sequence (xorshift64*). The state is the seed at first, and not 0. */
static inline unsigned long long unit_random(unsigned long long *state)
{
	unsigned long long x = *state;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	*state = x;
	return x * 0x2545f4914f6cdd1dULL;
}

#endif
