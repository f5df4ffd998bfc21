/* SPDX-License-Identifier: MIT */
/* What the library may leave in the machine: nothing, once everything has ended. */
#ifndef MODEL_LEFT_H
#define MODEL_LEFT_H

/* From now on that is what is left: the call of that name has failed, and may be one that releases. */
void left_behind(const char *failed);
/* Handles and entries are as many as the views and regions in use need. */
void left_check_slots(unsigned int handles);
/* Everything has ended: nothing is left but what calls that were to release it have left. */
void left_check(void);

#endif
