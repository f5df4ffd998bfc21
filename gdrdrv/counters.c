// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Counters and log switches.
 */
#include "gdrdrv.h"

struct gdrdrv_stats gdrdrv_stats;
atomic_t gdrdrv_p2p_pins;
atomic_t gdrdrv_kept;

int gdrdrv_dbg_enabled;
module_param_named(dbg_enabled, gdrdrv_dbg_enabled, int, 0644);
MODULE_PARM_DESC(dbg_enabled, "log debugging messages (default 0)");

int gdrdrv_info_enabled;
module_param_named(info_enabled, gdrdrv_info_enabled, int, 0644);
MODULE_PARM_DESC(info_enabled, "log informational messages (default 0)");
