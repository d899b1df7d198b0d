// SPDX-License-Identifier: GPL-2.0
/*
 * Functions that this host has borrowed. Each is on a root bus of its own: its configuration space
 * is the lender's, its BARs are in the adapter's window, its DMA goes to addresses in the window
 * that the lender has prepared, and its messages ring this host's doorbell.
 */
#include <linux/blkdev.h>
#include <linux/dma-map-ops.h>
#include <linux/module.h>
#include <linux/msi.h>
#include <linux/netdevice.h>
#include <linux/slab.h>

#include "borrower.h"
#include "nearfar_borrow.h"

/* Domains of the fabric are 16 bits. */
#define BORROWED_DOMAIN 0x20000

/* By the one adapter, as long as that is there. */
static struct borrower *borrower;

static struct borrowed *borrowed_of(struct pci_bus *bus)
{
	return container_of((struct pci_sysdata *)bus->sysdata, struct borrowed, sysdata);
}

int borrowed_ask(const struct borrowed *of, enum lend_question question, const u32 *words,
		 u32 *answer)
{
	return nfb_ask(of->by->nfb, of->node, question, words, answer);
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
	u32 words[NFB_WORDS] = { of->id, where, size }, answer[NFB_WORDS];

	*value = ~0U;
	if (devfn)
		return PCIBIOS_DEVICE_NOT_FOUND;
	if (is_address(where) || (where & ~3) == PCI_ROM_ADDRESS) {
		u32 whole = is_address(where) ?
			borrowed_read_bar(of, (where - PCI_BASE_ADDRESS_0) / 4) : 0;

		*value = whole >> (8 * (where & 3));
		return PCIBIOS_SUCCESSFUL;
	}
	if (borrowed_ask(of, LEND_READ, words, answer))
		return PCIBIOS_DEVICE_NOT_FOUND;
	*value = answer[0];
	return PCIBIOS_SUCCESSFUL;
}

