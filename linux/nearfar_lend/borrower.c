// SPDX-License-Identifier: GPL-2.0
/*
 * Functions that this host has borrowed. Each is on a root bus of its own: its configuration space
 * is the lender's, its BARs are in the adapter's window, its DMA goes to addresses in the window
 * that the lender has prepared, and its messages ring this host's doorbell.
 */
#include <linux/blkdev.h>
#include <linux/dma-map-ops.h>
#include <linux/io.h>
#include <linux/irq.h>
#include <linux/irqdomain.h>
#include <linux/msi.h>
#include <linux/netdevice.h>
#include <linux/slab.h>

#include "nearfar_lend.h"

/* Domains of the fabric are 16 bits. */
#define BORROWED_DOMAIN 0x20000

struct borrowed_bar {
	struct lend_range range;
	u64 bytes;
	u32 flags;
	/* The low and the high word are asked for their size. */
	bool sizing[2];
};

struct borrowed {
	struct pci_sysdata sysdata;
	struct list_head list;
	struct lend *lend;
	/* Its ID at the lender, and its place in this adapter's table. */
	u16 id;
	int own;
	struct borrowed_bar bars[PCI_STD_NUM_BARS];
	/* The function's address of this host's memory at 0, and of its doorbell. */
	u64 memory;
	u64 doorbell;
	struct resource window;
	struct resource buses;
	struct pci_bus *bus;
};

static struct borrowed *borrowed_of(struct pci_bus *bus)
{
	return container_of((struct pci_sysdata *)bus->sysdata, struct borrowed, sysdata);
}

static u32 borrowed_read_bar(struct borrowed *of, unsigned int number)
{
	struct borrowed_bar *bar = &of->bars[number];
	bool high = false;

	if (!bar->bytes && number && of->bars[number - 1].bytes) {
		bar = &of->bars[number - 1];
		high = true;
	}
	if (!bar->bytes)
		return 0;
	if (bar->sizing[high])
		return high ? upper_32_bits(~(bar->bytes - 1)) :
			      lower_32_bits(~(bar->bytes - 1)) | bar->flags;
	return high ? upper_32_bits(bar->range.address) :
		      lower_32_bits(bar->range.address) | bar->flags;
}

/* Addresses stay: the lender's function is where it is. */
static void borrowed_write_bar(struct borrowed *of, unsigned int number, u32 value)
{
	bool high = !of->bars[number].bytes && number && of->bars[number - 1].bytes;

	of->bars[number - high].sizing[high] = value == ~0U;
}

static bool is_address(int where)
{
	return where >= PCI_BASE_ADDRESS_0 && where < PCI_CARDBUS_CIS;
}

static int borrowed_read(struct pci_bus *bus, unsigned int devfn, int where, int size, u32 *value)
{
	struct borrowed *of = borrowed_of(bus);
	u32 words[LEND_WORDS - 1] = { of->id, where, size }, answer[LEND_WORDS - 1];

	*value = ~0U;
	if (devfn)
		return PCIBIOS_DEVICE_NOT_FOUND;
	if (is_address(where) || (where & ~3) == PCI_ROM_ADDRESS) {
		u32 whole = is_address(where) ?
			borrowed_read_bar(of, (where - PCI_BASE_ADDRESS_0) / 4) : 0;

		*value = whole >> (8 * (where & 3));
		return PCIBIOS_SUCCESSFUL;
	}
	if (lend_ask(of->lend, LEND_READ, words, answer))
		return PCIBIOS_DEVICE_NOT_FOUND;
	*value = answer[0];
	return PCIBIOS_SUCCESSFUL;
}

