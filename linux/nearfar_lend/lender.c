// SPDX-License-Identifier: GPL-2.0
/*
 * Functions that this host lends: bound to the driver `nearfar_lent` by driver_override. A lease
 * lets a function reach the borrower's memory and doorbells, and nothing else of the borrower.
 */
#include <linux/io.h>
#include <linux/slab.h>

#include "nearfar_lend.h"

struct lent {
	struct list_head list;
	struct pci_dev *pdev;
	/* Its configuration before anybody had it. */
	struct pci_saved_state *fresh;
	bool leased;
	/* Its place in the adapter's table of requesters. */
	int place;
	/* The borrower's memory and registers, as the function sees them. */
	struct lend_range memory;
	struct lend_range registers;
};

/* Functions to lend, and their leases. */
static LIST_HEAD(lent);
static DEFINE_MUTEX(lent_lock);

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

static int lent_open(struct lend *lend, struct lent *own, u64 bytes)
{
	u16 requester, above;
	int err;

	if (own->leased)
		return -EBUSY;
	err = lend_identity(own->pdev, &requester, &above);
	if (err)
		return err;
	lent_reset(own, false);
	own->place = lend_add_local(lend, requester);
	if (own->place < 0)
		return own->place;
	err = lend_map(lend, &own->memory, 0, bytes, false);
	if (err)
		goto remove;
	err = lend_map(lend, &own->registers, 0, NTB_SCRATCHPADS, true);
	if (err)
		goto unmap;
	err = lend_admit(lend);
	if (err)
		goto close;
	own->leased = true;
	return 0;

close:
	lend_unmap(lend, &own->registers);
unmap:
	lend_unmap(lend, &own->memory);
remove:
	lend_remove_local(lend, own->place);
	return err;
}

static void lent_close(struct lend *lend, struct lent *own, bool locked)
{
	if (!own->leased)
		return;
	own->leased = false;
	/* First requests end, then what they could reach. */
	lend_dismiss(lend);
	lent_reset(own, locked);
	lend_remove_local(lend, own->place);
	lend_unmap(lend, &own->memory);
	lend_unmap(lend, &own->registers);
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

static int lender_do(struct lend *lend, u32 question, const u32 *words, u32 *answer)
{
	struct lent *own;
	int err;

	if (question == LEND_LIST)
		return lent_list(words[0], answer);
	own = lent_find(words[0]);
	if (!own)
		return -ENODEV;
	if (question == LEND_OPEN) {
		err = lent_open(lend, own, words[1] | (u64)words[2] << 32);
		answer[0] = own->place;
		answer[1] = lower_32_bits(own->memory.address);
		answer[2] = upper_32_bits(own->memory.address);
		answer[3] = lower_32_bits(own->registers.address);
		answer[4] = upper_32_bits(own->registers.address);
		return err;
	}
	if (!own->leased)
		return -EACCES;
	switch (question) {
	case LEND_BAR:
		return lent_bar(own, words[1], answer);
	case LEND_READ:
		return lent_read(own, words[1], words[2], answer);
	case LEND_WRITE:
		return lent_write(own, words[1], words[2], words[3]);
	case LEND_CLOSE:
		lent_close(lend, own, false);
		return 0;
	default:
		return -EOPNOTSUPP;
	}
}

/* Answers the question in the scratchpads, once: the adapter's thread. */
void lender_answer(struct lend *lend)
{
	void __iomem *here = lend->registers + NTB_SCRATCHPADS + 4 * LEND_QUESTION;
	void __iomem *there = lend->peer_registers + NTB_SCRATCHPADS + 4 * LEND_ANSWER;
	u32 words[LEND_WORDS - 1], answer[LEND_WORDS - 1] = { };
	u32 first = readl(here);
	unsigned int i;
	int err;

	if (first == ~0U || !(first >> 8) || first >> 8 == lend->answered)
		return;
	lend->answered = first >> 8;
	for (i = 1; i < LEND_WORDS; i++)
		words[i - 1] = readl(here + 4 * i);
	mutex_lock(&lent_lock);
	err = lender_do(lend, first & 0xff, words, answer);
	mutex_unlock(&lent_lock);
	for (i = 1; i < LEND_WORDS; i++)
		writel(answer[i - 1], there + 4 * i);
	writel(lend->answered << 8 | (-err & 0xff), there);
}

/* The adapter goes: so do all leases. */
void lender_end(struct lend *lend)
{
	struct lent *own;

	mutex_lock(&lent_lock);
	list_for_each_entry(own, &lent, list)
		lent_close(lend, own, false);
	mutex_unlock(&lent_lock);
}

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
	struct lend *lend = lend_adapter();

	mutex_lock(&lent_lock);
	list_del(&own->list);
	if (lend && own->leased) {
		lent_close(lend, own, true);
		writel(LEND_REVOKED, lend->peer_registers + NTB_DOORBELL);
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

int lender_register(void)
{
	return pci_register_driver(&lent_driver);
}

void lender_unregister(void)
{
	pci_unregister_driver(&lent_driver);
}
