/* SPDX-License-Identifier: MIT */
/* Stands for the nv-p2p.h of branch 470 and older: no persistent pages. */
#define P2P_TEST_VERSION 0x00010001
#include "../nv-p2p-test.h"
