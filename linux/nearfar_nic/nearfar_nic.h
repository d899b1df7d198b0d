/* SPDX-License-Identifier: GPL-2.0 */
/* nearfar's NIC: registers, descriptors and what the driver keeps. */
#ifndef NEARFAR_NIC_H
#define NEARFAR_NIC_H

#include <linux/bits.h>
#include <linux/hashtable.h>
#include <linux/mutex.h>
#include <linux/netdevice.h>
#include <linux/pci.h>
#include <linux/workqueue.h>

#include "nearfar_rules.h"

/* Registers of BAR 0. */
#define NFN_IDENTITY		0x00
#define NFN_IDENTITY_VALUE	0x314e464e
#define NFN_CONTROL		0x04
#define NFN_CONTROL_ENABLE	BIT(0)
#define NFN_CONTROL_RESET	BIT(1)
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
#define NFN_FUNCTION		0x38
#define NFN_TSO_MAX		0x3c
#define NFN_WINDOWS		0x40
#define NFN_RX_HELD		0x44
#define NFN_RSS_TYPES		0x80
#define NFN_RSS_KEY		0x88
#define NFN_COUNTERS		0x100
#define NFN_RULE_SOURCE		0x200
#define NFN_RULE_DESTINATION	0x204
#define NFN_RULE_PORTS		0x208
#define NFN_RULE_PROTOCOL	0x20c
#define NFN_RULE_NUMBER		0x210
#define NFN_RULE_TARGET		0x214
#define NFN_RULE_COMMAND	0x218
#define NFN_RULE_RESULT		0x21c
#define NFN_RULE_AGE_US		0x220
#define NFN_RULE_HITS		0x224
#define NFN_RSS_TABLE		0x1000
#define NFN_TX_QUEUES		0x10000
#define NFN_RX_QUEUES		0x20000
#define NFN_QUEUE_STRIDE	0x80
#define NFN_VECTORS		0x30000
#define NFN_VECTOR_STRIDE	0x20
#define NFN_VECTOR_DELAY_NS	0x00
#define NFN_VECTOR_PACKETS	0x04
#define NFN_VECTOR_ADAPTIVE	0x08

/* Windows for programmed I/O, and the registers of their queues. */
#define NFN_WINDOW_BAR		2
#define NFN_KPIO_QUEUES		0x38000
#define NFN_KPIO_STRIDE		0x40
#define NFN_KPIO_CONTROL	0x00
#define NFN_KPIO_ENABLE		BIT(0)
#define NFN_KPIO_FRAMED		BIT(4)
#define NFN_KPIO_REPORT_EVERY	0x0c
#define NFN_KPIO_REPORT		0x10
#define NFN_KPIO_SIGNATURE	0x18
#define NFN_KPIO_NEXT		0x28
#define NFN_KPIO_VECTOR		0x2c
#define NFN_KPIO_ARM_AT		0x30

#define NFN_FEATURE_RX_CHECKSUM	BIT(0)
#define NFN_FEATURE_TX_CHECKSUM	BIT(1)
#define NFN_FEATURE_TSO		BIT(2)
#define NFN_FEATURE_RSS		BIT(3)
#define NFN_FEATURE_RULES	BIT(4)
#define NFN_FEATURE_PROMISCUOUS	BIT(5)
#define NFN_FEATURE_ALL_GROUPS	BIT(6)
#define NFN_FEATURE_STATION	BIT(9)

/* Commands for rules, and their results. */
#define NFN_RULE_ADD		1
#define NFN_RULE_REMOVE		2
#define NFN_RULE_QUERY		3
#define NFN_RULE_CLEAR		4
#define NFN_RULE_OF_SWITCH	BIT(8)
#define NFN_RULE_OK		0

#define NFN_EVENT_LINK		BIT(0)

#define NFN_RSS_ADDRESSES	BIT(0)
#define NFN_RSS_TCP		BIT(1)
#define NFN_RSS_UDP		BIT(2)
#define NFN_RSS_KEY_BYTES	40

/* Registers of a queue. */
#define NFN_Q_TAIL		0x00
#define NFN_Q_RING		0x08
#define NFN_Q_SIZE		0x10
#define NFN_Q_VECTOR		0x14
#define NFN_Q_COMPLETIONS	0x18
#define NFN_Q_CONTROL		0x20
#define NFN_Q_ENABLE		BIT(0)
#define NFN_Q_TO_RING		(3 << 4)
#define NFN_Q_ARM_AT		0x2c
#define NFN_Q_ARM		BIT(31)

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
#define NFN_MAX_QUEUES		64
#define NFN_MAX_RULES		1024
#define NFN_LOG2_FLOWS		8
#define NFN_COUNTER_COUNT	32

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
};

/* Lines of frames, as counts that wrap: those written, and those that are free again. */
struct nfn_kpio {
	void __iomem *registers;
	void __iomem *window;
	/* Written by the device. */
	__le32 *freed;
	dma_addr_t freed_bus;
	/* Those of one frame. */
	u8 *lines;
	u32 written;
	u16 frames;
};

struct nfn_channel {
	struct nfn *nfn;
	struct napi_struct napi;
	unsigned int number;
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
};

/* Interrupts of a vector: the channel's, in both directions. */
struct nfn_moderation {
	u32 usecs;
	u32 frames;
	bool adaptive;
};

