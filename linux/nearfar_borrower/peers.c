// SPDX-License-Identifier: GPL-2.0
/*
 * Borrowed functions reach each other's BARs by the shortest path: between two lenders by the cable
 * between them, below one lender by its own fabric. This host asks both, and is not on the way.
 */
#include <linux/dma-mapping.h>
#include <linux/slab.h>

#include "borrower.h"

/* A BAR that a function reaches: of another borrowed function, or of one of this host. */
struct joined {
	struct list_head list;
	struct borrowed *to;
	/* Its range here, and where the function finds that. */
	phys_addr_t start;
	u64 bytes;
	u64 address;
	/* What the function's lender knows it by. */
	u8 node;
	u64 target;
	/* It is this host's own, and mapped for the adapter by this host's IOMMU. */
	bool is_mapped;
};

/* The borrowed function, if there is one, that has a range in a BAR. */
static bool peers_find(struct borrower *by, phys_addr_t start, size_t size, struct joined *found)
{
	struct borrowed *to;
	unsigned int i;

	list_for_each_entry(to, &by->borrowed, list) {
		for (i = 0; i < PCI_STD_NUM_BARS; i++) {
			const struct borrowed_bar *bar = &to->bars[i];

			if (!bar->bytes || start < bar->range.address ||
			    start + size > bar->range.address + bar->bytes)
				continue;
			found->to = to;
			found->start = bar->range.address;
			found->bytes = bar->bytes;
			found->node = to->node;
			found->target = bar->start;
			return true;
		}
	}
	return false;
}

/* What is not borrowed is this host's own. */
static int peers_find_own(struct borrower *by, phys_addr_t start, size_t size,
			  struct joined *found)
{
	struct device *adapter = &by->pdev->dev;

	found->start = round_down(start, PAGE_SIZE);
	found->bytes = PAGE_ALIGN(start + size) - found->start;
	found->node = nfb_node(by->nfb);
	found->target = found->start;
	if (!device_iommu_mapped(adapter))
		return 0;
	found->target = dma_map_resource(adapter, found->start, found->bytes, DMA_BIDIRECTIONAL, 0);
	if (dma_mapping_error(adapter, found->target))
		return -ENOSPC;
	found->is_mapped = true;
	return 0;
}

static void peers_forget(struct borrower *by, struct joined *joined)
{
	if (joined->is_mapped)
		dma_unmap_resource(&by->pdev->dev, joined->target, joined->bytes,
				   DMA_BIDIRECTIONAL, 0);
	kfree(joined);
}

static int peers_admit(const struct borrowed *of, const struct borrowed *to,
		       enum lend_question question)
{
	u32 words[NFB_WORDS] = { to->id, of->node, of->place };

	/* Below one lender, nothing keeps them apart. */
	return to->node == of->node ? 0 : borrowed_ask(to, question, words, NULL);
}

static int peers_ask(const struct borrowed *of, struct joined *joined,
		     enum lend_question question)
{
	u32 words[NFB_WORDS] = {
		of->id, joined->node, lower_32_bits(joined->target), upper_32_bits(joined->target),
		lower_32_bits(joined->bytes), upper_32_bits(joined->bytes),
	};
	u32 answer[NFB_WORDS];
	int err;

	err = borrowed_ask(of, question, words, answer);
	if (!err)
		joined->address = answer[0] | (u64)answer[1] << 32;
	return err;
}

static struct joined *peers_new(struct borrowed *of, phys_addr_t start, size_t size)
{
	struct joined *joined = kzalloc(sizeof(*joined), GFP_ATOMIC);

	if (!joined)
		return NULL;
	if (!peers_find(of->by, start, size, joined) &&
	    peers_find_own(of->by, start, size, joined))
		goto free;
	if (joined->to && peers_admit(of, joined->to, LEND_ADMIT))
		goto free;
	if (peers_ask(of, joined, LEND_JOIN))
		goto dismiss;
	list_add(&joined->list, &of->joined);
	return joined;

dismiss:
	if (joined->to)
		peers_admit(of, joined->to, LEND_DISMISS);
free:
	peers_forget(of->by, joined);
	return NULL;
}

/* It stays until one of the two functions goes: a driver maps again what it has mapped. */
dma_addr_t peers_join(struct borrowed *of, phys_addr_t start, size_t size)
{
	dma_addr_t address = DMA_MAPPING_ERROR;
	struct joined *joined, *found = NULL;
	unsigned long flags;

	spin_lock_irqsave(&of->by->peers, flags);
	list_for_each_entry(joined, &of->joined, list) {
		if (start >= joined->start && start + size <= joined->start + joined->bytes)
			found = joined;
	}
	if (!found)
		found = peers_new(of, start, size);
	/* A cable between the two lenders that was down has ended that. */
	else if (found->to && peers_admit(of, found->to, LEND_ADMIT))
		found = NULL;
	if (found)
		address = found->address + (start - found->start);
	spin_unlock_irqrestore(&of->by->peers, flags);
	return address;
}

/* What a function reaches of another one, or of any. */
static void peers_leave(struct borrowed *of, const struct borrowed *to)
{
	struct joined *joined, *next;

	list_for_each_entry_safe(joined, next, &of->joined, list) {
		if (to && joined->to != to)
			continue;
		/* First the way to it, then the leave to use it. */
		peers_ask(of, joined, LEND_LEAVE);
		if (joined->to)
			peers_admit(of, joined->to, LEND_DISMISS);
		list_del(&joined->list);
		peers_forget(of->by, joined);
	}
}

void peers_part(struct borrowed *of)
{
	struct borrowed *other;
	unsigned long flags;

	spin_lock_irqsave(&of->by->peers, flags);
	list_for_each_entry(other, &of->by->borrowed, list)
		peers_leave(other, of);
	peers_leave(of, NULL);
	spin_unlock_irqrestore(&of->by->peers, flags);
}