static int borrowed_write(struct pci_bus *bus, unsigned int devfn, int where, int size, u32 value)
{
	struct borrowed *of = borrowed_of(bus);
	u32 words[LEND_WORDS - 1] = { of->id, where, size, value };

	if (devfn)
		return PCIBIOS_DEVICE_NOT_FOUND;
	if (is_address(where)) {
		if (size == 4)
			borrowed_write_bar(of, (where - PCI_BASE_ADDRESS_0) / 4, value);
		return PCIBIOS_SUCCESSFUL;
	}
	if ((where & ~3) == PCI_ROM_ADDRESS)
		return PCIBIOS_SUCCESSFUL;
	if (lend_ask(of->lend, LEND_WRITE, words, NULL))
		return PCIBIOS_SET_FAILED;
	return PCIBIOS_SUCCESSFUL;
}

static struct pci_ops borrowed_ops = {
	.read = borrowed_read,
	.write = borrowed_write,
};

/* What a driver maps is mapped for the adapter; the function has it at an address of its own. */
static struct borrowed *borrowed_by(struct device *dev)
{
	return borrowed_of(to_pci_dev(dev)->bus);
}

static struct device *adapter_of(struct borrowed *of)
{
	return &of->lend->pdev->dev;
}

static void *borrowed_alloc(struct device *dev, size_t size, dma_addr_t *address, gfp_t gfp,
			    unsigned long attrs)
{
	struct borrowed *of = borrowed_by(dev);
	void *memory = dma_alloc_attrs(adapter_of(of), size, address, gfp, attrs);

	if (memory)
		*address += of->memory;
	return memory;
}

static void borrowed_free(struct device *dev, size_t size, void *memory, dma_addr_t address,
			  unsigned long attrs)
{
	struct borrowed *of = borrowed_by(dev);

	dma_free_attrs(adapter_of(of), size, memory, address - of->memory, attrs);
}

static dma_addr_t borrowed_map_page(struct device *dev, struct page *page, unsigned long offset,
				    size_t size, enum dma_data_direction dir, unsigned long attrs)
{
	struct borrowed *of = borrowed_by(dev);
	dma_addr_t address = dma_map_page_attrs(adapter_of(of), page, offset, size, dir, attrs);

	if (dma_mapping_error(adapter_of(of), address))
		return DMA_MAPPING_ERROR;
	return address + of->memory;
}

static void borrowed_unmap_page(struct device *dev, dma_addr_t address, size_t size,
				enum dma_data_direction dir, unsigned long attrs)
{
	struct borrowed *of = borrowed_by(dev);

	dma_unmap_page_attrs(adapter_of(of), address - of->memory, size, dir, attrs);
}

static void borrowed_unmap_sg(struct device *dev, struct scatterlist *list, int count,
			      enum dma_data_direction dir, unsigned long attrs)
{
	struct scatterlist *entry;
	int i;

	for_each_sg(list, entry, count, i)
		borrowed_unmap_page(dev, sg_dma_address(entry), sg_dma_len(entry), dir, attrs);
}

static int borrowed_map_sg(struct device *dev, struct scatterlist *list, int count,
			   enum dma_data_direction dir, unsigned long attrs)
{
	struct scatterlist *entry;
	int i;

	for_each_sg(list, entry, count, i) {
		dma_addr_t address = borrowed_map_page(dev, sg_page(entry), entry->offset,
						       entry->length, dir, attrs);

		if (address == DMA_MAPPING_ERROR) {
			borrowed_unmap_sg(dev, list, i, dir, attrs);
			return -EIO;
		}
		sg_dma_address(entry) = address;
		sg_dma_len(entry) = entry->length;
	}
	return count;
}

static void borrowed_sync_for_cpu(struct device *dev, dma_addr_t address, size_t size,
				  enum dma_data_direction dir)
{
	struct borrowed *of = borrowed_by(dev);

	dma_sync_single_for_cpu(adapter_of(of), address - of->memory, size, dir);
}

static void borrowed_sync_for_device(struct device *dev, dma_addr_t address, size_t size,
				     enum dma_data_direction dir)
{
	struct borrowed *of = borrowed_by(dev);

	dma_sync_single_for_device(adapter_of(of), address - of->memory, size, dir);
}

