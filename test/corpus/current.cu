// SPDX-License-Identifier: Apache-2.0
//
// What compilers of today make of kernels that examples/ have no use for: stacks that
// grow, policies of caches, halves of later cards. The instructions that a compiler has
// no words for are written as the compilers of kernel languages write them.

typedef unsigned int u32;
typedef unsigned long long u64;
typedef _Float16 half2 __attribute__((ext_vector_type(2)));

#define GLOBAL extern "C" __attribute__((global)) void

__attribute__((device)) static u32 thread() { return __nvvm_read_ptx_sreg_ctaid_x() * __nvvm_read_ptx_sreg_ntid_x() + __nvvm_read_ptx_sreg_tid_x(); }

// to[i] = the sum of the squares below n[i], by way of an array as long as that
GLOBAL stacks(u32 *to, const u32 *n)
{
	u32 i = thread(), count = n[i], sum = 0;
	volatile u32 *squares = (volatile u32 *)__builtin_alloca(count * sizeof(u32) + 4);

	for (u32 j = 0; j < count; j++)
		squares[j] = j * j;
	for (u32 j = count; j > 0; j--)
		sum += squares[j - 1];
	to[i] = sum;
}

// to[i] = from[i] + 1, four at a time, with a policy
GLOBAL policies(float *to, const float *from)
{
	u32 i = thread() * 4;
	float a, b, c, d;
	u64 policy;

	asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
	asm volatile("ld.global.L1::evict_first.L2::cache_hint.v4.f32 {%0, %1, %2, %3}, [%4], %5;"
		     : "=f"(a), "=f"(b), "=f"(c), "=f"(d) : "l"(from + i), "l"(policy));
	asm volatile("griddepcontrol.wait;" ::: "memory");
	asm volatile("st.global.L1::evict_last.L2::cache_hint.v4.f32 [%0], {%1, %2, %3, %4}, %5;"
		     :: "l"(to + i), "f"(a + 1), "f"(b + 1), "f"(c + 1), "f"(d + 1), "l"(policy) : "memory");
	asm volatile("griddepcontrol.launch_dependents;");
}

// the sums of all lanes, four words at a time; and the largest
GLOBAL vectors(float *sums, int *largest, const float *from)
{
	u32 i = thread() * 4;
	int whole = (int)from[i];

	asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};"
		     :: "l"(sums), "f"(from[i]), "f"(from[i + 1]), "f"(from[i + 2]), "f"(from[i + 3]) : "memory");
	whole = __nvvm_redux_sync_max(whole, 0xffffffff);
	if (__nvvm_read_ptx_sreg_tid_x() % 32 == 0)
		__nvvm_atom_max_gen_i(largest, whole);
}

// to[i] = max(0, a * b + c) in pairs of halves, and back
GLOBAL halves(float *to, const float *a, const float *b)
{
	u32 i = thread();
	half2 x = { (_Float16)a[i], (_Float16)b[i] }, y = { (_Float16)b[i], (_Float16)2 }, z = { (_Float16)-1, (_Float16)-1 };
	half2 r = __nvvm_fma_rn_relu_f16x2(x, y, z);

	to[i] = (float)r[0] + (float)r[1];
}
