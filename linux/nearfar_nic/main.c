// SPDX-License-Identifier: GPL-2.0
/* Driver of nearfar's NIC: probe, open and stop, settings. */
#include <linux/dma-mapping.h>
#include <linux/etherdevice.h>
#include <linux/interrupt.h>
#include <linux/module.h>
#include <linux/rtnetlink.h>

#include "nearfar_nic.h"

static struct nfn_wish nfn_wish = { .framed = true };

module_param_named(kpio, nfn_wish.on, bool, 0444);
MODULE_PARM_DESC(kpio, "send by programmed I/O");
module_param_array_named(kpio_ports, nfn_wish.ports, ushort, &nfn_wish.bounds, 0444);
MODULE_PARM_DESC(kpio_ports, "first,last: only TCP connections with a port of this range");
module_param_named(kpio_framed, nfn_wish.framed, bool, 0444);
MODULE_PARM_DESC(kpio_framed, "frames have length and checksum, or end with the paper's signature");
module_param_named(kpio_receive, nfn_wish.receive, uint, 0444);
MODULE_PARM_DESC(kpio_receive, "longest frame to leave in the device and receive by loads");

/* How often the device is asked whether it is there. */
#define NFN_HEALTH (HZ / 2)

static irqreturn_t nfn_interrupt(int irq, void *data)
{
	struct nfn_channel *channel = data;

	napi_schedule(&channel->napi);
	return IRQ_HANDLED;
}

static irqreturn_t nfn_event(int irq, void *data)
{
	struct nfn *nfn = data;

	u32 events = readl(nfn->bar + NFN_EVENTS), status;

	/* All ones: nothing answers. */
	if (events == ~0U) {
		netif_carrier_off(nfn->netdev);
	} else if (events & NFN_EVENT_LINK) {
		status = readl(nfn->bar + NFN_STATUS);
		if (status != ~0U && (status & NFN_STATUS_LINK_UP))
			netif_carrier_on(nfn->netdev);
		else
			netif_carrier_off(nfn->netdev);
	}
	return IRQ_HANDLED;
}

static u32 nfn_enabled(const struct nfn *nfn, netdev_features_t features)
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
	return enabled & nfn->features;
}

void nfn_write_rss(struct nfn *nfn)
{
	unsigned int i;

	for (i = 0; i < NFN_RSS_KEY_BYTES; i += 4)
		writel(get_unaligned_le32(nfn->rss_key + i), nfn->bar + NFN_RSS_KEY + i);
	writel(NFN_RSS_ADDRESSES | NFN_RSS_TCP | NFN_RSS_UDP, nfn->bar + NFN_RSS_TYPES);
	for (i = 0; i < nfn->rss_entries; i++)
		writel(nfn->rss_table[i], nfn->bar + NFN_RSS_TABLE + 4 * i);
}

void nfn_write_moderation(struct nfn *nfn)
{
	unsigned int i;

	for (i = 0; i < nfn->channels; i++) {
		void __iomem *vector = nfn->bar + NFN_VECTORS + NFN_VECTOR_STRIDE * i;

		writel(nfn->moderation.usecs * NSEC_PER_USEC, vector + NFN_VECTOR_DELAY_NS);
		writel(nfn->moderation.frames, vector + NFN_VECTOR_PACKETS);
		writel(nfn->moderation.adaptive, vector + NFN_VECTOR_ADAPTIVE);
	}
}

static void nfn_write_mac(struct nfn *nfn)
{
	u8 address[8] = { };

	ether_addr_copy(address, nfn->netdev->dev_addr);
	writeq(get_unaligned_le64(address), nfn->bar + NFN_MAC);
}

