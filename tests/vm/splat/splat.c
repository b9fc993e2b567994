// SPDX-License-Identifier: GPL-2.0-only
/*
 * Makes the error of the parameter `mistake` when it is loaded. The tests check
 * that the judge of the kernel's log (tests/vm/lib/judge) finds each error.
 */
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/string.h>

static char *mistake = "";
module_param(mistake, charp, 0444);
MODULE_PARM_DESC(mistake, "overrun, leak, warn or abba");

static DEFINE_MUTEX(first);
static DEFINE_MUTEX(second);

static int overrun(void)
{
	volatile char *bytes = kmalloc(40, GFP_KERNEL);

	if (!bytes)
		return -ENOMEM;
	bytes[40] = 1;
	kfree((void *)bytes);
	return 0;
}

static int leak(void)
{
	/* A write prevents that the compiler removes the allocation. */
	volatile char *bytes = kmalloc(96, GFP_KERNEL);

	if (!bytes)
		return -ENOMEM;
	bytes[0] = 1;
	return 0;
}

static int abba(void)
{
	mutex_lock(&first);
	mutex_lock(&second);
	mutex_unlock(&second);
	mutex_unlock(&first);

	mutex_lock(&second);
	mutex_lock(&first);
	mutex_unlock(&first);
	mutex_unlock(&second);
	return 0;
}

static int __init splat_init(void)
{
	if (!strcmp(mistake, "overrun"))
		return overrun();
	if (!strcmp(mistake, "leak"))
		return leak();
	if (!strcmp(mistake, "abba"))
		return abba();
	if (!strcmp(mistake, "warn")) {
		WARN(1, "a planted warning\n");
		return 0;
	}
	return -EINVAL;
}

static void __exit splat_exit(void)
{
}

module_init(splat_init);
module_exit(splat_exit);
MODULE_DESCRIPTION("Makes mistakes for the tests to notice");
MODULE_LICENSE("GPL");
