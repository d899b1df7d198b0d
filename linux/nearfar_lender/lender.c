// SPDX-License-Identifier: GPL-2.0
/*
 * Functions that this host lends: bound to the driver `nearfar_lent` by driver_override. A lease
 * lets a function reach the borrower's memory and doorbells, and nothing else of the borrower. If
 * this host has an IOMMU, the function reaches nothing else here either, and the borrower only the
 * BARs.
 */
#include <linux/dma-mapping.h>
#include <linux/iommu.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/slab.h>

#include "nearfar_lend.h"

/* A borrower's memory and registers, as all functions see them that it has. */
struct view {
	struct list_head list;
	u8 node;
	u64 bytes;
	unsigned int users;
	struct nfb_range memory;
	struct nfb_range registers;
};

struct lent {
	struct list_head list;
	struct pci_dev *pdev;
	/* Its configuration before anybody had it. */
	struct pci_saved_state *fresh;
	bool leased;
	/* Who has it. */
	u8 node;
	/* Its place in the adapter's table of requesters. */
	int place;
	struct view *view;
	/* Where the adapter finds its BARs. */
	u64 bars[PCI_STD_NUM_BARS];
	/* None without an IOMMU; and the domain of a lease. */
	struct iommu_group *group;
	struct iommu_domain *domain;
	/* Of the borrower's memory, it reaches what is given. */
	bool confined;
	struct list_head given;
	/* What else it reaches, and other functions that reach it. */
	struct list_head reached;
	struct list_head admitted;
};

/* A range of a node. */
struct reached {
	struct list_head list;
	u8 node;
	u64 target;
	/* None if it is this host's. */
	struct nfb_range range;
	/* Where the function finds it. */
	u64 address;
	u64 bytes;
};

/* A part of the borrower's memory. */
struct given {
	struct list_head list;
	u64 iova;
	u64 address;
	u64 bytes;
};

/* A function of another lender. */
struct admitted {
	struct list_head list;
	u8 node;
	u8 place;
	int entry;
};

/* Functions to lend, and their leases. */
static LIST_HEAD(lent);
static LIST_HEAD(views);
static DEFINE_MUTEX(lent_lock);
/* There is one as long as there are leases. */
static struct nfb *adapter;

static u16 lent_id(const struct pci_dev *pdev)
{
	return pci_dev_id((struct pci_dev *)pdev);
}

static struct lent *lent_find(u32 id)
{
	struct lent *own;

	list_for_each_entry(own, &lent, list) {
		if (lent_id(own->pdev) == id)
			return own;
	}
	return NULL;
}

/* As before anybody had it. A driver that is unbound holds the device's lock. */
static void lent_reset(struct lent *own, bool locked)
{
	struct pci_dev *pdev = own->pdev;
	int err;

	pci_clear_master(pdev);
	/* Messages were the borrower's, which may not have ended them. */
	if (pdev->msix_cap)
		pci_write_config_word(pdev, pdev->msix_cap + PCI_MSIX_FLAGS, 0);
	if (pdev->msi_cap)
		pci_write_config_word(pdev, pdev->msi_cap + PCI_MSI_FLAGS, 0);
	err = locked ? pci_reset_function_locked(pdev) : pci_try_reset_function(pdev);
	if (err)
		pci_warn(pdev, "it cannot be reset\n");
	pci_load_saved_state(pdev, own->fresh);
	pci_restore_state(pdev);
}

static struct view *view_new(struct nfb *nfb, u8 node, u64 bytes)
{
	struct view *view = kzalloc(sizeof(*view), GFP_KERNEL);
	int err;

	if (!view)
		return ERR_PTR(-ENOMEM);
	err = nfb_map(nfb, &view->memory, node, 0, bytes, false);
	if (err)
		goto free;
	err = nfb_map(nfb, &view->registers, node, 0, NFB_SHARED_BYTES, true);
	if (err)
		goto unmap;
	view->node = node;
	view->bytes = bytes;
	list_add(&view->list, &views);
	return view;

unmap:
	nfb_unmap(nfb, &view->memory);
free:
	kfree(view);
	return ERR_PTR(err);
}

static struct view *view_get(struct nfb *nfb, u8 node, u64 bytes)
{
	struct view *view, *found = NULL;

	list_for_each_entry(view, &views, list) {
		if (view->node == node && view->bytes == bytes)
			found = view;
	}
	if (!found)
		found = view_new(nfb, node, bytes);
	if (!IS_ERR(found))
		found->users++;
	return found;
}

