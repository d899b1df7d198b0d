/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Device Lending over nearfar's NTB adapters: registers, messages between hosts, and what a host
 * keeps.
 */
#ifndef NEARFAR_LEND_H
#define NEARFAR_LEND_H

#include <linux/bitmap.h>
#include <linux/bits.h>
#include <linux/interrupt.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>

/* Registers of BAR 0; BAR 2 is the window. */
#define NTB_NODE		0x00
#define NTB_SEGMENTS		0x04
#define NTB_SEGMENT_BYTES	0x08
#define NTB_REQUESTERS		0x10
#define NTB_REACHABLE		0x18
#define NTB_SEGMENT_TABLE	0x1000
#define NTB_SEGMENT_ON		BIT(0)
#define NTB_SEGMENT_REGISTERS	BIT(1)
#define NTB_SEGMENT_NODE(node)	((u32)(node) << 16)
#define NTB_LOCAL_TABLE		0x8000
#define NTB_REMOTE_TABLE	0x9000
#define NTB_ENTRY_ON		BIT(31)
#define NTB_DOORBELL		0xa000
#define NTB_DOORBELL_CLEAR	0xa004
#define NTB_SCRATCHPADS		0xa100
#define NTB_MOST_SEGMENTS	1024
#define NTB_MOST_REQUESTERS	256

/* Requester IDs, which a guest does not choose: its own, and that of the port above. */
#define LIVE_VENDOR		0x4e46
#define LIVE_IDENTITY		1
#define LIVE_OWN		0x08
#define LIVE_ABOVE		0x0c

/* Doorbell bits: messages of borrowed functions, then those of the other host. */
#define LEND_VECTORS		24
#define LEND_REVOKED		BIT(28)
#define LEND_ASKED		BIT(30)
#define LEND_LINK		BIT(31)

/*
 * A question is in the scratchpads of whoever is asked, its answer in those of whoever asks. The
 * first word, with a number, is written last.
 */
#define LEND_QUESTION		0
#define LEND_ANSWER		8
#define LEND_WORDS		8

enum lend_question {
	LEND_LIST = 1,
	LEND_OPEN,
	LEND_BAR,
	LEND_READ,
	LEND_WRITE,
	LEND_CLOSE,
};

struct lend_range {
	int first;
	int count;
	/* Where processors and devices of this host find it. */
	u64 address;
};

/* An adapter. */
struct lend {
	struct pci_dev *pdev;
	void __iomem *registers;
	struct resource *window;
	u64 segment_bytes;
	unsigned int segments;
	unsigned int requesters;
	u8 node;
	/* The node at the other end of the cable, once it has answered. */
	int peer;
	void __iomem *peer_registers;
	/* Leases in both directions, and the other root port's place meanwhile. */
	unsigned int leases;
	int root;
	/* Held for the tables. */
	struct mutex tables;
	/* Held while the other node is found, or let in. */
	struct mutex connecting;
	/* Held to borrow and to return. */
	struct mutex borrowing;
	DECLARE_BITMAP(segment_used, NTB_MOST_SEGMENTS);
	DECLARE_BITMAP(local_used, NTB_MOST_REQUESTERS);
	DECLARE_BITMAP(remote_used, NTB_MOST_REQUESTERS);
	/* Held for a question; configuration accesses ask with interrupts off. */
	raw_spinlock_t asking;
	u32 number;
	u32 answered;
	struct irq_domain *domain;
	DECLARE_BITMAP(vector_used, LEND_VECTORS);
	unsigned int virq[LEND_VECTORS];
	struct list_head borrowed;
	struct work_struct revoke;
	struct work_struct link;
};

/* Tables of an adapter, and questions to the other host. */
int lend_map(struct lend *lend, struct lend_range *range, u64 target, u64 bytes, bool registers);
void lend_unmap(struct lend *lend, struct lend_range *range);
int lend_add_local(struct lend *lend, u16 requester);
void lend_remove_local(struct lend *lend, int place);
int lend_add_remote(struct lend *lend, int place);
void lend_remove_remote(struct lend *lend, int own);
int lend_admit(struct lend *lend);
void lend_dismiss(struct lend *lend);
int lend_identity(struct pci_dev *pdev, u16 *own, u16 *above);
int lend_connect(struct lend *lend);
int lend_ask(struct lend *lend, enum lend_question question, const u32 *words, u32 *answer);
struct lend *lend_adapter(void);

void lender_answer(struct lend *lend);
void lender_end(struct lend *lend);
int lender_register(void);
void lender_unregister(void);

extern const struct attribute_group *lend_groups[];
int borrower_init(struct lend *lend);
void borrower_exit(struct lend *lend);
void borrower_end(struct lend *lend, bool asks);

#endif
