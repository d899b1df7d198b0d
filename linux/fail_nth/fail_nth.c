// SPDX-License-Identifier: GPL-2.0
/*
 * For tests on kernels without failslab: an allocation fails. `echo N MODULE` to the parameter
 * `nth` lets the Nth kmalloc() by a module's code fail, `echo N` that of the task which writes. The
 * parameter is what is left to come: 0 once one has failed.
 */
#include <linux/atomic.h>
#include <linux/kallsyms.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/string.h>

static char fail_module[MODULE_NAME_LEN + 2];
static struct task_struct *fail_task;
static atomic_t fail_left;

/* In place of the function that was called. */
static noinline notrace void *fail_return(void)
{
	return NULL;
}

static bool fail_is_meant(unsigned long caller)
{
	char name[KSYM_SYMBOL_LEN];

	if (READ_ONCE(fail_task))
		return current == fail_task && in_task();
	sprint_symbol(name, caller);
	return strstr(name, fail_module);
}

static int fail_handler(struct kprobe *probe, struct pt_regs *regs)
{
	if (!atomic_read(&fail_left) ||
	    !fail_is_meant(*(unsigned long *)kernel_stack_pointer(regs)) ||
	    atomic_dec_if_positive(&fail_left) != 0)
		return 0;
	instruction_pointer_set(regs, (unsigned long)fail_return);
	return 1;
}

NOKPROBE_SYMBOL(fail_handler);

/* Those that there are: they have other names since 6.10. */
static struct kprobe fail_probes[] = {
	{ .symbol_name = "kmalloc_trace", .pre_handler = fail_handler },
	{ .symbol_name = "__kmalloc", .pre_handler = fail_handler },
	{ .symbol_name = "__kmalloc_cache_noprof", .pre_handler = fail_handler },
	{ .symbol_name = "__kmalloc_noprof", .pre_handler = fail_handler },
};

static int fail_set(const char *text, const struct kernel_param *param)
{
	char name[MODULE_NAME_LEN] = "";
	unsigned int left;

	if (sscanf(text, "%u %55s", &left, name) < 1)
		return -EINVAL;
	atomic_set(&fail_left, 0);
	WRITE_ONCE(fail_task, *name ? NULL : current);
	snprintf(fail_module, sizeof(fail_module), "[%s]", name);
	atomic_set(&fail_left, left);
	return 0;
}

static int fail_get(char *text, const struct kernel_param *param)
{
	return sysfs_emit(text, "%d\n", atomic_read(&fail_left));
}

static const struct kernel_param_ops fail_ops = {
	.set = fail_set,
	.get = fail_get,
};
module_param_cb(nth, &fail_ops, NULL, 0600);
MODULE_PARM_DESC(nth, "which allocation fails, and of which module");

static int __init fail_init(void)
{
	unsigned int n, found = 0;

	for (n = 0; n < ARRAY_SIZE(fail_probes); n++) {
		if (!register_kprobe(&fail_probes[n]))
			found++;
		else
			fail_probes[n].addr = NULL;
	}
	return found ? 0 : -ENOENT;
}
module_init(fail_init);

static void __exit fail_exit(void)
{
	unsigned int n;

	for (n = 0; n < ARRAY_SIZE(fail_probes); n++) {
		if (fail_probes[n].addr)
			unregister_kprobe(&fail_probes[n]);
	}
}
module_exit(fail_exit);

MODULE_DESCRIPTION("Lets allocations fail");
MODULE_LICENSE("GPL");