int nfn_open(struct net_device *netdev)
{
	struct nfn *nfn = netdev_priv(netdev);
	unsigned int i;
	u32 status;
	int err;

	for (i = 0; i < nfn->channels; i++) {
		err = nfn_channel_alloc(&nfn->channel[i]);
		if (err)
			goto free;
	}
	nfn_write_mac(nfn);
	nfn_write_rss(nfn);
	nfn_write_moderation(nfn);
	writel(netdev->mtu + ETH_HLEN, nfn->bar + NFN_MAX_FRAME);
	writel(nfn_enabled(nfn, netdev->features), nfn->bar + NFN_ENABLED);
	for (i = 0; i < nfn->channels; i++)
		nfn_channel_start(&nfn->channel[i]);
	nfn_kpio_open(nfn);
	writel(nfn->most_channels, nfn->bar + NFN_EVENT_VECTOR);
	writel(NFN_CONTROL_ENABLE, nfn->bar + NFN_CONTROL);
	status = readl(nfn->bar + NFN_STATUS);
	if (status != ~0U && (status & NFN_STATUS_LINK_UP))
		netif_carrier_on(netdev);
	netif_tx_start_all_queues(netdev);
	nfn->started = true;
	nfn_rules_restore(nfn);
	return 0;

free:
	while (i--)
		nfn_channel_free(&nfn->channel[i]);
	return err;
}

int nfn_stop(struct net_device *netdev)
{
	struct nfn *nfn = netdev_priv(netdev);
	unsigned int i;

	if (!nfn->started)
		return 0;
	nfn->started = false;
	netif_tx_disable(netdev);
	netif_carrier_off(netdev);
	writel(0, nfn->bar + NFN_CONTROL);
	for (i = 0; i < nfn->channels; i++) {
		nfn_channel_stop(&nfn->channel[i]);
		nfn_channel_free(&nfn->channel[i]);
	}
	return 0;
}

static void nfn_get_stats64(struct net_device *netdev, struct rtnl_link_stats64 *stats)
{
	struct nfn *nfn = netdev_priv(netdev);
	void __iomem *counters = nfn->bar + NFN_COUNTERS;

	netdev_stats_to_stats64(stats, &netdev->stats);
	stats->tx_packets = readq(counters);
	stats->tx_bytes = readq(counters + 8);
	stats->tx_errors = readq(counters + 16);
	stats->rx_packets = readq(counters + 32);
	stats->rx_bytes = readq(counters + 40);
	stats->rx_crc_errors = readq(counters + 56);
	stats->rx_length_errors = readq(counters + 64);
	stats->rx_missed_errors = readq(counters + 72) + readq(counters + 80);
}

static int nfn_set_mac_address(struct net_device *netdev, void *address)
{
	int err = eth_mac_addr(netdev, address);

	if (!err)
		nfn_write_mac(netdev_priv(netdev));
	return err;
}

static void nfn_set_rx_mode(struct net_device *netdev)
{
	struct nfn *nfn = netdev_priv(netdev);

	writel(nfn_enabled(nfn, netdev->features), nfn->bar + NFN_ENABLED);
}

static int nfn_set_features(struct net_device *netdev, netdev_features_t features)
{
	struct nfn *nfn = netdev_priv(netdev);

	writel(nfn_enabled(nfn, features), nfn->bar + NFN_ENABLED);
	if (!(features & NETIF_F_NTUPLE))
		nfn_rules_clear(nfn);
	return 0;
}

static int nfn_change_mtu(struct net_device *netdev, int mtu)
{
	struct nfn *nfn = netdev_priv(netdev);

	netdev->mtu = mtu;
	writel(mtu + ETH_HLEN, nfn->bar + NFN_MAX_FRAME);
	return 0;
}

static void nfn_tx_timeout(struct net_device *netdev, unsigned int queue)
{
	struct nfn *nfn = netdev_priv(netdev);

	netdev_warn(netdev, "queue %u does not send, reset\n", queue);
	schedule_work(&nfn->reset);
}

static const struct net_device_ops nfn_netdev_ops = {
	.ndo_open = nfn_open,
	.ndo_stop = nfn_stop,
	.ndo_start_xmit = nfn_start_xmit,
	.ndo_features_check = nfn_features_check,
	.ndo_get_stats64 = nfn_get_stats64,
	.ndo_set_mac_address = nfn_set_mac_address,
	.ndo_validate_addr = eth_validate_addr,
	.ndo_set_rx_mode = nfn_set_rx_mode,
	.ndo_set_features = nfn_set_features,
	.ndo_change_mtu = nfn_change_mtu,
	.ndo_tx_timeout = nfn_tx_timeout,
#ifdef CONFIG_RFS_ACCEL
	.ndo_rx_flow_steer = nfn_rx_flow_steer,
#endif
};