static void view_put(struct nfb *nfb, struct view *view)
{
	if (--view->users)
		return;
	nfb_unmap(nfb, &view->memory);
	nfb_unmap(nfb, &view->registers);
	list_del(&view->list);
	kfree(view);
}

static int lent_map_at(struct lent *own, u64 iova, u64 address, u64 bytes)
{
	int prot = IOMMU_READ | IOMMU_WRITE | IOMMU_MMIO;

#ifdef LEND_MAP_TAKES_GFP
	return iommu_map(own->domain, iova, address, bytes, prot, GFP_KERNEL);
#else
	return iommu_map(own->domain, iova, address, bytes, prot);
#endif
}

/* What is not given at an address of the borrower's choice is where it is for the fabric. */
static int lent_map(struct lent *own, u64 address, u64 bytes)
{
	u64 start = round_down(address, PAGE_SIZE);

	if (!own->domain)
		return 0;
	return lent_map_at(own, start, start, PAGE_ALIGN(address + bytes) - start);
}

static void lent_unmap(struct lent *own, u64 address, u64 bytes)
{
	u64 start = round_down(address, PAGE_SIZE);

	if (own->domain)
		iommu_unmap(own->domain, start, PAGE_ALIGN(address + bytes) - start);
}

static u64 lent_doorbell(const struct lent *own)
{
	return own->view->registers.address + NFB_DOORBELL;
}

/* Gives a function a domain of its own, with the borrower's memory and doorbell. */
static int lent_confine(struct lent *own)
{
	int err;

	if (!own->group)
		return 0;
	own->domain = iommu_domain_alloc(&pci_bus_type);
	if (!own->domain)
		return -ENOMEM;
	err = lent_map(own, own->view->memory.address, own->view->bytes);
	if (!err)
		err = lent_map(own, lent_doorbell(own), sizeof(u32));
	if (!err)
		err = iommu_attach_group(own->domain, own->group);
	if (err) {
		iommu_domain_free(own->domain);
		own->domain = NULL;
	}
	return err;
}

static struct given *lent_find_given(struct lent *own, u64 iova, u64 bytes)
{
	struct given *part;

	list_for_each_entry(part, &own->given, list) {
		if (iova < part->iova + part->bytes && part->iova < iova + bytes)
			return part;
	}
	return NULL;
}

static int lent_give(struct lent *own, u64 iova, u64 address, u64 bytes)
{
	u64 memory = own->view->memory.address, at;
	struct given *part;
	int err;

	if (!own->confined)
		return -EPERM;
	if (!bytes || bytes > LEND_MOST_GIVEN || !PAGE_ALIGNED(iova | address | bytes) ||
	    iova + bytes < iova)
		return -EINVAL;
	if (address < memory || address - memory > own->view->bytes - bytes)
		return -EACCES;
	for (at = iova; at < iova + bytes; at += PAGE_SIZE) {
		if (iommu_iova_to_phys(own->domain, at))
			return -EEXIST;
	}
	part = kzalloc(sizeof(*part), GFP_KERNEL);
	if (!part)
		return -ENOMEM;
	err = lent_map_at(own, iova, address, bytes);
	if (err) {
		kfree(part);
		return err;
	}
	part->iova = iova;
	part->address = address;
	part->bytes = bytes;
	list_add_tail(&part->list, &own->given);
	return 0;
}

/* As it was given. */
static int lent_take(struct lent *own, u64 iova, u64 bytes)
{
	struct given *part = lent_find_given(own, iova, bytes);

	if (!part || part->iova != iova || part->bytes != bytes)
		return -ENOENT;
	iommu_unmap(own->domain, iova, bytes);
	list_del(&part->list);
	kfree(part);
	return 0;
}

static void lent_take_all(struct lent *own)
{
	struct given *part, *next;

	list_for_each_entry_safe(part, next, &own->given, list)
		lent_take(own, part->iova, part->bytes);
}

static int lent_keep_out(struct lent *own, bool confined)
{
	int err = 0;

	/* Nothing else can keep it from the whole of the window. */
	if (!own->domain)
		return -EOPNOTSUPP;
	if (confined == own->confined)
		return 0;
	lent_take_all(own);
	if (confined)
		lent_unmap(own, own->view->memory.address, own->view->bytes);
	else
		err = lent_map(own, own->view->memory.address, own->view->bytes);
	if (!err)
		own->confined = confined;
	return err;
}

