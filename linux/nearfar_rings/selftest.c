// SPDX-License-Identifier: GPL-2.0
/* What ethtool -t tries: link, registers, and interrupts and frames in the device's loopback. */
#include <linux/completion.h>
#include <linux/etherdevice.h>
#include <linux/export.h>
#include <linux/if_ether.h>

#include "channel.h"

#define NFN_TEST_FRAME	1000
#define NFN_TEST_WAIT	(HZ / 2)

/* What is sent by a channel in loopback, and whether it has come back. */
struct nfn_echo {
	struct packet_type type;
	struct completion came;
	unsigned int length;
	u8 sent[NFN_TEST_FRAME];
	u8 received[NFN_TEST_FRAME];
};

static int nfn_receive_echo(struct sk_buff *skb, struct net_device *netdev,
			    struct packet_type *type, struct net_device *original)
{
	struct nfn_echo *echo = container_of(type, struct nfn_echo, type);

	if (skb->len == echo->length && !skb_copy_bits(skb, 0, echo->received, skb->len) &&
	    !memcmp(echo->received, echo->sent, skb->len))
		complete(&echo->came);
	kfree_skb(skb);
	return NET_RX_SUCCESS;
}

static struct sk_buff *nfn_make_echo(struct nfn_channel *channel, struct nfn_echo *echo)
{
	struct net_device *netdev = channel->nfn->netdev;
	struct sk_buff *skb;
	unsigned int i;

	echo->length = min_t(unsigned int, netdev->mtu, NFN_TEST_FRAME);
	for (i = 0; i < echo->length; i++)
		echo->sent[i] = i * 7 + channel->queue;
	skb = netdev_alloc_skb(netdev, ETH_HLEN + echo->length);
	if (!skb)
		return NULL;
	skb_reserve(skb, ETH_HLEN);
	skb_put_data(skb, echo->sent, echo->length);
	eth_header(skb, netdev, ETH_P_LOOPBACK, netdev->dev_addr, netdev->dev_addr, echo->length);
	skb_reset_mac_header(skb);
	skb->protocol = htons(ETH_P_LOOPBACK);
	skb_set_queue_mapping(skb, channel->queue);
	return skb;
}

/* A frame goes out by a channel and comes back; the channel's interrupt tells that it was sent. */
static void nfn_test_channel(struct nfn_channel *channel, struct nfn_echo *echo, u64 *results)
{
	struct nfn *leader = channel->nfn->leader;
	struct netdev_queue *queue = netdev_get_tx_queue(leader->netdev, channel->queue);
	unsigned long wait = NFN_TEST_WAIT + usecs_to_jiffies(leader->moderation.usecs);
	unsigned int before = READ_ONCE(channel->interrupts);
	unsigned long until = jiffies + wait;
	struct sk_buff *skb = nfn_make_echo(channel, echo);

	if (!skb) {
		results[NFN_TEST_LOOPBACK]++;
		return;
	}
	reinit_completion(&echo->came);
	__netif_tx_lock_bh(queue);
	nfn_start_xmit(skb, leader->netdev);
	__netif_tx_unlock_bh(queue);
	if (!wait_for_completion_timeout(&echo->came, wait))
		results[NFN_TEST_LOOPBACK]++;
	while (READ_ONCE(channel->interrupts) == before && time_before(jiffies, until))
		usleep_range(100, 200);
	if (READ_ONCE(channel->interrupts) == before)
		results[NFN_TEST_INTERRUPTS]++;
}

static void nfn_test_loopback(struct nfn *nfn, u64 *results)
{
	struct nfn_echo *echo = kzalloc(sizeof(*echo), GFP_KERNEL);
	unsigned int i;

	if (!echo || nfn_start(nfn, NFN_CONTROL_LOOPBACK)) {
		results[NFN_TEST_LOOPBACK]++;
		kfree(echo);
		return;
	}
	init_completion(&echo->came);
	echo->type.type = htons(ETH_P_LOOPBACK);
	echo->type.dev = nfn->netdev;
	echo->type.func = nfn_receive_echo;
	dev_add_pack(&echo->type);
	for (i = 0; i < nfn->channels; i++)
		nfn_test_channel(&nfn->channel[i], echo, results);
	dev_remove_pack(&echo->type);
	nfn_quiesce(nfn);
	/* Polls may have let the stack send. */
	netif_tx_disable(nfn->netdev);
	nfn_end(nfn);
	kfree(echo);
}

/* Registers that a driver writes hold what was written. Their bits. */
static const struct {
	u32 offset;
	u32 bits;
} nfn_registers[] = {
	{ NFN_RSS_KEY, ~0U },
	{ NFN_RSS_KEY + NFN_RSS_KEY_BYTES - 4, ~0U },
	{ NFN_RSS_TYPES, NFN_RSS_ADDRESSES | NFN_RSS_TCP | NFN_RSS_UDP },
	{ NFN_VECTORS + NFN_VECTOR_DELAY_NS, ~0U },
	{ NFN_VECTORS + NFN_VECTOR_PACKETS, 0xff },
	{ NFN_TX_QUEUES + NFN_Q_RING, ~0xfffU },
	{ NFN_TX_QUEUES + NFN_Q_COMPLETIONS + 4, ~0U },
	{ NFN_RX_QUEUES + NFN_Q_RING + 4, ~0U },
	{ NFN_RX_QUEUES + NFN_Q_COMPLETIONS, ~0xfffU },
};

static void nfn_test_registers(struct nfn *nfn, u64 *results)
{
	static const u32 patterns[] = { 0x55555555, 0xaaaaaaaa, 0, ~0U };
	unsigned int i, j;

	for (i = 0; i < ARRAY_SIZE(nfn_registers); i++) {
		void __iomem *at = nfn->bar + nfn_registers[i].offset;
		u32 bits = nfn_registers[i].bits;

		for (j = 0; j < ARRAY_SIZE(patterns); j++) {
			writel(patterns[j] & bits, at);
			if ((readl(at) & bits) != (patterns[j] & bits))
				results[NFN_TEST_REGISTERS]++;
		}
	}
	if (readl(nfn->bar + NFN_IDENTITY) != NFN_IDENTITY_VALUE)
		results[NFN_TEST_REGISTERS]++;
	/* A function that runs again finds them as after a reset. */
	if (nfn_reset(nfn))
		results[NFN_TEST_REGISTERS]++;
}

/* How often each test failed. Offline ones take a stopped interface. Returns whether all passed. */
bool nfn_self_test(struct nfn *nfn, bool offline, u64 *results)
{
	bool passes = true;
	unsigned int i;

	for (i = 0; i < nfn->member_count; i++) {
		struct nfn *member = nfn->members[i];

		results[NFN_TEST_LINK] += !nfn_has_link(member);
		if (!offline)
			continue;
		nfn_test_registers(member, results);
		nfn_test_loopback(member, results);
	}
	for (i = 0; i < NFN_SELF_TESTS; i++)
		passes &= !results[i];
	return passes;
}
EXPORT_SYMBOL_GPL(nfn_self_test);