/* A flow whose frames go to a queue. A dead one waits for its removal from the device. */
struct nfn_rule {
	struct hlist_node node;
	struct nfn_flow flow;
	u32 flow_id;
	u16 queue;
	bool dead;
	/* Where its frames come from before: see nfn_rule_write(). */
	struct nfn_channel *before;
	struct nfn_channel *last;
};

/*
 * Frames that a flow's new channel has to leave in its ring until those in the old ones are with
 * the stack.
 */
struct nfn_fence {
	struct nfn_channel *from[2];
	unsigned long made;
	unsigned long until;
	u16 queue;
	bool shut;
	bool holds;
};

/* Rules have the numbers that the device knows them by. */
struct nfn_rules {
	unsigned int count;
	/* Owns all below but the registers, which are the worker's. */
	spinlock_t lock;
	struct nfn_rule *rule;
	struct nfn_fence *fence;
	DECLARE_BITMAP(used, NFN_MAX_RULES);
	DECLARE_BITMAP(changed, NFN_MAX_RULES);
	DECLARE_HASHTABLE(by_flow, NFN_LOG2_FLOWS);
	u64 expired;
	/* Moves that did not wait long enough for an old ring. */
	u64 late;
	/* Held for the registers of a rule. */
	struct mutex registers;
	struct delayed_work update;
	struct delayed_work expire;
	/* Who decides in place of this driver. */
	struct nfn_steering __rcu *steering;
};

struct nfn {
	struct work_struct reset;
	struct delayed_work health;
	struct net_device *netdev;
	struct pci_dev *pdev;
	void __iomem *bar;
	u32 features;
	/* The function's number, and whether others of the card have its address. */
	u8 function;
	bool shares;
	unsigned int channels;
	unsigned int most_channels;
	unsigned int most_fragments;
	unsigned int most_log2;
	u8 tx_log2;
	u8 rx_log2;
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
	/* Channels run: not so where a restart failed, though the interface is up. */
	bool started;
	struct nfn_channel channel[NFN_MAX_QUEUES];
};

extern const struct ethtool_ops nfn_ethtool_ops;

int nfn_open(struct net_device *netdev);
int nfn_stop(struct net_device *netdev);
int nfn_set_channel_count(struct nfn *nfn, unsigned int channels);
unsigned int nfn_cpu(const struct nfn *nfn, unsigned int channel);
void nfn_write_rss(struct nfn *nfn);
void nfn_write_moderation(struct nfn *nfn);

#ifdef CONFIG_RFS_ACCEL
int nfn_map_cpus(struct nfn *nfn);
void nfn_unmap_cpus(struct nfn *nfn);
int nfn_rules_init(struct nfn *nfn);
void nfn_rules_exit(struct nfn *nfn);
void nfn_rules_restore(struct nfn *nfn);
void nfn_rules_clear(struct nfn *nfn);
unsigned int nfn_rules_used(struct nfn *nfn);
u64 nfn_rule_hits(struct nfn *nfn);
int nfn_rx_flow_steer(struct net_device *netdev, const struct sk_buff *skb, u16 queue, u32 flow_id);
bool nfn_is_in_turn(struct nfn_channel *channel, unsigned int number);
#else
static inline bool nfn_is_in_turn(struct nfn_channel *channel, unsigned int number) { return true; }

static inline int nfn_map_cpus(struct nfn *nfn) { return 0; }
static inline void nfn_unmap_cpus(struct nfn *nfn) { }
static inline int nfn_rules_init(struct nfn *nfn) { return 0; }
static inline void nfn_rules_exit(struct nfn *nfn) { }
static inline void nfn_rules_restore(struct nfn *nfn) { }
static inline void nfn_rules_clear(struct nfn *nfn) { }
static inline unsigned int nfn_rules_used(struct nfn *nfn) { return 0; }
static inline u64 nfn_rule_hits(struct nfn *nfn) { return 0; }
#endif

int nfn_kpio_init(struct nfn *nfn);
void nfn_kpio_open(struct nfn *nfn);
int nfn_kpio_alloc(struct nfn_channel *channel);
void nfn_kpio_free(struct nfn_channel *channel);
void nfn_kpio_start(struct nfn_channel *channel);
void nfn_kpio_stop(struct nfn_channel *channel);
bool nfn_kpio_takes(const struct nfn *nfn, const struct sk_buff *skb);
void nfn_kpio_xmit(struct nfn_channel *channel, struct sk_buff *skb);
bool nfn_kpio_is_ready(struct nfn_channel *channel);
void nfn_kpio_read_held(const struct nfn_channel *channel, u16 count, void *to,
			unsigned int length);
netdev_features_t nfn_features_check(struct sk_buff *skb, struct net_device *netdev,
				     netdev_features_t features);

int nfn_channel_alloc(struct nfn_channel *channel);
void nfn_channel_free(struct nfn_channel *channel);
void nfn_channel_start(struct nfn_channel *channel);
void nfn_channel_stop(struct nfn_channel *channel);
bool nfn_channel_is_drained(struct nfn_channel *channel);
int nfn_poll(struct napi_struct *napi, int budget);
netdev_tx_t nfn_start_xmit(struct sk_buff *skb, struct net_device *netdev);

#endif
