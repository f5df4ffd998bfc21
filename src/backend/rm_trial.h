/* SPDX-License-Identifier: MIT */
/* The trial of the rm backend on the library's own memory. */
#ifndef GDRI_RM_TRIAL_H
#define GDRI_RM_TRIAL_H

#include "backend/rm_client.h"

/*
 * Is rm right on this GPU? Tried with memory of `context` (or NULL) if there is no verdict, or one
 * that is to be verified again: a failure that says nothing about rm stands for a second, then for
 * twice as long each time, up to an hour. The verdict is copied to *trial. -ENOTSUP if nothing is
 * served.
 */
int gdri_rm_trial(struct gdri_rm_gpu *gpu, void *context, struct gdri_rm_trial *trial);

#endif
