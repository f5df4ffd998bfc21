/* SPDX-License-Identifier: MIT */
/* The kernels of kernels.cu as a text that the driver compiles for its GPU: kernels.ptx. */
#ifndef PERF_QUEUE_PTX_H
#define PERF_QUEUE_PTX_H

extern const char queue_ptx[];

#endif
