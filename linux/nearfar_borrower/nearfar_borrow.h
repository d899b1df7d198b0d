/* SPDX-License-Identifier: GPL-2.0 */
/* Borrowed functions that this host hands on. */
#ifndef NEARFAR_BORROW_H
#define NEARFAR_BORROW_H

#include <linux/pci.h>

/* From now on, it reaches only what is given; -ENODEV if the function is not borrowed. */
int nearfar_borrow_confine(struct pci_dev *pdev, bool confined);

/* A program has it, or has it no longer. */
void nearfar_borrow_open(struct pci_dev *pdev, bool opened);

/* The function reaches a range of a mapped page and those behind it at another address. */
int nearfar_borrow_give(struct pci_dev *pdev, u64 iova, dma_addr_t address, u32 bytes);
int nearfar_borrow_take(struct pci_dev *pdev, u64 iova, u32 bytes);

/* Maps a page for as long as it takes; dma_unmap_page() ends that. */
dma_addr_t nearfar_borrow_map_page(struct pci_dev *pdev, struct page *page);

#endif
