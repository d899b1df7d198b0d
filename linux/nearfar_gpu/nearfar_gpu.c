// SPDX-License-Identifier: GPL-2.0
/*
 * Driver of nearfar's GPU, for copies between its memory and another device's BAR. In the device's
 * folder, `memory` is what it has of memory in its aperture, `peer` names a function and a BAR, and
 * `copy` takes FROM OFFSET TO OFFSET BYTES, FROM and TO being `memory` or `peer`.
 */
#include <linux/delay.h>
#include <linux/dma-mapping.h>
#include <linux/io.h>
#include <linux/io-64-nonatomic-lo-hi.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/pci.h>

/* Registers of BAR 0; BAR 2 is the aperture. */
#define NFG_REGISTER_BAR	0
#define NFG_MEMORY_BAR		2
#define NFG_COPY_ENGINES	0x04
#define NFG_WINDOW_SELECT	0x20
#define NFG_WINDOW_KIND		0x24
#define NFG_WINDOW_BASE		0x28
#define NFG_WINDOW_LENGTH	0x30
#define NFG_CHANNEL_SELECT	0x40
#define NFG_CHANNEL_ENABLE	0x44
#define NFG_CHANNEL_RING	0x48
#define NFG_CHANNEL_ENTRIES	0x50
#define NFG_CHANNEL_ENGINE	0x54
#define NFG_CHANNEL_CONTEXT	0x58
#define NFG_CHANNEL_NOTIFIER	0x60
#define NFG_DOORBELL		0x100000

/* Kinds of windows, and those of the one context. */
#define NFG_NONE		0
#define NFG_LOCAL		1
#define NFG_BUS			2
#define NFG_OWN_WINDOW		0
#define NFG_MEMORY_WINDOW	1
#define NFG_PEER_WINDOW		2

#define NFG_COPY		1
#define NFG_RELEASE		3

/* How long a copy takes at most. */
#define NFG_PATIENCE_US		(2 * USEC_PER_SEC)

struct nfg_place {
	u16 window;
	u64 offset;
};

struct nfg_command {
	u8 what;
	u8 program;
	__le16 windows[3];
	__le64 offsets[3];
	__le64 value;
	u8 zero[24];
};

/* Of the one channel, in memory: one entry of the ring is used at a time, with two commands. */
#define NFG_ENTRIES		4

struct nfg_channel {
	__le64 ring[NFG_ENTRIES];
	/* Payload, then the GPU's time. */
	__le64 semaphore[2];
	/* Why the channel has stopped. */
	__le64 fault;
	__le64 zero;
	struct nfg_command commands[2];
};

struct nfg {
	struct pci_dev *pdev;
	void __iomem *registers;
	void __iomem *memory;
	/* Held for all below. */
	struct mutex lock;
	struct nfg_channel *channel;
	dma_addr_t channel_bus;
	u32 copies;
	/* The peer's BAR, for this device. */
	dma_addr_t peer;
	size_t peer_bytes;
};

static void nfg_set_window(struct nfg *nfg, u16 window, u32 kind, u64 base, u64 bytes)
{
	writel(window, nfg->registers + NFG_WINDOW_SELECT);
	writeq(base, nfg->registers + NFG_WINDOW_BASE);
	writeq(bytes, nfg->registers + NFG_WINDOW_LENGTH);
	writel(kind, nfg->registers + NFG_WINDOW_KIND);
}

static void nfg_start(struct nfg *nfg)
{
	void __iomem *registers = nfg->registers;

	nfg_set_window(nfg, NFG_OWN_WINDOW, NFG_BUS, nfg->channel_bus, sizeof(*nfg->channel));
	nfg_set_window(nfg, NFG_MEMORY_WINDOW, NFG_LOCAL, 0,
		       pci_resource_len(nfg->pdev, NFG_MEMORY_BAR));
	writel(0, registers + NFG_CHANNEL_SELECT);
	writeq(nfg->channel_bus + offsetof(struct nfg_channel, ring), registers + NFG_CHANNEL_RING);
	writel(NFG_ENTRIES, registers + NFG_CHANNEL_ENTRIES);
	writel(1, registers + NFG_CHANNEL_ENGINE);
	writel(0, registers + NFG_CHANNEL_CONTEXT);
	writeq(nfg->channel_bus + offsetof(struct nfg_channel, fault),
	       registers + NFG_CHANNEL_NOTIFIER);
	writel(1, registers + NFG_CHANNEL_ENABLE);
}

