// SPDX-License-Identifier: GPL-2.0
/*
 * The driver of nearfar's NTB adapters: BAR 0 has registers, BAR 2 is a window of segments, each of
 * which leads to a range of another node. Clients decide to which.
 */
#include <linux/bitmap.h>
#include <linux/delay.h>
#include <linux/interrupt.h>
#include <linux/io.h>
#include <linux/io-64-nonatomic-lo-hi.h>
#include <linux/irq.h>
#include <linux/irqdomain.h>
#include <linux/module.h>
#include <linux/msi.h>
#include <linux/mutex.h>
#include <linux/random.h>
#include <linux/spinlock.h>
#include <linux/srcu.h>
#include <linux/sysfs.h>
#include <linux/workqueue.h>

#include "nearfar_ntb.h"

#define NFB_NODE		0x00
#define NFB_SEGMENTS		0x04
#define NFB_SEGMENT_BYTES	0x08
#define NFB_REQUESTERS		0x10
#define NFB_REACHABLE		0x18
#define NFB_SEGMENT_TABLE	0x1000
#define NFB_SEGMENT_ON		BIT(0)
#define NFB_SEGMENT_REGISTERS	BIT(1)
#define NFB_SEGMENT_NODE(node)	((u32)(node) << 16)
#define NFB_LOCAL_TABLE		0x8000
#define NFB_REMOTE_TABLE	0x9000
#define NFB_ENTRY_ON		BIT(31)
#define NFB_DOORBELL_CLEAR	0xa004
#define NFB_SCRATCHPADS		0xa100
#define NFB_MOST_SEGMENTS	1024
#define NFB_MOST_REQUESTERS	256

/* Requester IDs, in a vendor-specific capability. */
#define NFB_LIVE_VENDOR		0x4e46
#define NFB_LIVE_IDENTITY	1
#define NFB_LIVE_OWN		0x08
#define NFB_LIVE_ABOVE		0x0c

/* Doorbell bits, besides the client's. */
#define NFB_ASKED		BIT(30)
#define NFB_LINK		BIT(31)

/*
 * Scratchpads. A question is in those of who asks, and so is its answer: who is asked reads the one
 * and writes the other. So no two nodes write to the same. The first word is written last.
 */
#define NFB_QUESTION		0
#define NFB_THERE		7
#define NFB_ANSWER		8
#define NFB_THERE_VALUE		0x4e464231

/* The first word of a question: its number, who is asked, and what. */
#define NFB_NUMBER(first)	((first) >> 16)
#define NFB_ASKS(first)		(((first) >> 8) & 0xff)
#define NFB_WHAT(first)		((first) & 0xff)

/* Where the root port is in every node's table of requesters. */
#define NFB_ROOT_PORT		0

/* How long another node takes at most to answer. */
#define NFB_PATIENCE_US		(3 * USEC_PER_SEC)
#define NFB_POLL_US		20

struct nfb_peer {
	void __iomem *registers;
	struct nfb_range range;
	/* How often its root port was let in, and its entry meanwhile. */
	unsigned int admitted;
	int root;
	/* Number of the last question that it was answered. */
	u16 answered;
};

struct nfb {
	struct pci_dev *pdev;
	void __iomem *registers;
	u64 window;
	u64 segment_bytes;
	unsigned int segments;
	unsigned int requesters;
	u8 node;
	/* Held for the tables. */
	struct mutex tables;
	/* Held while a node is found, or let in. */
	struct mutex connecting;
	DECLARE_BITMAP(segment_used, NFB_MOST_SEGMENTS);
	DECLARE_BITMAP(local_used, NFB_MOST_REQUESTERS);
	DECLARE_BITMAP(remote_used, NFB_MOST_REQUESTERS);
	/* Held for a question; configuration accesses ask with interrupts off. */
	raw_spinlock_t asking;
	u16 number;
	/* Interrupts of other nodes' functions: doorbell bits from 0 on. */
	struct irq_domain *vectors;
	struct msi_domain_info vector_info;
	u64 (*doorbell)(struct pci_dev *pdev);
	DECLARE_BITMAP(vector_used, NFB_VECTORS);
	unsigned int virq[NFB_VECTORS];
	/* Nodes that could be reached when that was last looked at: the worker's. */
	unsigned long up;
	struct work_struct link;
	struct nfb_peer peers[NFB_NODES];
};

