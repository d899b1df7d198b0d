// SPDX-License-Identifier: GPL-2.0
/*
 * Borrowed functions for user space and virtual machines, by VFIO. This host has no IOMMU for them:
 * memory is pinned and mapped for the NTB adapter, and the lender's IOMMU leads there from the
 * addresses that the user has chosen. VFIO tells no driver what a user maps; it is found out when
 * the user turns on bus mastering, as in "Device Lending" (section 5).
 */
#include <linux/dma-mapping.h>
#include <linux/iommu.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/vfio_pci_core.h>

#include "nearfar_borrow.h"

/* Pages that are pinned at a time, and given in one piece at most. */
#define NFV_PAGES	(SZ_2M / PAGE_SIZE)

/* Where memory may begin: x86 has it from 0, and again from 4 GiB. Between, in steps. */
#define NFV_LOW_END	SZ_4G
#define NFV_STEP	SZ_1M

/* Pages in a row, for the user and for the function. */
struct nfv_run {
	struct list_head list;
	u64 iova;
	dma_addr_t address;
	u64 bytes;
};

struct nfv {
	struct vfio_pci_core_device core;
	/* Held for the runs. */
	struct mutex lock;
	struct list_head runs;
	struct page *pages[NFV_PAGES];
};

static struct nfv *nfv_of(struct vfio_device *device)
{
	return container_of(device, struct nfv, core.vdev);
}

static struct nfv_run *nfv_find(struct nfv *nfv, u64 iova, u64 bytes)
{
	struct nfv_run *run;

	list_for_each_entry(run, &nfv->runs, list) {
		if (iova < run->iova + run->bytes && run->iova < iova + bytes)
			return run;
	}
	return NULL;
}

/* Pages that are not given any more, or not yet. */
static void nfv_let_go(struct nfv *nfv, u64 iova, dma_addr_t address, u64 bytes)
{
	struct device *dev = &nfv->core.pdev->dev;
	u64 at;

	for (at = 0; at < bytes; at += PAGE_SIZE)
		dma_unmap_page(dev, address + at, PAGE_SIZE, DMA_BIDIRECTIONAL);
	vfio_unpin_pages(&nfv->core.vdev, iova, bytes / PAGE_SIZE);
}

static int nfv_give(struct nfv *nfv, u64 iova, dma_addr_t address, u64 bytes)
{
	struct nfv_run *run = kzalloc(sizeof(*run), GFP_KERNEL_ACCOUNT);
	int err = -ENOMEM;

	if (run)
		err = nearfar_borrow_give(nfv->core.pdev, iova, address, bytes);
	if (err) {
		kfree(run);
		nfv_let_go(nfv, iova, address, bytes);
		return err;
	}
	run->iova = iova;
	run->address = address;
	run->bytes = bytes;
	list_add(&run->list, &nfv->runs);
	return 0;
}

/* Pages that are pinned: those in a row for the function go in one piece. */
static int nfv_give_pages(struct nfv *nfv, u64 iova, unsigned int count)
{
	u64 end = iova + count * PAGE_SIZE, begun = iova, at;
	dma_addr_t first = 0, address;
	int err = 0;

	for (at = iova; at < end; at += PAGE_SIZE) {
		struct page *page = nfv->pages[(at - iova) / PAGE_SIZE];

		address = nearfar_borrow_map_page(nfv->core.pdev, page);
		if (address == DMA_MAPPING_ERROR) {
			err = -ENXIO;
			break;
		}
		if (at > begun && address != first + (at - begun)) {
			err = nfv_give(nfv, begun, first, at - begun);
			begun = at;
		}
		if (begun == at)
			first = address;
		if (err) {
			at += PAGE_SIZE;
			break;
		}
	}
	if (at > begun && !err)
		err = nfv_give(nfv, begun, first, at - begun);
	else if (at > begun)
		nfv_let_go(nfv, begun, first, at - begun);
	if (at < end)
		vfio_unpin_pages(&nfv->core.vdev, at, (end - at) / PAGE_SIZE);
	return err;
}