static size_t borrowed_max_mapping_size(struct device *dev)
{
	return dma_max_mapping_size(adapter_of(borrowed_by(dev)));
}

static int borrowed_dma_supported(struct device *dev, u64 mask)
{
	return mask >= DMA_BIT_MASK(64);
}

static const struct dma_map_ops borrowed_dma_ops = {
	.alloc = borrowed_alloc,
	.free = borrowed_free,
	.map_page = borrowed_map_page,
	.unmap_page = borrowed_unmap_page,
	.map_sg = borrowed_map_sg,
	.unmap_sg = borrowed_unmap_sg,
	.sync_single_for_cpu = borrowed_sync_for_cpu,
	.sync_single_for_device = borrowed_sync_for_device,
	.dma_supported = borrowed_dma_supported,
	.max_mapping_size = borrowed_max_mapping_size,
};

/* A message rings the doorbell, with the bit that is its number. */
static void borrowed_compose(struct irq_data *data, struct msi_msg *msg)
{
	struct pci_dev *pdev = msi_desc_to_pci_dev(irq_data_get_msi_desc(data));
	u64 doorbell = borrowed_of(pdev->bus)->doorbell;

	msg->address_lo = lower_32_bits(doorbell);
	msg->address_hi = upper_32_bits(doorbell);
	msg->data = BIT(data->hwirq);
}

/* All messages come by the adapter's interrupt, wherever that is. */
static int borrowed_set_affinity(struct irq_data *data, const struct cpumask *cpus, bool force)
{
	return -EINVAL;
}

static struct irq_chip borrowed_chip = {
	.name = "nearfar-lend",
	.irq_set_affinity = borrowed_set_affinity,
	.irq_compose_msi_msg = borrowed_compose,
};

static irq_hw_number_t borrowed_get_hwirq(struct msi_domain_info *info, msi_alloc_info_t *arg)
{
	struct lend *lend = info->data;
	unsigned int vector = find_first_zero_bit(lend->vector_used, LEND_VECTORS);

	if (vector < LEND_VECTORS)
		__set_bit(vector, lend->vector_used);
	return vector;
}

static int borrowed_msi_init(struct irq_domain *domain, struct msi_domain_info *info,
			     unsigned int virq, irq_hw_number_t hwirq, msi_alloc_info_t *arg)
{
	struct lend *lend = info->data;

	if (hwirq >= LEND_VECTORS)
		return -ENOSPC;
	WRITE_ONCE(lend->virq[hwirq], virq);
	irq_domain_set_info(domain, virq, hwirq, info->chip, lend, handle_simple_irq, NULL, NULL);
	return 0;
}

static void borrowed_msi_free(struct irq_domain *domain, struct msi_domain_info *info,
			      unsigned int virq)
{
	struct lend *lend = info->data;
	irq_hw_number_t vector = irq_domain_get_irq_data(domain, virq)->hwirq;

	WRITE_ONCE(lend->virq[vector], 0);
	synchronize_irq(pci_irq_vector(lend->pdev, 0));
	__clear_bit(vector, lend->vector_used);
}

static int borrowed_msi_prepare(struct irq_domain *domain, struct device *dev, int count,
				msi_alloc_info_t *arg)
{
	struct lend *lend = ((struct msi_domain_info *)domain->host_data)->data;
	int room = LEND_VECTORS - bitmap_weight(lend->vector_used, LEND_VECTORS);

	memset(arg, 0, sizeof(*arg));
	return count > room ? room ? : -ENOSPC : 0;
}

static void borrowed_set_desc(msi_alloc_info_t *arg, struct msi_desc *desc)
{
	arg->desc = desc;
}

static struct msi_domain_ops borrowed_msi_ops = {
	.get_hwirq = borrowed_get_hwirq,
	.msi_init = borrowed_msi_init,
	.msi_free = borrowed_msi_free,
	.msi_prepare = borrowed_msi_prepare,
	.set_desc = borrowed_set_desc,
};

