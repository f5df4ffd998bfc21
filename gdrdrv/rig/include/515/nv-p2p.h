/* SPDX-License-Identifier: MIT */
/* Stands for the nv-p2p.h of 515 to 525.89 and 530: persistent pages by a NULL callback. */
#define P2P_TEST_VERSION 0x00010002
#define P2P_TEST_NULL_CALLBACK
#include "../nv-p2p-test.h"
