/* SPDX-License-Identifier: MIT */
/*
 * What the self-tests of the stand-ins share: the libraries, loaded by path, and short ways to
 * call them.
 */
#ifndef TEST_SIM_H
#define TEST_SIM_H

#include <check.h>
#include <dlfcn.h>
#include <stdint.h>

#include "abi/cuda.h"

#define MIB	((size_t)1 << 20)
#define GRANULE (2 * MIB)

extern void *sim_cuda, *sim_nvml;

void *sim_symbol(void *lib, const char *name);

/* A function of libcuda by its name; the type comes from the declaration. */
#define CU(name)	       ((__typeof__(&name))sim_symbol(sim_cuda, #name))
#define ck_cu(call)	       ck_assert_int_eq(call, CUDA_SUCCESS)
#define ck_cu_is(call, result) ck_assert_int_eq(call, result)

/* A program with its own mmap (clang's static sanitizer run time) is out of mmap_hook.c's reach. */
#if defined(__clang__) && defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define MMAP_NOT_HOOKED 1
#endif
#endif

typedef void (*sim_fail_fn)(const char *spec);
typedef unsigned long (*sim_calls_fn)(const char *name);
typedef int (*sim_fail_nth_fn)(unsigned long n, int result);

/* cuInit and the primary context of device 0, current. */
CUcontext sim_start(void);
/* One chunk of VMM memory, reserved, mapped and accessible; exportable if asked. */
CUdeviceptr sim_vmm(size_t chunk, unsigned int n, CUmemGenericAllocationHandle *handles,
		    int exportable);
void sim_vmm_end(CUdeviceptr ptr, size_t chunk, unsigned int n,
		 CUmemGenericAllocationHandle *handles);
/* 1: a load from the address would fault. */
int sim_faults(const void *address);

Suite *suite_cuda_base(void);
Suite *suite_cuda_memory(void);
Suite *suite_cuda_vmm(void);
Suite *suite_cuda_work(void);
Suite *suite_nvml(void);

#endif