/* It reaches nothing any more. */
static void lent_release(struct lent *own)
{
	if (!own->domain)
		return;
	lent_take_all(own);
	own->confined = false;
	iommu_detach_group(own->domain, own->group);
	iommu_domain_free(own->domain);
	own->domain = NULL;
}

static bool lent_is_memory(const struct lent *own, unsigned int bar)
{
	return pci_resource_len(own->pdev, bar) &&
	       pci_resource_flags(own->pdev, bar) & IORESOURCE_MEM;
}

static void lent_hide_bars(struct nfb *nfb, struct lent *own, unsigned int count)
{
	struct device *adapter = &nfb_pdev(nfb)->dev;

	while (count--) {
		if (device_iommu_mapped(adapter) && lent_is_memory(own, count))
			dma_unmap_resource(adapter, own->bars[count],
					   pci_resource_len(own->pdev, count), DMA_BIDIRECTIONAL,
					   0);
	}
}

/* What comes by the adapter, this host's IOMMU translates. */
static int lent_show_bars(struct nfb *nfb, struct lent *own)
{
	struct device *adapter = &nfb_pdev(nfb)->dev;
	unsigned int bar;

	for (bar = 0; bar < PCI_STD_NUM_BARS; bar++) {
		own->bars[bar] = pci_resource_start(own->pdev, bar);
		if (!device_iommu_mapped(adapter) || !lent_is_memory(own, bar))
			continue;
		own->bars[bar] = dma_map_resource(adapter, own->bars[bar],
						  pci_resource_len(own->pdev, bar),
						  DMA_BIDIRECTIONAL, 0);
		if (dma_mapping_error(adapter, own->bars[bar])) {
			lent_hide_bars(nfb, own, bar);
			return -ENOSPC;
		}
	}
	return 0;
}

static int lent_open(struct nfb *nfb, struct lent *own, u8 node, u64 bytes)
{
	u16 requester, above;
	int err;

	if (own->leased)
		return -EBUSY;
	err = nfb_identity(own->pdev, &requester, &above);
	if (err)
		return err;
	lent_reset(own, false);
	own->place = nfb_add_local(nfb, requester);
	if (own->place < 0)
		return own->place;
	own->view = view_get(nfb, node, bytes);
	if (IS_ERR(own->view)) {
		err = PTR_ERR(own->view);
		goto remove;
	}
	err = lent_confine(own);
	if (err)
		goto close;
	err = lent_show_bars(nfb, own);
	if (err)
		goto release;
	err = nfb_admit(nfb, node);
	if (err)
		goto hide;
	own->node = node;
	own->leased = true;
	return 0;

hide:
	lent_hide_bars(nfb, own, PCI_STD_NUM_BARS);
release:
	lent_release(own);
close:
	view_put(nfb, own->view);
remove:
	nfb_remove_local(nfb, own->place);
	return err;
}

/* Functions of a node reach it no longer, or one of them by its place there. */
static void lent_dismiss(struct nfb *nfb, struct lent *own, int node, int place)
{
	struct admitted *who, *next;

	list_for_each_entry_safe(who, next, &own->admitted, list) {
		if (node != LEND_ALL_NODES && who->node != node)
			continue;
		if (place >= 0 && who->place != place)
			continue;
		nfb_remove_remote(nfb, who->entry);
		nfb_dismiss(nfb, who->node);
		list_del(&who->list);
		kfree(who);
	}
}

static void lent_leave(struct nfb *nfb, struct lent *own, struct reached *what)
{
	lent_unmap(own, what->address, what->bytes);
	if (what->range.count)
		nfb_unmap(nfb, &what->range);
	list_del(&what->list);
	kfree(what);
}

static void lent_close(struct nfb *nfb, struct lent *own, bool locked)
{
	struct reached *what, *next;

	if (!own->leased)
		return;
	own->leased = false;
	/* First requests end, then what they could reach. */
	nfb_dismiss(nfb, own->node);
	lent_dismiss(nfb, own, LEND_ALL_NODES, -1);
	lent_reset(own, locked);
	nfb_remove_local(nfb, own->place);
	list_for_each_entry_safe(what, next, &own->reached, list)
		lent_leave(nfb, own, what);
	lent_release(own);
	lent_hide_bars(nfb, own, PCI_STD_NUM_BARS);
	view_put(nfb, own->view);
}

