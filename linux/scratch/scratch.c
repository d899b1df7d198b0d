// SPDX-License-Identifier: GPL-2.0
/*
 * A first driver: the aperture of a card's memory (BAR 2 of a Quadro K420) as /dev/scratch, which keeps
 * what is written to it.
 */
#include <linux/fs.h>
#include <linux/io.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/uaccess.h>

#define SCRATCH_BAR	2

static void __iomem *memory;
static size_t bytes;

/* Some bytes at a time: callers come again for the rest. */
static ssize_t scratch_read(struct file *file, char __user *to, size_t count, loff_t *at)
{
	u8 piece[512];

	count = min_t(size_t, min(count, sizeof(piece)), *at < bytes ? bytes - *at : 0);
	memcpy_fromio(piece, memory + *at, count);
	if (copy_to_user(to, piece, count))
		return -EFAULT;
	*at += count;
	return count;
}

static ssize_t scratch_write(struct file *file, const char __user *from, size_t count, loff_t *at)
{
	u8 piece[512];

	count = min_t(size_t, min(count, sizeof(piece)), *at < bytes ? bytes - *at : 0);
	if (!count)
		return -ENOSPC;
	if (copy_from_user(piece, from, count))
		return -EFAULT;
	memcpy_toio(memory + *at, piece, count);
	*at += count;
	return count;
}

static const struct file_operations scratch_file = {
	.owner = THIS_MODULE,
	.read = scratch_read,
	.write = scratch_write,
};

static struct miscdevice scratch_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "scratch",
	.fops = &scratch_file,
};

static int scratch_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	int err = pcim_enable_device(pdev);

	if (!err)
		err = pcim_iomap_regions(pdev, BIT(SCRATCH_BAR), KBUILD_MODNAME);
	if (err)
		return err;
	memory = pcim_iomap_table(pdev)[SCRATCH_BAR];
	bytes = pci_resource_len(pdev, SCRATCH_BAR);
	return misc_register(&scratch_device);
}

static void scratch_remove(struct pci_dev *pdev)
{
	misc_deregister(&scratch_device);
}

static const struct pci_device_id scratch_ids[] = { { PCI_DEVICE(0x10de, 0x0ff3) }, { } };
MODULE_DEVICE_TABLE(pci, scratch_ids);

static struct pci_driver scratch_driver = {
	.name = KBUILD_MODNAME,
	.id_table = scratch_ids,
	.probe = scratch_probe,
	.remove = scratch_remove,
};
module_pci_driver(scratch_driver);

MODULE_DESCRIPTION("A card's memory as a file");
MODULE_LICENSE("GPL");
