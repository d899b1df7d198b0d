// SPDX-License-Identifier: GPL-2.0
/* Descriptors and completions: sending and receiving. */
#include <linux/dma-mapping.h>
#include <linux/etherdevice.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/module.h>
#include <linux/tcp.h>

#include "channel.h"

#define NFN_HEADER_COPY 256

static int nfn_ring_alloc(struct nfn *nfn, struct nfn_ring *ring, u32 offset, u8 log2)
{
	struct device *dev = &nfn->pdev->dev;
	unsigned int size = BIT(log2);

	ring->registers = nfn->bar + offset;
	ring->log2 = log2;
	ring->descriptors = dma_alloc_coherent(dev, size * sizeof(*ring->descriptors),
					       &ring->descriptors_bus, GFP_KERNEL);
	ring->completions = dma_alloc_coherent(dev, size * sizeof(*ring->completions),
					       &ring->completions_bus, GFP_KERNEL);
	return ring->descriptors && ring->completions ? 0 : -ENOMEM;
}

static void nfn_ring_free(struct nfn *nfn, struct nfn_ring *ring)
{
	struct device *dev = &nfn->pdev->dev;

	if (ring->descriptors)
		dma_free_coherent(dev, nfn_ring_size(ring) * sizeof(*ring->descriptors),
				  ring->descriptors, ring->descriptors_bus);
	if (ring->completions)
		dma_free_coherent(dev, nfn_ring_size(ring) * sizeof(*ring->completions),
				  ring->completions, ring->completions_bus);
	ring->descriptors = NULL;
	ring->completions = NULL;
}

static void nfn_ring_start(struct nfn_ring *ring, unsigned int vector)
{
	ring->tail = 0;
	ring->done = 0;
	ring->seen = 0;
	ring->stays = 0;
	ring->stays_since = jiffies;
	/* The owner bit of the first round is 1. */
	memset(ring->completions, 0, nfn_ring_size(ring) * sizeof(*ring->completions));
	writel(ring->log2, ring->registers + NFN_Q_SIZE);
	writel(vector, ring->registers + NFN_Q_VECTOR);
	writeq(ring->descriptors_bus, ring->registers + NFN_Q_RING);
	writeq(ring->completions_bus, ring->registers + NFN_Q_COMPLETIONS);
	writel(NFN_Q_ENABLE | NFN_Q_TO_RING, ring->registers + NFN_Q_CONTROL);
}

static struct nfn_completion *nfn_ring_next(struct nfn_ring *ring)
{
	struct nfn_completion *completion = nfn_ring_peek(ring);

	if (completion)
		WRITE_ONCE(ring->seen, ring->seen + 1);
	return completion;
}

static bool nfn_rx_is_in_turn(struct nfn_channel *channel)
{
	struct nfn_completion *completion = nfn_ring_peek(&channel->rx);

	if (!completion || !(le16_to_cpu(completion->flags) & NFN_C_STEERED))
		return true;
	return nfn_is_in_turn(channel, le16_to_cpu(completion->rule));
}

static void nfn_ring_doorbell(struct nfn_ring *ring)
{
	ring->doorbells++;
	/* Orders the descriptors before the doorbell. */
	writel(ring->tail, ring->registers + NFN_Q_TAIL);
}

static void nfn_ring_arm(struct nfn_ring *ring, u16 seen)
{
	writel(NFN_Q_ARM | seen, ring->registers + NFN_Q_ARM_AT);
}

static unsigned int nfn_tx_room(const struct nfn_ring *ring)
{
	return nfn_ring_size(ring) - 1 - (u16)(ring->tail - ring->done);
}

static void nfn_tx_unmap(struct nfn *nfn, struct nfn_tx_slot *slot)
{
	if (slot->is_page)
		dma_unmap_page(&nfn->pdev->dev, slot->address, slot->length, DMA_TO_DEVICE);
	else
		dma_unmap_single(&nfn->pdev->dev, slot->address, slot->length, DMA_TO_DEVICE);
}

static void nfn_tx_clean(struct nfn_channel *channel, u16 upto, int budget)
{
	struct nfn_ring *ring = &channel->tx;
	unsigned int frames = 0, bytes = 0;

	while (ring->done != upto) {
		struct nfn_tx_slot *slot = &channel->tx_slots[nfn_ring_index(ring, ring->done)];

		nfn_tx_unmap(channel->nfn, slot);
		if (slot->skb) {
			frames++;
			bytes += slot->skb->len;
			napi_consume_skb(slot->skb, budget);
			slot->skb = NULL;
		}
		ring->done++;
	}
	netdev_tx_completed_queue(netdev_get_tx_queue(channel->nfn->netdev, channel->queue),
				  frames, bytes);
}