/* The one adapter of this host, and what uses it. Held for both, and while clients are told. */
static struct nfb *adapter;
static LIST_HEAD(nfb_clients);
static DEFINE_MUTEX(nfb_lock);
/* Clients that are called do not go. */
DEFINE_STATIC_SRCU(nfb_calls);

struct pci_dev *nfb_pdev(const struct nfb *nfb)
{
	return nfb->pdev;
}
EXPORT_SYMBOL_GPL(nfb_pdev);

u8 nfb_node(const struct nfb *nfb)
{
	return nfb->node;
}
EXPORT_SYMBOL_GPL(nfb_node);

unsigned long nfb_reachable(struct nfb *nfb)
{
	u64 nodes = readq(nfb->registers + NFB_REACHABLE);

	/* All ones: the adapter is gone. */
	return nodes == ~0ULL ? 0 : nodes & ~BIT_ULL(nfb->node);
}
EXPORT_SYMBOL_GPL(nfb_reachable);

static bool nfb_reaches(struct nfb *nfb, u8 node)
{
	return node < NFB_NODES && nfb_reachable(nfb) & BIT(node);
}

static void nfb_write_segment(struct nfb *nfb, int number, u64 target, u32 control)
{
	void __iomem *segment = nfb->registers + NFB_SEGMENT_TABLE + 16 * number;

	writel(lower_32_bits(target), segment);
	writel(upper_32_bits(target), segment + 4);
	writel(control, segment + 8);
}

int nfb_map(struct nfb *nfb, struct nfb_range *range, u8 node, u64 target, u64 bytes,
	    bool registers)
{
	u64 start = round_down(target, nfb->segment_bytes);
	u32 control = NFB_SEGMENT_ON | NFB_SEGMENT_NODE(node);
	unsigned long first;
	int i;

	range->count = 0;
	if (!bytes || target + bytes < target)
		return -EINVAL;
	if (bytes > nfb->segments * nfb->segment_bytes)
		return -ENOSPC;
	range->count = DIV_ROUND_UP_ULL(target + bytes - start, nfb->segment_bytes);
	mutex_lock(&nfb->tables);
	first = bitmap_find_next_zero_area(nfb->segment_used, nfb->segments, 0, range->count, 0);
	if (first >= nfb->segments) {
		mutex_unlock(&nfb->tables);
		range->count = 0;
		return -ENOSPC;
	}
	bitmap_set(nfb->segment_used, first, range->count);
	range->first = first;
	range->address = nfb->window + first * nfb->segment_bytes + (target - start);
	if (registers)
		control |= NFB_SEGMENT_REGISTERS;
	for (i = 0; i < range->count; i++)
		nfb_write_segment(nfb, first + i, start + i * nfb->segment_bytes, control);
	mutex_unlock(&nfb->tables);
	return 0;
}
EXPORT_SYMBOL_GPL(nfb_map);

void nfb_unmap(struct nfb *nfb, struct nfb_range *range)
{
	int i;

	mutex_lock(&nfb->tables);
	for (i = 0; i < range->count; i++)
		nfb_write_segment(nfb, range->first + i, 0, 0);
	bitmap_clear(nfb->segment_used, range->first, range->count);
	range->count = 0;
	mutex_unlock(&nfb->tables);
}
EXPORT_SYMBOL_GPL(nfb_unmap);

static int nfb_add(struct nfb *nfb, unsigned long *used, u32 table, u32 entry)
{
	unsigned int place;

	mutex_lock(&nfb->tables);
	place = find_first_zero_bit(used, nfb->requesters);
	if (place < nfb->requesters) {
		__set_bit(place, used);
		writel(NFB_ENTRY_ON | entry, nfb->registers + table + 4 * place);
	}
	mutex_unlock(&nfb->tables);
	return place < nfb->requesters ? place : -ENOSPC;
}

static void nfb_remove(struct nfb *nfb, unsigned long *used, u32 table, int place)
{
	mutex_lock(&nfb->tables);
	writel(0, nfb->registers + table + 4 * place);
	__clear_bit(place, used);
	mutex_unlock(&nfb->tables);
}

int nfb_add_local(struct nfb *nfb, u16 requester)
{
	return nfb_add(nfb, nfb->local_used, NFB_LOCAL_TABLE, requester);
}
EXPORT_SYMBOL_GPL(nfb_add_local);

