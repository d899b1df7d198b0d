// SPDX-License-Identifier: GPL-2.0
/* What ethtool asks and sets: -S, -g, -G, -l, -L, -c, -C, -x, -X, -t, --reset, and of the link. */
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

/* Of the driver; then the frames of each channel. */
static const char nfn_own_counters[][ETH_GSTRING_LEN] = {
	"rx_rules", "rx_rule_hits", "rx_rules_expired", "rx_rules_late",
	"doorbells", "tx_waits",
};

static const char nfn_tests[NFN_SELF_TESTS][ETH_GSTRING_LEN] = {
	[NFN_TEST_LINK] = "link      (on/offline)",
	[NFN_TEST_REGISTERS] = "registers    (offline)",
	[NFN_TEST_INTERRUPTS] = "interrupts   (offline)",
	[NFN_TEST_LOOPBACK] = "loopback     (offline)",
};

#define NFN_OWN_COUNTERS ARRAY_SIZE(nfn_own_counters)

static int nfn_get_sset_count(struct net_device *netdev, int set)
{
	struct nfn *nfn = netdev_priv(netdev);

	if (set == ETH_SS_TEST)
		return NFN_SELF_TESTS;
	if (set != ETH_SS_STATS)
		return -EOPNOTSUPP;
	return NFN_COUNTER_COUNT + NFN_OWN_COUNTERS + 2 * nfn->queues;
}

static void nfn_get_strings(struct net_device *netdev, u32 set, u8 *data)
{
	struct nfn *nfn = netdev_priv(netdev);
	unsigned int i;

	if (set == ETH_SS_TEST)
		memcpy(data, nfn_tests, sizeof(nfn_tests));
	if (set != ETH_SS_STATS)
		return;
	memcpy(data, nfn_counters, sizeof(nfn_counters));
	data += sizeof(nfn_counters);
	memcpy(data, nfn_own_counters, sizeof(nfn_own_counters));
	data += sizeof(nfn_own_counters);
	for (i = 0; i < nfn->queues; i++) {
		ethtool_sprintf(&data, "tx%u_frames", i);
		ethtool_sprintf(&data, "rx%u_frames", i);
	}
}

static void nfn_get_ethtool_stats(struct net_device *netdev, struct ethtool_stats *stats, u64 *data)
{
	struct nfn *nfn = netdev_priv(netdev);
	u64 doorbells = 0, waits = 0;
	unsigned int i;

	for (i = 0; i < nfn->queues; i++) {
		doorbells += nfn->queue[i]->tx.doorbells + nfn->queue[i]->rx.doorbells;
		waits += nfn->queue[i]->tx_waits;
	}
	for (i = 0; i < NFN_COUNTER_COUNT; i++)
		*data++ = nfn_counter(nfn, i);
	*data++ = nfn_rules_used(nfn);
	*data++ = nfn_rule_hits(nfn);
	*data++ = nfn->rules.expired;
	*data++ = nfn->rules.late;
	*data++ = doorbells;
	*data++ = waits;
	for (i = 0; i < nfn->queues; i++) {
		*data++ = nfn->queue[i]->tx_frames;
		*data++ = nfn->queue[i]->rx_frames;
	}
}

static int nfn_get_link_ksettings(struct net_device *netdev,
				  struct ethtool_link_ksettings *settings)
{
	struct nfn *nfn = netdev_priv(netdev);

	settings->base.speed = readl(nfn->bar + NFN_SPEED);
	settings->base.duplex = DUPLEX_FULL;
	settings->base.port = PORT_OTHER;
	return 0;
}

/* Stops the interface for a change. Tells whether it ran. */
static bool nfn_pause(struct nfn *nfn)
{
	bool runs = netif_running(nfn->netdev);

	if (runs)
		nfn_stop(nfn->netdev);
	return runs;
}

/* What ran before a change that failed. */
static void nfn_reopen(struct nfn *nfn)
{
	if (nfn_open(nfn->netdev))
		netdev_err(nfn->netdev, "it does not start again\n");
}

static void nfn_get_ringparam(struct net_device *netdev, struct ethtool_ringparam *ring,
			      struct kernel_ethtool_ringparam *kernel_ring,
			      struct netlink_ext_ack *extack)
{
	struct nfn *nfn = netdev_priv(netdev);