static int nfn_reset(struct nfn *nfn)
{
	int tries;

	writel(NFN_CONTROL_RESET, nfn->bar + NFN_CONTROL);
	for (tries = 0; tries < 100; tries++) {
		u32 status = readl(nfn->bar + NFN_STATUS);

		if (status != ~0U && (status & NFN_STATUS_READY))
			return 0;
		usleep_range(100, 200);
	}
	return -ETIMEDOUT;
}

/* Whatever has happened to the device, it starts again, or the interface goes down. */
static void nfn_restart(struct nfn *nfn)
{
	struct net_device *netdev = nfn->netdev;
	bool runs = netif_running(netdev);

	if (runs)
		nfn_stop(netdev);
	if (nfn_reset(nfn))
		netdev_err(netdev, "no answer to a reset\n");
	else if (runs && nfn_open(netdev))
		netdev_err(netdev, "it does not start again\n");
	else
		return;
	/* Who stands above, such as a team, is told at once. */
	dev_close(netdev);
}

static void nfn_reset_work(struct work_struct *work)
{
	struct nfn *nfn = container_of(work, struct nfn, reset);

	rtnl_lock();
	if (netif_device_present(nfn->netdev))
		nfn_restart(nfn);
	rtnl_unlock();
}

/* A link that is cut sends no interrupt. */
static void nfn_health(struct work_struct *work)
{
	struct nfn *nfn = container_of(to_delayed_work(work), struct nfn, health);

	if (READ_ONCE(nfn->started) && readl(nfn->bar + NFN_IDENTITY) != NFN_IDENTITY_VALUE)
		schedule_work(&nfn->reset);
	schedule_delayed_work(&nfn->health, NFN_HEALTH);
}

/* By default, frames are spread over all channels; those of a card's function, over its node's. */
static void nfn_spread(struct nfn *nfn)
{
	unsigned int used[NFN_MAX_QUEUES], count = 0, i;
	int node = dev_to_node(&nfn->pdev->dev);

	for (i = 0; i < nfn->channels; i++) {
		if (!nfn->shares || node == NUMA_NO_NODE || cpu_to_node(nfn_cpu(nfn, i)) == node)
			used[count++] = i;
	}
	for (i = 0; i < nfn->rss_entries; i++)
		nfn->rss_table[i] = count ? used[i % count] : i % nfn->channels;
}

/* A channel's interrupt at its processor, which sends through it and reads what it receives. */
static int nfn_place_channels(struct nfn *nfn)
{
	cpumask_var_t senders;
	unsigned int i, cpu;
	int err;

	if (!zalloc_cpumask_var(&senders, GFP_KERNEL))
		return -ENOMEM;
	err = nfn_map_cpus(nfn);
	for (i = 0; i < nfn->channels && !err; i++) {
		irq_set_affinity_and_hint(pci_irq_vector(nfn->pdev, i),
					  cpumask_of(nfn_cpu(nfn, i)));
		cpumask_clear(senders);
		for (cpu = i; cpu < num_online_cpus(); cpu += nfn->channels)
			cpumask_set_cpu(nfn_cpu(nfn, cpu), senders);
		err = netif_set_xps_queue(nfn->netdev, senders, i);
	}
	free_cpumask_var(senders);
	return err;
}

/* The interface is down. */
int nfn_set_channel_count(struct nfn *nfn, unsigned int channels)
{
	struct net_device *netdev = nfn->netdev;
	int err;

	err = netif_set_real_num_tx_queues(netdev, channels);
	if (err)
		return err;
	err = netif_set_real_num_rx_queues(netdev, channels);
	if (err)
		return err;
	nfn->channels = channels;
	if (!netif_is_rxfh_configured(netdev))
		nfn_spread(nfn);
	/* Rules name queues that may be gone. */
	nfn_rules_clear(nfn);
	return nfn_place_channels(nfn);
}

static void nfn_leave_cpus(void *data)
{
	struct nfn *nfn = data;
	unsigned int i;

	nfn_unmap_cpus(nfn);
	for (i = 0; i < nfn->most_channels; i++)
		irq_update_affinity_hint(pci_irq_vector(nfn->pdev, i), NULL);
}