void nfb_remove_local(struct nfb *nfb, int place)
{
	nfb_remove(nfb, nfb->local_used, NFB_LOCAL_TABLE, place);
}
EXPORT_SYMBOL_GPL(nfb_remove_local);

int nfb_add_remote(struct nfb *nfb, u8 node, int place)
{
	return nfb_add(nfb, nfb->remote_used, NFB_REMOTE_TABLE, node << 8 | place);
}
EXPORT_SYMBOL_GPL(nfb_add_remote);

void nfb_remove_remote(struct nfb *nfb, int entry)
{
	nfb_remove(nfb, nfb->remote_used, NFB_REMOTE_TABLE, entry);
}
EXPORT_SYMBOL_GPL(nfb_remove_remote);

int nfb_admit(struct nfb *nfb, u8 node)
{
	struct nfb_peer *peer = &nfb->peers[node];
	int entry = 0;

	mutex_lock(&nfb->connecting);
	if (!peer->admitted) {
		entry = nfb_add_remote(nfb, node, NFB_ROOT_PORT);
		peer->root = entry;
	}
	if (entry >= 0)
		peer->admitted++;
	mutex_unlock(&nfb->connecting);
	return entry < 0 ? entry : 0;
}
EXPORT_SYMBOL_GPL(nfb_admit);

void nfb_dismiss(struct nfb *nfb, u8 node)
{
	struct nfb_peer *peer = &nfb->peers[node];

	mutex_lock(&nfb->connecting);
	if (!--peer->admitted)
		nfb_remove_remote(nfb, peer->root);
	mutex_unlock(&nfb->connecting);
}
EXPORT_SYMBOL_GPL(nfb_dismiss);

int nfb_identity(struct pci_dev *pdev, u16 *own, u16 *above)
{
	u16 at = pci_find_dvsec_capability(pdev, NFB_LIVE_VENDOR, NFB_LIVE_IDENTITY);
	u32 words[2];

	if (!at)
		return -EOPNOTSUPP;
	pci_read_config_dword(pdev, at + NFB_LIVE_OWN, &words[0]);
	pci_read_config_dword(pdev, at + NFB_LIVE_ABOVE, &words[1]);
	*own = words[0] >> 16;
	*above = words[1];
	return 0;
}
EXPORT_SYMBOL_GPL(nfb_identity);

/* Its registers stay mapped until the adapter goes. */
int nfb_connect(struct nfb *nfb, u8 node)
{
	struct nfb_peer *peer = &nfb->peers[node];
	int err = 0;

	if (!nfb_reaches(nfb, node))
		return -ENOLINK;
	mutex_lock(&nfb->connecting);
	if (!peer->registers) {
		err = nfb_map(nfb, &peer->range, node, 0, NFB_SHARED_BYTES, true);
		if (!err)
			peer->registers = ioremap(peer->range.address, NFB_SHARED_BYTES);
		if (!err && !peer->registers) {
			nfb_unmap(nfb, &peer->range);
			err = -ENOMEM;
		}
	}
	mutex_unlock(&nfb->connecting);
	return err;
}
EXPORT_SYMBOL_GPL(nfb_connect);

static void __iomem *nfb_pad(void __iomem *registers, unsigned int word)
{
	return registers + NFB_SCRATCHPADS + 4 * word;
}

static int nfb_wait(struct nfb *nfb, u8 node, u16 number, u32 *answer)
{
	unsigned int waited, i;

	for (waited = 0; waited < NFB_PATIENCE_US; waited += NFB_POLL_US) {
		u32 first = readl(nfb_pad(nfb->registers, NFB_ANSWER));

		if (first == ~0U)
			return -ENODEV;
		if (NFB_NUMBER(first) == number) {
			for (i = 0; i < NFB_WORDS && answer; i++)
				answer[i] = readl(nfb_pad(nfb->registers, NFB_ANSWER + 1 + i));
			return -(int)NFB_WHAT(first);
		}
		if (!nfb_reaches(nfb, node))
			return -ENOLINK;
		udelay(NFB_POLL_US);
	}
	return -ETIMEDOUT;
}