/* Where this host has a BAR of something that a node has borrowed; 0 if it is none. */
static u64 lent_find_bar(u8 node, u64 start, u64 bytes)
{
	struct lent *own;
	unsigned int bar;

	list_for_each_entry(own, &lent, list) {
		for (bar = 0; own->leased && own->node == node && bar < PCI_STD_NUM_BARS; bar++) {
			if (start == own->bars[bar] && bytes == pci_resource_len(own->pdev, bar))
				return pci_resource_start(own->pdev, bar);
		}
	}
	return 0;
}

static struct reached *lent_find_reached(struct lent *own, u8 node, u64 target)
{
	struct reached *what;

	list_for_each_entry(what, &own->reached, list) {
		if (what->node == node && what->target == target)
			return what;
	}
	return NULL;
}

static int lent_join(struct nfb *nfb, struct lent *own, u8 node, u64 target, u64 bytes,
		     u32 *answer)
{
	struct reached *what;
	int err = 0;

	if (lent_find_reached(own, node, target))
		return -EEXIST;
	what = kzalloc(sizeof(*what), GFP_KERNEL);
	if (!what)
		return -ENOMEM;
	what->node = node;
	what->target = target;
	what->bytes = bytes;
	if (node != nfb_node(nfb)) {
		err = nfb_map(nfb, &what->range, node, target, bytes, false);
		what->address = what->range.address;
	} else {
		what->address = lent_find_bar(own->node, target, bytes);
		if (!what->address)
			err = -EACCES;
	}
	if (err)
		goto free;
	err = lent_map(own, what->address, bytes);
	if (err)
		goto unmap;
	list_add(&what->list, &own->reached);
	answer[0] = lower_32_bits(what->address);
	answer[1] = upper_32_bits(what->address);
	return 0;

unmap:
	if (what->range.count)
		nfb_unmap(nfb, &what->range);
free:
	kfree(what);
	return err;
}

static int lent_part(struct nfb *nfb, struct lent *own, u8 node, u64 target)
{
	struct reached *what = lent_find_reached(own, node, target);

	if (!what)
		return -ENOENT;
	lent_leave(nfb, own, what);
	return 0;
}

static int lent_admit(struct nfb *nfb, struct lent *own, u8 node, u8 place)
{
	struct admitted *who;
	int err;

	/* It may have been let in before, and ask again. */
	list_for_each_entry(who, &own->admitted, list) {
		if (who->node == node && who->place == place)
			return 0;
	}
	who = kzalloc(sizeof(*who), GFP_KERNEL);
	if (!who)
		return -ENOMEM;
	/* Its reads come as its root port's, where that splits them. */
	err = nfb_admit(nfb, node);
	if (err)
		goto free;
	who->entry = nfb_add_remote(nfb, node, place);
	if (who->entry < 0) {
		err = who->entry;
		goto dismiss;
	}
	who->node = node;
	who->place = place;
	list_add(&who->list, &own->admitted);
	return 0;

dismiss:
	nfb_dismiss(nfb, node);
free:
	kfree(who);
	return err;
}

static int lent_read(struct lent *own, u32 at, u32 size, u32 *value)
{
	u16 word;
	u8 byte;
	int err;

	switch (size) {
	case 1:
		err = pci_read_config_byte(own->pdev, at, &byte);
		*value = byte;
		break;
	case 2:
		err = pci_read_config_word(own->pdev, at, &word);
		*value = word;
		break;
	default:
		err = pci_read_config_dword(own->pdev, at, value);
		break;
	}
	return err ? -EINVAL : 0;
}

static int lent_write(struct lent *own, u32 at, u32 size, u32 value)
{
	int err;

	/* Addresses are this host's. */
	if (at >= PCI_BASE_ADDRESS_0 && at < PCI_CARDBUS_CIS)
		return -EPERM;
	if (size == 1)
		err = pci_write_config_byte(own->pdev, at, value);
	else if (size == 2)
		err = pci_write_config_word(own->pdev, at, value);
	else
		err = pci_write_config_dword(own->pdev, at, value);
	return err ? -EINVAL : 0;
}

static int lent_bar(struct lent *own, u32 bar, u32 *answer)
{
	u64 start, bytes;

	if (bar >= PCI_STD_NUM_BARS)
		return -EINVAL;
	start = own->bars[bar];
	bytes = pci_resource_len(own->pdev, bar);
	answer[0] = lower_32_bits(start);
	answer[1] = upper_32_bits(start);
	answer[2] = lower_32_bits(bytes);
	answer[3] = upper_32_bits(bytes);
	answer[4] = pci_resource_flags(own->pdev, bar);
	return 0;
}

