// SPDX-License-Identifier: GPL-2.0
/*
 * Programmed I/O with write combining (kPIO+WC, Larsen and Lee, section III): frames are written to
 * a window of the device in lines of 64 bytes, each of which a core's write-combining buffer sends
 * as one TLP. No descriptor, no read of memory.
 */
#include <linux/crc32.h>
#include <linux/dma-mapping.h>
#include <linux/etherdevice.h>
#include <linux/io.h>
#include <linux/module.h>
#include <linux/skbuff.h>
#include <net/flow_dissector.h>

#include "nearfar_nic.h"

#define NFN_LINE	64
/* What the format with length and checksum adds to a frame, before and behind. */
#define NFN_FRAMED	8
#define NFN_FRAMED_TRANSPORT_CSUM	BIT(15)
#define NFN_MOST_FRAMED	(BIT(14) - 1)
/* The device's default. */
#define NFN_SIGNATURE	0x9b5ce37a21d846f1ULL
#define NFN_HELD_BYTES	2048
/* Lines after which the device says how many are free. */
#define NFN_REPORT_EVERY	16

static unsigned int nfn_kpio_depth(const struct nfn *nfn)
{
	return BIT(nfn->window_log2_lines);
}

/* Each position is there twice: for lines that begin a frame, and for others. */
static size_t nfn_window_bytes(const struct nfn *nfn)
{
	return 2UL * NFN_LINE << nfn->window_log2_positions;
}

static unsigned int nfn_kpio_longest(const struct nfn *nfn)
{
	return min_t(unsigned int, (nfn_kpio_depth(nfn) - 1) * NFN_LINE, NFN_MOST_FRAMED);
}

static unsigned int nfn_kpio_lines(const struct nfn *nfn, unsigned int length)
{
	/* A frame's end is padded to words before the signature. */
	return DIV_ROUND_UP(nfn->wish->framed ? length + NFN_FRAMED : ALIGN(length, 8) + 8,
			    NFN_LINE);
}

static bool nfn_in_ports(const struct nfn_wish *wish, const struct sk_buff *skb)
{
	u16 first = wish->ports[0], last = wish->ports[wish->bounds - 1];
	struct flow_keys keys;
	u16 from, to;

	if (!skb_flow_dissect_flow_keys(skb, &keys, 0) || keys.basic.ip_proto != IPPROTO_TCP)
		return false;
	from = ntohs(keys.ports.src);
	to = ntohs(keys.ports.dst);
	return (from >= first && from <= last) || (to >= first && to <= last);
}

/* All packets of a connection take the same path, so that they stay in order. */
bool nfn_kpio_takes(const struct nfn_channel *channel, const struct sk_buff *skb)
{
	const struct nfn *nfn = channel->nfn;

	return nfn->wish->on && channel->number < nfn->windows &&
	       nfn->netdev->mtu + ETH_HLEN <= nfn_kpio_longest(nfn) &&
	       (!nfn->wish->bounds || nfn_in_ports(nfn->wish, skb));
}
EXPORT_SYMBOL_GPL(nfn_kpio_takes);

/* Lines carry frames: the stack cuts what is longer. The signature cannot ask for checksums. */
netdev_features_t nfn_features_check(struct sk_buff *skb, struct net_device *netdev,
				     netdev_features_t features)
{
	const struct nfn *nfn = netdev_priv(netdev);

	if (!nfn_kpio_takes(nfn->queue[skb_get_queue_mapping(skb)], skb))
		return features;
	features &= ~NETIF_F_GSO_MASK;
	return nfn->wish->framed ? features : features & ~NETIF_F_CSUM_MASK;
}
EXPORT_SYMBOL_GPL(nfn_features_check);

static void nfn_kpio_write_line(struct nfn_kpio *queue, const struct nfn *nfn, const u8 *line,
				bool is_first)
{
	u32 positions = nfn->wish->framed ? BIT(nfn->window_log2_positions) : nfn_kpio_depth(nfn);
	u32 at = queue->written++ & (positions - 1);

	if (is_first && nfn->wish->framed)
		at += positions;
	__iowrite64_copy(queue->window + at * NFN_LINE, line, NFN_LINE / 8);
}

