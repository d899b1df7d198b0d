/* SPDX-License-Identifier: GPL-2.0 */
/* nearfar's NIC: registers, descriptors and what the driver keeps. */
#ifndef NEARFAR_NIC_H
#define NEARFAR_NIC_H

#include <linux/bits.h>
#include <linux/netdevice.h>
#include <linux/workqueue.h>
#include <linux/pci.h>

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
#define NFN_TSO_MAX		0x3c
#define NFN_RSS_TYPES		0x80
#define NFN_RSS_KEY		0x88
#define NFN_COUNTERS		0x100
#define NFN_RSS_TABLE		0x1000
#define NFN_TX_QUEUES		0x10000
#define NFN_RX_QUEUES		0x20000
#define NFN_QUEUE_STRIDE	0x80

#define NFN_FEATURE_RX_CHECKSUM	BIT(0)
#define NFN_FEATURE_TX_CHECKSUM	BIT(1)
#define NFN_FEATURE_TSO		BIT(2)
#define NFN_FEATURE_RSS		BIT(3)
#define NFN_FEATURE_PROMISCUOUS	BIT(5)
#define NFN_FEATURE_ALL_GROUPS	BIT(6)

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
#define NFN_C_HASHED		BIT(7)
#define NFN_C_HASHED_PORTS	BIT(8)

/* Headers of a packet that is segmented: a descriptor has a byte for their length. */
#define NFN_MOST_HEADERS	256
#define NFN_LOG2_RING		8
#define NFN_RING		BIT(NFN_LOG2_RING)
#define NFN_MAX_QUEUES		8
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
	u16 tail;
	u16 done;
	u16 seen;
};

struct nfn_channel {
	struct nfn *nfn;
	struct napi_struct napi;
	unsigned int number;
	char name[IFNAMSIZ + 16];
	struct nfn_ring tx;
	struct nfn_ring rx;
	struct nfn_tx_slot *tx_slots;
	struct nfn_rx_slot *rx_slots;
	struct sk_buff *partial;
};

struct nfn {
	struct work_struct reset;
	struct net_device *netdev;
	struct pci_dev *pdev;
	void __iomem *bar;
	u32 features;
	unsigned int channels;
	unsigned int most_fragments;
	unsigned int rss_entries;
	/* Channels are allocated and run: not so where a restart failed, though the interface is up. */
	bool started;
	struct nfn_channel channel[NFN_MAX_QUEUES];
};

extern const struct ethtool_ops nfn_ethtool_ops;

int nfn_channel_alloc(struct nfn_channel *channel);
void nfn_channel_free(struct nfn_channel *channel);
void nfn_channel_start(struct nfn_channel *channel);
void nfn_channel_stop(struct nfn_channel *channel);
int nfn_poll(struct napi_struct *napi, int budget);
netdev_tx_t nfn_start_xmit(struct sk_buff *skb, struct net_device *netdev);

#endif
