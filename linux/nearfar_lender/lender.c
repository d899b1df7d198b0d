// SPDX-License-Identifier: GPL-2.0
/*
 * Functions that this host lends: bound to the driver `nearfar_lent` by driver_override. A lease
 * lets a function reach the borrower's memory and doorbells, and nothing else of the borrower.
 */
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
	err = nfb_admit(nfb, node);
	if (err)
		goto close;
	own->node = node;
	own->leased = true;
	return 0;

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

static void lent_leave(struct nfb *nfb, struct reached *what)
{
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
		lent_leave(nfb, what);
	view_put(nfb, own->view);
}

/* Whether a range is a BAR of something that a node has borrowed. */
static bool lent_has(u8 node, u64 start, u64 bytes)
{
	struct lent *own;
	unsigned int bar;

	list_for_each_entry(own, &lent, list) {
		for (bar = 0; own->leased && own->node == node && bar < PCI_STD_NUM_BARS; bar++) {
			if (start == pci_resource_start(own->pdev, bar) &&
			    bytes == pci_resource_len(own->pdev, bar))
				return true;
		}
	}
	return false;
}

static int lent_join(struct nfb *nfb, struct lent *own, u8 node, u64 target, u64 bytes,
		     u32 *answer)
{
	struct reached *what = kzalloc(sizeof(*what), GFP_KERNEL);
	u64 address = target;
	int err = 0;

	if (!what)
		return -ENOMEM;
	what->node = node;
	what->target = target;
	if (node != nfb_node(nfb)) {
		err = nfb_map(nfb, &what->range, node, target, bytes, false);
		address = what->range.address;
	} else if (!lent_has(own->node, target, bytes)) {
		err = -EACCES;
	}
	if (err) {
		kfree(what);
		return err;
	}
	list_add(&what->list, &own->reached);
	answer[0] = lower_32_bits(address);
	answer[1] = upper_32_bits(address);
	return 0;
}

static int lent_part(struct nfb *nfb, struct lent *own, u8 node, u64 target)
{
	struct reached *what;

	list_for_each_entry(what, &own->reached, list) {
		if (what->node == node && what->target == target) {
			lent_leave(nfb, what);
			return 0;
		}
	}
	return -ENOENT;
}

static int lent_admit(struct nfb *nfb, struct lent *own, u8 node, u8 place)
{
	struct admitted *who;
	int err;

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
	start = pci_resource_start(own->pdev, bar);
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

static int lent_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct lent *own;
	int err;

	err = pci_enable_device(pdev);
	if (err)
		return err;
	own = kzalloc(sizeof(*own), GFP_KERNEL);
	if (!own) {
		pci_disable_device(pdev);
		return -ENOMEM;
	}
	own->pdev = pdev;
	INIT_LIST_HEAD(&own->reached);
	INIT_LIST_HEAD(&own->admitted);
	pci_save_state(pdev);
	own->fresh = pci_store_saved_state(pdev);
	if (!own->fresh) {
		pci_disable_device(pdev);
		kfree(own);
		return -ENOMEM;
	}
	pci_set_drvdata(pdev, own);
	mutex_lock(&lent_lock);
	list_add_tail(&own->list, &lent);
	mutex_unlock(&lent_lock);
	return 0;
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
	kfree(own->fresh);
	kfree(own);
}

static struct pci_driver lent_driver = {
	.name = "nearfar_lent",
	.probe = lent_probe,
	.remove = lent_remove,
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