static void nfn_tx_poll(struct nfn_channel *channel, int budget)
{
	struct netdev_queue *queue = netdev_get_tx_queue(channel->nfn->netdev, channel->queue);
	struct nfn_completion *completion;

	while ((completion = nfn_ring_next(&channel->tx)))
		nfn_tx_clean(channel, le16_to_cpu(completion->count), budget);
	/* Pairs with the barriers in nfn_start_xmit() and nfn_kpio_xmit(). */
	smp_mb();
	if (netif_tx_queue_stopped(queue) && nfn_tx_room(&channel->tx) > MAX_SKB_FRAGS + 1 &&
	    nfn_kpio_is_ready(channel))
		netif_tx_wake_queue(queue);
}

/* Checksums are filled in over what the stack left out. */
static int nfn_offload(struct sk_buff *skb, struct nfn_descriptor *first)
{
	if (skb->ip_summed != CHECKSUM_PARTIAL)
		return 0;
	first->flags |= NFN_TX_TRANSPORT_CSUM;
	if (skb_is_gso(skb)) {
		if (skb_cow_head(skb, 0))
			return -ENOMEM;
		first->segment = cpu_to_le16(skb_shinfo(skb)->gso_size);
		first->headers = skb_tcp_all_headers(skb);
		if (skb->protocol == htons(ETH_P_IP))
			first->flags |= NFN_TX_NETWORK_CSUM;
	}
	return 0;
}

netdev_tx_t nfn_start_xmit(struct sk_buff *skb, struct net_device *netdev)
{
	struct nfn *leader = netdev_priv(netdev);
	struct nfn_channel *channel = leader->queue[skb_get_queue_mapping(skb)];
	struct nfn *nfn = channel->nfn;
	struct netdev_queue *queue = netdev_get_tx_queue(netdev, channel->queue);
	struct nfn_ring *ring = &channel->tx;
	struct device *dev = &nfn->pdev->dev;
	struct nfn_descriptor first = { };
	unsigned int fragments, i;
	u16 tail = ring->tail;

	if (skb_put_padto(skb, ETH_ZLEN))
		return NETDEV_TX_OK;
	if (nfn_kpio_takes(channel, skb)) {
		nfn_kpio_xmit(channel, skb);
		return NETDEV_TX_OK;
	}
	if (skb_shinfo(skb)->nr_frags + 1 > nfn->most_fragments && skb_linearize(skb))
		goto drop;
	if (nfn_offload(skb, &first))
		goto drop;
	fragments = skb_shinfo(skb)->nr_frags;
	for (i = 0; i <= fragments; i++) {
		unsigned int at = nfn_ring_index(ring, tail);
		struct nfn_tx_slot *slot = &channel->tx_slots[at];
		struct nfn_descriptor *descriptor = &ring->descriptors[at];
		skb_frag_t *fragment = i ? &skb_shinfo(skb)->frags[i - 1] : NULL;

		slot->skb = NULL;
		slot->is_page = fragment;
		slot->length = fragment ? skb_frag_size(fragment) : skb_headlen(skb);
		slot->address = fragment ?
			skb_frag_dma_map(dev, fragment, 0, slot->length, DMA_TO_DEVICE) :
			dma_map_single(dev, skb->data, slot->length, DMA_TO_DEVICE);
		if (dma_mapping_error(dev, slot->address))
			goto unmap;
		*descriptor = first;
		memset(&first, 0, sizeof(first));
		descriptor->address = cpu_to_le64(slot->address);
		descriptor->length = cpu_to_le16(slot->length);
		if (i == fragments) {
			descriptor->flags |= NFN_TX_END | NFN_TX_REPORT;
			slot->skb = skb;
		}
		tail++;
	}
	channel->tx_frames++;
	skb_tx_timestamp(skb);
	netdev_tx_sent_queue(queue, skb->len);
	ring->tail = tail;
	if (nfn_tx_room(ring) <= MAX_SKB_FRAGS + 1) {
		netif_tx_stop_queue(queue);
		channel->tx_waits++;
		/* Pairs with the barrier in nfn_tx_poll(). */
		smp_mb();
		if (nfn_tx_room(ring) > MAX_SKB_FRAGS + 1)
			netif_tx_start_queue(queue);
	}
	nfn_ring_doorbell(ring);
	return NETDEV_TX_OK;

unmap:
	while (tail != ring->tail)
		nfn_tx_unmap(nfn, &channel->tx_slots[nfn_ring_index(ring, --tail)]);
drop:
	dev_core_stats_tx_dropped_inc(netdev);
	dev_kfree_skb_any(skb);
	return NETDEV_TX_OK;
}
EXPORT_SYMBOL_GPL(nfn_start_xmit);

