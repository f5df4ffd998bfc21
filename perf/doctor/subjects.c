/* SPDX-License-Identifier: MIT */
/* The table of the subjects; see subjects.h. It must not know what any of them looks at. */
#include "doctor/subjects.h"

const struct subject *const subjects[] = {
	&subject_gpus,	 &subject_driver, &subject_host,   &subject_backends,
	&subject_gdrdrv, &subject_bar1,	  &subject_places, NULL,
};

void subjects_collect(struct machine *m)
{
	for (const struct subject *const *s = subjects; *s; s++)
		if ((*s)->collect)
			(*s)->collect(m);
}

void subjects_check(const struct machine *m, struct report *r)
{
	for (const struct subject *const *s = subjects; *s; s++) {
		r->subject = (*s)->name;
		(*s)->check(m, r);
	}
}
