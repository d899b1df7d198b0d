// SPDX-License-Identifier: GPL-2.0
/* A function of the NIC: reset, start and end, what is written to its registers, and counters. */
#include <linux/etherdevice.h>
#include <linux/export.h>

#include "channel.h"

/*
 * The device counts from 0 after a reset, also after one that the driver did not ask for. Of one
 * that does not answer, what it said last.
 */
static u64 nfn_own_counter(struct nfn *nfn, unsigned int number)
{
	struct nfn_counted *counted = &nfn->counted;
	u64 now = ~0ULL, sum;

	spin_lock_bh(&counted->lock);
	if (nfn->answers)
		now = readq(nfn->bar + NFN_COUNTERS + 8 * number);
	if (now != ~0ULL) {
		if (now < counted->last[number])
			counted->before[number] += counted->last[number];
		counted->last[number] = now;
	}
	sum = counted->before[number] + counted->last[number];
	spin_unlock_bh(&counted->lock);
	return sum;
}

static void nfn_note_counters(struct nfn *nfn)
{
	unsigned int i;

	for (i = 0; i < NFN_COUNTER_COUNT && readl(nfn->bar + NFN_STATUS) != ~0U; i++)
		nfn_own_counter(nfn, i);
}

u64 nfn_counter(const struct nfn *nfn, unsigned int number)
{
	u64 sum = 0;
	unsigned int i;

	for (i = 0; i < nfn->member_count; i++)
		sum += nfn_own_counter(nfn->members[i], number);
	return sum;
}
EXPORT_SYMBOL_GPL(nfn_counter);

int nfn_reset(struct nfn *nfn)
{
	struct nfn_counted *counted = &nfn->counted;
	unsigned int i;
	int tries;

	nfn_note_counters(nfn);
	spin_lock_bh(&counted->lock);
	for (i = 0; i < NFN_COUNTER_COUNT; i++) {
		counted->before[i] += counted->last[i];
		counted->last[i] = 0;
	}
	writel(NFN_CONTROL_RESET, nfn->bar + NFN_CONTROL);
	/* When it answers, the device counts from 0. */
	readl(nfn->bar + NFN_STATUS);
	spin_unlock_bh(&counted->lock);
	for (tries = 0; tries < 100; tries++) {
		u32 status = readl(nfn->bar + NFN_STATUS);

		if (status != ~0U && (status & NFN_STATUS_READY))
			return 0;
		usleep_range(100, 200);
	}
	return -ETIMEDOUT;
}
EXPORT_SYMBOL_GPL(nfn_reset);

bool nfn_has_link(const struct nfn *nfn)
{
	u32 status = readl(nfn->bar + NFN_STATUS);

	/* All ones: nothing answers. */
	return status != ~0U && (status & NFN_STATUS_LINK_UP);
}
EXPORT_SYMBOL_GPL(nfn_has_link);

/* How long completions may be there that the driver does not take, besides moderation. */
#define NFN_STUCK (2 * HZ)

static bool nfn_ring_is_stuck(struct nfn_ring *ring, unsigned long limit)
{
	u16 done = READ_ONCE(ring->done);

	if (done != ring->stays || (u16)readl(ring->registers + NFN_Q_HEAD) == done) {
		ring->stays = done;
		ring->stays_since = jiffies;
		return false;
	}
	return time_after(jiffies, ring->stays_since + limit);
}

/* A completion or an interrupt has not arrived; asked now and then. */
bool nfn_is_stuck(struct nfn *nfn)
{
	unsigned long limit = NFN_STUCK + usecs_to_jiffies(nfn->leader->moderation.usecs);
	bool is_stuck = false;
	unsigned int i;

	for (i = 0; i < nfn->channels; i++) {
		is_stuck |= nfn_ring_is_stuck(&nfn->channel[i].tx, limit);
		is_stuck |= nfn_ring_is_stuck(&nfn->channel[i].rx, limit);
	}
	return is_stuck;
}
EXPORT_SYMBOL_GPL(nfn_is_stuck);

void nfn_write_enabled(struct nfn *nfn, netdev_features_t features)
{
	u32 enabled = NFN_FEATURE_TX_CHECKSUM | NFN_FEATURE_TSO | NFN_FEATURE_RSS;

	if (features & NETIF_F_RXCSUM)
		enabled |= NFN_FEATURE_RX_CHECKSUM;
	if (features & NETIF_F_NTUPLE)
		enabled |= NFN_FEATURE_RULES;
	if (nfn->netdev->flags & IFF_PROMISC)
		enabled |= NFN_FEATURE_PROMISCUOUS;
	if (nfn->netdev->flags & (IFF_ALLMULTI | IFF_MULTICAST))
		enabled |= NFN_FEATURE_ALL_GROUPS;
	writel(enabled & nfn->features, nfn->bar + NFN_ENABLED);
}
EXPORT_SYMBOL_GPL(nfn_write_enabled);