/* Makes lines of a frame. Returns how many. */
static unsigned int nfn_kpio_encode(const struct nfn *nfn, struct nfn_kpio *queue,
				    const struct sk_buff *skb)
{
	unsigned int lines = nfn_kpio_lines(nfn, skb->len), at, word;
	u8 *bytes = queue->lines;
	u16 length = skb->len;

	if (nfn->wish->framed) {
		if (skb->ip_summed == CHECKSUM_PARTIAL)
			length |= NFN_FRAMED_TRANSPORT_CSUM;
		put_unaligned_le16(length, bytes);
		put_unaligned_le16(queue->frames++, bytes + 2);
		at = 4 + skb->len;
		skb_copy_bits(skb, 0, bytes + 4, skb->len);
		put_unaligned_le32(~__crc32c_le(~0, bytes, at), bytes + at);
		at += 4;
		memset(bytes + at, 0, lines * NFN_LINE - at);
		return lines;
	}
	skb_copy_bits(skb, 0, bytes, skb->len);
	at = ALIGN(skb->len, 8);
	memset(bytes + skb->len, 0, at - skb->len);
	for (word = at; word < lines * NFN_LINE; word += 8)
		put_unaligned_le64(NFN_SIGNATURE, bytes + word);
	return lines;
}

static bool nfn_kpio_has_room(const struct nfn *nfn, const struct nfn_kpio *queue)
{
	u32 end = queue->written + nfn_kpio_lines(nfn, nfn->netdev->mtu + ETH_HLEN);

	return (s32)(end - nfn_kpio_depth(nfn) - le32_to_cpu(READ_ONCE(*queue->freed))) <= 0;
}

/* Asks for an interrupt once there is room for any frame. */
static void nfn_kpio_arm(const struct nfn *nfn, const struct nfn_kpio *queue)
{
	u32 end = queue->written + nfn_kpio_lines(nfn, nfn->netdev->mtu + ETH_HLEN);

	writel(end - nfn_kpio_depth(nfn), queue->registers + NFN_KPIO_ARM_AT);
}

/* There is room: the queue is stopped where there may be none. */
void nfn_kpio_xmit(struct nfn_channel *channel, struct sk_buff *skb)
{
	struct netdev_queue *txq = netdev_get_tx_queue(channel->nfn->netdev, channel->queue);
	struct nfn_kpio *queue = &channel->kpio;
	unsigned int lines = nfn_kpio_encode(channel->nfn, queue, skb), i;

	for (i = 0; i < lines; i++)
		nfn_kpio_write_line(queue, channel->nfn, queue->lines + i * NFN_LINE, !i);
	channel->tx_frames++;
	skb_tx_timestamp(skb);
	dev_consume_skb_any(skb);
	if (nfn_kpio_has_room(channel->nfn, queue))
		return;
	netif_tx_stop_queue(txq);
	channel->tx_waits++;
	/* Pairs with the barrier in nfn_tx_poll(). */
	smp_mb();
	if (nfn_kpio_has_room(channel->nfn, queue))
		netif_tx_start_queue(txq);
	else
		nfn_kpio_arm(channel->nfn, queue);
}
EXPORT_SYMBOL_GPL(nfn_kpio_xmit);

/* Whether the channel's queue takes any frame; called while it is stopped. */
bool nfn_kpio_is_ready(struct nfn_channel *channel)
{
	struct nfn_kpio *queue = &channel->kpio;

	if (!queue->freed)
		return true;
	/* More are free than were written: lines were lost, and the device has gone on. */
	if ((s32)(le32_to_cpu(READ_ONCE(*queue->freed)) - queue->written) > 0) {
		writel(0, queue->registers + NFN_KPIO_NEXT);
		queue->written = readl(queue->registers + NFN_KPIO_NEXT);
	}
	if (nfn_kpio_has_room(channel->nfn, queue))
		return true;
	nfn_kpio_arm(channel->nfn, queue);
	return false;
}
EXPORT_SYMBOL_GPL(nfn_kpio_is_ready);

/* Copies a frame that has stayed in the device. */
void nfn_kpio_read_held(const struct nfn_channel *channel, u16 count, void *to, unsigned int length)
{
	size_t bytes = nfn_window_bytes(channel->nfn);

	memcpy_fromio(to, channel->kpio.window + (count * NFN_HELD_BYTES & (bytes - 1)), length);
}
EXPORT_SYMBOL_GPL(nfn_kpio_read_held);