	ring->rx_max_pending = BIT(nfn->most_log2);
	ring->tx_max_pending = BIT(nfn->most_log2);
	ring->rx_pending = BIT(nfn->rx_log2);
	ring->tx_pending = BIT(nfn->tx_log2);
}

static int nfn_set_ringparam(struct net_device *netdev, struct ethtool_ringparam *ring,
			     struct kernel_ethtool_ringparam *kernel_ring,
			     struct netlink_ext_ack *extack)
{
	struct nfn *nfn = netdev_priv(netdev);
	u8 rx_before = nfn->rx_log2, tx_before = nfn->tx_log2;
	bool runs;
	int err;

	if (ring->rx_mini_pending || ring->rx_jumbo_pending)
		return -EINVAL;
	if (!is_power_of_2(ring->rx_pending) || !is_power_of_2(ring->tx_pending) ||
	    min(ring->rx_pending, ring->tx_pending) < BIT(NFN_LEAST_LOG2_RING)) {
		NL_SET_ERR_MSG_MOD(extack, "rings have a power of two of entries, 64 or more");
		return -EINVAL;
	}
	runs = nfn_pause(nfn);
	nfn->rx_log2 = ilog2(ring->rx_pending);
	nfn->tx_log2 = ilog2(ring->tx_pending);
	err = runs ? nfn_open(netdev) : 0;
	if (err) {
		nfn->rx_log2 = rx_before;
		nfn->tx_log2 = tx_before;
		nfn_reopen(nfn);
	}
	return err;
}

static void nfn_get_channels(struct net_device *netdev, struct ethtool_channels *channels)
{
	struct nfn *nfn = netdev_priv(netdev);

	channels->max_combined = nfn_most_queues(nfn);
	channels->combined_count = nfn->queues;
}

static int nfn_set_channels(struct net_device *netdev, struct ethtool_channels *channels)
{
	struct nfn *nfn = netdev_priv(netdev);
	unsigned int before = nfn->queues;
	bool runs = nfn_pause(nfn);
	int err;

	err = nfn_set_queue_count(nfn, channels->combined_count);
	if (runs && !err)
		err = nfn_open(netdev);
	if (err && !nfn_set_queue_count(nfn, before) && runs)
		nfn_reopen(nfn);
	return err;
}

static void nfn_run_tests(struct net_device *netdev, struct ethtool_test *test, u64 *results)
{
	struct nfn *nfn = netdev_priv(netdev);
	bool offline = test->flags & ETH_TEST_FL_OFFLINE;
	bool runs = offline && nfn_pause(nfn);

	memset(results, 0, NFN_SELF_TESTS * sizeof(*results));
	if (!nfn_self_test(nfn, offline, results))
		test->flags |= ETH_TEST_FL_FAILED;
	if (runs && nfn_open(netdev)) {
		test->flags |= ETH_TEST_FL_FAILED;
		dev_close(netdev);
	}
}

static int nfn_reset_by_user(struct net_device *netdev, u32 *flags)
{
	const u32 resets = ETH_RESET_IRQ | ETH_RESET_DMA | ETH_RESET_FILTER | ETH_RESET_OFFLOAD |
			   ETH_RESET_MAC;
	int err;

	/* The function is reset as a whole. */
	if ((*flags & resets) != resets)
		return -EOPNOTSUPP;
	err = nfn_restart(netdev_priv(netdev));
	if (!err)
		*flags &= ~resets;
	return err;
}

static int nfn_get_coalesce(struct net_device *netdev, struct ethtool_coalesce *coalesce,
			    struct kernel_ethtool_coalesce *kernel_coalesce,
			    struct netlink_ext_ack *extack)
{
	struct nfn *nfn = netdev_priv(netdev);

	coalesce->rx_coalesce_usecs = nfn->moderation.usecs;
	coalesce->rx_max_coalesced_frames = nfn->moderation.frames;
	coalesce->use_adaptive_rx_coalesce = nfn->moderation.adaptive;
	return 0;
}

static int nfn_set_coalesce(struct net_device *netdev, struct ethtool_coalesce *coalesce,
			    struct kernel_ethtool_coalesce *kernel_coalesce,
			    struct netlink_ext_ack *extack)
{
	struct nfn *nfn = netdev_priv(netdev);
	unsigned int i;

