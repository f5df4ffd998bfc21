// SPDX-License-Identifier: MIT
/* See preload.h. */
#include "common/preload.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/again.h"

void test_find(void *slot, const char *name, const char *library)
{
	void *symbol = dlsym(RTLD_DEFAULT, name);

	if (!symbol) {
		fprintf(stderr, "no %s: GDRSIM_DIR must name the directory of %s\n", name, library);
		exit(1);
	}
	memcpy(slot, &symbol, sizeof(symbol));
}

/* Before what is preloaded already: a sanitizer's run time does not mind what comes before it. */
void test_preload(char **argv, const char *library)
{
	const char *dir = getenv("GDRSIM_DIR"), *before = getenv("LD_PRELOAD");
	const char *asan = getenv("ASAN_OPTIONS");
	char text[4096], self[4096];
	ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (!dir || len < 0 || (before && strstr(before, library)))
		return;
	self[len] = '\0';
	snprintf(text, sizeof(text), "%s%s%s/%s", before ? before : "", before ? ":" : "", dir,
		 library);
	setenv("LD_PRELOAD", text, 1);
	snprintf(text, sizeof(text), "%s%sverify_asan_link_order=0", asan ? asan : "",
		 asan ? ":" : "");
	setenv("ASAN_OPTIONS", text, 1);
	test_again(self, argv); /* not the link itself, which is the tool's under valgrind */
}

/*
 * Every test program on the stand-ins is on a machine with NVIDIA's nodes, unless they are taken
 * away (GDRSIM_RM=absent). A constructor gets main's arguments (glibc).
 */
__attribute__((constructor)) static void preload_nodes(int argc, char **argv)
{
	const char *nodes = getenv("GDRSIM_RM");

	(void)argc;
	if (!nodes || strcmp(nodes, "absent"))
		test_preload(argv, "libnvidia_node.so");
}
