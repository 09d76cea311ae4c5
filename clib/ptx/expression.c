/* SPDX-License-Identifier: Apache-2.0 */
/* expression.c: constant expressions, by the precedence of C. */
#include <string.h>

#include "parse.h"

#define WARP_SIZE 32u
#define LOWEST 1

static double double_of(const struct ptx_constant *value)
{
	double wide = 0;
	float narrow = 0;
	uint32_t half = (uint32_t)value->bits;

	switch (value->form) {
	case PTX_FORM_F64:
		memcpy(&wide, &value->bits, sizeof(wide));
		return wide;
	case PTX_FORM_F32:
		memcpy(&narrow, &half, sizeof(narrow));
		return narrow;
	case PTX_FORM_UNSIGNED:
		return (double)value->bits;
	default:
		return (double)(int64_t)value->bits;
	}
}

double ptx_constant_double(const struct ptx_constant *value)
{
	return double_of(value);
}

static bool is_float(const struct ptx_constant *value)
{
	return value->form == PTX_FORM_F32 || value->form == PTX_FORM_F64;
}

uint64_t ptx_constant_integer(const struct ptx_constant *value)
{
	if (!is_float(value))
		return value->bits;
	double wide = double_of(value);

	/* what does not fit has no meaning in PTX; here it is 0 */
	if (wide >= -9223372036854775808.0 && wide < 9223372036854775808.0)
		return (uint64_t)(int64_t)wide;
	return wide >= 0 && wide < 18446744073709551616.0 ? (uint64_t)wide : 0;
}

static void set_double(struct ptx_constant *value, double wide)
{
	value->form = PTX_FORM_F64;
	memcpy(&value->bits, &wide, sizeof(wide));
}

static void set_integer(struct ptx_constant *value, uint64_t bits, bool is_unsigned)
{
	value->form = is_unsigned ? PTX_FORM_UNSIGNED : PTX_FORM_INT;
	value->bits = bits;
}

static bool primary(struct ptx_parser *p, struct ptx_constant *value);

static bool parenthesis(struct ptx_parser *p, struct ptx_constant *value)
{
	if (p->token.kind == PTX_TOKEN_DOTTED) { /* a cast */
		bool to_unsigned = ptx_is_dotted(p, "u64");

		if (!to_unsigned && !ptx_is_dotted(p, "s64"))
			return ptx_error(p, "a constant can be cast to .s64 and .u64 only");
		if (!ptx_next(p) || !ptx_expect(p, ')') || !primary(p, value))
			return false;
		set_integer(value, ptx_constant_integer(value), to_unsigned);
		return true;
	}
	return ptx_expression(p, value) && ptx_expect(p, ')');
}

static bool negate(struct ptx_constant *value)
{
	if (value->form == PTX_FORM_F32)
		value->bits ^= 1ull << 31;
	else if (value->form == PTX_FORM_F64)
		value->bits ^= 1ull << 63;
	else
		set_integer(value, 0 - value->bits, value->form == PTX_FORM_UNSIGNED && value->bits >> 63 && value->bits << 1);
	return true;
}

static bool primary(struct ptx_parser *p, struct ptx_constant *value)
{
	bool good = false;

	if (++p->depth > PTX_NESTING_MOST)
		return ptx_error(p, "an expression is nested too deeply");
	if (p->token.kind == PTX_TOKEN_NUMBER) {
		value->bits = p->token.bits;
		value->form = p->token.form;
		good = ptx_next(p);
	} else if (p->token.kind == PTX_TOKEN_WORD && p->token.length == 7 && memcmp(p->token.text, "WARP_SZ", 7) == 0) {
		set_integer(value, WARP_SIZE, false);
		good = ptx_next(p);
	} else if (ptx_is(p, '(')) {
		good = ptx_next(p) && parenthesis(p, value);
	} else if (ptx_is(p, '-')) {
		good = ptx_next(p) && primary(p, value) && negate(value);
	} else if (ptx_is(p, '+')) {
		good = ptx_next(p) && primary(p, value);
	} else if (ptx_is(p, '~')) {
		good = ptx_next(p) && primary(p, value);
		if (good && is_float(value))
			good = ptx_error(p, "~ needs an integer");
		value->bits = ~value->bits;
	} else if (ptx_is(p, '!')) {
		good = ptx_next(p) && primary(p, value);
		if (good)
			set_integer(value, is_float(value) ? double_of(value) == 0 : value->bits == 0, false);
	} else {
		good = ptx_error(p, "expected a constant before '%.*s'", (int)p->token.length, p->token.text);
	}
	p->depth--;
	return good;
}

/* 0: no operator of two operands */
static int precedence(const struct ptx_parser *p)
{
	if (p->token.kind != PTX_TOKEN_MARK)
		return 0;
	switch (p->token.bits) {
	case PTX_MARK('|', '|'):
		return 1;
	case PTX_MARK('&', '&'):
		return 2;
	case '|':
		return 3;
	case '^':
		return 4;
	case '&':
		return 5;
	case PTX_MARK('=', '='):
	case PTX_MARK('!', '='):
		return 6;
	case '<':
	case '>':
	case PTX_MARK('<', '='):
	case PTX_MARK('>', '='):
		return 7;
	case PTX_MARK('<', '<'):
	case PTX_MARK('>', '>'):
		return 8;
	case '+':
	case '-':
		return 9;
	case '*':
	case '/':
	case '%':
		return 10;
	default:
		return 0;
	}
}

