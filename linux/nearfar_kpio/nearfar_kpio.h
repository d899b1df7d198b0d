/* SPDX-License-Identifier: GPL-2.0 */
/* Programmed I/O of nearfar's NIC: windows, and the registers of their queues. */
#ifndef NEARFAR_KPIO_H
#define NEARFAR_KPIO_H

#include <linux/netdevice.h>

struct nfn;
struct nfn_channel;

#define NFN_RX_HELD		0x44
#define NFN_WINDOW_BAR		2
#define NFN_KPIO_QUEUES		0x38000
#define NFN_KPIO_STRIDE		0x40
#define NFN_KPIO_CONTROL	0x00
#define NFN_KPIO_ENABLE		BIT(0)
#define NFN_KPIO_FRAMED		BIT(4)
#define NFN_KPIO_REPORT_EVERY	0x0c
#define NFN_KPIO_REPORT		0x10
#define NFN_KPIO_SIGNATURE	0x18
#define NFN_KPIO_NEXT		0x28
#define NFN_KPIO_VECTOR		0x2c
#define NFN_KPIO_ARM_AT		0x30

/* What of programmed I/O is asked for. */
struct nfn_wish {
	bool on;
	/* Only TCP connections with a port of this range, if there are bounds. */
	unsigned short ports[2];
	int bounds;
	/* Frames have length and checksum; else the paper's signature ends them. */
	bool framed;
	/* Longest frame to leave in the device and receive by loads. */
	unsigned int receive;
};

/* Lines of frames, as counts that wrap: those written, and those that are free again. */
struct nfn_kpio {
	void __iomem *registers;
	void __iomem *window;
	/* Written by the device. */
	__le32 *freed;
	dma_addr_t freed_bus;
	/* Those of one frame. */
	u8 *lines;
	u32 written;
	u16 frames;
};

int nfn_kpio_init(struct nfn *nfn);
void nfn_kpio_open(struct nfn *nfn);
int nfn_kpio_alloc(struct nfn_channel *channel);
void nfn_kpio_free(struct nfn_channel *channel);
void nfn_kpio_start(struct nfn_channel *channel);
void nfn_kpio_stop(struct nfn_channel *channel);
bool nfn_kpio_takes(const struct nfn_channel *channel, const struct sk_buff *skb);
void nfn_kpio_xmit(struct nfn_channel *channel, struct sk_buff *skb);
bool nfn_kpio_is_ready(struct nfn_channel *channel);
void nfn_kpio_read_held(const struct nfn_channel *channel, u16 count, void *to,
			unsigned int length);
netdev_features_t nfn_features_check(struct sk_buff *skb, struct net_device *netdev,
				     netdev_features_t features);

#endif
