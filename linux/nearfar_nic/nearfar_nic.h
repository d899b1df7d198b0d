/* SPDX-License-Identifier: GPL-2.0 */
/* nearfar's NIC: registers, descriptors and what the driver keeps. */
#ifndef NEARFAR_NIC_H
#define NEARFAR_NIC_H

#include <linux/bits.h>
#include <linux/netdevice.h>
#include <linux/pci.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>

#include "nearfar_rings.h"
#include "nearfar_steering.h"

/* Registers of BAR 0. */
#define NFN_IDENTITY		0x00
#define NFN_IDENTITY_VALUE	0x314e464e
#define NFN_CONTROL		0x04
#define NFN_CONTROL_ENABLE	BIT(0)
#define NFN_CONTROL_RESET	BIT(1)
#define NFN_CONTROL_LOOPBACK	BIT(2)
#define NFN_STATUS		0x08
#define NFN_STATUS_READY	BIT(0)
#define NFN_STATUS_LINK_UP	BIT(1)
#define NFN_SPEED		0x0c
#define NFN_QUEUES		0x10
#define NFN_LIMITS		0x14
#define NFN_TABLES		0x18
#define NFN_FEATURES		0x1c
#define NFN_ENABLED		0x20
#define NFN_MAX_FRAME		0x24
#define NFN_MAC			0x28
#define NFN_EVENTS		0x30
#define NFN_EVENT_VECTOR	0x34
#define NFN_NO_VECTOR		0xffff
#define NFN_FUNCTION		0x38
#define NFN_TSO_MAX		0x3c
#define NFN_WINDOWS		0x40
#define NFN_RSS_TYPES		0x80
#define NFN_RSS_KEY		0x88
#define NFN_COUNTERS		0x100
#define NFN_RSS_TABLE		0x1000
#define NFN_VECTORS		0x30000
#define NFN_VECTOR_STRIDE	0x20
#define NFN_VECTOR_DELAY_NS	0x00
#define NFN_VECTOR_PACKETS	0x04
#define NFN_VECTOR_ADAPTIVE	0x08

#define NFN_FEATURE_RX_CHECKSUM	BIT(0)
#define NFN_FEATURE_TX_CHECKSUM	BIT(1)
#define NFN_FEATURE_TSO		BIT(2)
#define NFN_FEATURE_RSS		BIT(3)
#define NFN_FEATURE_RULES	BIT(4)
#define NFN_FEATURE_PROMISCUOUS	BIT(5)
#define NFN_FEATURE_ALL_GROUPS	BIT(6)
#define NFN_FEATURE_STATION	BIT(9)
#define NFN_FEATURE_GLOBAL_RULES	BIT(11)

#define NFN_EVENT_LINK		BIT(0)
#define NFN_EVENT_QUEUE_ERROR	BIT(1)

#define NFN_RSS_ADDRESSES	BIT(0)
#define NFN_RSS_TCP		BIT(1)
#define NFN_RSS_UDP		BIT(2)
#define NFN_RSS_KEY_BYTES	40

#define NFN_MAX_QUEUES		64
#define NFN_MAX_MEMBERS		8
#define NFN_COUNTER_COUNT	32

/* Interrupts of a vector: the channel's, in both directions. */
struct nfn_moderation {
	u32 usecs;
	u32 frames;
	bool adaptive;
};

/* What the device has counted: up to its last reset, and since then when it was last asked. */
struct nfn_counted {
	/* Owns what is below. */
	spinlock_t lock;
	u64 before[NFN_COUNTER_COUNT];
	u64 last[NFN_COUNTER_COUNT];
};

/*
 * A function. Several of a card are one network device if that is asked for: the one that came
 * first, their leader, has it, with a queue for each channel of all of them.
 */
struct nfn {
	struct work_struct reset;
	struct delayed_work health;
	struct net_device *netdev;
	struct pci_dev *pdev;
	void __iomem *bar;
	u32 features;
	/* The function's number, and whether others of the card have its address. */
	u8 function;
	u16 rx_queues;
	bool shares;
	unsigned int channels;
	unsigned int most_channels;
	unsigned int most_fragments;
	unsigned int most_log2;
	u8 tx_log2;
	u8 rx_log2;
	const struct nfn_wish *wish;
	/* For programmed I/O: how many, and how large each is. */
	void __iomem *window;
	unsigned int windows;
	u8 window_log2_lines;
	u8 window_log2_positions;
	unsigned int rss_entries;
	u32 *rss_table;
	u8 rss_key[NFN_RSS_KEY_BYTES];
	struct nfn_moderation moderation;
	struct nfn_rules rules;
	struct nfn_counted counted;
	bool started;
	/* A queue does not run any more. */
	bool failed;
	/* It is reset when it was last looked at. */
	bool answers;
	/* Of the leader: not so where a restart failed, though the interface is up. */
	bool runs;
	/* Of the leader: all functions, itself first, and the channels of its queues. */
	struct nfn *leader;
	struct nfn *members[NFN_MAX_MEMBERS];
	unsigned int member_count;
	struct nfn_channel *queue[NFN_MAX_QUEUES];
	unsigned int queues;
	struct nfn_channel channel[NFN_MAX_QUEUES];
};

/* What a card's one table of rules calls a channel. */
static inline unsigned int nfn_card_number(const struct nfn_channel *channel)
{
	return channel->nfn->function * channel->nfn->rx_queues + channel->number;
}

/*
 * The processor of a channel: the function's node comes first. Functions of one card that share an
 * address number their channels alike, so that a socket's queue is that of a processor at each.
 */
static inline unsigned int nfn_cpu(const struct nfn *nfn, unsigned int channel)
{
	return cpumask_local_spread(channel, nfn->shares ? NUMA_NO_NODE :
						dev_to_node(&nfn->pdev->dev));
}

extern const struct ethtool_ops nfn_ethtool_ops;

int nfn_open(struct net_device *netdev);
int nfn_stop(struct net_device *netdev);
unsigned int nfn_most_queues(const struct nfn *nfn);
int nfn_set_queue_count(struct nfn *nfn, unsigned int queues);
int nfn_restart(struct nfn *nfn);

#endif