/* Gives what begins at an address, as far as the user has mapped it. Returns its pages. */
static int nfv_learn_at(struct nfv *nfv, u64 iova)
{
	struct nfv_run *run = nfv_find(nfv, iova, PAGE_SIZE);
	unsigned int count = NFV_PAGES;
	int pinned, err;

	if (run)
		return (run->iova + run->bytes - iova) / PAGE_SIZE;
	if (nfv_find(nfv, iova, count * PAGE_SIZE))
		count = 1;
	pinned = vfio_pin_pages(&nfv->core.vdev, iova, count, IOMMU_READ | IOMMU_WRITE, nfv->pages);
	if (pinned < 0 && count > 1)
		pinned = vfio_pin_pages(&nfv->core.vdev, iova, 1, IOMMU_READ | IOMMU_WRITE,
					nfv->pages);
	/* Nothing is mapped there, or no memory. */
	if (pinned <= 0)
		return 0;
	err = nfv_give_pages(nfv, iova, pinned);
	return err ? : pinned;
}

static int nfv_learn(struct nfv *nfv)
{
	int pages = 0;
	u64 iova;

	mutex_lock(&nfv->lock);
	for (iova = 0; iova < NFV_LOW_END && pages >= 0;) {
		pages = nfv_learn_at(nfv, iova);
		iova = pages > 0 ? iova + pages * PAGE_SIZE : round_down(iova, NFV_STEP) + NFV_STEP;
	}
	for (iova = max_t(u64, iova, NFV_LOW_END); pages >= 0; iova += pages * PAGE_SIZE) {
		pages = nfv_learn_at(nfv, iova);
		if (!pages)
			break;
	}
	mutex_unlock(&nfv->lock);
	return min(pages, 0);
}

/* The user maps a range no longer. What is left of a run on both sides is given anew. */
static void nfv_forget(struct nfv *nfv, u64 iova, u64 bytes)
{
	struct nfv_run *run;

	while ((run = nfv_find(nfv, iova, bytes))) {
		u64 start = max(iova, run->iova);
		u64 end = min(iova + bytes, run->iova + run->bytes);
		u64 last = run->iova + run->bytes;

		nearfar_borrow_take(nfv->core.pdev, run->iova, run->bytes);
		list_del(&run->list);
		nfv_let_go(nfv, start, run->address + (start - run->iova), end - start);
		if (start > run->iova)
			nfv_give(nfv, run->iova, run->address, start - run->iova);
		if (last > end)
			nfv_give(nfv, end, run->address + (end - run->iova), last - end);
		kfree(run);
	}
}

static void nfv_dma_unmap(struct vfio_device *device, u64 iova, u64 length)
{
	struct nfv *nfv = nfv_of(device);

	mutex_lock(&nfv->lock);
	nfv_forget(nfv, iova, length);
	mutex_unlock(&nfv->lock);
}

static int nfv_open(struct vfio_device *device)
{
	struct nfv *nfv = nfv_of(device);
	int err;

	err = vfio_pci_core_enable(&nfv->core);
	if (err)
		return err;
	vfio_pci_core_finish_enable(&nfv->core);
	nearfar_borrow_open(nfv->core.pdev, true);
	return 0;
}

/* First the function ends, then what it could reach. */
static void nfv_close(struct vfio_device *device)
{
	struct nfv *nfv = nfv_of(device);

	vfio_pci_core_close_device(device);
	mutex_lock(&nfv->lock);
	while (!list_empty(&nfv->runs)) {
		struct nfv_run *run = list_first_entry(&nfv->runs, struct nfv_run, list);

		nfv_forget(nfv, run->iova, run->bytes);
	}
	mutex_unlock(&nfv->lock);
	nearfar_borrow_open(nfv->core.pdev, false);
}

