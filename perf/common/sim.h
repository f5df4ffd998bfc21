/* SPDX-License-Identifier: MIT */
/*
 * --sim DIR: run on the stand-in libraries of DIR instead of the installed driver, by the search path
 * of the loader. It must not know CUDA or libgdrapi.
 */
#ifndef PERF_SIM_H
#define PERF_SIM_H

/*
 * Puts `dir` first into LD_LIBRARY_PATH and executes the program again; in that second process it
 * returns. NULL does nothing. Ends the tool with exit 1 if `dir` has no libcuda.so.1.
 */
void sim_enter(const char *dir, char **argv);

/* Ends the tool with exit 1 if `path`, the libcuda in use, is not the one of `dir`. */
void sim_check(const char *dir, const char *path);

#endif
