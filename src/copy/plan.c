// SPDX-License-Identifier: MIT
/*
 * Which row a plan uses: tune.h's choice, or the one that the environment names. Once per process;
 * the copies themselves are in copy.c.
 */
#include "rows.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tune.h"

static bool can(const struct gdri_copy_row *row, uint32_t features)
{
	return (row->needs & ~features) == 0;
}

/* The row for one direction: `stores` tells whether it is the rows' `to` functions that are used. */
static const struct gdri_copy_row *choose(const struct gdri_tune *tune, size_t lines, bool stores,
					  uint32_t features)
{
	for (size_t i = 0; i < lines; i++) {
		const struct gdri_copy_row *row = gdri_copy_row_find(tune[i].row);

		/* A row of the other architecture is not in the table. */
		if (row && (stores ? row->to : row->from) && can(row, features) &&
		    !(tune[i].when & ~features))
			return row;
	}
	return gdri_copy_row_find("ref");
}

#define LINES(table) (table), sizeof(table) / sizeof((table)[0])

int gdri_copy_plan_init(struct gdri_copy_plan *plan, gdr_mapping_type_t type, uint32_t features,
			const struct gdri_copy_row *row)
{
	/* DEVICE, and anything that we have not heard of. */
	bool device = type != GDR_MAPPING_TYPE_WC && type != GDR_MAPPING_TYPE_CACHING;

	*plan = (struct gdri_copy_plan){
		.type = type,
		.fences = type,
		.posts = type == GDR_MAPPING_TYPE_WC && (features & GDRI_CPU_MOVDIRI),
		.exact_reads = type == GDR_MAPPING_TYPE_CACHING,
		.large_to_min = SIZE_MAX,
		.large_from_min = SIZE_MAX,
	};
	if (device)
		plan->to = plan->from = gdri_copy_row_find("ref");
	else
		plan->to = choose(LINES(gdri_tune_to), true, features);
	if (plan->exact_reads)
		plan->from = plan->to;
	else if (!device)
		plan->from = choose(LINES(gdri_tune_from_wc), false, features);
	if (!row)
		return 0;
	if (!can(row, features))
		return -ENOTSUP;
	if ((device && !(row->flags & GDRI_ROW_ANY_MEMORY)) ||
	    (type != GDR_MAPPING_TYPE_WC && row->flags & GDRI_ROW_UNCACHED))
		return 0;
	if (row->to)
		plan->to = row;
	if (plan->exact_reads ? row->to : row->from)
		plan->from = row;
	return 0;
}

static struct gdri_copy_plan plans[GDR_MAPPING_TYPE_MAX];
static const char *problem;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void init_plans(void)
{
	const char *name = secure_getenv("GDRCOPY_COPY_IMPL");
	const char *mask_text = secure_getenv("GDRCOPY_CPU_MASK");
	const struct gdri_copy_row *row = name && *name ? gdri_copy_row_find(name) : NULL;
	uint32_t features = gdri_cpu_features();
	uint32_t mask;
	int err = 0;

	for (int type = 0; type < GDR_MAPPING_TYPE_MAX; type++)
		err = gdri_copy_plan_init(&plans[type], (gdr_mapping_type_t)type, features, row);
	if (mask_text && gdri_cpu_parse_mask(mask_text, &mask))
		problem = "GDRCOPY_CPU_MASK is neither a number nor a list of features; ignored";
	else if (name && *name && !row)
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