int nfb_ask(struct nfb *nfb, u8 node, u8 question, const u32 *words, u32 *answer)
{
	void __iomem *there = nfb->peers[node].registers;
	unsigned long flags;
	unsigned int i;
	int err;

	if (!nfb_reaches(nfb, node))
		return -ENOLINK;
	if (readl(nfb_pad(there, NFB_THERE)) != NFB_THERE_VALUE)
		return -ENOTCONN;
	raw_spin_lock_irqsave(&nfb->asking, flags);
	/* No question has number 0. */
	nfb->number = nfb->number == U16_MAX ? 1 : nfb->number + 1;
	for (i = 0; i < NFB_WORDS; i++)
		writel(words[i], nfb_pad(nfb->registers, NFB_QUESTION + 1 + i));
	writel(nfb->number << 16 | node << 8 | question, nfb_pad(nfb->registers, NFB_QUESTION));
	nfb_ring(nfb, node, NFB_ASKED);
	err = nfb_wait(nfb, node, nfb->number, answer);
	raw_spin_unlock_irqrestore(&nfb->asking, flags);
	return err;
}
EXPORT_SYMBOL_GPL(nfb_ask);

void nfb_ring(struct nfb *nfb, u8 node, u32 bits)
{
	writel(bits, nfb->peers[node].registers + NFB_DOORBELL);
}
EXPORT_SYMBOL_GPL(nfb_ring);

static bool nfb_may_call(const struct nfb_client *client)
{
	/* Before what it has made for the adapter; pairs with nfb_add_client(). */
	return smp_load_acquire(&client->is_added);
}

static int nfb_call_answer(struct nfb *nfb, u8 node, u8 question, const u32 *words, u32 *answer)
{
	int err = -EOPNOTSUPP, lock = srcu_read_lock(&nfb_calls);
	struct nfb_client *client;

	list_for_each_entry_srcu(client, &nfb_clients, list, srcu_read_lock_held(&nfb_calls)) {
		if (client->answer && nfb_may_call(client))
			err = client->answer(nfb, node, question, words, answer);
	}
	srcu_read_unlock(&nfb_calls, lock);
	return err;
}

/* Answers what a node may have asked. */
static void nfb_answer(struct nfb *nfb, u8 node)
{
	struct nfb_peer *peer = &nfb->peers[node];
	u32 words[NFB_WORDS], answer[NFB_WORDS] = { };
	unsigned int i;
	u32 first;
	int err;

	if (nfb_connect(nfb, node))
		return;
	first = readl(nfb_pad(peer->registers, NFB_QUESTION));
	if (first == ~0U || !NFB_NUMBER(first) || NFB_NUMBER(first) == peer->answered ||
	    NFB_ASKS(first) != nfb->node)
		return;
	peer->answered = NFB_NUMBER(first);
	for (i = 0; i < NFB_WORDS; i++)
		words[i] = readl(nfb_pad(peer->registers, NFB_QUESTION + 1 + i));
	err = nfb_call_answer(nfb, node, NFB_WHAT(first), words, answer);
	for (i = 0; i < NFB_WORDS; i++)
		writel(answer[i], nfb_pad(peer->registers, NFB_ANSWER + 1 + i));
	writel(peer->answered << 16 | (-err & 0xff), nfb_pad(peer->registers, NFB_ANSWER));
}

/* A message rings the doorbell, with the bit that is its number. */
static void nfb_compose(struct irq_data *data, struct msi_msg *msg)
{
	struct pci_dev *pdev = msi_desc_to_pci_dev(irq_data_get_msi_desc(data));
	struct nfb *nfb = irq_data_get_irq_chip_data(data);
	u64 doorbell = nfb->doorbell(pdev);

	msg->address_lo = lower_32_bits(doorbell);
	msg->address_hi = upper_32_bits(doorbell);
	msg->data = BIT(data->hwirq);
}

/* All messages come by the adapter's interrupt, wherever that is. */
static int nfb_set_affinity(struct irq_data *data, const struct cpumask *cpus, bool force)
{
	return -EINVAL;
}

static struct irq_chip nfb_chip = {
	.name = "nearfar-ntb",
	.irq_set_affinity = nfb_set_affinity,
	.irq_compose_msi_msg = nfb_compose,
};

static irq_hw_number_t nfb_get_hwirq(struct msi_domain_info *info, msi_alloc_info_t *arg)
{
	struct nfb *nfb = info->data;
	unsigned int vector = find_first_zero_bit(nfb->vector_used, NFB_VECTORS);

	if (vector < NFB_VECTORS)
		__set_bit(vector, nfb->vector_used);
	return vector;
}