static struct msi_domain_info borrowed_msi_info = {
	.flags = MSI_FLAG_USE_DEF_DOM_OPS | MSI_FLAG_USE_DEF_CHIP_OPS | MSI_FLAG_PCI_MSIX,
	.ops = &borrowed_msi_ops,
	.chip = &borrowed_chip,
};

/* Bytes from address 0 of this host that a function may need to reach. */
static u64 lend_reach(struct lend *lend)
{
	return dma_get_mask(&lend->pdev->dev) + 1;
}

static int borrowed_map_bars(struct borrowed *of)
{
	u64 lowest = U64_MAX, highest = 0;
	unsigned int i;
	int err;

	for (i = 0; i < PCI_STD_NUM_BARS; i++) {
		u32 words[LEND_WORDS - 1] = { of->id, i }, answer[LEND_WORDS - 1];
		struct borrowed_bar *bar = &of->bars[i];
		u64 start;

		err = lend_ask(of->lend, LEND_BAR, words, answer);
		if (err)
			return err;
		if (!(answer[4] & IORESOURCE_MEM))
			continue;
		/* The window is beyond what a BAR of 32 bits can name. */
		if (!(answer[4] & IORESOURCE_MEM_64))
			return -EOPNOTSUPP;
		start = answer[0] | (u64)answer[1] << 32;
		bar->bytes = answer[2] | (u64)answer[3] << 32;
		bar->flags = PCI_BASE_ADDRESS_MEM_TYPE_64;
		if (answer[4] & IORESOURCE_PREFETCH)
			bar->flags |= PCI_BASE_ADDRESS_MEM_PREFETCH;
		err = lend_map(of->lend, &bar->range, start, bar->bytes, false);
		if (err) {
			bar->bytes = 0;
			return err;
		}
		lowest = min(lowest, bar->range.address);
		highest = max(highest, bar->range.address + bar->bytes - 1);
	}
	if (lowest > highest)
		return -ENODEV;
	of->window = (struct resource)DEFINE_RES_NAMED(lowest, highest - lowest + 1,
						       "nearfar_lend", IORESOURCE_MEM);
	of->buses = (struct resource)DEFINE_RES_NAMED(0, 1, "nearfar_lend", IORESOURCE_BUS);
	return 0;
}

static int borrowed_add_bus(struct borrowed *of)
{
	static atomic_t domains = ATOMIC_INIT(BORROWED_DOMAIN);
	struct pci_dev *pdev;
	LIST_HEAD(resources);

	of->sysdata.domain = atomic_inc_return(&domains);
	of->sysdata.node = dev_to_node(adapter_of(of));
	pci_add_resource(&resources, &of->buses);
	pci_add_resource(&resources, &of->window);
	pci_lock_rescan_remove();
	of->bus = pci_create_root_bus(adapter_of(of), 0, &borrowed_ops, &of->sysdata, &resources);
	if (!of->bus) {
		pci_unlock_rescan_remove();
		pci_free_resource_list(&resources);
		return -ENODEV;
	}
	dev_set_msi_domain(&of->bus->dev, of->lend->domain);
	pci_scan_child_bus(of->bus);
	list_for_each_entry(pdev, &of->bus->devices, bus_list)
		set_dma_ops(&pdev->dev, &borrowed_dma_ops);
	pci_bus_claim_resources(of->bus);
	pci_bus_add_devices(of->bus);
	pci_unlock_rescan_remove();
	return 0;
}

/* What was made so far of a borrowed function is undone. */
static void borrowed_end(struct borrowed *of, bool asks)
{
	struct lend *lend = of->lend;
	u32 words[LEND_WORDS - 1] = { of->id };
	unsigned int i;

	if (of->bus) {
		pci_lock_rescan_remove();
		pci_stop_root_bus(of->bus);
		pci_remove_root_bus(of->bus);
		pci_unlock_rescan_remove();
	}
	if (asks)
		lend_ask(lend, LEND_CLOSE, words, NULL);
	for (i = 0; i < PCI_STD_NUM_BARS; i++) {
		if (of->bars[i].bytes)
			lend_unmap(lend, &of->bars[i].range);
	}
	if (of->own >= 0)
		lend_remove_remote(lend, of->own);
	lend_dismiss(lend);
	kfree(of);
}