/* Gives free buffers to the device, as long as there is memory. Tells whether it has any. */
static bool nfn_rx_refill(struct nfn_channel *channel)
{
	struct nfn_ring *ring = &channel->rx;
	struct device *dev = &channel->nfn->pdev->dev;
	u16 before = ring->tail;

	while ((u16)(ring->tail - ring->done) < nfn_ring_size(ring) - 1) {
		unsigned int at = nfn_ring_index(ring, ring->tail);
		struct nfn_rx_slot *slot = &channel->rx_slots[at];
		struct nfn_descriptor *descriptor = &ring->descriptors[at];

		slot->page = dev_alloc_page();
		if (!slot->page)
			break;
		slot->address = dma_map_page(dev, slot->page, 0, PAGE_SIZE, DMA_FROM_DEVICE);
		if (dma_mapping_error(dev, slot->address)) {
			__free_page(slot->page);
			slot->page = NULL;
			break;
		}
		*descriptor = (struct nfn_descriptor) {
			.address = cpu_to_le64(slot->address),
			.length = cpu_to_le16(PAGE_SIZE),
		};
		ring->tail++;
	}
	if (ring->tail != before)
		nfn_ring_doorbell(ring);
	return ring->tail != ring->done;
}

static void nfn_rx_deliver(struct nfn_channel *channel, struct sk_buff *skb, u32 hash, u16 flags)
{
	struct net_device *netdev = channel->nfn->netdev;

	channel->rx_frames++;
	if ((netdev->features & NETIF_F_RXHASH) && (flags & NFN_C_HASHED))
		skb_set_hash(skb, hash,
			     flags & NFN_C_HASHED_PORTS ? PKT_HASH_TYPE_L4 : PKT_HASH_TYPE_L3);
	if ((netdev->features & NETIF_F_RXCSUM) && (flags & NFN_C_TRANSPORT_RIGHT))
		skb->ip_summed = CHECKSUM_UNNECESSARY;
	skb_record_rx_queue(skb, channel->queue);
	skb->protocol = eth_type_trans(skb, netdev);
	napi_gro_receive(&channel->napi, skb);
}

/* A frame may be in several buffers; its headers go into the skb's own memory. */
static void nfn_rx_buffer(struct nfn_channel *channel, const struct nfn_completion *completion)
{
	struct nfn_ring *ring = &channel->rx;
	struct nfn_rx_slot *slot = &channel->rx_slots[nfn_ring_index(ring, ring->done)];
	struct net_device *netdev = channel->nfn->netdev;
	u16 length = le16_to_cpu(completion->length);
	u16 flags = le16_to_cpu(completion->flags);
	struct page *page = slot->page;
	struct sk_buff *skb = channel->partial;
	unsigned int copied = 0;

	dma_unmap_page(&channel->nfn->pdev->dev, slot->address, PAGE_SIZE, DMA_FROM_DEVICE);
	if (flags & NFN_C_HELD)
		nfn_kpio_read_held(channel, ring->done, page_address(page), length);
	slot->page = NULL;
	ring->done++;
	if (!skb) {
		skb = napi_alloc_skb(&channel->napi, NFN_HEADER_COPY);
		if (skb) {
			copied = min_t(unsigned int, length, NFN_HEADER_COPY);
			skb_put_data(skb, page_address(page), copied);
		}
	}
	if (!skb || (flags & NFN_C_FAILED) || length > PAGE_SIZE) {
		dev_core_stats_rx_dropped_inc(netdev);
		__free_page(page);
		kfree_skb(skb);
		channel->partial = NULL;
		return;
	}
	if (length > copied)
		skb_add_rx_frag(skb, skb_shinfo(skb)->nr_frags, page, copied, length - copied,
				PAGE_SIZE);
	else
		__free_page(page);
	channel->partial = skb;
	if (flags & NFN_C_END) {
		channel->partial = NULL;
		nfn_rx_deliver(channel, skb, le32_to_cpu(completion->hash), flags);
	}
}

