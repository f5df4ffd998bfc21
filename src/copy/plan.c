// SPDX-License-Identifier: MIT
/*
 * Which row a plan uses: tune.h's choice, or the one that the environment names. Once per process;
 * the copies themselves are in copy.c.
 */
#include "engine.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tune.h"

static bool can(const struct gdri_copy_row *row, uint32_t features)
{
	return (row->needs & ~features) == 0;
}

/* The way for one direction: `stores` tells whether it is the rows' `to` functions that are used. */
static void choose(struct gdri_copy_way *way, const struct gdri_tune *tune, size_t lines,
		   bool stores, uint32_t features)
{
	way->small = NULL;
	way->large = NULL;
	way->large_min = SIZE_MAX;
	for (size_t i = 0; i < lines; i++) {
		const struct gdri_copy_row *row = gdri_copy_row_find(tune[i].row);

		/* A row of the other architecture is not in the table. */
		if (!row || !(stores ? row->to : row->from) || !can(row, features) ||
		    (tune[i].when & ~features))
			continue;
		if (tune[i].min == 0 && !way->small) {
			way->small = row;
		} else if (tune[i].min && !way->large) {
			way->large = row;
			way->large_min = tune[i].min;
		}
	}
	if (!way->small)
		way->small = gdri_copy_row_find("ref");
	if (!way->large)
		way->large = way->small;
}

static void force(struct gdri_copy_way *way, const struct gdri_copy_row *row, bool stores)
{
	if (!(stores ? row->to : row->from))
		return;
	way->small = row;
	way->large = row;
	way->large_min = SIZE_MAX;
}

#define LINES(table) (table), sizeof(table) / sizeof((table)[0])

int gdri_copy_plan_init(struct gdri_copy_plan *plan, gdr_mapping_type_t type, uint32_t features,
			const char *name)
{
	const struct gdri_copy_row *row;

	plan->type = type;
	plan->fences = type;
	plan->exact_reads = type == GDR_MAPPING_TYPE_CACHING;
	plan->large_to = gdri_copy_alone_to;
	plan->large_from = gdri_copy_alone_from;
	choose(&plan->to, LINES(gdri_tune_to), true, features);
	if (plan->exact_reads)
		plan->from = plan->to;
	else
		choose(&plan->from, LINES(gdri_tune_from_wc), false, features);
	if (type != GDR_MAPPING_TYPE_WC && type != GDR_MAPPING_TYPE_CACHING) {
		/* DEVICE, and anything that we have not heard of. */
		row = gdri_copy_row_find("ref");
		force(&plan->to, row, true);
		force(&plan->from, row, false);
	}
	if (!name || !*name)
		return 0;

	row = gdri_copy_row_find(name);
	if (!row)
		return -EINVAL;
	if (!can(row, features))
		return -ENOTSUP;
	if (type != GDR_MAPPING_TYPE_WC && type != GDR_MAPPING_TYPE_CACHING &&
	    !(row->flags & GDRI_ROW_ANY_MEMORY))
		return 0;
	if (type != GDR_MAPPING_TYPE_WC && row->flags & GDRI_ROW_UNCACHED)
		return 0;
	force(&plan->to, row, true);
	force(&plan->from, row, plan->exact_reads);
	return 0;
}

static struct gdri_copy_plan plans[GDR_MAPPING_TYPE_MAX];
static const char *problem;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void init_plans(void)
{
	const char *name = secure_getenv("GDRCOPY_COPY_IMPL");
	const char *mask_text = secure_getenv("GDRCOPY_CPU_MASK");
	uint32_t features = gdri_cpu_features();
	uint32_t mask;
	int err = 0;

	for (int type = 0; type < GDR_MAPPING_TYPE_MAX; type++)
		err = gdri_copy_plan_init(&plans[type], (gdr_mapping_type_t)type, features, name);
	if (mask_text && gdri_cpu_parse_mask(mask_text, &mask))
		problem = "GDRCOPY_CPU_MASK is neither a number nor a list of features; ignored";
	else if (err == -EINVAL)
		problem = "GDRCOPY_COPY_IMPL names no implementation; ignored";
	else if (err)
		problem = "GDRCOPY_COPY_IMPL names one that this CPU cannot run; ignored";
}

const struct gdri_copy_plan *gdri_copy_plan(gdr_mapping_type_t type)
{
	pthread_once(&once, init_plans);
	if ((unsigned int)type >= GDR_MAPPING_TYPE_MAX)
		type = GDR_MAPPING_TYPE_DEVICE;
	return &plans[type];
}

const char *gdri_copy_env_problem(void)
{
	pthread_once(&once, init_plans);
	return problem;
}