static int lent_list(u32 number, u32 *answer)
{
	struct lent *own;

	list_for_each_entry(own, &lent, list) {
		if (number--)
			continue;
		answer[0] = lent_id(own->pdev);
		answer[1] = own->pdev->vendor | own->pdev->device << 16;
		answer[2] = own->leased;
		return 0;
	}
	return -ENOENT;
}

static int lender_do(struct nfb *nfb, u8 node, u8 question, const u32 *words, u32 *answer)
{
	struct lent *own;
	int err;

	if (question == LEND_LIST)
		return lent_list(words[0], answer);
	own = lent_find(words[0]);
	if (!own)
		return -ENODEV;
	if (question == LEND_OPEN) {
		err = lent_open(nfb, own, node, words[1] | (u64)words[2] << 32);
		if (err)
			return err;
		answer[0] = own->place;
		answer[1] = lower_32_bits(own->view->memory.address);
		answer[2] = upper_32_bits(own->view->memory.address);
		answer[3] = lower_32_bits(own->view->registers.address);
		answer[4] = upper_32_bits(own->view->registers.address);
		return 0;
	}
	if (!own->leased || own->node != node)
		return -EACCES;
	switch (question) {
	case LEND_BAR:
		return lent_bar(own, words[1], answer);
	case LEND_READ:
		return lent_read(own, words[1], words[2], answer);
	case LEND_WRITE:
		return lent_write(own, words[1], words[2], words[3]);
	case LEND_CLOSE:
		lent_close(nfb, own, false);
		return 0;
	case LEND_JOIN:
		return lent_join(nfb, own, words[1], words[2] | (u64)words[3] << 32,
				 words[4] | (u64)words[5] << 32, answer);
	case LEND_CONFINE:
		return lent_keep_out(own, words[1]);
	case LEND_GIVE:
		return lent_give(own, words[1] | (u64)words[2] << 32,
				 words[3] | (u64)words[4] << 32, words[5]);
	case LEND_TAKE:
		return lent_take(own, words[1] | (u64)words[2] << 32, words[3]);
	case LEND_LEAVE:
		return lent_part(nfb, own, words[1], words[2] | (u64)words[3] << 32);
	case LEND_ADMIT:
		return lent_admit(nfb, own, words[1], words[2]);
	case LEND_DISMISS:
		lent_dismiss(nfb, own, words[1], words[2] & 0xff);
		return 0;
	default:
		return -EOPNOTSUPP;
	}
}

static int lender_answer(struct nfb *nfb, u8 node, u8 question, const u32 *words, u32 *answer)
{
	int err;

	mutex_lock(&lent_lock);
	err = lender_do(nfb, node, question, words, answer);
	mutex_unlock(&lent_lock);
	return err;
}

/* A node goes, or the adapter: so do its leases, and what its functions reach. */
static void lender_end(struct nfb *nfb, int node)
{
	struct lent *own;

	mutex_lock(&lent_lock);
	list_for_each_entry(own, &lent, list) {
		if (node == LEND_ALL_NODES || own->node == node)
			lent_close(nfb, own, false);
		lent_dismiss(nfb, own, node, -1);
	}
	mutex_unlock(&lent_lock);
}

static int lender_added(struct nfb *nfb)
{
	adapter = nfb;
	return 0;
}

static void lender_removed(struct nfb *nfb)
{
	lender_end(nfb, LEND_ALL_NODES);
	adapter = NULL;
}

static void lender_lost(struct nfb *nfb, u8 node)
{
	lender_end(nfb, node);
}

static struct nfb_client lender_client = {
	.added = lender_added,
	.removed = lender_removed,
	.answer = lender_answer,
	.lost = lender_lost,
};

/* From now on, it reaches nothing by this host's IOMMU. */
static int lent_claim(struct lent *own)
{
	int err;

	own->group = iommu_group_get(&own->pdev->dev);
	if (!own->group)
		return 0;
	err = iommu_group_claim_dma_owner(own->group, own);
	if (err) {
		iommu_group_put(own->group);
		pci_err(own->pdev, "it cannot be lent without what is in its IOMMU group\n");
	}
	return err;
}