int nfn_poll(struct napi_struct *napi, int budget)
{
	struct nfn_channel *channel = container_of(napi, struct nfn_channel, napi);
	struct nfn_completion *completion;
	bool waits = false;
	int received = 0;

	nfn_tx_poll(channel, budget);
	while (received < budget) {
		waits = !nfn_rx_is_in_turn(channel);
		completion = waits ? NULL : nfn_ring_next(&channel->rx);
		if (!completion)
			break;
		nfn_rx_buffer(channel, completion);
		received++;
	}
	/* Without a buffer, nothing is received that would interrupt. */
	if (!nfn_rx_refill(channel) || waits)
		return budget;
	if (received < budget && napi_complete_done(napi, received)) {
		nfn_ring_arm(&channel->tx, channel->tx.done);
		nfn_ring_arm(&channel->rx, channel->rx.done);
	}
	return received;
}
EXPORT_SYMBOL_GPL(nfn_poll);

void nfn_channel_free(struct nfn_channel *channel)
{
	nfn_ring_free(channel->nfn, &channel->tx);
	nfn_ring_free(channel->nfn, &channel->rx);
	kvfree(channel->tx_slots);
	kvfree(channel->rx_slots);
	kfree(channel->backlogs);
	nfn_kpio_free(channel);
	channel->tx_slots = NULL;
	channel->rx_slots = NULL;
}

int nfn_channel_alloc(struct nfn_channel *channel)
{
	struct nfn *nfn = channel->nfn, *leader = nfn->leader;
	u32 offset = NFN_QUEUE_STRIDE * channel->number;

	channel->tx_slots = kvcalloc(BIT(leader->tx_log2), sizeof(*channel->tx_slots), GFP_KERNEL);
	channel->rx_slots = kvcalloc(BIT(leader->rx_log2), sizeof(*channel->rx_slots), GFP_KERNEL);
	channel->backlogs = kcalloc(nr_cpu_ids, sizeof(*channel->backlogs), GFP_KERNEL);
	channel->knows_backlogs = false;
	if (!channel->tx_slots || !channel->rx_slots || !channel->backlogs ||
	    nfn_ring_alloc(nfn, &channel->tx, NFN_TX_QUEUES + offset, leader->tx_log2) ||
	    nfn_ring_alloc(nfn, &channel->rx, NFN_RX_QUEUES + offset, leader->rx_log2) ||
	    nfn_kpio_alloc(channel)) {
		nfn_channel_free(channel);
		return -ENOMEM;
	}
	return 0;
}

void nfn_channel_start(struct nfn_channel *channel)
{
	nfn_ring_start(&channel->tx, channel->number);
	nfn_ring_start(&channel->rx, channel->number);
	if (channel->nfn->features & NFN_FEATURE_GLOBAL_RULES)
		writel(nfn_card_number(channel), channel->rx.registers + NFN_Q_NUMBER);
	nfn_kpio_start(channel);
	channel->interrupts = 0;
	nfn_rx_refill(channel);
	napi_enable(&channel->napi);
	nfn_ring_arm(&channel->tx, 0);
	nfn_ring_arm(&channel->rx, 0);
}

/* Nobody sends or polls. The read behind the stop waits until the device's writes are in memory. */
void nfn_channel_stop(struct nfn_channel *channel)
{
	struct nfn_ring *rx = &channel->rx;
	struct nfn_ring *tx = &channel->tx;

	writel(0, tx->registers + NFN_Q_CONTROL);
	writel(0, rx->registers + NFN_Q_CONTROL);
	nfn_kpio_stop(channel);
	readl(rx->registers + NFN_Q_CONTROL);
	nfn_tx_clean(channel, tx->tail, 0);
	netdev_tx_reset_queue(netdev_get_tx_queue(channel->nfn->netdev, channel->queue));
	for (; rx->done != rx->tail; rx->done++) {
		struct nfn_rx_slot *slot = &channel->rx_slots[nfn_ring_index(rx, rx->done)];

		dma_unmap_page(&channel->nfn->pdev->dev, slot->address, PAGE_SIZE, DMA_FROM_DEVICE);
		__free_page(slot->page);
		slot->page = NULL;
	}
	kfree_skb(channel->partial);
	channel->partial = NULL;
}

MODULE_DESCRIPTION("How nearfar's simulated NIC sends and receives");
MODULE_LICENSE("GPL");
