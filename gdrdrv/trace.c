// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* Makes the tracepoints of trace.h. Open-flavour build only. */
#define CREATE_TRACE_POINTS
#include "trace.h"