static int lent_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct lent *own;
	u16 ids[2];
	int err;

	/* What does not tell its requester ID cannot be let through the adapter. */
	err = nfb_identity(pdev, &ids[0], &ids[1]);
	if (err)
		return err;
	err = pci_enable_device(pdev);
	if (err)
		return err;
	own = kzalloc(sizeof(*own), GFP_KERNEL);
	if (!own) {
		err = -ENOMEM;
		goto disable;
	}
	own->pdev = pdev;
	INIT_LIST_HEAD(&own->given);
	INIT_LIST_HEAD(&own->reached);
	INIT_LIST_HEAD(&own->admitted);
	pci_save_state(pdev);
	own->fresh = pci_store_saved_state(pdev);
	if (!own->fresh) {
		err = -ENOMEM;
		goto free;
	}
	err = lent_claim(own);
	if (err)
		goto forget;
	pci_set_drvdata(pdev, own);
	mutex_lock(&lent_lock);
	list_add_tail(&own->list, &lent);
	mutex_unlock(&lent_lock);
	return 0;

forget:
	kfree(own->fresh);
free:
	kfree(own);
disable:
	pci_disable_device(pdev);
	return err;
}

/* A lease that has not ended is revoked; the borrower is told. */
static void lent_remove(struct pci_dev *pdev)
{
	struct lent *own = pci_get_drvdata(pdev);

	mutex_lock(&lent_lock);
	list_del(&own->list);
	if (own->leased) {
		lent_close(adapter, own, true);
		nfb_ring(adapter, own->node, LEND_REVOKED);
	}
	mutex_unlock(&lent_lock);
	pci_disable_device(pdev);
	if (own->group) {
		iommu_group_release_dma_owner(own->group);
		iommu_group_put(own->group);
	}
	kfree(own->fresh);
	kfree(own);
}

/* Longest line of `reaches`. */
#define REACHES_LINE 40

/* A range that may go on. */
struct reaches {
	char *text;
	int length;
	u64 start;
	u64 end;
};

static void reaches_end(struct reaches *so_far)
{
	if (so_far->end > so_far->start && so_far->length < PAGE_SIZE - REACHES_LINE)
		so_far->length += sysfs_emit_at(so_far->text, so_far->length, "%llx-%llx\n",
						so_far->start, so_far->end - 1);
}

static void reaches_add(struct reaches *so_far, struct lent *own, u64 address, u64 bytes)
{
	u64 start = round_down(address, PAGE_SIZE);

	/* What the IOMMU says. */
	if (!iommu_iova_to_phys(own->domain, start))
		return;
	if (start != so_far->end) {
		reaches_end(so_far);
		so_far->start = start;
	}
	so_far->end = PAGE_ALIGN(address + bytes);
}

/* What a function reaches of the fabric: everything without an IOMMU, nothing without a lease. */
static ssize_t reaches_show(struct device *dev, struct device_attribute *attr, char *text)
{
	struct lent *own = dev_get_drvdata(dev);
	struct reaches so_far = { .text = text };
	struct reached *what;
	struct given *part;

	mutex_lock(&lent_lock);
	if (!own->group) {
		so_far.length = sysfs_emit(text, "everything\n");
	} else if (own->domain) {
		reaches_add(&so_far, own, own->view->memory.address, own->view->bytes);
		reaches_add(&so_far, own, lent_doorbell(own), sizeof(u32));
		list_for_each_entry(part, &own->given, list)
			reaches_add(&so_far, own, part->iova, part->bytes);
		list_for_each_entry(what, &own->reached, list)
			reaches_add(&so_far, own, what->address, what->bytes);
		reaches_end(&so_far);
	}
	mutex_unlock(&lent_lock);
	return so_far.length;
}
static DEVICE_ATTR_RO(reaches);

static struct attribute *lent_attrs[] = {
	&dev_attr_reaches.attr,
	NULL
};
ATTRIBUTE_GROUPS(lent);

static struct pci_driver lent_driver = {
	.name = "nearfar_lent",
	.probe = lent_probe,
	.remove = lent_remove,
	.dev_groups = lent_groups,
	.driver_managed_dma = true,
};

static int __init lender_init(void)
{
	int err = nfb_register_client(&lender_client);

	if (err)
		return err;
	err = pci_register_driver(&lent_driver);
	if (err)
		nfb_unregister_client(&lender_client);
	return err;
}
module_init(lender_init);

static void __exit lender_exit(void)
{
	pci_unregister_driver(&lent_driver);
	nfb_unregister_client(&lender_client);
}
module_exit(lender_exit);

MODULE_DESCRIPTION("Functions to lend, over nearfar's NTB");
MODULE_LICENSE("GPL");
