/* SPDX-License-Identifier: GPL-2.0 */
/* nearfar's NTB adapters: windows, requesters, doorbells, and questions between hosts. */
#ifndef NEARFAR_NTB_H
#define NEARFAR_NTB_H

#include <linux/bits.h>
#include <linux/list.h>
#include <linux/pci.h>
#include <linux/types.h>

#define NFB_WINDOW_BAR		2

/* Nodes of a cluster: hosts, by their adapters. */
#define NFB_NODES		64

/* What another node reaches of an adapter's registers, and its doorbell there. */
#define NFB_SHARED_BYTES	0xa200
#define NFB_DOORBELL		0xa000

/* Doorbell bits: messages of other nodes' functions, then the client's; others are the module's. */
#define NFB_VECTORS		24
#define NFB_CLIENT_BITS		GENMASK(29, NFB_VECTORS)

/* Words of a question, and of an answer. */
#define NFB_WORDS		6

struct irq_domain;
struct nfb;

/* Segments of the window. */
struct nfb_range {
	int first;
	int count;
	/* Where processors and devices of this host find it. */
	u64 address;
};

/* What uses adapters. None of these is called before the first or after the second. */
struct nfb_client {
	/* An adapter has come, or goes. */
	int (*added)(struct nfb *nfb);
	void (*removed)(struct nfb *nfb);
	/* Doorbell bits of the client have been set; interrupts are off. */
	u32 bits;
	void (*rung)(struct nfb *nfb, u32 bits);
	/* Another node asks: an error, or 0 and an answer. May sleep. One client answers. */
	int (*answer)(struct nfb *nfb, u8 node, u8 question, const u32 *words, u32 *answer);
	/* Requests to a node were lost; it is out of reach until this returns. May sleep. */
	void (*lost)(struct nfb *nfb, u8 node);
	struct list_head list;
	/* It has been told of the adapter. */
	bool is_added;
};

int nfb_register_client(struct nfb_client *client);
void nfb_unregister_client(struct nfb_client *client);

struct pci_dev *nfb_pdev(const struct nfb *nfb);
/* This node, and a bit for each other one that can be reached. */
u8 nfb_node(const struct nfb *nfb);
unsigned long nfb_reachable(struct nfb *nfb);
/* MSI-X for functions of other nodes, each of which finds this node's doorbell somewhere. */
struct irq_domain *nfb_vectors(struct nfb *nfb, u64 (*doorbell)(struct pci_dev *pdev));

/* Maps a range of another node's addresses, or its adapter's registers. */
int nfb_map(struct nfb *nfb, struct nfb_range *range, u8 node, u64 target, u64 bytes,
	    bool registers);
void nfb_unmap(struct nfb *nfb, struct nfb_range *range);

/* Lets a requester of this host reach others. Returns its place, by which they know it. */
int nfb_add_local(struct nfb *nfb, u16 requester);
void nfb_remove_local(struct nfb *nfb, int place);

/* Lets a requester of another node, by its place there, reach this host. Returns an entry. */
int nfb_add_remote(struct nfb *nfb, u8 node, int place);
void nfb_remove_remote(struct nfb *nfb, int entry);

/* Lets a node's root port in, as often as it is dismissed. */
int nfb_admit(struct nfb *nfb, u8 node);
void nfb_dismiss(struct nfb *nfb, u8 node);

/* Prepares for questions to a node; may sleep. */
int nfb_connect(struct nfb *nfb, u8 node);
/* Asks a node to which nfb_connect() has led, with interrupts off until it answers. */
int nfb_ask(struct nfb *nfb, u8 node, u8 question, const u32 *words, u32 *answer);
/* Sets doorbell bits of such a node. */
void nfb_ring(struct nfb *nfb, u8 node, u32 bits);

/* Requester IDs of a function and of the root port above it, which a guest does not choose. */
int nfb_identity(struct pci_dev *pdev, u16 *own, u16 *above);

#endif
