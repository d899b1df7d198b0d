// SPDX-License-Identifier: GPL-2.0
/* The adapter: its tables, doorbells, and questions to the other host. */
#include <linux/delay.h>
#include <linux/dma-mapping.h>
#include <linux/io.h>
#include <linux/io-64-nonatomic-lo-hi.h>
#include <linux/irq.h>
#include <linux/module.h>

#include "nearfar_lend.h"

/* How long the other host takes at most to answer. */
#define LEND_PATIENCE_US	(3 * USEC_PER_SEC)
#define LEND_POLL_US		20

/* The one adapter of this host. */
static struct lend *adapter;

struct lend *lend_adapter(void)
{
	return READ_ONCE(adapter);
}

static void lend_write_segment(struct lend *lend, int number, u64 target, u32 control)
{
	void __iomem *segment = lend->registers + NTB_SEGMENT_TABLE + 16 * number;

	writel(lower_32_bits(target), segment);
	writel(upper_32_bits(target), segment + 4);
	writel(control, segment + 8);
}

/* Maps a range of the other node, or the registers of its adapter. */
int lend_map(struct lend *lend, struct lend_range *range, u64 target, u64 bytes, bool registers)
{
	u64 start = round_down(target, lend->segment_bytes);
	u32 control = NTB_SEGMENT_ON | NTB_SEGMENT_NODE(lend->peer);
	unsigned long first;
	int i;

	range->count = DIV_ROUND_UP_ULL(target + bytes - start, lend->segment_bytes);
	mutex_lock(&lend->tables);
	first = bitmap_find_next_zero_area(lend->segment_used, lend->segments, 0, range->count, 0);
	if (first >= lend->segments) {
		mutex_unlock(&lend->tables);
		range->count = 0;
		return -ENOSPC;
	}
	bitmap_set(lend->segment_used, first, range->count);
	range->first = first;
	range->address = lend->window->start + first * lend->segment_bytes + (target - start);
	if (registers)
		control |= NTB_SEGMENT_REGISTERS;
	for (i = 0; i < range->count; i++)
		lend_write_segment(lend, first + i, start + i * lend->segment_bytes, control);
	mutex_unlock(&lend->tables);
	return 0;
}

void lend_unmap(struct lend *lend, struct lend_range *range)
{
	int i;

	mutex_lock(&lend->tables);
	for (i = 0; i < range->count; i++)
		lend_write_segment(lend, range->first + i, 0, 0);
	bitmap_clear(lend->segment_used, range->first, range->count);
	range->count = 0;
	mutex_unlock(&lend->tables);
}

static int lend_add(struct lend *lend, unsigned long *used, u32 table, u32 entry)
{
	unsigned int place;

	mutex_lock(&lend->tables);
	place = find_first_zero_bit(used, lend->requesters);
	if (place < lend->requesters) {
		__set_bit(place, used);
		writel(NTB_ENTRY_ON | entry, lend->registers + table + 4 * place);
	}
	mutex_unlock(&lend->tables);
	return place < lend->requesters ? place : -ENOSPC;
}

static void lend_remove(struct lend *lend, unsigned long *used, u32 table, int place)
{
	mutex_lock(&lend->tables);
	writel(0, lend->registers + table + 4 * place);
	__clear_bit(place, used);
	mutex_unlock(&lend->tables);
}

/* Lets a requester of this host reach the other one. Returns its place, by which that knows it. */
int lend_add_local(struct lend *lend, u16 requester)
{
	return lend_add(lend, lend->local_used, NTB_LOCAL_TABLE, requester);
}

void lend_remove_local(struct lend *lend, int place)
{
	lend_remove(lend, lend->local_used, NTB_LOCAL_TABLE, place);
}

/* Lets a requester of the other host reach this one. */
int lend_add_remote(struct lend *lend, int place)
{
	return lend_add(lend, lend->remote_used, NTB_REMOTE_TABLE, lend->peer << 8 | place);
}

void lend_remove_remote(struct lend *lend, int own)
{
	lend_remove(lend, lend->remote_used, NTB_REMOTE_TABLE, own);
}

/*
 * The other node's root port reaches this host as long as there is a lease, and no longer: with
 * its ID come the accesses of a borrower's processors, and a lent function's reads that the
 * lender's root port has split.
 */
int lend_admit(struct lend *lend)
{
	int err = 0;

	mutex_lock(&lend->connecting);
	if (!lend->leases)
		err = lend_add_remote(lend, 0);
	if (err >= 0) {
		lend->root = lend->leases ? lend->root : err;
		lend->leases++;
	}
	mutex_unlock(&lend->connecting);
	return err < 0 ? err : 0;
}