static struct nfg_command nfg_command(u8 what, struct nfg_place one, struct nfg_place two,
				      u64 value)
{
	return (struct nfg_command) {
		.what = what,
		.windows = { cpu_to_le16(one.window), cpu_to_le16(two.window) },
		.offsets = { cpu_to_le64(one.offset), cpu_to_le64(two.offset) },
		.value = cpu_to_le64(value),
	};
}

/* Copies, and waits until the GPU has written that it has. */
static int nfg_copy(struct nfg *nfg, struct nfg_place from, struct nfg_place to, u64 bytes)
{
	struct nfg_place semaphore = { NFG_OWN_WINDOW, offsetof(struct nfg_channel, semaphore) };
	struct nfg_place none = { };
	struct nfg_channel *channel = nfg->channel;
	u64 entry = NFG_OWN_WINDOW | ARRAY_SIZE(channel->commands) << 16 |
		    (u64)offsetof(struct nfg_channel, commands) << 32;
	unsigned int waited;

	channel->commands[0] = nfg_command(NFG_COPY, from, to, bytes);
	channel->commands[1] = nfg_command(NFG_RELEASE, semaphore, none, nfg->copies + 1);
	channel->ring[nfg->copies % NFG_ENTRIES] = cpu_to_le64(entry);
	nfg->copies++;
	/* Orders the commands before the doorbell. */
	writel(nfg->copies, nfg->registers + NFG_DOORBELL);
	for (waited = 0; waited < NFG_PATIENCE_US; waited += 50) {
		if (le64_to_cpu(READ_ONCE(channel->semaphore[0])) == nfg->copies)
			return 0;
		if (READ_ONCE(channel->fault)) {
			pci_err(nfg->pdev, "the channel stops: %llu\n",
				le64_to_cpu(channel->fault));
			return -EIO;
		}
		usleep_range(50, 100);
	}
	return -ETIMEDOUT;
}

static int nfg_parse(const struct nfg *nfg, const char *name, u64 offset, u64 bytes,
		     struct nfg_place *place)
{
	u64 room;

	if (!strcmp(name, "memory")) {
		place->window = NFG_MEMORY_WINDOW;
		room = pci_resource_len(nfg->pdev, NFG_MEMORY_BAR);
	} else if (!strcmp(name, "peer") && nfg->peer_bytes) {
		place->window = NFG_PEER_WINDOW;
		room = nfg->peer_bytes;
	} else {
		return -EINVAL;
	}
	place->offset = offset;
	return offset <= room && bytes <= room - offset ? 0 : -ERANGE;
}

static ssize_t copy_store(struct device *dev, struct device_attribute *attr, const char *text,
			  size_t count)
{
	struct nfg *nfg = dev_get_drvdata(dev);
	u64 from_offset, to_offset, bytes;
	struct nfg_place from, to;
	char names[2][8];
	int err;

	if (sscanf(text, "%7s %llu %7s %llu %llu", names[0], &from_offset, names[1], &to_offset,
		   &bytes) != 5)
		return -EINVAL;
	mutex_lock(&nfg->lock);
	err = nfg_parse(nfg, names[0], from_offset, bytes, &from);
	if (!err)
		err = nfg_parse(nfg, names[1], to_offset, bytes, &to);
	if (!err)
		err = nfg_copy(nfg, from, to, bytes);
	mutex_unlock(&nfg->lock);
	return err ? : count;
}
static DEVICE_ATTR_WO(copy);

static void nfg_leave_peer(struct nfg *nfg)
{
	if (!nfg->peer_bytes)
		return;
	nfg_set_window(nfg, NFG_PEER_WINDOW, NFG_NONE, 0, 0);
	dma_unmap_resource(&nfg->pdev->dev, nfg->peer, nfg->peer_bytes, DMA_BIDIRECTIONAL, 0);
	nfg->peer_bytes = 0;
}

static int nfg_join_peer(struct nfg *nfg, struct pci_dev *peer, unsigned int bar)
{
	size_t bytes = pci_resource_len(peer, bar);
	dma_addr_t at;

	if (!bytes || !(pci_resource_flags(peer, bar) & IORESOURCE_MEM))
		return -EINVAL;
	nfg_leave_peer(nfg);
	at = dma_map_resource(&nfg->pdev->dev, pci_resource_start(peer, bar), bytes,
			      DMA_BIDIRECTIONAL, 0);
	if (dma_mapping_error(&nfg->pdev->dev, at))
		return -EIO;
	nfg->peer = at;
	nfg->peer_bytes = bytes;
	nfg_set_window(nfg, NFG_PEER_WINDOW, NFG_BUS, at, bytes);
	return 0;
}

