/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef FP_CORE_H
#define FP_CORE_H

#define FP_NAME "framepath"

#endif
