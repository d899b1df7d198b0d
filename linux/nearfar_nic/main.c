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

static bool combine;
module_param(combine, bool, 0444);
MODULE_PARM_DESC(combine, "functions of one card that share their address are one network device");

/* How often the device is asked whether it is there. */
#define NFN_HEALTH (HZ / 2)

static irqreturn_t nfn_interrupt(int irq, void *data)
{
	struct nfn_channel *channel = data;

	WRITE_ONCE(channel->interrupts, channel->interrupts + 1);
	napi_schedule(&channel->napi);
	return IRQ_HANDLED;
}

static irqreturn_t nfn_event(int irq, void *data)
{
	struct nfn *nfn = data;
	/* All ones, if nothing answers, are events as well. */
	u32 events = readl(nfn->bar + NFN_EVENTS);

	if (events & NFN_EVENT_LINK) {
		if (nfn_has_link(nfn))
			netif_carrier_on(nfn->netdev);
		else
			netif_carrier_off(nfn->netdev);
	}
	/* A queue ends at a descriptor that it cannot read. */
	if (events != ~0U && (events & NFN_EVENT_QUEUE_ERROR))
		WRITE_ONCE(nfn->failed, true);
	return IRQ_HANDLED;
}

int nfn_open(struct net_device *netdev)
{
	struct nfn *nfn = netdev_priv(netdev);
	unsigned int i;
	int err;

	if (!nfn->queues)
		return -ENODEV;
	for (i = 0; i < nfn->member_count; i++) {
		err = nfn_start(nfn->members[i], 0);
		if (err)
			goto end;
	}
	for (i = 0; i < nfn->member_count; i++) {
		if (nfn_has_link(nfn->members[i]))
			netif_carrier_on(netdev);
	}
	netif_tx_start_all_queues(netdev);
	nfn->runs = true;
	nfn_rules_restore(nfn);
	return 0;

end:
	while (i--) {
		nfn_quiesce(nfn->members[i]);
		nfn_end(nfn->members[i]);
	}
	return err;
}

int nfn_stop(struct net_device *netdev)
{
	struct nfn *nfn = netdev_priv(netdev);
	unsigned int i;

	if (!nfn->runs)
		return 0;
	nfn->runs = false;
	netif_carrier_off(netdev);
	for (i = 0; i < nfn->member_count; i++)
		nfn_quiesce(nfn->members[i]);
	netif_tx_disable(netdev);
	for (i = 0; i < nfn->member_count; i++)
		nfn_end(nfn->members[i]);
	return 0;
}

static void nfn_get_stats64(struct net_device *netdev, struct rtnl_link_stats64 *stats)
{
	const struct nfn *nfn = netdev_priv(netdev);

	stats->tx_packets = nfn_counter(nfn, 0);
	stats->tx_bytes = nfn_counter(nfn, 1);
	stats->tx_errors = nfn_counter(nfn, 2);
	stats->rx_packets = nfn_counter(nfn, 4);
	stats->rx_bytes = nfn_counter(nfn, 5);
	stats->rx_crc_errors = nfn_counter(nfn, 7);
	stats->rx_length_errors = nfn_counter(nfn, 8);
	stats->rx_missed_errors = nfn_counter(nfn, 9) + nfn_counter(nfn, 10);
}

static int nfn_set_mac_address(struct net_device *netdev, void *address)
{
	struct nfn *nfn = netdev_priv(netdev);
	u8 before[ETH_ALEN];
	unsigned int i;
	int err;

	ether_addr_copy(before, netdev->dev_addr);
	err = eth_mac_addr(netdev, address);
	for (i = 0; i < nfn->member_count && !err; i++) {
		/* A virtual function keeps what it was given. */
		if (!nfn_write_mac(nfn->members[i]))
			err = -EPERM;
	}
	if (err)
		eth_hw_addr_set(netdev, before);
	return err;
}

static void nfn_set_rx_mode(struct net_device *netdev)
{
	struct nfn *nfn = netdev_priv(netdev);
	unsigned int i;

	for (i = 0; i < nfn->member_count; i++)
		nfn_write_enabled(nfn->members[i], netdev->features);
}

static int nfn_set_features(struct net_device *netdev, netdev_features_t features)
{
	struct nfn *nfn = netdev_priv(netdev);
	unsigned int i;

	for (i = 0; i < nfn->member_count; i++)
		nfn_write_enabled(nfn->members[i], features);
	if (!(features & NETIF_F_NTUPLE))
		nfn_rules_clear(nfn);
	return 0;
}