static ssize_t nfv_write(struct vfio_device *device, const char __user *text, size_t count,
			 loff_t *at)
{
	u64 offset = *at & VFIO_PCI_OFFSET_MASK;
	u8 command;
	int err;

	if (VFIO_PCI_OFFSET_TO_INDEX(*at) == VFIO_PCI_CONFIG_REGION_INDEX &&
	    offset <= PCI_COMMAND && offset + count > PCI_COMMAND) {
		if (get_user(command, (const u8 __user *)text + (PCI_COMMAND - offset)))
			return -EFAULT;
		err = command & PCI_COMMAND_MASTER ? nfv_learn(nfv_of(device)) : 0;
		if (err)
			return err;
	}
	return vfio_pci_core_write(device, text, count, at);
}

static const struct vfio_device_ops nfv_ops = {
	.name = KBUILD_MODNAME,
	.init = vfio_pci_core_init_dev,
	.release = vfio_pci_core_release_dev,
	.open_device = nfv_open,
	.close_device = nfv_close,
	.ioctl = vfio_pci_core_ioctl,
	.device_feature = vfio_pci_core_ioctl_feature,
	.read = vfio_pci_core_read,
	.write = nfv_write,
	.mmap = vfio_pci_core_mmap,
	.request = vfio_pci_core_request,
	.match = vfio_pci_core_match,
	.dma_unmap = nfv_dma_unmap,
#ifdef NFV_HAS_IOMMUFD
	.bind_iommufd = vfio_iommufd_emulated_bind,
	.unbind_iommufd = vfio_iommufd_emulated_unbind,
	.attach_ioas = vfio_iommufd_emulated_attach_ioas,
	.detach_ioas = vfio_iommufd_emulated_detach_ioas,
#endif
};

static int nfv_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct nfv *nfv;
	int err;

	err = nearfar_borrow_confine(pdev, true);
	if (err)
		return dev_err_probe(&pdev->dev, err, "it is not borrowed of one with an IOMMU\n");
	/* Lines are the lender's. */
	pdev->irq = IRQ_NOTCONNECTED;
	nfv = vfio_alloc_device(nfv, core.vdev, &pdev->dev, &nfv_ops);
	if (IS_ERR(nfv)) {
		err = PTR_ERR(nfv);
		goto open_up;
	}
	mutex_init(&nfv->lock);
	INIT_LIST_HEAD(&nfv->runs);
	dev_set_drvdata(&pdev->dev, &nfv->core);
	err = vfio_assign_device_set(&nfv->core.vdev, pdev);
	if (!err)
		err = vfio_register_emulated_iommu_dev(&nfv->core.vdev);
	if (!err)
		return 0;
	vfio_put_device(&nfv->core.vdev);
open_up:
	nearfar_borrow_confine(pdev, false);
	return err;
}

static void nfv_remove(struct pci_dev *pdev)
{
	struct vfio_pci_core_device *core = dev_get_drvdata(&pdev->dev);

	vfio_unregister_group_dev(&core->vdev);
	vfio_put_device(&core->vdev);
	nearfar_borrow_confine(pdev, false);
}

static const struct pci_device_id nfv_ids[] = {
	{ PCI_DRIVER_OVERRIDE_DEVICE_VFIO(PCI_ANY_ID, PCI_ANY_ID) },
	{ }
};
MODULE_DEVICE_TABLE(pci, nfv_ids);

static struct pci_driver nfv_driver = {
	.name = KBUILD_MODNAME,
	.id_table = nfv_ids,
	.probe = nfv_probe,
	.remove = nfv_remove,
	.err_handler = &vfio_pci_core_err_handlers,
	.driver_managed_dma = true,
};
module_pci_driver(nfv_driver);

MODULE_DESCRIPTION("Borrowed functions for user space, by VFIO");
MODULE_LICENSE("GPL");