static ssize_t peer_store(struct device *dev, struct device_attribute *attr, const char *text,
			  size_t count)
{
	struct nfg *nfg = dev_get_drvdata(dev);
	unsigned int domain, bus, device, function, bar;
	struct pci_dev *peer;
	int err;

	if (sscanf(text, "%x:%x:%x.%x %u", &domain, &bus, &device, &function, &bar) != 5 ||
	    bus > 0xff || device > 0x1f || function > 7 || bar >= PCI_STD_NUM_BARS)
		return -EINVAL;
	peer = pci_get_domain_bus_and_slot(domain, bus, PCI_DEVFN(device, function));
	if (!peer)
		return -ENODEV;
	mutex_lock(&nfg->lock);
	err = nfg_join_peer(nfg, peer, bar);
	mutex_unlock(&nfg->lock);
	pci_dev_put(peer);
	return err ? : count;
}
static DEVICE_ATTR_WO(peer);

static struct attribute *nfg_attrs[] = {
	&dev_attr_copy.attr,
	&dev_attr_peer.attr,
	NULL
};

static ssize_t memory_read(struct file *file, struct kobject *kobj, struct bin_attribute *attr,
			   char *to, loff_t at, size_t count)
{
	struct nfg *nfg = dev_get_drvdata(kobj_to_dev(kobj));

	memcpy_fromio(to, nfg->memory + at, count);
	return count;
}

static ssize_t memory_write(struct file *file, struct kobject *kobj, struct bin_attribute *attr,
			    char *from, loff_t at, size_t count)
{
	struct nfg *nfg = dev_get_drvdata(kobj_to_dev(kobj));

	memcpy_toio(nfg->memory + at, from, count);
	return count;
}

/* As much of the aperture as processors look at. */
#define NFG_SHOWN (16 << 20)
static BIN_ATTR_RW(memory, NFG_SHOWN);

static struct bin_attribute *nfg_bin_attrs[] = {
	&bin_attr_memory,
	NULL
};

static const struct attribute_group nfg_group = {
	.attrs = nfg_attrs,
	.bin_attrs = nfg_bin_attrs,
};

static const struct attribute_group *nfg_groups[] = { &nfg_group, NULL };

static int nfg_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct nfg *nfg;
	int err;

	err = pcim_enable_device(pdev);
	if (err)
		return err;
	err = pcim_iomap_regions(pdev, BIT(NFG_REGISTER_BAR) | BIT(NFG_MEMORY_BAR), KBUILD_MODNAME);
	if (err)
		return err;
	err = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(64));
	if (err)
		return err;
	nfg = devm_kzalloc(&pdev->dev, sizeof(*nfg), GFP_KERNEL);
	if (!nfg)
		return -ENOMEM;
	nfg->pdev = pdev;
	nfg->registers = pcim_iomap_table(pdev)[NFG_REGISTER_BAR];
	nfg->memory = pcim_iomap_table(pdev)[NFG_MEMORY_BAR];
	mutex_init(&nfg->lock);
	if (!readl(nfg->registers + NFG_COPY_ENGINES) ||
	    pci_resource_len(pdev, NFG_MEMORY_BAR) < NFG_SHOWN)
		return -ENODEV;
	nfg->channel = dmam_alloc_coherent(&pdev->dev, sizeof(*nfg->channel), &nfg->channel_bus,
					   GFP_KERNEL);
	if (!nfg->channel)
		return -ENOMEM;
	pci_set_drvdata(pdev, nfg);
	pci_set_master(pdev);
	nfg_start(nfg);
	return 0;
}

static void nfg_remove(struct pci_dev *pdev)
{
	struct nfg *nfg = pci_get_drvdata(pdev);

	writel(0, nfg->registers + NFG_CHANNEL_SELECT);
	writel(0, nfg->registers + NFG_CHANNEL_ENABLE);
	nfg_leave_peer(nfg);
	pci_clear_master(pdev);
}

static const struct pci_device_id nfg_ids[] = {
	{ PCI_DEVICE(0x10de, 0x0ff3) },
	{ }
};
MODULE_DEVICE_TABLE(pci, nfg_ids);

static struct pci_driver nfg_driver = {
	.name = KBUILD_MODNAME,
	.id_table = nfg_ids,
	.probe = nfg_probe,
	.remove = nfg_remove,
	.dev_groups = nfg_groups,
};
module_pci_driver(nfg_driver);

MODULE_DESCRIPTION("nearfar's simulated GPU");
MODULE_LICENSE("GPL");