static bool apply_double(struct ptx_parser *p, uint64_t mark, struct ptx_constant *left, double b)
{
	double a = double_of(left);

	switch (mark) {
	case '+':
		set_double(left, a + b);
		return true;
	case '-':
		set_double(left, a - b);
		return true;
	case '*':
		set_double(left, a * b);
		return true;
	case '/':
		set_double(left, a / b);
		return true;
	case '<':
		set_integer(left, a < b, false);
		return true;
	case '>':
		set_integer(left, a > b, false);
		return true;
	case PTX_MARK('<', '='):
		set_integer(left, a <= b, false);
		return true;
	case PTX_MARK('>', '='):
		set_integer(left, a >= b, false);
		return true;
	case PTX_MARK('=', '='):
		set_integer(left, a == b, false);
		return true;
	case PTX_MARK('!', '='):
		set_integer(left, a != b, false);
		return true;
	default:
		return ptx_error(p, "this operator needs integers");
	}
}

static uint64_t divide(uint64_t mark, uint64_t a, uint64_t b, bool is_unsigned)
{
	if (is_unsigned)
		return mark == '/' ? a / b : a % b;
	if ((int64_t)b == -1)
		return mark == '/' ? 0 - a : 0;
	return (uint64_t)(mark == '/' ? (int64_t)a / (int64_t)b : (int64_t)a % (int64_t)b);
}

static bool apply_integer(struct ptx_parser *p, uint64_t mark, struct ptx_constant *left,
			  const struct ptx_constant *right)
{
	bool is_unsigned = left->form == PTX_FORM_UNSIGNED || right->form == PTX_FORM_UNSIGNED;
	bool left_unsigned = left->form == PTX_FORM_UNSIGNED;
	uint64_t a = left->bits;
	uint64_t b = right->bits;
	uint64_t result = 0;

	switch (mark) {
	case '+':
		result = a + b;
		break;
	case '-':
		result = a - b;
		break;
	case '*':
		result = a * b;
		break;
	case '/':
	case '%':
		if (!b)
			return ptx_error(p, "a constant is divided by zero");
		result = divide(mark, a, b, is_unsigned);
		break;
	case '&':
		result = a & b;
		break;
	case '|':
		result = a | b;
		break;
	case '^':
		result = a ^ b;
		break;
	case PTX_MARK('<', '<'):
		set_integer(left, b < 64 ? a << b : 0, left_unsigned);
		return true;
	case PTX_MARK('>', '>'):
		if (left_unsigned)
			set_integer(left, b < 64 ? a >> b : 0, true);
		else
			set_integer(left, (uint64_t)((int64_t)a >> (b < 64 ? b : 63)), false);
		return true;
	default: {
		bool less = is_unsigned ? a < b : (int64_t)a < (int64_t)b;

		result = mark == '<'			 ? less
			 : mark == '>'			 ? !less && a != b
			 : mark == PTX_MARK('<', '=')	 ? less || a == b
			 : mark == PTX_MARK('>', '=')	 ? !less
			 : mark == PTX_MARK('=', '=')	 ? a == b
			 : mark == PTX_MARK('!', '=')	 ? a != b
			 : mark == PTX_MARK('&', '&')	 ? a && b
							 : a || b;
		is_unsigned = false;
		break;
	}
	}
	set_integer(left, result, is_unsigned);
	return true;
}

static bool binary(struct ptx_parser *p, int lowest, struct ptx_constant *left)
{
	if (!primary(p, left))
		return false;
	for (;;) {
		int level = precedence(p);
		uint64_t mark = p->token.bits;
		struct ptx_constant right = { 0 };

		if (level < lowest || !level)
			return true;
		if (!ptx_next(p))
			return false;
		if (++p->depth > PTX_NESTING_MOST)
			return ptx_error(p, "an expression is nested too deeply");
		bool good = binary(p, level + 1, &right);

		p->depth--;
		if (!good)
			return false;
		if (is_float(left) || is_float(&right)) {
			if (!apply_double(p, mark, left, double_of(&right)))
				return false;
		} else if (!apply_integer(p, mark, left, &right)) {
			return false;
		}
	}
}

bool ptx_expression(struct ptx_parser *p, struct ptx_constant *value)
{
	struct ptx_constant other = { 0 };

	if (++p->depth > PTX_NESTING_MOST)
		return ptx_error(p, "an expression is nested too deeply");
	bool good = binary(p, LOWEST, value);

	if (good && ptx_is(p, '?')) {
		bool chosen = is_float(value) ? double_of(value) != 0 : value->bits != 0;

		good = ptx_next(p) && ptx_expression(p, value) && ptx_expect(p, ':') && ptx_expression(p, &other);
		if (good && !chosen)
			*value = other;
	}
	p->depth--;
	return good;
}
