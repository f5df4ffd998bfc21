/* SPDX-License-Identifier: MIT */
/* Stands for the nv-p2p.h of 580 and later: table version 2.0 with flags. */
#define P2P_TEST_VERSION 0x00020000
#define P2P_TEST_NULL_CALLBACK
#define P2P_TEST_PERSISTENT_API
#define P2P_TEST_FORCE_BAR1
#define P2P_TEST_TABLE_FLAGS
#include "../nv-p2p-test.h"
