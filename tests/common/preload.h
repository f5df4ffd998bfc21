/* SPDX-License-Identifier: MIT */
/*
 * Starting the test program again with a library of the stand-ins' directory (GDRSIM_DIR)
 * preloaded: the nodes of a driver are there from the start or not at all. It knows nothing of the
 * library.
 */
#ifndef TEST_COMMON_PRELOAD_H
#define TEST_COMMON_PRELOAD_H

/* Fills a pointer with a hook of a preloaded stand-in; without it the program ends. */
void test_find(void *slot, const char *name, const char *library);

/* Returns if the library is preloaded already, or if that is impossible. */
void test_preload(char **argv, const char *library);

#endif