void lend_dismiss(struct lend *lend)
{
	mutex_lock(&lend->connecting);
	if (!--lend->leases)
		lend_remove_remote(lend, lend->root);
	mutex_unlock(&lend->connecting);
}

int lend_identity(struct pci_dev *pdev, u16 *own, u16 *above)
{
	u16 at = pci_find_dvsec_capability(pdev, LIVE_VENDOR, LIVE_IDENTITY);
	u32 words[2];

	if (!at)
		return -EOPNOTSUPP;
	pci_read_config_dword(pdev, at + LIVE_OWN, &words[0]);
	pci_read_config_dword(pdev, at + LIVE_ABOVE, &words[1]);
	*own = words[0] >> 16;
	*above = words[1];
	return 0;
}

static int lend_find_peer(struct lend *lend)
{
	struct lend_range range;
	u64 reachable;
	int err;

	writeq(~0ULL, lend->registers + NTB_REACHABLE);
	reachable = readq(lend->registers + NTB_REACHABLE) & ~BIT_ULL(lend->node);
	if (!reachable)
		return -ENOLINK;
	lend->peer = __ffs64(reachable);
	err = lend_map(lend, &range, 0, NTB_SCRATCHPADS + 0x100, true);
	if (err)
		return err;
	lend->peer_registers = ioremap(range.address, NTB_SCRATCHPADS + 0x100);
	if (lend->peer_registers)
		return 0;
	lend_unmap(lend, &range);
	return -ENOMEM;
}

/* Finds the other node and its registers, once. */
int lend_connect(struct lend *lend)
{
	int err = 0;

	mutex_lock(&lend->connecting);
	if (!lend->peer_registers)
		err = lend_find_peer(lend);
	mutex_unlock(&lend->connecting);
	return err;
}

static bool lend_reaches(struct lend *lend)
{
	return readq(lend->registers + NTB_REACHABLE) & BIT_ULL(lend->peer);
}

int lend_ask(struct lend *lend, enum lend_question question, const u32 *words, u32 *answer)
{
	void __iomem *there = lend->peer_registers + NTB_SCRATCHPADS + 4 * LEND_QUESTION;
	void __iomem *here = lend->registers + NTB_SCRATCHPADS + 4 * LEND_ANSWER;
	unsigned int waited, i;
	unsigned long flags;
	int err = -ETIMEDOUT;
	u32 number;

	if (!lend_reaches(lend))
		return -ENOLINK;
	raw_spin_lock_irqsave(&lend->asking, flags);
	number = ++lend->number & 0xffffff;
	for (i = 1; i < LEND_WORDS; i++)
		writel(words[i - 1], there + 4 * i);
	writel(number << 8 | question, there);
	writel(LEND_ASKED, lend->peer_registers + NTB_DOORBELL);
	for (waited = 0; waited < LEND_PATIENCE_US; waited += LEND_POLL_US) {
		u32 first = readl(here);

		if (first == ~0U) {
			err = -ENODEV;
			break;
		}
		if (first >> 8 == number) {
			err = -(int)(first & 0xff);
			for (i = 1; i < LEND_WORDS && answer; i++)
				answer[i - 1] = readl(here + 4 * i);
			break;
		}
		if (!lend_reaches(lend)) {
			err = -ENOLINK;
			break;
		}
		udelay(LEND_POLL_US);
	}
	raw_spin_unlock_irqrestore(&lend->asking, flags);
	return err;
}

static irqreturn_t lend_interrupt(int irq, void *data)
{
	struct lend *lend = data;
	u32 bits = readl(lend->registers + NTB_DOORBELL);
	unsigned long vectors = bits & GENMASK(LEND_VECTORS - 1, 0);
	unsigned int vector;

	if (!bits || bits == ~0U)
		return IRQ_NONE;
	writel(bits, lend->registers + NTB_DOORBELL_CLEAR);
	for_each_set_bit(vector, &vectors, LEND_VECTORS)
		generic_handle_irq(READ_ONCE(lend->virq[vector]));
	if (bits & LEND_REVOKED)
		schedule_work(&lend->revoke);
	if (bits & LEND_LINK)
		schedule_work(&lend->link);
	if (bits & LEND_ASKED)
		return IRQ_WAKE_THREAD;
	return IRQ_HANDLED;
}

static irqreturn_t lend_thread(int irq, void *data)
{
	struct lend *lend = data;

	if (!lend_connect(lend))
		lender_answer(lend);
	return IRQ_HANDLED;
}

/*
 * The cable was down: all leases end, since requests were lost. Afterwards the other host may come
 * again; the adapter keeps it out until then.
 */
