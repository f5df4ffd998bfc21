/* SPDX-License-Identifier: MIT */
/*
 * Self-test: the stand-in NVML.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "test_sim.h"

struct bar1 {
	unsigned long long total, free, used;
};

START_TEST(nvml)
{
	int (*init)(void) = (int (*)(void))sim_symbol(sim_nvml, "nvmlInit_v2");
	int (*shut)(void) = (int (*)(void))sim_symbol(sim_nvml, "nvmlShutdown");
	int (*count)(unsigned int *) =
		(int (*)(unsigned int *))sim_symbol(sim_nvml, "nvmlDeviceGetCount_v2");
	int (*by_pci)(const char *, void **) = (int (*)(const char *, void **))sim_symbol(
		sim_nvml, "nvmlDeviceGetHandleByPciBusId_v2");
	int (*by_index)(unsigned int, void **) = (int (*)(unsigned int, void **))sim_symbol(
		sim_nvml, "nvmlDeviceGetHandleByIndex_v2");
	int (*info)(void *, struct bar1 *) =
		(int (*)(void *, struct bar1 *))sim_symbol(sim_nvml, "nvmlDeviceGetBAR1MemoryInfo");
	void *device, *same;
	struct bar1 bar1;
	unsigned int n;
	char id[32];

	setenv("GDRSIM_DEVICES", "3", 1);
	setenv("GDRSIM_BAR1_MIB", "256", 1);
	ck_assert_int_eq(count(&n), 1);
	ck_assert_int_eq(init(), 0);
	ck_assert_int_eq(count(&n), 0);
	ck_assert_uint_eq(n, 3);
	ck_cu(CU(cuInit)(0));
	ck_cu(CU(cuDeviceGetPCIBusId)(id, sizeof(id), 2));
	ck_assert_int_eq(by_pci(id, &device), 0);
	ck_assert_int_eq(by_index(2, &same), 0);
	ck_assert_ptr_eq(device, same);
	ck_assert_int_eq(by_index(3, &same), 2);
	ck_assert_int_eq(info(device, &bar1), 0);
	ck_assert_uint_eq(bar1.total, 256 * MIB);
	ck_assert_uint_eq(bar1.free + bar1.used, bar1.total);
	ck_assert_int_eq(shut(), 0);
	ck_assert_int_eq(count(&n), 1);
}
END_TEST

Suite *suite_nvml(void)
{
	Suite *suite = suite_create("sim nvml");
	TCase *tc = tcase_create("nvml");

	tcase_add_test(tc, nvml);
	suite_add_tcase(suite, tc);
	return suite;
}