static int borrow(struct lend *lend, u16 id)
{
	u64 reach = lend_reach(lend);
	u32 words[LEND_WORDS - 1] = { id, lower_32_bits(reach), upper_32_bits(reach) };
	u32 answer[LEND_WORDS - 1];
	struct borrowed *of;
	int err;

	err = lend_connect(lend);
	if (err)
		return err;
	of = kzalloc(sizeof(*of), GFP_KERNEL);
	if (!of)
		return -ENOMEM;
	of->lend = lend;
	of->id = id;
	of->own = -1;
	err = lend_admit(lend);
	if (err)
		goto free;
	err = lend_ask(lend, LEND_OPEN, words, answer);
	if (err)
		goto dismiss;
	of->memory = answer[1] | (u64)answer[2] << 32;
	of->doorbell = (answer[3] | (u64)answer[4] << 32) + NTB_DOORBELL;
	of->own = lend_add_remote(lend, answer[0]);
	err = of->own < 0 ? of->own : borrowed_map_bars(of);
	if (!err)
		err = borrowed_add_bus(of);
	if (err)
		borrowed_end(of, true);
	else
		list_add_tail(&of->list, &lend->borrowed);
	return err;

dismiss:
	lend_dismiss(lend);
free:
	kfree(of);
	return err;
}

/* Whether somebody has a disk open below a device, or a network interface is up. */
static int borrowed_is_used(struct device *dev, void *unused)
{
	const char *class = dev->class ? dev->class->name : "";

	if (!strcmp(class, "block") && atomic_read(&dev_to_bdev(dev)->bd_openers))
		return 1;
	if (!strcmp(class, "net") && (to_net_dev(dev)->flags & IFF_UP))
		return 1;
	return device_for_each_child(dev, NULL, borrowed_is_used);
}

static int give_back(struct lend *lend, u16 id)
{
	struct borrowed *of;

	list_for_each_entry(of, &lend->borrowed, list) {
		if (of->id != id)
			continue;
		if (borrowed_is_used(of->bus->bridge, NULL))
			return -EBUSY;
		list_del(&of->list);
		borrowed_end(of, true);
		return 0;
	}
	return -ENODEV;
}

/* Ends what the lender does not lend to this host any more. */
static void borrower_revoke(struct work_struct *work)
{
	struct lend *lend = container_of(work, struct lend, revoke);
	struct borrowed *of, *next;

	mutex_lock(&lend->borrowing);
	list_for_each_entry_safe(of, next, &lend->borrowed, list) {
		u32 words[LEND_WORDS - 1] = { of->id }, answer[LEND_WORDS - 1];

		if (!lend_ask(lend, LEND_BAR, words, answer))
			continue;
		list_del(&of->list);
		borrowed_end(of, false);
	}
	mutex_unlock(&lend->borrowing);
}

static int parse_id(const char *text, u16 *id)
{
	unsigned int bus, device, function;

	if (sscanf(text, "%x:%x.%x", &bus, &device, &function) != 3 || bus > 0xff ||
	    device > 0x1f || function > 7)
		return -EINVAL;
	*id = PCI_DEVID(bus, PCI_DEVFN(device, function));
	return 0;
}

static ssize_t act(struct device *dev, const char *text, size_t count,
		   int (*what)(struct lend *lend, u16 id))
{
	struct lend *lend = dev_get_drvdata(dev);
	int err;
	u16 id;

	err = parse_id(text, &id);
	if (err)
		return err;
	mutex_lock(&lend->borrowing);
	err = what(lend, id);
	mutex_unlock(&lend->borrowing);
	return err ? : count;
}

