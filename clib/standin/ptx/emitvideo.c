/* SPDX-License-Identifier: Apache-2.0 */
/* emitvideo.c: video instructions: what they say becomes the mode of one lane function. */
#include "compile.h"
#include "lanevideo.h"

static const struct video {
	uint8_t opcode;
	uint8_t does;  /* enum ptx_video */
	uint8_t parts; /* 0, or as in the mode */
} videos[] = {
	{ PTX_OP_VADD, PTX_VIDEO_ADD, 0 },	      { PTX_OP_VSUB, PTX_VIDEO_SUB, 0 },
	{ PTX_OP_VABSDIFF, PTX_VIDEO_ABSDIFF, 0 },    { PTX_OP_VMIN, PTX_VIDEO_MIN, 0 },
	{ PTX_OP_VMAX, PTX_VIDEO_MAX, 0 },	      { PTX_OP_VSHL, PTX_VIDEO_SHL, 0 },
	{ PTX_OP_VSHR, PTX_VIDEO_SHR, 0 },	      { PTX_OP_VMAD, PTX_VIDEO_MAD, 0 },
	{ PTX_OP_VSET, PTX_VIDEO_SET, 0 },	      { PTX_OP_VADD2, PTX_VIDEO_ADD, 1 },
	{ PTX_OP_VSUB2, PTX_VIDEO_SUB, 1 },	      { PTX_OP_VAVRG2, PTX_VIDEO_AVERAGE, 1 },
	{ PTX_OP_VABSDIFF2, PTX_VIDEO_ABSDIFF, 1 },   { PTX_OP_VMIN2, PTX_VIDEO_MIN, 1 },
	{ PTX_OP_VMAX2, PTX_VIDEO_MAX, 1 },	      { PTX_OP_VSET2, PTX_VIDEO_SET, 1 },
	{ PTX_OP_VADD4, PTX_VIDEO_ADD, 2 },	      { PTX_OP_VSUB4, PTX_VIDEO_SUB, 2 },
	{ PTX_OP_VAVRG4, PTX_VIDEO_AVERAGE, 2 },      { PTX_OP_VABSDIFF4, PTX_VIDEO_ABSDIFF, 2 },
	{ PTX_OP_VMIN4, PTX_VIDEO_MIN, 2 },	      { PTX_OP_VMAX4, PTX_VIDEO_MAX, 2 },
	{ PTX_OP_VSET4, PTX_VIDEO_SET, 2 },
};

/* An operand without its part and sign, which are in the mode. */
static bool plain(struct ptx_compiler *c, uint32_t which, bool out, struct ptx_place *place)
{
	struct ptx_operand operand = c->now->operands[which];

	operand.selector = 0;
	operand.minus = false;
	if (out ? !ptx_out_operand(c, &operand, PTX_B32, place) : !ptx_in_operand(c, &operand, PTX_B32, place))
		return false;
	return (place->width == PTX_W_32 && !place->negated) || ptx_refuse(c, "operands have 32 bits");
}

static bool types(struct ptx_compiler *c, const struct video *video, uint32_t *mode)
{
	const struct ptx_instruction *now = c->now;
	bool set = video->does == PTX_VIDEO_SET;
	uint32_t first = set ? 0 : 1; /* of a */

	if (now->typecount != first + 2)
		return ptx_refuse(c, "this form is not supported");
	for (uint32_t i = 0; i < now->typecount; i++) {
		if (now->types[i] != PTX_U32 && now->types[i] != PTX_S32)
			return ptx_refuse(c, "this type is not supported here");
	}
	*mode |= now->types[first] == PTX_S32 ? PTX_VIDEO_SIGNED_A : 0;
	*mode |= now->types[first + 1] == PTX_S32 ? PTX_VIDEO_SIGNED_B : 0;
	*mode |= !set && now->types[0] == PTX_S32 ? PTX_VIDEO_SIGNED_D : 0;
	return true;
}

static bool what_then(struct ptx_compiler *c, const struct video *video, uint32_t *mode)
{
	uint32_t then = PTX_VIDEO_THEN_NOTHING;

	switch (c->now->operation) {
	case PTX_DO_NONE:
		break;
	case PTX_DO_ADD:
		then = PTX_VIDEO_THEN_ADD;
		break;
	case PTX_DO_MIN: case PTX_DO_MAX:
		if (video->parts)
			return ptx_refuse(c, "this form is not supported");
		then = c->now->operation == PTX_DO_MIN ? PTX_VIDEO_THEN_MIN : PTX_VIDEO_THEN_MAX;
		break;
	default:
		return ptx_refuse(c, "this form is not supported");
	}
	if (then && video->does == PTX_VIDEO_MAD)
		return ptx_refuse(c, "this form is not supported");
	*mode |= then << 13;
	return true;
}