static int nfn_request_irqs(struct nfn *nfn)
{
	struct device *dev = &nfn->pdev->dev;
	unsigned int i;
	int err;

	for (i = 0; i < nfn->most_channels; i++) {
		struct nfn_channel *channel = &nfn->channel[i];

		channel->nfn = nfn;
		channel->number = i;
		snprintf(channel->name, sizeof(channel->name), "nearfar_nic-%s-%u",
			 pci_name(nfn->pdev), i);
		netif_napi_add(nfn->netdev, &channel->napi, nfn_poll);
		err = devm_request_irq(dev, pci_irq_vector(nfn->pdev, i), nfn_interrupt,
				       0, channel->name, channel);
		if (err)
			return err;
	}
	err = devm_request_irq(dev, pci_irq_vector(nfn->pdev, nfn->most_channels), nfn_event,
			       0, "nearfar_nic-events", nfn);
	if (err)
		return err;
	return devm_add_action_or_reset(dev, nfn_leave_cpus, nfn);
}

static void nfn_set_up_netdev(struct nfn *nfn)
{
	struct net_device *netdev = nfn->netdev;

	netdev->netdev_ops = &nfn_netdev_ops;
	netdev->watchdog_timeo = 2 * HZ;
	netdev->ethtool_ops = &nfn_ethtool_ops;
	netdev->min_mtu = ETH_MIN_MTU;
	netdev->max_mtu = 9000;
	if (nfn->most_fragments > 1)
		netdev->hw_features |= NETIF_F_SG;
	if (nfn->features & NFN_FEATURE_TX_CHECKSUM)
		netdev->hw_features |= NETIF_F_IP_CSUM | NETIF_F_IPV6_CSUM;
	if ((nfn->features & NFN_FEATURE_TSO) && nfn->most_fragments > 1) {
		netdev->hw_features |= NETIF_F_TSO;
		netif_set_tso_max_size(netdev, readl(nfn->bar + NFN_TSO_MAX) - NFN_MOST_HEADERS);
	}
	if (nfn->features & NFN_FEATURE_RX_CHECKSUM)
		netdev->hw_features |= NETIF_F_RXCSUM;
	if (nfn->features & NFN_FEATURE_RSS)
		netdev->hw_features |= NETIF_F_RXHASH;
	if (nfn->rules.count)
		netdev->hw_features |= NETIF_F_NTUPLE;
	netdev->features = netdev->hw_features | NETIF_F_HIGHDMA;
	netif_carrier_off(netdev);
}

static int nfn_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct net_device *netdev;
	struct nfn *nfn;
	u32 queues, limits, channels, function;
	u8 address[8];
	int vectors, err;

	err = pcim_enable_device(pdev);
	if (err)
		return err;
	err = pcim_iomap_regions(pdev, BIT(0), KBUILD_MODNAME);
	if (err)
		return err;
	err = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(64));
	if (err)
		return err;
	netdev = devm_alloc_etherdev_mqs(&pdev->dev, sizeof(*nfn), NFN_MAX_QUEUES, NFN_MAX_QUEUES);
	if (!netdev)
		return -ENOMEM;
	SET_NETDEV_DEV(netdev, &pdev->dev);
	pci_set_drvdata(pdev, netdev);
	nfn = netdev_priv(netdev);
	nfn->netdev = netdev;
	nfn->pdev = pdev;
	nfn->bar = pcim_iomap_table(pdev)[0];
	nfn->wish = &nfn_wish;
	INIT_WORK(&nfn->reset, nfn_reset_work);
	INIT_DELAYED_WORK(&nfn->health, nfn_health);
	if (readl(nfn->bar + NFN_IDENTITY) != NFN_IDENTITY_VALUE)
		return -ENODEV;
	err = nfn_reset(nfn);
	if (err)
		return dev_err_probe(&pdev->dev, err, "no answer to a reset\n");
	err = nfn_kpio_init(nfn);
	if (err)
		return dev_err_probe(&pdev->dev, err, "no windows for programmed I/O\n");
	queues = readl(nfn->bar + NFN_QUEUES);
	limits = readl(nfn->bar + NFN_LIMITS);
	nfn->features = readl(nfn->bar + NFN_FEATURES);
	nfn->rss_entries = readl(nfn->bar + NFN_TABLES) >> 16;
	function = readl(nfn->bar + NFN_FUNCTION);
	nfn->function = function;
	nfn->shares = (nfn->features & NFN_FEATURE_STATION) && ((function >> 16) & 0xff) > 1;
	nfn->most_fragments = limits >> 24;
	nfn->rss_table = devm_kcalloc(&pdev->dev, nfn->rss_entries, sizeof(*nfn->rss_table),
				      GFP_KERNEL);
	if (!nfn->rss_table)
		return -ENOMEM;
	netdev_rss_key_fill(nfn->rss_key, sizeof(nfn->rss_key));
	nfn->most_log2 = min_t(unsigned int, (limits >> 16) & 0xff, NFN_MOST_LOG2_RING);
	nfn->tx_log2 = NFN_LOG2_RING;
	nfn->rx_log2 = NFN_LOG2_RING;
	channels = min3(queues & 0xffff, queues >> 16, num_online_cpus());
	channels = min_t(unsigned int, channels, NFN_MAX_QUEUES);
	pci_set_master(pdev);
	pci_save_state(pdev);
	/* A vector for each channel, and one for events. */
	vectors = pci_alloc_irq_vectors(pdev, 2, channels + 1, PCI_IRQ_MSIX);
	if (vectors < 0)
		return dev_err_probe(&pdev->dev, vectors, "no interrupt vectors\n");
	nfn->most_channels = vectors - 1;
	put_unaligned_le64(readq(nfn->bar + NFN_MAC), address);
	eth_hw_addr_set(netdev, address);
	err = nfn_request_irqs(nfn);
	if (err)
		return err;
	err = nfn_rules_init(nfn);
	if (err)
		return err;
	nfn_set_up_netdev(nfn);
	err = nfn_set_channel_count(nfn, nfn->most_channels);
	if (!err)
		err = register_netdev(netdev);
	if (err)
		nfn_rules_exit(nfn);
	else
		schedule_delayed_work(&nfn->health, NFN_HEALTH);
	return err;
}