static int nfb_msi_init(struct irq_domain *domain, struct msi_domain_info *info,
			unsigned int virq, irq_hw_number_t hwirq, msi_alloc_info_t *arg)
{
	struct nfb *nfb = info->data;

	if (hwirq >= NFB_VECTORS)
		return -ENOSPC;
	WRITE_ONCE(nfb->virq[hwirq], virq);
	irq_domain_set_info(domain, virq, hwirq, info->chip, nfb, handle_simple_irq, NULL, NULL);
	return 0;
}

static void nfb_msi_free(struct irq_domain *domain, struct msi_domain_info *info,
			 unsigned int virq)
{
	struct nfb *nfb = info->data;
	irq_hw_number_t vector = irq_domain_get_irq_data(domain, virq)->hwirq;

	WRITE_ONCE(nfb->virq[vector], 0);
	synchronize_irq(pci_irq_vector(nfb->pdev, 0));
	__clear_bit(vector, nfb->vector_used);
}

static int nfb_msi_prepare(struct irq_domain *domain, struct device *dev, int count,
			   msi_alloc_info_t *arg)
{
	struct nfb *nfb = ((struct msi_domain_info *)domain->host_data)->data;
	int room = NFB_VECTORS - bitmap_weight(nfb->vector_used, NFB_VECTORS);

	memset(arg, 0, sizeof(*arg));
	return count > room ? room ? : -ENOSPC : 0;
}

static void nfb_set_desc(msi_alloc_info_t *arg, struct msi_desc *desc)
{
	arg->desc = desc;
}

static struct msi_domain_ops nfb_msi_ops = {
	.get_hwirq = nfb_get_hwirq,
	.msi_init = nfb_msi_init,
	.msi_free = nfb_msi_free,
	.msi_prepare = nfb_msi_prepare,
	.set_desc = nfb_set_desc,
};

static int nfb_make_vectors(struct nfb *nfb)
{
	struct fwnode_handle *node;

	node = irq_domain_alloc_named_id_fwnode("nearfar-ntb", pci_dev_id(nfb->pdev));
	if (!node)
		return -ENOMEM;
	nfb->vector_info = (struct msi_domain_info) {
		.flags = MSI_FLAG_USE_DEF_DOM_OPS | MSI_FLAG_USE_DEF_CHIP_OPS | MSI_FLAG_PCI_MSIX,
		.ops = &nfb_msi_ops,
		.chip = &nfb_chip,
		.data = nfb,
	};
	nfb->vectors = pci_msi_create_irq_domain(node, &nfb->vector_info, NULL);
	if (nfb->vectors)
		return 0;
	irq_domain_free_fwnode(node);
	return -ENOMEM;
}

struct irq_domain *nfb_vectors(struct nfb *nfb, u64 (*doorbell)(struct pci_dev *pdev))
{
	nfb->doorbell = doorbell;
	return nfb->vectors;
}
EXPORT_SYMBOL_GPL(nfb_vectors);

static irqreturn_t nfb_interrupt(int irq, void *data)
{
	struct nfb *nfb = data;
	u32 bits = readl(nfb->registers + NFB_DOORBELL);
	unsigned long vectors = bits & GENMASK(NFB_VECTORS - 1, 0);
	struct nfb_client *client;
	unsigned int vector;
	int lock;

	if (!bits || bits == ~0U)
		return IRQ_NONE;
	writel(bits, nfb->registers + NFB_DOORBELL_CLEAR);
	for_each_set_bit(vector, &vectors, NFB_VECTORS)
		generic_handle_irq(READ_ONCE(nfb->virq[vector]));
	lock = srcu_read_lock(&nfb_calls);
	list_for_each_entry_srcu(client, &nfb_clients, list, srcu_read_lock_held(&nfb_calls)) {
		if (client->bits & bits && nfb_may_call(client))
			client->rung(nfb, client->bits & bits);
	}
	srcu_read_unlock(&nfb_calls, lock);
	if (bits & NFB_LINK)
		schedule_work(&nfb->link);
	return bits & NFB_ASKED ? IRQ_WAKE_THREAD : IRQ_HANDLED;
}

static irqreturn_t nfb_thread(int irq, void *data)
{
	struct nfb *nfb = data;
	unsigned long nodes = nfb_reachable(nfb);
	unsigned int node;

	for_each_set_bit(node, &nodes, NFB_NODES)
		nfb_answer(nfb, node);
	return IRQ_HANDLED;
}

/*
 * A node whose cable was down stays out of reach, even if it is up again, until the adapter is told
 * that what came of the requests that were lost has ended.
 */
