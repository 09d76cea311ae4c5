/* SPDX-License-Identifier: Apache-2.0 */
/* lanevideo.h: the mode of ptx_lane_video: what it does, to which parts. */
#ifndef DIVVY_STANDIN_PTX_LANEVIDEO_H
#define DIVVY_STANDIN_PTX_LANEVIDEO_H

enum ptx_video {
	PTX_VIDEO_ADD,
	PTX_VIDEO_SUB,
	PTX_VIDEO_ABSDIFF,
	PTX_VIDEO_MIN,
	PTX_VIDEO_MAX,
	PTX_VIDEO_AVERAGE,
	PTX_VIDEO_SHL,
	PTX_VIDEO_SHR,
	PTX_VIDEO_MAD,
	PTX_VIDEO_SET,
};

/* what is done with the third operand */
enum ptx_video_then { PTX_VIDEO_THEN_NOTHING, PTX_VIDEO_THEN_ADD, PTX_VIDEO_THEN_MIN, PTX_VIDEO_THEN_MAX };

#define PTX_VIDEO_DOES(mode) ((mode) & 15)
#define PTX_VIDEO_SELECTS_A(mode) ((mode) >> 4 & 7) /* as operand->selector */
#define PTX_VIDEO_SELECTS_B(mode) ((mode) >> 7 & 7)
#define PTX_VIDEO_SELECTS_D(mode) ((mode) >> 10 & 7)
#define PTX_VIDEO_THEN(mode) ((mode) >> 13 & 3)
#define PTX_VIDEO_COMPARES(mode) ((mode) >> 15 & 7) /* enum ptx_compare, EQ to GE */
#define PTX_VIDEO_PARTS(mode) ((mode) >> 18 & 3)    /* 1: pairs, 2: fours */
#define PTX_VIDEO_SCALES(mode) ((mode) >> 20 & 3)   /* 1: by 7 bits, 2: by 15 */
#define PTX_VIDEO_SIGNED_A (1u << 22)
#define PTX_VIDEO_SIGNED_B (1u << 23)
#define PTX_VIDEO_SIGNED_D (1u << 24)
#define PTX_VIDEO_SAT (1u << 25)
#define PTX_VIDEO_WRAP (1u << 26)
#define PTX_VIDEO_PLUS_ONE (1u << 27)
#define PTX_VIDEO_NEGATE_PRODUCT (1u << 28)
#define PTX_VIDEO_NEGATE_C (1u << 29)

#endif
