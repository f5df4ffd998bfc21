/* SPDX-License-Identifier: MIT */
/* Stands for the nv-p2p.h of 570 and 575: the flag that forces BAR1. */
#define P2P_TEST_VERSION 0x00010002
#define P2P_TEST_NULL_CALLBACK
#define P2P_TEST_PERSISTENT_API
#define P2P_TEST_FORCE_BAR1
#include "../nv-p2p-test.h"
