/* SPDX-License-Identifier: MIT */
/* Stands for the nv-p2p.h of 525.105.17, 535 to 565: persistent pages by calls of their own. */
#define P2P_TEST_VERSION 0x00010002
#define P2P_TEST_NULL_CALLBACK
#define P2P_TEST_PERSISTENT_API
#include "../nv-p2p-test.h"