static void nfb_link_changed(struct work_struct *work)
{
	struct nfb *nfb = container_of(work, struct nfb, link);
	unsigned long now = nfb_reachable(nfb), lost = nfb->up & ~now;
	struct nfb_client *client;
	unsigned int node;
	int lock;

	nfb->up = now;
	lock = srcu_read_lock(&nfb_calls);
	list_for_each_entry_srcu(client, &nfb_clients, list, srcu_read_lock_held(&nfb_calls)) {
		for_each_set_bit(node, &lost, NFB_NODES) {
			if (client->lost && nfb_may_call(client))
				client->lost(nfb, node);
		}
	}
	srcu_read_unlock(&nfb_calls, lock);
	writeq(~(u64)now, nfb->registers + NFB_REACHABLE);
	nfb->up |= nfb_reachable(nfb);
}

static int nfb_read_limits(struct nfb *nfb)
{
	nfb->node = readl(nfb->registers + NFB_NODE);
	nfb->segments = min_t(u32, readl(nfb->registers + NFB_SEGMENTS), NFB_MOST_SEGMENTS);
	nfb->segment_bytes = readq(nfb->registers + NFB_SEGMENT_BYTES);
	nfb->requesters = min_t(u32, readl(nfb->registers + NFB_REQUESTERS), NFB_MOST_REQUESTERS);
	if (nfb->node >= NFB_NODES || !nfb->segments || !nfb->requesters ||
	    !is_power_of_2(nfb->segment_bytes))
		return -ENODEV;
	return 0;
}

static int nfb_prepare(struct nfb *nfb)
{
	struct pci_dev *pdev = nfb->pdev;
	u16 own, above;
	int err;

	err = nfb_identity(pdev, &own, &above);
	if (err)
		return dev_err_probe(&pdev->dev, err, "it does not tell requester IDs\n");
	err = nfb_read_limits(nfb);
	if (err)
		return err;
	err = nfb_make_vectors(nfb);
	if (err)
		return err;
	/* The first place, NFB_ROOT_PORT. */
	nfb_add_local(nfb, above);
	/* The first of another node would have the adapter's own ID. */
	__set_bit(0, nfb->remote_used);
	/* Nothing has come of what was lost before. */
	writeq(~0ULL, nfb->registers + NFB_REACHABLE);
	nfb->up = nfb_reachable(nfb);
	nfb->number = get_random_u32();
	return 0;
}

static int nfb_start(struct nfb *nfb)
{
	struct pci_dev *pdev = nfb->pdev;
	int err;

	pci_set_master(pdev);
	err = pci_alloc_irq_vectors(pdev, 1, 1, PCI_IRQ_MSIX);
	if (err < 0)
		return err;
	err = devm_request_threaded_irq(&pdev->dev, pci_irq_vector(pdev, 0), nfb_interrupt,
					nfb_thread, 0, "nearfar_ntb", nfb);
	if (err)
		return err;
	/* A bit that was set before would not interrupt again. Who has asked will ask again. */
	writel(~0U, nfb->registers + NFB_DOORBELL_CLEAR);
	writel(NFB_THERE_VALUE, nfb_pad(nfb->registers, NFB_THERE));
	return 0;
}

static void nfb_undo(struct nfb *nfb)
{
	struct fwnode_handle *vectors = nfb->vectors->fwnode;
	unsigned int node;

	for (node = 0; node < NFB_NODES; node++) {
		if (!nfb->peers[node].registers)
			continue;
		iounmap(nfb->peers[node].registers);
		nfb_unmap(nfb, &nfb->peers[node].range);
	}
	nfb_remove_local(nfb, NFB_ROOT_PORT);
	irq_domain_remove(nfb->vectors);
	irq_domain_free_fwnode(vectors);
	pci_clear_master(nfb->pdev);
}

static void nfb_add_client(struct nfb *nfb, struct nfb_client *client)
{
	int err = client->added(nfb);

	if (err)
		pci_err(nfb->pdev, "a client does without this adapter: %d\n", err);
	else
		/* After what it has made; pairs with nfb_may_call(). */
		smp_store_release(&client->is_added, true);
}

static void nfb_remove_client(struct nfb *nfb, struct nfb_client *client)
{
	if (!client->is_added)
		return;
	WRITE_ONCE(client->is_added, false);
	synchronize_srcu(&nfb_calls);
	client->removed(nfb);
}

