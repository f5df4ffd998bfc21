// SPDX-License-Identifier: MIT
/* CPU features: the mask from the environment. cpu_x86.c and cpu_arm64.c detect what the CPU has. */
#include "cpu.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	const char *name;
	uint32_t bit;
} names[] = {
	{ "sse2", GDRI_CPU_SSE2 },
	{ "sse4.1", GDRI_CPU_SSE41 },
	{ "avx2", GDRI_CPU_AVX2 },
	{ "avx512", GDRI_CPU_AVX512 },
	{ "avx512wide", GDRI_CPU_AVX512_WIDE },
	{ "movdir64b", GDRI_CPU_MOVDIR64B },
	{ "movdiri", GDRI_CPU_MOVDIRI },
	{ "neon", GDRI_CPU_NEON },
	{ "ls64", GDRI_CPU_LS64 },
};

static uint32_t bit_of(const char *name, size_t len)
{
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strlen(names[i].name) == len && memcmp(names[i].name, name, len) == 0)
			return names[i].bit;
	return 0;
}

/* A comma-separated list: all names plain, or all with a minus sign. */
static int parse_names(const char *text, uint32_t *mask)
{
	bool minus = text[0] == '-';
	uint32_t set = 0;

	do {
		size_t len = strcspn(text, ",");
		uint32_t bit = 0;

		if (len && (text[0] == '-') == minus)
			bit = bit_of(text + minus, len - minus);
		if (!bit)
			return -EINVAL;
		set |= bit;
		text += len;
	} while (*text++);
	*mask = minus ? GDRI_CPU_ALL & ~set : set;
	return 0;
}

int gdri_cpu_parse_mask(const char *text, uint32_t *mask)
{
	if (!*text || strcmp(text, "all") == 0) {
		*mask = GDRI_CPU_ALL;
		return 0;
	}
	if (strcmp(text, "none") == 0) {
		*mask = 0;
		return 0;
	}
	if (*text >= '0' && *text <= '9') {
		unsigned long long value;
		char *end;

		errno = 0;
		value = strtoull(text, &end, 0);
		if (errno || *end || value > GDRI_CPU_ALL)
			return -EINVAL;
		*mask = (uint32_t)value;
		return 0;
	}
	return parse_names(text, mask);
}

uint32_t gdri_cpu_features(void)
{
	const char *text = secure_getenv("GDRCOPY_CPU_MASK");
	uint32_t mask = GDRI_CPU_ALL;

	/* An invalid value is ignored; plan.c reports it. */
	if (text)
		(void)gdri_cpu_parse_mask(text, &mask);
	return gdri_cpu_detect() & mask;
}
