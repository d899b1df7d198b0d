/* SPDX-License-Identifier: GPL-2.0 */
/* What a host keeps of functions that it has borrowed. */
#ifndef NEARFAR_BORROWER_H
#define NEARFAR_BORROWER_H

#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>

#include "nearfar_lend.h"

/* This host's borrowing, by its one adapter. */
struct borrower {
	struct nfb *nfb;
	struct pci_dev *pdev;
	/* Held to borrow and to return. */
	struct mutex borrowing;
	/* Held for the list, and for what functions reach of each other. */
	spinlock_t peers;
	struct list_head borrowed;
	struct work_struct revoke;
};

struct borrowed_bar {
	struct nfb_range range;
	u64 bytes;
	u32 flags;
	/* Where it is at its lender. */
	u64 start;
	/* The low and the high word are asked for their size. */
	bool sizing[2];
};

/* A function that this host has borrowed. */
struct borrowed {
	struct pci_sysdata sysdata;
	struct list_head list;
	struct borrower *by;
	/* Its lender, its ID and its place among requesters there, and its entry here. */
	u8 node;
	u16 id;
	int place;
	int own;
	struct borrowed_bar bars[PCI_STD_NUM_BARS];
	/* The function's address of this host's memory at 0, and of its doorbell. */
	u64 memory;
	u64 doorbell;
	/* What it reaches of other functions. */
	struct list_head joined;
	/* A program has it. */
	bool opened;
	struct resource window;
	struct resource buses;
	struct pci_bus *bus;
};

int borrowed_ask(const struct borrowed *of, enum lend_question question, const u32 *words,
		 u32 *answer);

/* Where a function finds this host's physical address, which is of a BAR. */
dma_addr_t peers_join(struct borrowed *of, phys_addr_t start, size_t size);
/* A function, which is not in the list any more, and the others reach each other no longer. */
void peers_part(struct borrowed *of);

#endif