int nfb_register_client(struct nfb_client *client)
{
	mutex_lock(&nfb_lock);
	client->is_added = false;
	list_add_tail_rcu(&client->list, &nfb_clients);
	if (adapter)
		nfb_add_client(adapter, client);
	mutex_unlock(&nfb_lock);
	return 0;
}
EXPORT_SYMBOL_GPL(nfb_register_client);

void nfb_unregister_client(struct nfb_client *client)
{
	mutex_lock(&nfb_lock);
	if (adapter)
		nfb_remove_client(adapter, client);
	list_del_rcu(&client->list);
	mutex_unlock(&nfb_lock);
	synchronize_srcu(&nfb_calls);
}
EXPORT_SYMBOL_GPL(nfb_unregister_client);

static void nfb_set_adapter(struct nfb *nfb)
{
	struct nfb_client *client;

	adapter = nfb;
	list_for_each_entry(client, &nfb_clients, list)
		nfb_add_client(nfb, client);
}

static void nfb_clear_adapter(void)
{
	struct nfb_client *client;

	list_for_each_entry(client, &nfb_clients, list)
		nfb_remove_client(adapter, client);
	adapter = NULL;
}

static int nfb_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct nfb *nfb;
	int err;

	err = pcim_enable_device(pdev);
	if (err)
		return err;
	err = pcim_iomap_regions(pdev, BIT(0), KBUILD_MODNAME);
	if (err)
		return err;
	nfb = devm_kzalloc(&pdev->dev, sizeof(*nfb), GFP_KERNEL);
	if (!nfb)
		return -ENOMEM;
	nfb->pdev = pdev;
	nfb->registers = pcim_iomap_table(pdev)[0];
	nfb->window = pci_resource_start(pdev, NFB_WINDOW_BAR);
	mutex_init(&nfb->tables);
	mutex_init(&nfb->connecting);
	raw_spin_lock_init(&nfb->asking);
	INIT_WORK(&nfb->link, nfb_link_changed);
	pci_set_drvdata(pdev, nfb);
	mutex_lock(&nfb_lock);
	err = adapter ? dev_err_probe(&pdev->dev, -EBUSY, "there is an adapter already\n") :
			nfb_prepare(nfb);
	if (err)
		goto unlock;
	nfb_set_adapter(nfb);
	err = nfb_start(nfb);
	if (err) {
		nfb_clear_adapter();
		nfb_undo(nfb);
	}
unlock:
	mutex_unlock(&nfb_lock);
	return err;
}

static void nfb_disconnect(struct pci_dev *pdev)
{
	struct nfb *nfb = pci_get_drvdata(pdev);

	mutex_lock(&nfb_lock);
	writel(0, nfb_pad(nfb->registers, NFB_THERE));
	nfb_clear_adapter();
	devm_free_irq(&pdev->dev, pci_irq_vector(pdev, 0), nfb);
	cancel_work_sync(&nfb->link);
	pci_free_irq_vectors(pdev);
	nfb_undo(nfb);
	mutex_unlock(&nfb_lock);
}

/* Segments, own and foreign requesters and vectors in use. */
static ssize_t used_show(struct device *dev, struct device_attribute *attr, char *text)
{
	struct nfb *nfb = dev_get_drvdata(dev);

	return sysfs_emit(text, "%d %d %d %d\n", bitmap_weight(nfb->segment_used, nfb->segments),
			  bitmap_weight(nfb->local_used, nfb->requesters),
			  bitmap_weight(nfb->remote_used, nfb->requesters),
			  bitmap_weight(nfb->vector_used, NFB_VECTORS));
}
static DEVICE_ATTR_RO(used);

static struct attribute *nfb_attrs[] = {
	&dev_attr_used.attr,
	NULL
};
ATTRIBUTE_GROUPS(nfb);

static const struct pci_device_id nfb_ids[] = {
	{ PCI_DEVICE(0x10b5, 0x87b0) },
	{ }
};
MODULE_DEVICE_TABLE(pci, nfb_ids);

static struct pci_driver nfb_driver = {
	.name = KBUILD_MODNAME,
	.id_table = nfb_ids,
	.probe = nfb_probe,
	.remove = nfb_disconnect,
	.dev_groups = nfb_groups,
};
module_pci_driver(nfb_driver);

MODULE_DESCRIPTION("nearfar's NTB adapters");
MODULE_LICENSE("GPL");
