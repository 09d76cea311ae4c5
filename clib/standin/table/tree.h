/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree.h: an ordered map of intrusive nodes (a treap), the one search
 * structure of the stand-in driver. Keys are (key, tie) pairs and unique.
 * Not thread-safe: the driver's lock is held around every call.
 */
#ifndef DIVVY_STANDIN_TREE_H
#define DIVVY_STANDIN_TREE_H

#include <stddef.h>
#include <stdint.h>

struct sd_node {
	struct sd_node *parent;
	struct sd_node *left;
	struct sd_node *right;
	uint64_t key;
	uint64_t tie;
	uint32_t rank;
};

struct sd_tree {
	struct sd_node *root;
	uint32_t seed;
};

#define SD_OWNER(pointer, type, member) ((type *)(void *)((char *)(pointer) - offsetof(type, member)))

void sd_tree_add(struct sd_tree *tree, struct sd_node *node, uint64_t key, uint64_t tie);
void sd_tree_remove(struct sd_tree *tree, struct sd_node *node);
struct sd_node *sd_tree_floor(const struct sd_tree *tree, uint64_t key, uint64_t tie);   /* last <= */
struct sd_node *sd_tree_ceiling(const struct sd_tree *tree, uint64_t key, uint64_t tie); /* first >= */
struct sd_node *sd_tree_first(const struct sd_tree *tree);
struct sd_node *sd_tree_next(struct sd_node *node);

#endif