int nfn_kpio_alloc(struct nfn_channel *channel)
{
	struct nfn *nfn = channel->nfn;
	struct nfn_kpio *queue = &channel->kpio;

	if (channel->number >= nfn->windows)
		return 0;
	queue->registers = nfn->bar + NFN_KPIO_QUEUES + NFN_KPIO_STRIDE * channel->number;
	queue->window = nfn->window + nfn_window_bytes(nfn) * channel->number;
	if (!nfn->wish->on)
		return 0;
	queue->lines = kmalloc_array(nfn_kpio_depth(nfn), NFN_LINE, GFP_KERNEL);
	queue->freed = dma_alloc_coherent(&nfn->pdev->dev, sizeof(*queue->freed),
					  &queue->freed_bus, GFP_KERNEL);
	return queue->lines && queue->freed ? 0 : -ENOMEM;
}
EXPORT_SYMBOL_GPL(nfn_kpio_alloc);

void nfn_kpio_free(struct nfn_channel *channel)
{
	struct nfn_kpio *queue = &channel->kpio;

	if (queue->freed)
		dma_free_coherent(&channel->nfn->pdev->dev, sizeof(*queue->freed), queue->freed,
				  queue->freed_bus);
	kfree(queue->lines);
	memset(queue, 0, sizeof(*queue));
}
EXPORT_SYMBOL_GPL(nfn_kpio_free);

void nfn_kpio_start(struct nfn_channel *channel)
{
	struct nfn_kpio *queue = &channel->kpio;

	if (!queue->freed)
		return;
	*queue->freed = 0;
	queue->written = 0;
	queue->frames = 0;
	writeq(queue->freed_bus, queue->registers + NFN_KPIO_REPORT);
	writeq(NFN_SIGNATURE, queue->registers + NFN_KPIO_SIGNATURE);
	writel(NFN_REPORT_EVERY, queue->registers + NFN_KPIO_REPORT_EVERY);
	writel(channel->number, queue->registers + NFN_KPIO_VECTOR);
	writel(NFN_KPIO_ENABLE | (channel->nfn->wish->framed ? NFN_KPIO_FRAMED : 0),
	       queue->registers + NFN_KPIO_CONTROL);
}
EXPORT_SYMBOL_GPL(nfn_kpio_start);

void nfn_kpio_stop(struct nfn_channel *channel)
{
	if (channel->kpio.freed)
		writel(0, channel->kpio.registers + NFN_KPIO_CONTROL);
}
EXPORT_SYMBOL_GPL(nfn_kpio_stop);

/* Maps the windows, if the device has some and they are asked for. */
int nfn_kpio_init(struct nfn *nfn)
{
	struct pci_dev *pdev = nfn->pdev;
	u32 windows = readl(nfn->bar + NFN_WINDOWS);

	if (!(nfn->wish->on || nfn->wish->receive) || !(windows & 0xff))
		return 0;
	nfn->window_log2_lines = windows >> 8;
	nfn->window_log2_positions = windows >> 16;
	if (!devm_request_mem_region(&pdev->dev, pci_resource_start(pdev, NFN_WINDOW_BAR),
				     pci_resource_len(pdev, NFN_WINDOW_BAR), KBUILD_MODNAME))
		return -EBUSY;
	nfn->window = devm_ioremap_wc(&pdev->dev, pci_resource_start(pdev, NFN_WINDOW_BAR),
				      pci_resource_len(pdev, NFN_WINDOW_BAR));
	if (!nfn->window)
		return -ENOMEM;
	nfn->windows = windows & 0xff;
	return 0;
}
EXPORT_SYMBOL_GPL(nfn_kpio_init);

/* A reset device holds no frames. */
void nfn_kpio_open(struct nfn *nfn)
{
	if (nfn->windows)
		writel(min_t(unsigned int, nfn->wish->receive, NFN_HELD_BYTES),
		       nfn->bar + NFN_RX_HELD);
}
EXPORT_SYMBOL_GPL(nfn_kpio_open);

MODULE_DESCRIPTION("Programmed I/O of nearfar's simulated NIC");
MODULE_LICENSE("GPL");
