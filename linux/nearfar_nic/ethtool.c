// SPDX-License-Identifier: GPL-2.0
/* What ethtool asks: -i, -S and the link's settings. */
#include <linux/ethtool.h>

#include "nearfar_nic.h"

static const char nfn_counters[NFN_COUNTER_COUNT][ETH_GSTRING_LEN] = {
	"tx_frames", "tx_bytes", "tx_errors", "tx_no_carrier",
	"rx_frames", "rx_bytes", "rx_filtered", "rx_fcs_errors",
	"rx_length_errors", "rx_no_buffer", "rx_overflow", "rx_no_queue",
	"tx_segments", "interrupts", "fetches", "write_backs",
	"kpio_frames", "kpio_lines", "kpio_pieces", "kpio_ahead",
	"kpio_dropped", "kpio_missing", "kpio_outside", "kpio_twice",
	"kpio_waits", "inline_packets", "tx_spoofed", "fetched",
	"written_back", "rx_held", "rx_pauses", "tx_pauses",
};

static int nfn_get_sset_count(struct net_device *netdev, int set)
{
	return set == ETH_SS_STATS ? NFN_COUNTER_COUNT : -EOPNOTSUPP;
}

static void nfn_get_strings(struct net_device *netdev, u32 set, u8 *data)
{
	if (set == ETH_SS_STATS)
		memcpy(data, nfn_counters, sizeof(nfn_counters));
}

static void nfn_get_ethtool_stats(struct net_device *netdev, struct ethtool_stats *stats, u64 *data)
{
	struct nfn *nfn = netdev_priv(netdev);
	int i;

	for (i = 0; i < NFN_COUNTER_COUNT; i++)
		data[i] = readq(nfn->bar + NFN_COUNTERS + 8 * i);
}

static int nfn_get_link_ksettings(struct net_device *netdev, struct ethtool_link_ksettings *settings)
{
	struct nfn *nfn = netdev_priv(netdev);

	settings->base.speed = readl(nfn->bar + NFN_SPEED);
	settings->base.duplex = DUPLEX_FULL;
	settings->base.port = PORT_OTHER;
	return 0;
}

static void nfn_get_ringparam(struct net_device *netdev, struct ethtool_ringparam *ring,
			      struct kernel_ethtool_ringparam *kernel_ring,
			      struct netlink_ext_ack *extack)
{
	ring->rx_max_pending = NFN_RING;
	ring->tx_max_pending = NFN_RING;
	ring->rx_pending = NFN_RING;
	ring->tx_pending = NFN_RING;
}

static void nfn_get_channels(struct net_device *netdev, struct ethtool_channels *channels)
{
	struct nfn *nfn = netdev_priv(netdev);

	channels->max_combined = nfn->channels;
	channels->combined_count = nfn->channels;
}

const struct ethtool_ops nfn_ethtool_ops = {
	.get_link = ethtool_op_get_link,
	.get_link_ksettings = nfn_get_link_ksettings,
	.get_sset_count = nfn_get_sset_count,
	.get_strings = nfn_get_strings,
	.get_ethtool_stats = nfn_get_ethtool_stats,
	.get_ringparam = nfn_get_ringparam,
	.get_channels = nfn_get_channels,
};
