/* SPDX-License-Identifier: GPL-2.0 */
/* How nearfar's NIC sends and receives: a function, and its channels of rings. */
#ifndef NEARFAR_RINGS_H
#define NEARFAR_RINGS_H

#include <linux/netdevice.h>

#include "nearfar_kpio.h"

struct nfn;

/* Queues, and the registers of one. */
#define NFN_TX_QUEUES		0x10000
#define NFN_RX_QUEUES		0x20000
#define NFN_QUEUE_STRIDE	0x80
#define NFN_Q_TAIL		0x00
#define NFN_Q_HEAD		0x04
#define NFN_Q_RING		0x08
#define NFN_Q_SIZE		0x10
#define NFN_Q_VECTOR		0x14
#define NFN_Q_COMPLETIONS	0x18
#define NFN_Q_CONTROL		0x20
#define NFN_Q_ENABLE		BIT(0)
#define NFN_Q_TO_RING		(3 << 4)
#define NFN_Q_ARM_AT		0x2c
#define NFN_Q_ARM		BIT(31)
#define NFN_Q_NUMBER		0x3c

/* A fragment to send, or a free buffer. */
struct nfn_descriptor {
	__le64 address;
	__le16 length;
	__le16 segment;
	u8 headers;
	u8 flags;
	u8 function;
	u8 zero;
};

#define NFN_TX_END		BIT(0)
#define NFN_TX_REPORT		BIT(1)
#define NFN_TX_NETWORK_CSUM	BIT(2)
#define NFN_TX_TRANSPORT_CSUM	BIT(3)

struct nfn_completion {
	__le32 hash;
	__le16 length;
	__le16 zero;
	__le16 count;
	__le16 flags;
	__le16 rule;
	u8 kind;
	u8 owner;
};

#define NFN_C_END		BIT(0)
#define NFN_C_TRANSPORT_RIGHT	BIT(3)
#define NFN_C_FAILED		BIT(5)
#define NFN_C_STEERED		BIT(6)
#define NFN_C_HASHED		BIT(7)
#define NFN_C_HASHED_PORTS	BIT(8)
#define NFN_C_HELD		BIT(10)

/* Headers of a packet that is segmented: a descriptor has a byte for their length. */
#define NFN_MOST_HEADERS	256
#define NFN_LOG2_RING		8
#define NFN_LEAST_LOG2_RING	6
#define NFN_MOST_LOG2_RING	12

/* What a TX descriptor maps, and the frame that ends there. */
struct nfn_tx_slot {
	struct sk_buff *skb;
	dma_addr_t address;
	u16 length;
	bool is_page;
};

struct nfn_rx_slot {
	struct page *page;
	dma_addr_t address;
};

/* Counts are 16 bits and wrap, as the device's. */
struct nfn_ring {
	void __iomem *registers;
	struct nfn_descriptor *descriptors;
	struct nfn_completion *completions;
	dma_addr_t descriptors_bus;
	dma_addr_t completions_bus;
	u64 doorbells;
	u8 log2;
	u16 tail;
	u16 done;
	u16 seen;
	/* Where it was when it was last looked at, and since when it is there. */
	u16 stays;
	unsigned long stays_since;
};

struct nfn_channel {
	struct nfn *nfn;
	struct napi_struct napi;
	/* The function's number of it, and the network device's. */
	unsigned int number;
	unsigned int queue;
	char name[IFNAMSIZ + 16];
	struct nfn_ring tx;
	struct nfn_ring rx;
	struct nfn_kpio kpio;
	struct nfn_tx_slot *tx_slots;
	struct nfn_rx_slot *rx_slots;
	struct sk_buff *partial;
	/* How far processors' backlogs have to come for a frame that waits; the poll's. */
	unsigned int *backlogs;
	bool knows_backlogs;
	u64 tx_frames;
	u64 rx_frames;
	/* How often the stack had to wait for room. */
	u64 tx_waits;
	/* Since the channel was started. */
	unsigned int interrupts;
};

/* What a self-test tries (ethtool -t). */
enum nfn_self_tests {
	NFN_TEST_LINK,
	NFN_TEST_REGISTERS,
	NFN_TEST_INTERRUPTS,
	NFN_TEST_LOOPBACK,
	NFN_SELF_TESTS
};

/* Counts of a ring, and its next completion. */
static inline unsigned int nfn_ring_size(const struct nfn_ring *ring)
{
	return BIT(ring->log2);
}

static inline unsigned int nfn_ring_index(const struct nfn_ring *ring, u16 count)
{
	return count & (nfn_ring_size(ring) - 1);
}

static inline struct nfn_completion *nfn_ring_peek(struct nfn_ring *ring)
{
	u16 seen = READ_ONCE(ring->seen);
	struct nfn_completion *completion = &ring->completions[nfn_ring_index(ring, seen)];
	u8 owner = !((seen >> ring->log2) & 1);

	if ((READ_ONCE(completion->owner) & 1) != owner)
		return NULL;
	dma_rmb();
	return completion;
}

int nfn_reset(struct nfn *nfn);
int nfn_start(struct nfn *nfn, u32 control);
void nfn_quiesce(struct nfn *nfn);
void nfn_end(struct nfn *nfn);
bool nfn_has_link(const struct nfn *nfn);
bool nfn_is_stuck(struct nfn *nfn);
u64 nfn_counter(const struct nfn *nfn, unsigned int number);
void nfn_write_enabled(struct nfn *nfn, netdev_features_t features);
void nfn_write_rss(struct nfn *nfn);
void nfn_write_moderation(struct nfn *nfn);
bool nfn_write_mac(struct nfn *nfn);
bool nfn_self_test(struct nfn *nfn, bool offline, u64 *results);
int nfn_poll(struct napi_struct *napi, int budget);
netdev_tx_t nfn_start_xmit(struct sk_buff *skb, struct net_device *netdev);

#endif