/* Which parts and signs the operands have. */
static bool parts(struct ptx_compiler *c, const struct video *video, uint32_t *mode)
{
	const struct ptx_operand *operands = c->now->operands;
	uint32_t count = c->now->operandcount;
	bool mad = video->does == PTX_VIDEO_MAD;
	bool third = count > 3;

	for (uint32_t i = 0; i < count; i++) {
		if ((operands[i].selector && (video->parts || i == 3 || (mad && i == 0))) ||
		    (operands[i].minus && (!mad || i == 0)))
			return ptx_refuse(c, "this part of an operand is not supported here");
	}
	/* a third operand is for something, and a part of the result needs one */
	if (!video->parts && !mad && third != (operands[0].selector || c->now->operation))
		return ptx_refuse(c, "this form is not supported");
	if (operands[0].selector && c->now->operation)
		return ptx_refuse(c, "this form is not supported");
	*mode |= (uint32_t)operands[1].selector << 4 | (uint32_t)operands[2].selector << 7 |
		 (uint32_t)operands[0].selector << 10;
	if (mad) {
		*mode |= operands[1].minus != operands[2].minus ? PTX_VIDEO_NEGATE_PRODUCT : 0;
		*mode |= operands[3].minus ? PTX_VIDEO_NEGATE_C : 0;
	}
	return true;
}

static bool flags(struct ptx_compiler *c, const struct video *video, uint32_t *mode)
{
	uint64_t given = c->now->flags;
	bool shift = video->does == PTX_VIDEO_SHL || video->does == PTX_VIDEO_SHR;
	bool mad = video->does == PTX_VIDEO_MAD;
	bool set = video->does == PTX_VIDEO_SET;

	if (!ptx_flags(c, (set ? 0 : PTX_F(SAT)) | (shift ? PTX_F(CLAMP) | PTX_F(WRAP) : 0) |
				  (mad ? PTX_F(PO) | PTX_F(SHIFT_7) | PTX_F(SHIFT_15) : 0)))
		return false;
	if (shift && !(given & (PTX_F(CLAMP) | PTX_F(WRAP))))
		return ptx_refuse(c, "clamp or wrap is missing");
	if (set != (c->now->compare != PTX_CMP_NONE) || c->now->compare > PTX_CMP_GE)
		return ptx_refuse(c, "this comparison is not supported");
	*mode |= given & PTX_F(SAT) ? PTX_VIDEO_SAT : 0;
	*mode |= given & PTX_F(WRAP) ? PTX_VIDEO_WRAP : 0;
	*mode |= given & PTX_F(PO) ? PTX_VIDEO_PLUS_ONE : 0;
	*mode |= (given & PTX_F(SHIFT_7) ? 1u : given & PTX_F(SHIFT_15) ? 2u : 0u) << 20;
	*mode |= (uint32_t)c->now->compare << 15;
	return true;
}

bool ptx_emit_video(struct ptx_compiler *c)
{
	const struct video *video = NULL;
	struct ptx_place to;
	struct ptx_place from[3] = { { .at = 0 } };

	for (size_t i = 0; i < sizeof(videos) / sizeof(videos[0]); i++) {
		if (videos[i].opcode == c->now->opcode)
			video = &videos[i];
	}
	if (!video)
		return ptx_refuse(c, "this instruction is not supported by the simulated card");
	uint32_t mode = video->does | (uint32_t)video->parts << 18;
	bool all = video->parts || video->does == PTX_VIDEO_MAD;

	if (!ptx_operands(c, all ? 4 : 3, 4) || !types(c, video, &mode) || !what_then(c, video, &mode) ||
	    !parts(c, video, &mode) || !flags(c, video, &mode) || !plain(c, 0, true, &to))
		return false;
	for (uint32_t i = 0; i < 3; i++) {
		if (i + 1 < c->now->operandcount ? !plain(c, i + 1, false, &from[i])
						 : !ptx_constant(c, PTX_W_32, 0, &from[i].at))
			return false;
	}
	struct ptx_op *op = ptx_emit(c, PTX_RUN_LANE);

	if (!op)
		return false;
	op->lane = ptx_lane_video;
	op->mode = mode;
	op->d = to.at;
	op->a = from[0].at;
	op->b = from[1].at;
	op->c = from[2].at;
	return true;
}