static void lend_link_changed(struct work_struct *work)
{
	struct lend *lend = container_of(work, struct lend, link);

	if (lend->peer < 0 || lend_reaches(lend))
		return;
	borrower_end(lend, false);
	lender_end(lend);
	writeq(BIT_ULL(lend->peer), lend->registers + NTB_REACHABLE);
}

static int lend_start(struct lend *lend)
{
	struct pci_dev *pdev = lend->pdev;
	u16 own, above;
	int err;

	err = lend_identity(pdev, &own, &above);
	if (err)
		return dev_err_probe(&pdev->dev, err, "it does not tell requester IDs\n");
	lend->node = readl(lend->registers + NTB_NODE);
	lend->segments = min_t(u32, readl(lend->registers + NTB_SEGMENTS), NTB_MOST_SEGMENTS);
	lend->segment_bytes = readq(lend->registers + NTB_SEGMENT_BYTES);
	lend->requesters = min_t(u32, readl(lend->registers + NTB_REQUESTERS), NTB_MOST_REQUESTERS);
	if (!lend->segments || !lend->requesters || !is_power_of_2(lend->segment_bytes))
		return -ENODEV;
	/* The root port is the first requester of every node. */
	lend_add_local(lend, above);
	/* The first of the other node would have the adapter's own ID. */
	__set_bit(0, lend->remote_used);
	err = pci_alloc_irq_vectors(pdev, 1, 1, PCI_IRQ_MSIX);
	if (err < 0)
		return err;
	err = devm_request_threaded_irq(&pdev->dev, pci_irq_vector(pdev, 0), lend_interrupt,
					lend_thread, 0, "nearfar_lend", lend);
	if (err)
		return err;
	/* A bit that was set before would not interrupt again. Who has asked will ask again. */
	writel(~0U, lend->registers + NTB_DOORBELL_CLEAR);
	return 0;
}

static int lend_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct lend *lend;
	int err;

	if (lend_adapter())
		return dev_err_probe(&pdev->dev, -EBUSY, "there is an adapter already\n");
	err = pcim_enable_device(pdev);
	if (err)
		return err;
	err = pcim_iomap_regions(pdev, BIT(0), KBUILD_MODNAME);
	if (err)
		return err;
	lend = devm_kzalloc(&pdev->dev, sizeof(*lend), GFP_KERNEL);
	if (!lend)
		return -ENOMEM;
	lend->pdev = pdev;
	lend->registers = pcim_iomap_table(pdev)[0];
	lend->window = &pdev->resource[2];
	lend->peer = -1;
	mutex_init(&lend->tables);
	mutex_init(&lend->connecting);
	mutex_init(&lend->borrowing);
	raw_spin_lock_init(&lend->asking);
	INIT_LIST_HEAD(&lend->borrowed);
	INIT_WORK(&lend->link, lend_link_changed);
	pci_set_drvdata(pdev, lend);
	err = borrower_init(lend);
	if (err)
		return err;
	pci_set_master(pdev);
	err = lend_start(lend);
	if (err) {
		borrower_exit(lend);
		return err;
	}
	WRITE_ONCE(adapter, lend);
	return 0;
}

static void lend_disconnect(struct pci_dev *pdev)
{
	struct lend *lend = pci_get_drvdata(pdev);

	WRITE_ONCE(adapter, NULL);
	borrower_end(lend, true);
	lender_end(lend);
	devm_free_irq(&pdev->dev, pci_irq_vector(pdev, 0), lend);
	cancel_work_sync(&lend->link);
	borrower_exit(lend);
	pci_free_irq_vectors(pdev);
	if (lend->peer_registers)
		iounmap(lend->peer_registers);
	pci_clear_master(pdev);
}

static const struct pci_device_id lend_ids[] = {
	{ PCI_DEVICE(0x10b5, 0x87b0) },
	{ }
};
MODULE_DEVICE_TABLE(pci, lend_ids);

static struct pci_driver lend_driver = {
	.name = KBUILD_MODNAME,
	.id_table = lend_ids,
	.probe = lend_probe,
	.remove = lend_disconnect,
	.dev_groups = lend_groups,
};

static int __init lend_init(void)
{
	int err = lender_register();

	if (err)
		return err;
	err = pci_register_driver(&lend_driver);
	if (err)
		lender_unregister();
	return err;
}
module_init(lend_init);

static void __exit lend_exit(void)
{
	pci_unregister_driver(&lend_driver);
	lender_unregister();
}
module_exit(lend_exit);

MODULE_DESCRIPTION("Device Lending over nearfar's NTB");
MODULE_LICENSE("GPL");
