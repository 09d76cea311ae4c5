/* SPDX-License-Identifier: Apache-2.0 */
/*
 * textureref.h: texture and surface references: those of a module, whose
 * addresses in its code are the references themselves, and those that programs
 * make.
 */
#ifndef DIVVY_STANDIN_TEXTUREREF_H
#define DIVVY_STANDIN_TEXTUREREF_H

#include "driver.h"

struct sd_module;

/* What it reads: an array, a mipmapped array, or memory. */
struct sd_reference {
	struct sd_object object; /* SD_TEXTURE_REFERENCE or SD_SURFACE_REFERENCE */
	struct sd_module *module; /* NULL for one that a program made */
	CUarray array;
	CUmipmappedArray mipmap;
	CUdeviceptr address;
	size_t bytes; /* of linear memory */
	size_t pitch; /* 0: linear; else width and height are there */
	size_t width;
	size_t height;
	CUaddress_mode mode[3];
	CUfilter_mode filter;
	CUfilter_mode mipfilter;
	float bias;
	float clamp[2];
	float border[4];
	unsigned int anisotropy;
	unsigned int flags;
	CUarray_format format;
	int channels;
};

CUresult sd_reference_new(bool surface, struct sd_module *module, struct sd_reference **out);

#endif