void nfn_write_rss(struct nfn *nfn)
{
	unsigned int i;

	for (i = 0; i < NFN_RSS_KEY_BYTES; i += 4)
		writel(get_unaligned_le32(nfn->rss_key + i), nfn->bar + NFN_RSS_KEY + i);
	writel(NFN_RSS_ADDRESSES | NFN_RSS_TCP | NFN_RSS_UDP, nfn->bar + NFN_RSS_TYPES);
	for (i = 0; i < nfn->rss_entries; i++)
		writel(nfn->rss_table[i], nfn->bar + NFN_RSS_TABLE + 4 * i);
}
EXPORT_SYMBOL_GPL(nfn_write_rss);

void nfn_write_moderation(struct nfn *nfn)
{
	const struct nfn_moderation *moderation = &nfn->leader->moderation;
	unsigned int i;

	for (i = 0; i < nfn->channels; i++) {
		void __iomem *vector = nfn->bar + NFN_VECTORS + NFN_VECTOR_STRIDE * i;

		writel(moderation->usecs * NSEC_PER_USEC, vector + NFN_VECTOR_DELAY_NS);
		writel(moderation->frames, vector + NFN_VECTOR_PACKETS);
		writel(moderation->adaptive, vector + NFN_VECTOR_ADAPTIVE);
	}
}
EXPORT_SYMBOL_GPL(nfn_write_moderation);

/* Tells whether the device has the address then. */
bool nfn_write_mac(struct nfn *nfn)
{
	u64 address = 0;

	memcpy(&address, nfn->netdev->dev_addr, ETH_ALEN);
	writeq(le64_to_cpu((__force __le64)address), nfn->bar + NFN_MAC);
	return readq(nfn->bar + NFN_MAC) == le64_to_cpu((__force __le64)address);
}
EXPORT_SYMBOL_GPL(nfn_write_mac);

int nfn_start(struct nfn *nfn, u32 control)
{
	struct net_device *netdev = nfn->netdev;
	unsigned int i;
	int err;

	/* The card's switch gives it no frames. */
	if (!nfn->channels)
		return 0;
	for (i = 0; i < nfn->channels; i++) {
		err = nfn_channel_alloc(&nfn->channel[i]);
		if (err)
			goto free;
	}
	nfn_write_mac(nfn);
	nfn_write_rss(nfn);
	nfn_write_moderation(nfn);
	writel(netdev->mtu + ETH_HLEN, nfn->bar + NFN_MAX_FRAME);
	nfn_write_enabled(nfn, netdev->features);
	/* A queue can fail as soon as it has descriptors. */
	WRITE_ONCE(nfn->failed, false);
	writel(nfn->most_channels, nfn->bar + NFN_EVENT_VECTOR);
	for (i = 0; i < nfn->channels; i++)
		nfn_channel_start(&nfn->channel[i]);
	nfn_kpio_open(nfn);
	writel(NFN_CONTROL_ENABLE | control, nfn->bar + NFN_CONTROL);
	nfn->started = true;
	return 0;

free:
	while (i--)
		nfn_channel_free(&nfn->channel[i]);
	return err;
}
EXPORT_SYMBOL_GPL(nfn_start);

/* A poll that is under way lets the stack send again: polls end before the stack is stopped. */
void nfn_quiesce(struct nfn *nfn)
{
	unsigned int i;

	for (i = 0; i < nfn->channels && nfn->started; i++)
		napi_disable(&nfn->channel[i].napi);
}
EXPORT_SYMBOL_GPL(nfn_quiesce);

/* Nobody sends or polls. */
void nfn_end(struct nfn *nfn)
{
	unsigned int i;

	if (!nfn->started)
		return;
	nfn->started = false;
	nfn_note_counters(nfn);
	writel(0, nfn->bar + NFN_CONTROL);
	writel(NFN_NO_VECTOR, nfn->bar + NFN_EVENT_VECTOR);
	for (i = 0; i < nfn->channels; i++) {
		nfn_channel_stop(&nfn->channel[i]);
		nfn_channel_free(&nfn->channel[i]);
	}
}
EXPORT_SYMBOL_GPL(nfn_end);