static int nfn_change_mtu(struct net_device *netdev, int mtu)
{
	struct nfn *nfn = netdev_priv(netdev);
	unsigned int i;

	netdev->mtu = mtu;
	for (i = 0; i < nfn->member_count; i++)
		writel(mtu + ETH_HLEN, nfn->members[i]->bar + NFN_MAX_FRAME);
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

/* By default, frames are spread over all channels; those of a card's function, over its node's. */
static void nfn_spread(struct nfn *nfn)
{
	unsigned int used[NFN_MAX_QUEUES], count = 0, i;
	int node = dev_to_node(&nfn->pdev->dev);

	for (i = 0; i < nfn->channels; i++) {
		unsigned int cpu = nfn_cpu(nfn->leader, nfn->channel[i].queue);

		if (!nfn->shares || node == NUMA_NO_NODE || cpu_to_node(cpu) == node)
			used[count++] = i;
	}
	for (i = 0; i < nfn->rss_entries && nfn->channels; i++)
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
	for (i = 0; i < nfn->queues && !err; i++) {
		const struct nfn_channel *channel = nfn->queue[i];

		irq_set_affinity_and_hint(pci_irq_vector(channel->nfn->pdev, channel->number),
					  cpumask_of(nfn_cpu(nfn, i)));
		cpumask_clear(senders);
		for (cpu = i; cpu < num_online_cpus(); cpu += nfn->queues)
			cpumask_set_cpu(nfn_cpu(nfn, cpu), senders);
		err = netif_set_xps_queue(nfn->netdev, senders, i);
	}
	free_cpumask_var(senders);
	return err;
}

unsigned int nfn_most_queues(const struct nfn *nfn)
{
	unsigned int sum = 0, i;

	for (i = 0; i < nfn->member_count; i++) {
		if (nfn->members[i]->answers)
			sum += nfn->members[i]->most_channels;
	}
	return min3(sum, num_online_cpus(), (unsigned int)NFN_MAX_QUEUES);
}

/* The function at a processor's node, if it has a channel left; else any that has. */
static struct nfn *nfn_function_for(struct nfn *leader, unsigned int cpu)
{
	struct nfn *any = NULL;
	unsigned int i;

	for (i = 0; i < leader->member_count; i++) {
		struct nfn *nfn = leader->members[i];

		if (!nfn->answers || nfn->channels == nfn->most_channels)
			continue;
		if (dev_to_node(&nfn->pdev->dev) == cpu_to_node(cpu))
			return nfn;
		any = any ? : nfn;
	}
	return any;
}

static void nfn_share_out(struct nfn *leader, unsigned int queues)
{
	unsigned int i;

	for (i = 0; i < leader->member_count; i++)
		leader->members[i]->channels = 0;
	for (i = 0; i < queues; i++) {
		struct nfn *nfn = nfn_function_for(leader, nfn_cpu(leader, i));
		struct nfn_channel *channel = &nfn->channel[nfn->channels++];

		channel->queue = i;
		leader->queue[i] = channel;
	}
	leader->queues = queues;
}

/* No more than nfn_most_queues(). The interface is down. */
int nfn_set_queue_count(struct nfn *nfn, unsigned int queues)
{
	struct net_device *netdev = nfn->netdev;
	unsigned int i;
	int err;

	err = netif_set_real_num_tx_queues(netdev, queues);
	if (err)
		return err;
	err = netif_set_real_num_rx_queues(netdev, queues);
	if (err)
		return err;
	nfn_share_out(nfn, queues);
	for (i = 0; i < nfn->member_count; i++) {
		if (i || !netif_is_rxfh_configured(netdev))
			nfn_spread(nfn->members[i]);
	}
	/* Rules name queues that may be gone. */
	nfn_rules_clear(nfn);
	return nfn_place_channels(nfn);
}

static void nfn_leave(struct nfn *nfn)
{
	struct nfn *leader = nfn->leader;
	bool runs = leader->runs;
	unsigned int i, left = 0;

	if (runs)
		nfn_stop(leader->netdev);
	nfn_unmap_cpus(leader);
	/* Flows and what waits for its channels. */
	nfn_rules_clear(leader);
	for (i = 0; i < leader->member_count; i++)
		nfn_drop_fences_of(leader->members[i]);
	for (i = 0; i < leader->member_count; i++) {
		if (leader->members[i] != nfn)
			leader->members[left++] = leader->members[i];
	}
	leader->member_count = left;
	for (i = 0; i < nfn->most_channels; i++)
		netif_napi_del(&nfn->channel[i].napi);
	nfn->leader = nfn;
	nfn->netdev = pci_get_drvdata(nfn->pdev);
	nfn_share_out(leader, 0);
	if (!nfn_most_queues(leader))
		return;
	if (nfn_set_queue_count(leader, nfn_most_queues(leader)) ||
	    (runs && nfn_open(leader->netdev)))
		netdev_err(leader->netdev, "it does not start again\n");
}

/* Its leader's interface is down meanwhile. */
static int nfn_join(struct nfn *leader, struct nfn *nfn)
{
	bool runs = leader->runs;
	int err;

	if (leader->member_count == NFN_MAX_MEMBERS)
		return -ENOSPC;
	if (runs)
		nfn_stop(leader->netdev);
	leader->members[leader->member_count++] = nfn;
	err = nfn_set_queue_count(leader, nfn_most_queues(leader));
	if (!err && runs)
		err = nfn_open(leader->netdev);
	if (err)
		nfn_leave(nfn);
	return err;
}

/* Some of its functions answer, others do not any more. Returns whether any does. */
static bool nfn_look(struct nfn *nfn)
{
	bool changes = false, any = false;
	unsigned int i;

	for (i = 0; i < nfn->member_count; i++) {
		struct nfn *member = nfn->members[i];
		bool answers = !nfn_reset(member);

		changes |= answers != member->answers;
		any |= answers;
		member->answers = answers;
	}
	if (changes && any && nfn_set_queue_count(nfn, nfn_most_queues(nfn)))
		return false;
	return any;
}

/* Whatever has happened to the device, it starts again, or the interface goes down. */
int nfn_restart(struct nfn *nfn)
{
	struct net_device *netdev = nfn->netdev;
	bool runs = netif_running(netdev);

	if (runs)
		nfn_stop(netdev);
	if (!nfn_look(nfn))
		netdev_err(netdev, "no answer to a reset\n");
	else if (runs && nfn_open(netdev))
		netdev_err(netdev, "it does not start again\n");
	else
		return 0;
	/* Who stands above, such as a team, is told at once. */
	dev_close(netdev);
	return -EIO;
}

static void nfn_reset_work(struct work_struct *work)
{
	struct nfn *nfn = container_of(work, struct nfn, reset);

	rtnl_lock();
	if (netif_device_present(nfn->netdev))
		nfn_restart(nfn);
	rtnl_unlock();
}

/*
 * A link that is cut sends no interrupt, nor does a device that somebody else has reset; and what a
 * device sends may be lost.
 */
static void nfn_health(struct work_struct *work)
{
	struct nfn *nfn = container_of(to_delayed_work(work), struct nfn, health);
	unsigned int i;

	rtnl_lock();
	for (i = 0; i < nfn->member_count && nfn->runs; i++) {
		struct nfn *member = nfn->members[i];

		if (!member->started || !member->answers)
			continue;
		nfn_event(0, member);
		if (READ_ONCE(member->failed))
			netdev_warn(nfn->netdev, "a queue has failed, reset\n");
		else if (readl(member->bar + NFN_CONTROL) == NFN_CONTROL_ENABLE &&
			 !nfn_is_stuck(member))
			continue;
		schedule_work(&nfn->reset);
	}
	rtnl_unlock();
	schedule_delayed_work(&nfn->health, NFN_HEALTH);
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
	netdev->priv_flags |= IFF_LIVE_ADDR_CHANGE;
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

/* The network device of a function's card, if there is one. */
static struct nfn *nfn_leader_of(const struct nfn *nfn)
{
	const struct net_device *own = pci_get_drvdata(nfn->pdev);
	struct net_device *netdev;

	if (!combine || !nfn->shares)
		return NULL;
	for_each_netdev(&init_net, netdev) {
		if (netdev->netdev_ops == &nfn_netdev_ops &&
		    ether_addr_equal(netdev->perm_addr, own->dev_addr))
			return netdev_priv(netdev);
	}
	return NULL;
}

static int nfn_find_place(struct nfn *nfn)
{
	struct nfn *leader;
	int err;

	rtnl_lock();
	leader = nfn_leader_of(nfn);
	if (leader) {
		nfn->leader = leader;
		nfn->netdev = leader->netdev;
	}
	err = nfn_request_irqs(nfn);
	if (err)
		goto unlock;
	if (leader) {
		err = nfn_join(leader, nfn);
		goto unlock;
	}
	nfn->members[0] = nfn;
	nfn->member_count = 1;
	nfn_set_up_netdev(nfn);
	err = nfn_set_queue_count(nfn, nfn->most_channels);
	if (!err)
		err = register_netdevice(nfn->netdev);
	if (!err)
		schedule_delayed_work(&nfn->health, NFN_HEALTH);
unlock:
	rtnl_unlock();
	return err;
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
	nfn->leader = nfn;
	nfn->pdev = pdev;
	nfn->bar = pcim_iomap_table(pdev)[0];
	nfn->wish = &nfn_wish;
	spin_lock_init(&nfn->counted.lock);
	INIT_WORK(&nfn->reset, nfn_reset_work);
	INIT_DELAYED_WORK(&nfn->health, nfn_health);
	if (readl(nfn->bar + NFN_IDENTITY) != NFN_IDENTITY_VALUE)
		return -ENODEV;
	err = nfn_reset(nfn);
	if (err)
		return dev_err_probe(&pdev->dev, err, "no answer to a reset\n");
	nfn->answers = true;
	/* What it counted for a driver before. */
	memset(nfn->counted.before, 0, sizeof(nfn->counted.before));
	err = nfn_kpio_init(nfn);
	if (err)
		return dev_err_probe(&pdev->dev, err, "no windows for programmed I/O\n");
	queues = readl(nfn->bar + NFN_QUEUES);
	limits = readl(nfn->bar + NFN_LIMITS);
	nfn->features = readl(nfn->bar + NFN_FEATURES);
	nfn->rss_entries = readl(nfn->bar + NFN_TABLES) >> 16;
	function = readl(nfn->bar + NFN_FUNCTION);
	nfn->function = function;
	nfn->rx_queues = queues >> 16;
	nfn->shares = (nfn->features & (NFN_FEATURE_STATION | NFN_FEATURE_GLOBAL_RULES)) &&
		      ((function >> 16) & 0xff) > 1;
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
	err = nfn_rules_init(nfn);
	if (err)
		return err;
	err = nfn_find_place(nfn);
	if (err)
		nfn_rules_exit(nfn);
	return err;
}

static void nfn_remove(struct pci_dev *pdev)
{
	struct net_device *netdev = pci_get_drvdata(pdev);
	struct nfn *nfn = netdev_priv(netdev);

	pci_disable_sriov(pdev);
	rtnl_lock();
	if (nfn->leader != nfn)
		nfn_leave(nfn);
	while (nfn->member_count > 1)
		nfn_leave(nfn->members[nfn->member_count - 1]);
	rtnl_unlock();
	/* One that has left its leader has none. */
	if (nfn->member_count)
		unregister_netdev(netdev);
	cancel_delayed_work_sync(&nfn->health);
	cancel_work_sync(&nfn->reset);
	nfn_rules_exit(nfn);
	pci_clear_master(pdev);
}

/* Nothing is sent and the device is left alone, until it is resumed. */
static void nfn_reset_prepare(struct pci_dev *pdev)
{
	const struct nfn *nfn = netdev_priv(pci_get_drvdata(pdev));

	rtnl_lock();
	netif_device_detach(nfn->netdev);
	nfn_stop(nfn->leader->netdev);
	rtnl_unlock();
}

static pci_ers_result_t nfn_error_detected(struct pci_dev *pdev, pci_channel_state_t state)
{
	nfn_reset_prepare(pdev);
	if (state == pci_channel_io_perm_failure)
		return PCI_ERS_RESULT_DISCONNECT;
	return PCI_ERS_RESULT_NEED_RESET;
}

static pci_ers_result_t nfn_slot_reset(struct pci_dev *pdev)
{
	struct nfn *nfn = netdev_priv(pci_get_drvdata(pdev));

	pci_restore_state(pdev);
	pci_save_state(pdev);
	return nfn_reset(nfn) ? PCI_ERS_RESULT_DISCONNECT : PCI_ERS_RESULT_RECOVERED;
}

static void nfn_resume(struct pci_dev *pdev)
{
	const struct nfn *nfn = netdev_priv(pci_get_drvdata(pdev));

	rtnl_lock();
	if (nfn->leader->member_count)
		nfn_restart(nfn->leader);
	/* Lets the stack send. */
	netif_device_attach(nfn->netdev);
	rtnl_unlock();
}

static const struct pci_error_handlers nfn_error_handlers = {
	.error_detected = nfn_error_detected,
	.slot_reset = nfn_slot_reset,
	.resume = nfn_resume,
	.reset_prepare = nfn_reset_prepare,
	.reset_done = nfn_resume,
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
module_pci_driver(nfn_driver);

MODULE_DESCRIPTION("nearfar's simulated NIC");
MODULE_LICENSE("GPL");