static ssize_t borrow_store(struct device *dev, struct device_attribute *attr, const char *text,
			    size_t count)
{
	return act(dev, text, count, borrow);
}
static DEVICE_ATTR_WO(borrow);

static ssize_t return_store(struct device *dev, struct device_attribute *attr, const char *text,
			    size_t count)
{
	return act(dev, text, count, give_back);
}
static DEVICE_ATTR_WO(return);

/* What the other host lends: its functions, what they are, and whether somebody has them. */
static ssize_t lent_show(struct device *dev, struct device_attribute *attr, char *text)
{
	struct lend *lend = dev_get_drvdata(dev);
	u32 words[LEND_WORDS - 1] = { }, answer[LEND_WORDS - 1];
	int length = 0, err;

	mutex_lock(&lend->borrowing);
	err = lend_connect(lend);
	for (; !err; words[0]++) {
		err = lend_ask(lend, LEND_LIST, words, answer);
		if (!err)
			length += sysfs_emit_at(text, length, "%02x:%02x.%x %04x:%04x %s\n",
						PCI_BUS_NUM(answer[0]), PCI_SLOT(answer[0]),
						PCI_FUNC(answer[0]), answer[1] & 0xffff,
						answer[1] >> 16, answer[2] ? "leased" : "free");
	}
	mutex_unlock(&lend->borrowing);
	return err == -ENOENT ? length : err;
}
static DEVICE_ATTR_RO(lent);

/* Segments, own and foreign requesters and vectors in use. */
static ssize_t used_show(struct device *dev, struct device_attribute *attr, char *text)
{
	struct lend *lend = dev_get_drvdata(dev);

	return sysfs_emit(text, "%d %d %d %d\n", bitmap_weight(lend->segment_used, lend->segments),
			  bitmap_weight(lend->local_used, lend->requesters),
			  bitmap_weight(lend->remote_used, lend->requesters),
			  bitmap_weight(lend->vector_used, LEND_VECTORS));
}
static DEVICE_ATTR_RO(used);

static struct attribute *lend_attrs[] = {
	&dev_attr_borrow.attr,
	&dev_attr_return.attr,
	&dev_attr_lent.attr,
	&dev_attr_used.attr,
	NULL
};

static const struct attribute_group lend_group = { .attrs = lend_attrs };
const struct attribute_group *lend_groups[] = { &lend_group, NULL };

int borrower_init(struct lend *lend)
{
	struct fwnode_handle *node;
	int bits, err;

	/* Buffers are where the lender's window for this host's memory reaches: half of its own. */
	bits = ilog2(resource_size(lend->window)) - 1;
	err = dma_set_mask_and_coherent(&lend->pdev->dev, DMA_BIT_MASK(bits));
	if (err)
		return err;
	INIT_WORK(&lend->revoke, borrower_revoke);
	node = irq_domain_alloc_named_id_fwnode("nearfar-lend", pci_dev_id(lend->pdev));
	if (!node)
		return -ENOMEM;
	borrowed_msi_info.data = lend;
	lend->domain = pci_msi_create_irq_domain(node, &borrowed_msi_info, NULL);
	if (!lend->domain) {
		irq_domain_free_fwnode(node);
		return -ENOMEM;
	}
	return 0;
}

/* All that is borrowed goes. */
void borrower_end(struct lend *lend, bool asks)
{
	struct borrowed *of, *next;

	mutex_lock(&lend->borrowing);
	list_for_each_entry_safe(of, next, &lend->borrowed, list) {
		list_del(&of->list);
		borrowed_end(of, asks);
	}
	mutex_unlock(&lend->borrowing);
}

void borrower_exit(struct lend *lend)
{
	struct fwnode_handle *node = lend->domain->fwnode;

	cancel_work_sync(&lend->revoke);
	irq_domain_remove(lend->domain);
	irq_domain_free_fwnode(node);
}