static int borrowed_write(struct pci_bus *bus, unsigned int devfn, int where, int size, u32 value)
{
	struct borrowed *of = borrowed_of(bus);
	u32 words[NFB_WORDS] = { of->id, where, size, value };

	if (devfn)
		return PCIBIOS_DEVICE_NOT_FOUND;
	if (is_address(where)) {
		if (size == 4)
			borrowed_write_bar(of, (where - PCI_BASE_ADDRESS_0) / 4, value);
		return PCIBIOS_SUCCESSFUL;
	}
	if ((where & ~3) == PCI_ROM_ADDRESS)
		return PCIBIOS_SUCCESSFUL;
	if (borrowed_ask(of, LEND_WRITE, words, NULL))
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
	return &of->by->pdev->dev;
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

/* What is mapped so is a BAR, of another borrowed function or of one of this host. */
static dma_addr_t borrowed_map_resource(struct device *dev, phys_addr_t start, size_t size,
					enum dma_data_direction dir, unsigned long attrs)
{
	return peers_join(borrowed_by(dev), start, size);
}

static void borrowed_unmap_resource(struct device *dev, dma_addr_t address, size_t size,
				    enum dma_data_direction dir, unsigned long attrs)
{
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
	.map_resource = borrowed_map_resource,
	.unmap_resource = borrowed_unmap_resource,
	.dma_supported = borrowed_dma_supported,
	.max_mapping_size = borrowed_max_mapping_size,
};

/* A borrowed function for a user: it reaches what is given, at addresses of the user's choice. */
int nearfar_borrow_confine(struct pci_dev *pdev, bool confined)
{
	struct borrowed *of;
	u32 words[NFB_WORDS] = { };

	if (pdev->bus->ops != &borrowed_ops)
		return -ENODEV;
	of = borrowed_of(pdev->bus);
	words[0] = of->id;
	words[1] = confined;
	return borrowed_ask(of, LEND_CONFINE, words, NULL);
}
EXPORT_SYMBOL_GPL(nearfar_borrow_confine);

void nearfar_borrow_open(struct pci_dev *pdev, bool opened)
{
	WRITE_ONCE(borrowed_of(pdev->bus)->opened, opened);
}
EXPORT_SYMBOL_GPL(nearfar_borrow_open);

int nearfar_borrow_give(struct pci_dev *pdev, u64 iova, dma_addr_t address, u32 bytes)
{
	struct borrowed *of = borrowed_of(pdev->bus);
	u32 words[NFB_WORDS] = {
		of->id, lower_32_bits(iova), upper_32_bits(iova), lower_32_bits(address),
		upper_32_bits(address), bytes,
	};

	return borrowed_ask(of, LEND_GIVE, words, NULL);
}
EXPORT_SYMBOL_GPL(nearfar_borrow_give);

int nearfar_borrow_take(struct pci_dev *pdev, u64 iova, u32 bytes)
{
	struct borrowed *of = borrowed_of(pdev->bus);
	u32 words[NFB_WORDS] = { of->id, lower_32_bits(iova), upper_32_bits(iova), bytes };

	return borrowed_ask(of, LEND_TAKE, words, NULL);
}
EXPORT_SYMBOL_GPL(nearfar_borrow_take);

/* A page that stays mapped is not copied to where the adapter reaches. */
dma_addr_t nearfar_borrow_map_page(struct pci_dev *pdev, struct page *page)
{
	struct borrowed *of = borrowed_of(pdev->bus);

	if (!device_iommu_mapped(adapter_of(of)) &&
	    page_to_phys(page) + PAGE_SIZE - 1 > dma_get_mask(adapter_of(of)))
		return DMA_MAPPING_ERROR;
	return borrowed_map_page(&pdev->dev, page, 0, PAGE_SIZE, DMA_BIDIRECTIONAL, 0);
}
EXPORT_SYMBOL_GPL(nearfar_borrow_map_page);

static u64 borrowed_doorbell(struct pci_dev *pdev)
{
	return borrowed_of(pdev->bus)->doorbell;
}

/* Bytes from address 0 of this host that a function may need to reach. */
static u64 lend_reach(struct borrower *by)
{
	return dma_get_mask(&by->pdev->dev) + 1;
}

static int borrowed_map_bars(struct borrowed *of)
{
	u64 lowest = U64_MAX, highest = 0;
	unsigned int i;
	int err;

	for (i = 0; i < PCI_STD_NUM_BARS; i++) {
		u32 words[NFB_WORDS] = { of->id, i }, answer[NFB_WORDS];
		struct borrowed_bar *bar = &of->bars[i];

		err = borrowed_ask(of, LEND_BAR, words, answer);
		if (err)
			return err;
		if (!(answer[4] & IORESOURCE_MEM))
			continue;
		/* The window is beyond what a BAR of 32 bits can name. */
		if (!(answer[4] & IORESOURCE_MEM_64))
			return -EOPNOTSUPP;
		bar->start = answer[0] | (u64)answer[1] << 32;
		bar->bytes = answer[2] | (u64)answer[3] << 32;
		/* Whatever the lender says. */
		if (!is_power_of_2(bar->bytes)) {
			bar->bytes = 0;
			return -EPROTO;
		}
		bar->flags = PCI_BASE_ADDRESS_MEM_TYPE_64;
		if (answer[4] & IORESOURCE_PREFETCH)
			bar->flags |= PCI_BASE_ADDRESS_MEM_PREFETCH;
		err = nfb_map(of->by->nfb, &bar->range, of->node, bar->start, bar->bytes, false);
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
						       KBUILD_MODNAME, IORESOURCE_MEM);
	of->buses = (struct resource)DEFINE_RES_NAMED(0, 1, KBUILD_MODNAME, IORESOURCE_BUS);
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
	dev_set_msi_domain(&of->bus->dev, nfb_vectors(of->by->nfb, borrowed_doorbell));
	pci_scan_child_bus(of->bus);
	list_for_each_entry(pdev, &of->bus->devices, bus_list)
		set_dma_ops(&pdev->dev, &borrowed_dma_ops);
	pci_bus_claim_resources(of->bus);
	pci_bus_add_devices(of->bus);
	pci_unlock_rescan_remove();
	return 0;
}

/* What was made so far of a borrowed function, which is in no list, is undone. */
static void borrowed_end(struct borrowed *of, bool asks)
{
	struct borrower *by = of->by;
	u32 words[NFB_WORDS] = { of->id };
	unsigned int i;

	if (of->bus) {
		pci_lock_rescan_remove();
		pci_stop_root_bus(of->bus);
		pci_remove_root_bus(of->bus);
		pci_unlock_rescan_remove();
	}
	peers_part(of);
	if (asks)
		borrowed_ask(of, LEND_CLOSE, words, NULL);
	for (i = 0; i < PCI_STD_NUM_BARS; i++) {
		if (of->bars[i].bytes)
			nfb_unmap(by->nfb, &of->bars[i].range);
	}
	if (of->own >= 0)
		nfb_remove_remote(by->nfb, of->own);
	nfb_dismiss(by->nfb, of->node);
	kfree(of);
}

/* A program may take its time to let go: others borrow and return meanwhile. */
static void borrowed_end_all(struct list_head *ended, bool asks)
{
	struct borrowed *of, *next;

	list_for_each_entry_safe(of, next, ended, list)
		borrowed_end(of, asks);
}

/* Others may look at the list meanwhile, for what they reach. */
static void borrowed_list(struct borrowed *of)
{
	spin_lock_irq(&of->by->peers);
	list_add_tail(&of->list, &of->by->borrowed);
	spin_unlock_irq(&of->by->peers);
}

static void borrowed_unlist(struct borrowed *of)
{
	spin_lock_irq(&of->by->peers);
	list_del(&of->list);
	spin_unlock_irq(&of->by->peers);
}

static int borrow(struct borrower *by, u8 node, u16 id)
{
	u64 reach = lend_reach(by);
	u32 words[NFB_WORDS] = { id, lower_32_bits(reach), upper_32_bits(reach) };
	u32 answer[NFB_WORDS];
	struct borrowed *of;
	int err;

	err = nfb_connect(by->nfb, node);
	if (err)
		return err;
	of = kzalloc(sizeof(*of), GFP_KERNEL);
	if (!of)
		return -ENOMEM;
	of->by = by;
	of->node = node;
	of->id = id;
	of->own = -1;
	INIT_LIST_HEAD(&of->joined);
	err = nfb_admit(by->nfb, node);
	if (err)
		goto free;
	err = borrowed_ask(of, LEND_OPEN, words, answer);
	if (err)
		goto dismiss;
	of->place = answer[0];
	of->memory = answer[1] | (u64)answer[2] << 32;
	of->doorbell = (answer[3] | (u64)answer[4] << 32) + NFB_DOORBELL;
	of->own = nfb_add_remote(by->nfb, node, of->place);
	err = of->own < 0 ? of->own : borrowed_map_bars(of);
	if (err)
		goto end;
	/* A driver that binds may map what others have. */
	borrowed_list(of);
	err = borrowed_add_bus(of);
	if (!err)
		return 0;
	borrowed_unlist(of);
end:
	borrowed_end(of, true);
	return err;

dismiss:
	nfb_dismiss(by->nfb, node);
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

static int give_back(struct borrower *by, u8 node, u16 id)
{
	struct borrowed *of;

	list_for_each_entry(of, &by->borrowed, list) {
		if (of->node != node || of->id != id)
			continue;
		if (of->opened || borrowed_is_used(of->bus->bridge, NULL))
			return -EBUSY;
		borrowed_unlist(of);
		borrowed_end(of, true);
		return 0;
	}
	return -ENODEV;
}

/* Ends what a lender does not lend to this host any more. */
static void borrower_revoke(struct work_struct *work)
{
	struct borrower *by = container_of(work, struct borrower, revoke);
	struct borrowed *of, *next;

	LIST_HEAD(ended);

	mutex_lock(&by->borrowing);
	list_for_each_entry_safe(of, next, &by->borrowed, list) {
		u32 words[NFB_WORDS] = { of->id }, answer[NFB_WORDS];

		if (!borrowed_ask(of, LEND_BAR, words, answer))
			continue;
		borrowed_unlist(of);
		list_add(&of->list, &ended);
	}
	mutex_unlock(&by->borrowing);
	borrowed_end_all(&ended, false);
}

/* A function of another host: with the host's node behind @, if there are several. */
static int parse(struct borrower *by, const char *text, u8 *node, u16 *id)
{
	unsigned long others = nfb_reachable(by->nfb);
	unsigned int bus, device, function, at;
	int end = 0, end_of_node = 0;
	int found = sscanf(text, "%x:%x.%x%n@%u%n", &bus, &device, &function, &end, &at,
			   &end_of_node);

	if (found == 4)
		end = end_of_node;
	/* Nothing but a line's end comes behind. */
	if (found < 3 || *skip_spaces(text + end))
		return -EINVAL;
	if (found == 3 && hweight_long(others) == 1)
		at = __ffs(others);
	else if (found != 4)
		return -EINVAL;
	if (bus > 0xff || device > 0x1f || function > 7 || at >= NFB_NODES)
		return -EINVAL;
	*node = at;
	*id = PCI_DEVID(bus, PCI_DEVFN(device, function));
	return 0;
}

static ssize_t act(struct device *dev, const char *text, size_t count,
		   int (*what)(struct borrower *by, u8 node, u16 id))
{
	struct borrower *by = borrower;
	int err;
	u8 node;
	u16 id;

	err = parse(by, text, &node, &id);
	if (err)
		return err;
	mutex_lock(&by->borrowing);
	err = what(by, node, id);
	mutex_unlock(&by->borrowing);
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

/* Longest line of `lent`. */
#define LENT_LINE 40

/* What a node lends: its functions, what they are, and whether somebody has them. */
static int show_lent(struct borrower *by, u8 node, bool named, char *text, int length)
{
	u32 words[NFB_WORDS] = { }, answer[NFB_WORDS];
	int err;

	err = nfb_connect(by->nfb, node);
	for (; !err && length < PAGE_SIZE - LENT_LINE; words[0]++) {
		err = nfb_ask(by->nfb, node, LEND_LIST, words, answer);
		if (err)
			break;
		length += sysfs_emit_at(text, length, "%02x:%02x.%x", PCI_BUS_NUM(answer[0]),
					PCI_SLOT(answer[0]), PCI_FUNC(answer[0]));
		if (named)
			length += sysfs_emit_at(text, length, "@%u", node);
		length += sysfs_emit_at(text, length, " %04x:%04x %s\n", answer[1] & 0xffff,
					answer[1] >> 16, answer[2] ? "leased" : "free");
	}
	return err == -ENOENT || !err ? length : err;
}

/* An error only if nobody answers. */
static ssize_t lent_show(struct device *dev, struct device_attribute *attr, char *text)
{
	struct borrower *by = borrower;
	unsigned long others = nfb_reachable(by->nfb);
	int length = 0, err = -ENOLINK;
	bool answered = false;
	unsigned int node;

	mutex_lock(&by->borrowing);
	for_each_set_bit(node, &others, NFB_NODES) {
		err = show_lent(by, node, hweight_long(others) > 1, text, length);
		if (err < 0)
			continue;
		length = err;
		answered = true;
	}
	mutex_unlock(&by->borrowing);
	return answered ? length : err;
}
static DEVICE_ATTR_RO(lent);

static struct attribute *borrower_attrs[] = {
	&dev_attr_borrow.attr,
	&dev_attr_return.attr,
	&dev_attr_lent.attr,
	NULL
};

/* In the adapter's folder. */
static const struct attribute_group borrower_group = { .attrs = borrower_attrs };

/* All that is borrowed goes, or what a node lends. */
static void borrower_end(struct borrower *by, int node, bool asks)
{
	struct borrowed *of, *next;
	LIST_HEAD(ended);

	mutex_lock(&by->borrowing);
	list_for_each_entry_safe(of, next, &by->borrowed, list) {
		if (node != LEND_ALL_NODES && of->node != node)
			continue;
		borrowed_unlist(of);
		list_add(&of->list, &ended);
	}
	mutex_unlock(&by->borrowing);
	borrowed_end_all(&ended, asks);
}

static int borrower_added(struct nfb *nfb)
{
	struct pci_dev *pdev = nfb_pdev(nfb);
	struct borrower *by;
	int bits, err;

	/* Buffers are where the lender's window for this host's memory reaches: half of its own. */
	bits = ilog2(pci_resource_len(pdev, NFB_WINDOW_BAR)) - 1;
	err = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(bits));
	if (err)
		return err;
	by = kzalloc(sizeof(*by), GFP_KERNEL);
	if (!by)
		return -ENOMEM;
	by->nfb = nfb;
	by->pdev = pdev;
	mutex_init(&by->borrowing);
	spin_lock_init(&by->peers);
	INIT_LIST_HEAD(&by->borrowed);
	INIT_WORK(&by->revoke, borrower_revoke);
	borrower = by;
	err = sysfs_create_group(&pdev->dev.kobj, &borrower_group);
	if (err) {
		borrower = NULL;
		kfree(by);
	}
	return err;
}

static void borrower_removed(struct nfb *nfb)
{
	struct borrower *by = borrower;

	sysfs_remove_group(&by->pdev->dev.kobj, &borrower_group);
	borrower_end(by, LEND_ALL_NODES, true);
	cancel_work_sync(&by->revoke);
	borrower = NULL;
	kfree(by);
}

static void borrower_rung(struct nfb *nfb, u32 bits)
{
	schedule_work(&borrower->revoke);
}

static void borrower_lost(struct nfb *nfb, u8 node)
{
	borrower_end(borrower, node, false);
}

static struct nfb_client borrower_client = {
	.bits = LEND_REVOKED,
	.added = borrower_added,
	.removed = borrower_removed,
	.rung = borrower_rung,
	.lost = borrower_lost,
};

static int __init borrower_init(void)
{
	return nfb_register_client(&borrower_client);
}
module_init(borrower_init);

static void __exit borrower_exit(void)
{
	nfb_unregister_client(&borrower_client);
}
module_exit(borrower_exit);

MODULE_DESCRIPTION("Functions that other hosts lend, over nearfar's NTB");
MODULE_LICENSE("GPL");
