/* SPDX-License-Identifier: GPL-2.0-only */
/* /dev/framepath-meta: the records of the measuring node. */
#ifndef _FRAMEPATH_META_H
#define _FRAMEPATH_META_H

#include "uapi/framepath.h"

int fp_meta_init(void);
void fp_meta_exit(void);
int fp_meta_register(void);
void fp_meta_unregister(void);

/* Numbers the record, adds it to the ring and wakes the readers. Does not sleep. */
void fp_meta_push(struct fp_meta_record *record);

#endif