static void nfn_remove(struct pci_dev *pdev)
{
	struct net_device *netdev = pci_get_drvdata(pdev);
	struct nfn *nfn = netdev_priv(netdev);

	unregister_netdev(netdev);
	cancel_delayed_work_sync(&nfn->health);
	cancel_work_sync(&nfn->reset);
	nfn_rules_exit(nfn);
	pci_clear_master(pdev);
}

static pci_ers_result_t nfn_error_detected(struct pci_dev *pdev, pci_channel_state_t state)
{
	struct net_device *netdev = pci_get_drvdata(pdev);

	netif_device_detach(netdev);
	if (state == pci_channel_io_perm_failure)
		return PCI_ERS_RESULT_DISCONNECT;
	return PCI_ERS_RESULT_NEED_RESET;
}

static pci_ers_result_t nfn_slot_reset(struct pci_dev *pdev)
{
	pci_restore_state(pdev);
	pci_save_state(pdev);
	return PCI_ERS_RESULT_RECOVERED;
}

static void nfn_resume(struct pci_dev *pdev)
{
	struct net_device *netdev = pci_get_drvdata(pdev);

	rtnl_lock();
	netif_device_attach(netdev);
	nfn_restart(netdev_priv(netdev));
	rtnl_unlock();
}

static const struct pci_error_handlers nfn_error_handlers = {
	.error_detected = nfn_error_detected,
	.slot_reset = nfn_slot_reset,
	.resume = nfn_resume,
};

static const struct pci_device_id nfn_ids[] = {
	{ PCI_DEVICE(0x4e46, 0x0001) },
	{ PCI_DEVICE(0x4e46, 0x0002) },
	{ }
};
MODULE_DEVICE_TABLE(pci, nfn_ids);

static struct pci_driver nfn_driver = {
	.name = KBUILD_MODNAME,
	.id_table = nfn_ids,
	.probe = nfn_probe,
	.remove = nfn_remove,
	.err_handler = &nfn_error_handlers,
	.sriov_configure = pci_sriov_configure_simple,
};

static int __init nfn_init(void)
{
	if (nfn_wish.bounds == 1)
		nfn_wish.ports[1] = nfn_wish.ports[0];
	return pci_register_driver(&nfn_driver);
}
module_init(nfn_init);

static void __exit nfn_exit(void)
{
	pci_unregister_driver(&nfn_driver);
}
module_exit(nfn_exit);

MODULE_DESCRIPTION("nearfar's simulated NIC");
MODULE_LICENSE("GPL");