	if (coalesce->rx_coalesce_usecs > U32_MAX / NSEC_PER_USEC)
		return -ERANGE;
	nfn->moderation = (struct nfn_moderation) {
		.usecs = coalesce->rx_coalesce_usecs,
		.frames = coalesce->rx_max_coalesced_frames,
		.adaptive = coalesce->use_adaptive_rx_coalesce,
	};
	for (i = 0; i < nfn->member_count && nfn->runs; i++)
		nfn_write_moderation(nfn->members[i]);
	return 0;
}

static int nfn_get_rxnfc(struct net_device *netdev, struct ethtool_rxnfc *info, u32 *rules)
{
	struct nfn *nfn = netdev_priv(netdev);

	if (info->cmd != ETHTOOL_GRXRINGS)
		return -EOPNOTSUPP;
	info->data = nfn->channels;
	return 0;
}

static u32 nfn_get_rxfh_key_size(struct net_device *netdev)
{
	return NFN_RSS_KEY_BYTES;
}

static u32 nfn_get_rxfh_indir_size(struct net_device *netdev)
{
	return ((struct nfn *)netdev_priv(netdev))->rss_entries;
}

static int nfn_read_rxfh(struct nfn *nfn, u32 *table, u8 *key, u8 *function)
{
	if (table)
		memcpy(table, nfn->rss_table, nfn->rss_entries * sizeof(*table));
	if (key)
		memcpy(key, nfn->rss_key, sizeof(nfn->rss_key));
	if (function)
		*function = ETH_RSS_HASH_TOP;
	return 0;
}

static int nfn_change_rxfh(struct nfn *nfn, const u32 *table, const u8 *key, u8 function)
{
	if (function != ETH_RSS_HASH_NO_CHANGE && function != ETH_RSS_HASH_TOP)
		return -EOPNOTSUPP;
	if (table)
		memcpy(nfn->rss_table, table, nfn->rss_entries * sizeof(*table));
	if (key)
		memcpy(nfn->rss_key, key, sizeof(nfn->rss_key));
	if (nfn->started)
		nfn_write_rss(nfn);
	return 0;
}

#ifdef NFN_RXFH_PARAM
static int nfn_get_rxfh(struct net_device *netdev, struct ethtool_rxfh_param *rxfh)
{
	return nfn_read_rxfh(netdev_priv(netdev), rxfh->indir, rxfh->key, &rxfh->hfunc);
}

static int nfn_set_rxfh(struct net_device *netdev, struct ethtool_rxfh_param *rxfh,
			struct netlink_ext_ack *extack)
{
	return nfn_change_rxfh(netdev_priv(netdev), rxfh->indir, rxfh->key, rxfh->hfunc);
}
#else
static int nfn_get_rxfh(struct net_device *netdev, u32 *table, u8 *key, u8 *function)
{
	return nfn_read_rxfh(netdev_priv(netdev), table, key, function);
}

static int nfn_set_rxfh(struct net_device *netdev, const u32 *table, const u8 *key,
			const u8 function)
{
	return nfn_change_rxfh(netdev_priv(netdev), table, key, function);
}
#endif

const struct ethtool_ops nfn_ethtool_ops = {
	/* A channel's vector is that of both directions. */
	.supported_coalesce_params = ETHTOOL_COALESCE_RX_USECS |
				     ETHTOOL_COALESCE_RX_MAX_FRAMES |
				     ETHTOOL_COALESCE_USE_ADAPTIVE_RX,
	.get_link = ethtool_op_get_link,
	.get_link_ksettings = nfn_get_link_ksettings,
	.self_test = nfn_run_tests,
	.reset = nfn_reset_by_user,
	.get_sset_count = nfn_get_sset_count,
	.get_strings = nfn_get_strings,
	.get_ethtool_stats = nfn_get_ethtool_stats,
	.get_ringparam = nfn_get_ringparam,
	.set_ringparam = nfn_set_ringparam,
	.get_channels = nfn_get_channels,
	.set_channels = nfn_set_channels,
	.get_coalesce = nfn_get_coalesce,
	.set_coalesce = nfn_set_coalesce,
	.get_rxnfc = nfn_get_rxnfc,
	.get_rxfh_key_size = nfn_get_rxfh_key_size,
	.get_rxfh_indir_size = nfn_get_rxfh_indir_size,
	.get_rxfh = nfn_get_rxfh,
	.set_rxfh = nfn_set_rxfh,
};
